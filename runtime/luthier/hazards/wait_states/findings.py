"""Findings of the check of hazards, as data and as text."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from luthier.findings.finding import Finding
from luthier.findings.kinds import FindingKind
from luthier.isa.registers import UnitSet
from luthier.lifting.paths import PathPoint, on_path


class HazardFinding(Struct, frozen=True):
    """Two instructions are too close to each other."""

    kernel: str
    function: str
    """Function of the consumer."""
    hazard: str
    """`luthier.arch.hazards.Hazard.name`."""
    consumer: PathPoint
    producer: PathPoint | None
    """None: the consumer alone is a defect."""
    registers: UnitSet
    """Registers by which they meet; empty if the hazard has none."""
    distance: int
    """Distance between them, in `clock`."""
    needed: int | None
    """Required distance; None if only certain instructions help."""
    clock: str
    """``states``: wait states; ``vector instructions``."""
    remedy: str
    """Remedy other than wait states."""
    path: tuple[int, ...]
    """Virtual addresses of the blocks on a path from one to the other, both ends included."""
    only_on: tuple[str, ...] = ()
    """For code of a generic processor, the members with this hazard, if not all have it."""
    only_if: str = ""
    """Condition outside the code under which this is a hazard; empty: it always is."""

    def __str__(self) -> str:
        by = f" by {self.registers}" if self.registers else ""
        behind = "" if self.producer is None else f" behind {self.producer}{by}"
        return f"{self.kernel}: {self.consumer}{behind}: {self.hazard}; {self.lacking}{on_path(self.path)}"

    @property
    def lacking(self) -> str:
        """Return the actual and the required distance as text."""
        condition = f" if {self.only_if}" if self.only_if else ""
        return lacking(self.distance, self.needed, self.clock, self.remedy, self.only_on) + condition

    def finding(self, object: str) -> Finding:
        """Return the finding in a code object of this name."""
        by = f" by {self.registers}" if self.registers and self.producer is not None else ""
        detail = f"{self.hazard}{by}; {self.lacking}"
        return self.consumer.finding(FindingKind.HAZARD, object, self.kernel, self.hazard, detail, self.producer)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {
            "kernel": self.kernel,
            "function": self.function,
            "hazard": self.hazard,
            "consumer": self.consumer.to_json(),
            "producer": None if self.producer is None else self.producer.to_json(),
            "registers": self.registers.names(),
            "there": self.distance,
            "needed": self.needed,
            "clock": self.clock,
            "remedy": self.remedy,
            "path": list(self.path),
            "only_on": list(self.only_on),
            "only_if": self.only_if,
        }


def lacking(distance: int, needed: int | None, clock: str, remedy: str, only_on: tuple[str, ...] = ()) -> str:
    """Return the actual and the required distance between producer and consumer as text."""
    where = f" on {' and '.join(only_on)} only" if only_on else ""
    if needed is None:
        return f"it needs {remedy}{where}"
    unit = "wait states" if clock == "states" else clock
    other = f" (or {remedy})" if remedy else ""
    return f"{distance} {unit}, it needs {needed}{other}{where}"


class UnneededNop(Struct, frozen=True):
    """An ``s_nop`` that is longer than any path needs. It is not a defect, but costs time."""

    kernel: str
    place: PathPoint
    states: int
    """Its wait states."""
    needed: int
    """Wait states that some path needs; 0: it can be removed."""

    def __str__(self) -> str:
        return f"{self.kernel}: {self.place}: {self.needed} of {self.states} wait states are needed"

    def to_json(self) -> dict[str, Any]:
        """Return the finding as plain data for JSON."""
        return {"kernel": self.kernel, "nop": self.place.to_json(), "states": self.states, "needed": self.needed}
