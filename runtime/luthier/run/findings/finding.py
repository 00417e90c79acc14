"""A finding: one thing that a program does wrong, however often it does it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from luthier.objects.names import spellings
from luthier.objects.source import SourceFrame

KINDS = {
    "out-of-bounds": "access of memory that is in none of the program's allocations",
    "use-after-free": "access of memory that the program has given back",
    "invalid-address": "access of an address where the device has no memory",
    "double-free": "memory is given back that was given back before",
    "invalid-free": "an address inside of an allocation is given back",
    "leak": "memory is never given back",
}
"""Each kind, and what it means."""
CHECKS = {
    "memory": frozenset(KINDS) - {"leak"},
    "leak": frozenset({"leak"}),
}
"""Each check, and the kinds that it finds."""


@dataclass(frozen=True)
class Allocation:
    """The allocation that a finding is about, or the one that is nearest."""

    address: int
    size: int
    """Bytes, as the program asked for them."""
    number: int
    """Number among the allocations of its process, from 1 on; 0: it is not known."""


@dataclass
class Finding:
    """Something that a program did wrong, as it was seen first; `count` says how often it was seen in all."""

    kind: str
    """One of `KINDS`."""
    process: int
    kernel: str = ""
    """Symbol; empty where no kernel did it, as what follows up to `size`."""
    object: str = ""
    """Name of the code object."""
    offset: int = 0
    """Virtual address of the instruction in the code object."""
    instruction: str = ""
    frames: tuple[SourceFrame, ...] = ()
    """Of the source, innermost first; empty if it is not known."""
    lane: int = 0
    wave: int = 0
    group: int = 0
    """Number of the work-group in the launch."""
    size: int = 0
    """Bytes of the access."""
    address: int = 0
    allocation: Allocation | None = None
    count: int = 1
    """Lanes and times that did it."""
    first_launch: int = 0
    """Number among the launches of the kernel in its process, from 0 on."""
    last_launch: int = 0

    @property
    def key(self) -> tuple[str | int, ...]:
        """Return what equal findings share."""
        if not self.kernel:
            return self.kind, self.process, self.address
        return self.kind, self.kernel, self.object, self.offset, self.side

    @property
    def side(self) -> str:
        """Return where the access is, seen from the allocation: before, after, inside; empty if there is none."""
        if self.allocation is None:
            return ""
        if self.address < self.allocation.address:
            return "before"
        return "inside" if self.address - self.allocation.address < self.allocation.size else "after"

    @property
    def distance(self) -> int:
        """Return how many bytes the address is before, behind the end of, or behind the start of the allocation."""
        if self.allocation is None:
            return 0
        start, size = self.allocation.address, self.allocation.size
        return {"before": start - self.address, "inside": self.address - start, "after": self.address - start - size}[
            self.side
        ]

    @property
    def access(self) -> str:
        """Return what the instruction does to memory: read, write, atomic."""
        mnemonic = self.instruction.partition(" ")[0]
        if "atomic" in mnemonic:
            return "atomic"
        return "write" if "store" in mnemonic else "read"

    def merge(self, other: Finding) -> None:
        """Add the same finding of a later launch."""
        self.count += other.count
        self.last_launch = max(self.last_launch, other.last_launch)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        frames = [{**frame._asdict(), "name": frame.name} for frame in self.frames]
        kept = {**asdict(self), "frames": frames}
        return {**kept, "name": self.name, "side": self.side, "distance": self.distance}

    @property
    def name(self) -> str:
        """Return the kernel's name as in its source."""
        return spellings(self.kernel)[-1] if self.kernel else ""

    @property
    def message(self) -> str:
        """Return what was done, in one sentence."""
        if not self.kernel:
            of = "" if self.allocation is None else f", in an allocation of {self.allocation.size} bytes"
            return f"{KINDS[self.kind]}: {self.address:#x}{of}"
        return f"{self.kind}: {self.access} of {self.size} bytes at {self.address:#x}{self._place()}"

    def _place(self) -> str:
        if self.allocation is None:
            return ""
        whole = f"an allocation of {self.allocation.size} bytes at {self.allocation.address:#x}"
        where = {
            "before": f"{self.distance} bytes before",
            "inside": f"at byte {self.distance} of",
            "after": f"{self.distance} bytes behind the end of",
        }[self.side]
        return f", {where} {whole}"

    def lines(self) -> Iterator[str]:
        """Yield it as text for people."""
        yield self.message
        if not self.kernel:
            return
        yield f"    by lane {self.lane} of wave {self.wave} of work-group {self.group}, kernel {self.name}"
        yield f"    at {self.offset:#x} {self.instruction}"
        for number, frame in enumerate(self.frames):
            yield f"    {'inlined at' if number else 'source'} {frame.place} ({frame.name})"
        launches = f"{self.first_launch}"
        if self.last_launch != self.first_launch:
            launches = f"{self.first_launch} to {self.last_launch}"
        yield f"    {self.count} lanes in all, launch {launches} of the kernel"
