"""Findings of the check of waits, as data and as text."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from luthier.findings.finding import Finding
from luthier.findings.kinds import FindingKind
from luthier.isa.registers import UnitSet
from luthier.lifting.paths import PathPoint, on_path

Access = Literal["reads", "overwrites", "overwrites a source of", "order"]


class WaitFinding(Struct, frozen=True):
    """An instruction uses registers of an operation that may not be complete, or a barrier precedes its completion."""

    kernel: str
    function: str
    """Function of the instruction."""
    access: Access
    consumer: PathPoint
    producer: PathPoint
    """The operation."""
    registers: UnitSet
    """Empty for a finding about the order of memory accesses."""
    counter: str
    """Counter of the operation."""
    enough: int
    """Maximum value of the counter at which the operation is complete."""
    path: tuple[int, ...]
    """Virtual addresses of the blocks on a path from the operation to the instruction, both ends included."""

    def __str__(self) -> str:
        detail = {"reads": " before it is written", "overwrites": ", which is still to be written"}.get(self.access, "")
        problem = f" {self.access} {self.registers}{detail}"
        if self.access == "order":
            problem = " lets waves continue that may not see the store (memory order)"
        return (
            f"{self.kernel}: {self.consumer}{problem}: nothing waits for {self.producer}; "
            f"{self.counter}({self.enough}) is enough{on_path(self.path)}"
        )

    def finding(self, object: str) -> Finding:
        """Return the finding in a code object of this name."""
        is_order = self.access == "order"
        kind = FindingKind.UNORDERED_STORE if is_order else FindingKind.MISSING_WAIT
        rule = "" if is_order else f"{self.access} {self.registers}"
        detail = f"{rule or kind.meaning}; {self.counter}({self.enough}) before it is enough"
        return self.consumer.finding(kind, object, self.kernel, rule, detail, self.producer)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {
            "kernel": self.kernel,
            "function": self.function,
            "access": self.access,
            "consumer": self.consumer.to_json(),
            "producer": self.producer.to_json(),
            "registers": self.registers.names(),
            "counter": self.counter,
            "enough": self.enough,
            "path": list(self.path),
        }


class UnneededWait(Struct, frozen=True):
    """A wait that no path needs. It is not a defect, but may cost time."""

    kernel: str
    place: PathPoint
    reason: Literal["nothing can be outstanding", "nothing that it waits for is used before a later wait"]

    def __str__(self) -> str:
        return f"{self.kernel}: {self.place}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {"kernel": self.kernel, "wait": self.place.to_json(), "reason": self.reason}
