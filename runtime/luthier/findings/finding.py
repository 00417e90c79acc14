"""A finding: something that a program does wrong, however often it does it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from luthier.findings.calls import ApiCallSite
from luthier.findings.kinds import KINDS, WATCHED, FindingKind
from luthier.isa.access_kinds import kind_in_lds, kind_of
from luthier.objects.names import spellings
from luthier.objects.source import SourceFrame, SourceLocation, in_source
from luthier.objects.user_source import user_frame

REACH = 1 << 36
"""Bytes from an allocation to the farthest address that may be meant to be in it: what an index of 32 bits reaches."""
COPY = "copy"
"""Stands for the name of the function where it is not known which one copies."""


class Unchecked(Struct, frozen=True):
    """Something of a kernel's launches that could not be checked."""

    process: int
    kernel: str
    """Symbol."""
    what: str
    why: str

    @property
    def name(self) -> str:
        """Return the kernel's name as in its source."""
        return spellings(self.kernel)[-1] if self.kernel else ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**msgspec.to_builtins(self), "name": self.name}


class NearbyAllocation(Struct, frozen=True):
    """The allocation, or the variable of a code object, that a finding is about, or the one that is nearest."""

    address: int
    size: int
    """Bytes, as the program asked for them."""
    number: int
    """Number among the allocations of its process, from 1 on; 0: it is not known."""
    variable: str = ""
    """Symbol; empty if it is none."""
    object: str = ""
    """Name of the variable's code object."""

    @property
    def text(self) -> str:
        """Return it as text for people."""
        if not self.variable:
            return f"an allocation of {self.size} bytes at {self.address:#x}"
        name = spellings(self.variable)[-1]
        return f"the variable {name} of {self.size} bytes at {self.address:#x}, of {self.object}"


class Other(Struct):
    """Another instruction that has to do with a finding.

    The earlier access of a race; the operation that was not waited for; the instruction that a hazard is behind; what
    a lane did that had skipped a barrier; the end of a wave that never came to one.
    """

    object: str = ""
    offset: int = 0
    """Virtual address in the code object."""
    instruction: str = ""
    frames: tuple[SourceFrame, ...] = ()
    no_source: str = ""
    lane: int = 0
    wave: int = 0
    group: int = 0
    size: int = 0
    """Bytes of the access; 0 where it is none."""
    address: int = 0
    """The first byte that both touch."""
    kernel: str = ""
    """Symbol of the kernel of another launch; empty if it is the same launch."""
    launch: int = 0
    """Number of that launch among those of its kernel in the process."""
    call: str = ""
    """The HIP function of a copy, of which there is no instruction; the object is the file of the call. `COPY` where
    no call is known."""
    writes: bool = False
    """The copy writes the bytes, else it reads them."""

    def __str__(self) -> str:
        """Return it as a part of a line."""
        if self.call:
            return f"{self.call} {'writes' if self.writes else 'reads'} {self.size} bytes from {self.address:#x} on"
        return f"{self.offset:#x} ({self.instruction}) of work-group {self.group} wave {self.wave} lane {self.lane}"


class FailedLaunch(Struct, frozen=True):
    """A launch that failed: what it asked for, and why that is too much."""

    kernel: str
    """Symbol; empty if it is not known."""
    groups: tuple[int, int, int]
    """Work-groups of the grid."""
    items: tuple[int, int, int]
    """Work-items of a work-group."""
    lds: int
    """Bytes of LDS that it asked for, beside those of the kernel."""
    reason: str
    """Empty if nothing is known of."""


class Finding(Struct):
    """Something that a program did wrong, as it was seen first; `count` says how often it was seen in all."""

    kind: str
    """One of `luthier.findings.kinds.KINDS`."""
    process: int = 0
    """Its number for the system; 0: it is about no program."""
    kernel: str = ""
    """Symbol; empty where no kernel did it, as what follows up to `size`."""
    object: str = ""
    """Name of the code object."""
    offset: int = 0
    """Virtual address of the instruction in the code object."""
    instruction: str = ""
    frames: tuple[SourceFrame, ...] = ()
    """Of the source, innermost first; empty if it is not known."""
    no_source: str = ""
    """Why the source of the instruction is not known; empty where it is."""
    lane: int = 0
    """-1: it is about a scalar register or value, or about no lane."""
    wave: int = 0
    group: int = 0
    """Number of the work-group in the launch."""
    size: int = 0
    """Bytes of the access."""
    address: int = 0
    in_lds: bool = False
    """The address is an offset in LDS."""
    allocation: NearbyAllocation | None = None
    other: Other | None = None
    call: str = ""
    """The HIP function that the program called, where it is about that; the object is the file of the call."""
    allocated: ApiCallSite | None = None
    """The call that asked for the allocation; None if it is not known. A leak has its place, too."""
    freed: ApiCallSite | None = None
    """The call that gave the allocation back; None if it was not, or it is not known."""
    launch: FailedLaunch | None = None
    """What failed, where the function is one that launches."""
    rule: str = ""
    """Of `WATCHED` kinds: the hazard (`luthier.arch.hazards.Hazard.name`), or what is done to which register without
    a wait."""
    detail: str = ""
    """The rule with what there should have been; what made a float exceptional; what an address without memory is, or
    what stopped a kernel; the error that a HIP function returned; the bytes of arguments of a launch, and of its
    kernel."""
    count: int = 1
    """Lanes and times that did it; of `WATCHED` kinds the launches."""
    first_launch: int = 0
    """Number among the launches of the kernel in its process, from 0 on."""
    last_launch: int = 0

    @property
    def key(self) -> tuple[str | int, ...]:
        """Return what equal findings share."""
        if self.call:
            return self.kind, self.process, self.object, self.offset, self.call, self.detail
        if not self.kernel:
            return self.kind, self.process, *((self.object, self.offset) if self.object else (self.address,))
        other = () if self.other is None else (self.other.object, self.other.offset)
        detail = self.detail if self.kind in WATCHED else ""
        return self.kind, self.kernel, self.object, self.offset, self.side, detail, *other

    @property
    def defect(self) -> tuple[str | int, ...]:
        """Return what findings of the same defect share, in whichever launch of whichever process."""
        other = () if self.other is None else (self.other.offset,)
        return self.kind, self.offset, self.rule, self.access if self.in_lds or self.size else "", *other

    @property
    def check(self) -> str:
        """Return the check that looks for it."""
        return KINDS[self.kind].check

    @property
    def side(self) -> str:
        """Return where the access is, seen from the allocation: before, after, inside; empty if there is none."""
        if self.allocation is None:
            return ""
        if self.address < self.allocation.address or (self.in_lds and self.address >> 31):
            return "before"
        return "inside" if self.address - self.allocation.address < self.allocation.size else "after"

    @property
    def distance(self) -> int:
        """Return how many bytes the address is before, behind the end of, or behind the start of the allocation."""
        if self.allocation is None:
            return 0
        start, size = self.allocation.address, self.allocation.size
        if self.in_lds and self.side == "before":
            return (1 << 32) - self.address
        return {"before": start - self.address, "inside": self.address - start, "after": self.address - start - size}[
            self.side
        ]

    @property
    def is_near(self) -> bool:
        """Return whether the access may be meant to be in the allocation."""
        return self.side == "inside" or self.distance < REACH

    @property
    def access(self) -> str:
        """Return what the instruction does to memory: read, write, atomic."""
        return access_of(self.instruction, in_lds=self.in_lds)

    def merge(self, other: Finding) -> None:
        """Add the same finding of a later launch."""
        self.count += other.count
        self.last_launch = max(self.last_launch, other.last_launch)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        kept = {**msgspec.to_builtins(self), **_plain(self.frames)}
        for name, about in (("other", self.other), ("allocated", self.allocated), ("freed", self.freed)):
            if about is not None:
                kept[name] |= _plain(about.frames)
        return {**kept, "name": self.name, "side": self.side, "distance": self.distance}

    @property
    def name(self) -> str:
        """Return the kernel's name as in its source."""
        return spellings(self.kernel)[-1] if self.kernel else ""

    @property
    def message(self) -> str:
        """Return the kind, and what was done, in one sentence."""
        return f"{self.kind}: {self.what}"

    @property
    def what(self) -> str:
        """Return what was done."""
        meaning = KINDS[self.kind].meaning
        if self.call:
            does = "gives" if self.kind == FindingKind.SHORT_ARGUMENTS.label else "returned"
            what = f" {does} {self.detail}" if self.detail else f": {meaning}"
            where = f", {self.size} bytes at {self.address:#x}{self._place()}" if self.size else ""
            why = f": {self.launch.reason}" if self.launch is not None and self.launch.reason else ""
            return f"{self.call}{what}{where}{why}"
        if not self.kernel:
            of = "" if self.allocation is None else f", in an allocation of {self.allocation.size} bytes"
            return f"{meaning}: {self.address:#x}{of}"
        if not self.size:
            return self.detail or meaning
        where = f"byte {self.address:#x} of LDS" if self.in_lds else f"{self.address:#x}"
        what = f": {self.detail}" if self.detail else ""
        return f"{self.access} of {self.size} bytes at {where}{self._place()}{what}"

    def __str__(self) -> str:
        """Return it as one line."""
        if not self.kernel:
            return self.message
        lane = "" if self.lane < 0 else f" lane {self.lane}"
        where = f"{self.name} at {self.offset:#x} ({self.instruction})"
        other = "" if self.other is None else f"; {self.other}"
        count = f"; {self.count} such" if self.count > 1 else ""
        source = in_source(SourceLocation(self.frames) if self.frames else None)
        who = f"work-group {self.group} wave {self.wave}{lane}"
        return f"{self.kind} in {where}: {who}: {self.what}{other}{count}{source}"

    def _place(self) -> str:
        if self.allocation is None:
            return ""
        whole = self.allocation.text
        if self.in_lds:
            whole = f"the work-group's {self.allocation.size} bytes"
        where = {
            "before": f"{self.distance} bytes before",
            "inside": f"at byte {self.distance} of",
            "after": f"{self.distance} bytes behind the end of",
        }[self.side]
        return f", {where} {whole}"


def access_of(instruction: str, *, in_lds: bool) -> str:
    """Return what an instruction does to memory, or to LDS: read, write, atomic."""
    mnemonic = instruction.partition(" ")[0]
    kind = kind_in_lds(mnemonic) if in_lds else kind_of(mnemonic)
    return kind.name.lower()


def source_of(frames: tuple[SourceFrame, ...]) -> SourceFrame | None:
    """Return the user's own line of a place in the source; None if none is known."""
    return user_frame(frames) if frames else None


def _plain(frames: tuple[SourceFrame, ...]) -> dict[str, Any]:
    plain = {frame: {**frame._asdict(), "name": frame.name} for frame in frames}
    source = source_of(frames)
    return {"source": plain[source] if source else None, "frames": [plain[frame] for frame in frames]}
