"""A finding: an error of a program, however often it occurs."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from luthier.findings.calls import AllocationSites, ApiCallSite, first_call
from luthier.findings.kinds import KINDS, WATCHED, FindingKind
from luthier.isa.access_kinds import kind_in_lds, kind_of
from luthier.objects.names import spellings
from luthier.objects.source import SourceFrame, SourceLocation, in_source
from luthier.objects.user_source import user_frame

REACH = 1 << 36
"""Maximum distance in bytes of an address from the allocation that it may belong to: the reach of a 32-bit index."""
UNKNOWN = -1
"""Stands for an unknown wave, work-group or launch of a finding by hooks."""
COPY = "copy"
"""Stands for the function name if the copying function is unknown."""


class Unchecked(Struct, frozen=True):
    """Something in the launches of a kernel that could not be checked."""

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
    """The allocation or variable of a code object that a finding belongs to, or the nearest one."""

    address: int
    size: int
    """Bytes, as requested by the program."""
    number: int
    """Number among the allocations of its process, from 1; 0 if unknown."""
    variable: str = ""
    """Symbol; "" if it is not a variable."""
    object: str = ""
    """Name of the variable's code object."""
    name: str = ""
    """Name of the part of an allocation, as the program gave it (`luthier_annotate.h`)."""

    @property
    def title(self) -> str:
        """Return what it is, with its size."""
        return f"{f'the part {self.name}' if self.name else 'an allocation'} of {self.size} bytes"

    @property
    def text(self) -> str:
        """Describe it."""
        if not self.variable:
            return f"{self.title} at {self.address:#x}"
        name = spellings(self.variable)[-1]
        return f"the variable {name} of {self.size} bytes at {self.address:#x}, of {self.object}"


class Other(Struct):
    """The other instruction that a finding involves.

    For a race the earlier access; for a missing wait the operation; for a hazard the earlier instruction; for barriers
    what a lane executed that skipped the barrier, or the end of a wave that did not reach it.
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
    """Bytes of the access; 0 if it is not an access."""
    address: int = 0
    """First byte that both accesses touch."""
    kernel: str = ""
    """Symbol of the kernel, if it is another launch; otherwise ""."""
    launch: int = 0
    """Number of that launch among the kernel's launches in the process."""
    call: str = ""
    """HIP function of a copy, which has no instruction (the object is then the file of the call); `COPY` if the call is
    unknown."""
    writes: bool = False
    """Whether the copy writes the bytes, not reads them."""

    def __str__(self) -> str:
        """Return it as part of a line."""
        if self.call:
            return f"{self.call} {'writes' if self.writes else 'reads'} {self.size} bytes from {self.address:#x}"
        return f"{self.offset:#x} ({self.instruction}) of work-group {self.group} wave {self.wave} lane {self.lane}"


class Origin(Struct, frozen=True):
    """The origin of an undefined value, memory or a register that was never written; or of NaN."""

    place: str
    """What was not written, or what made it."""
    copies: tuple[Other, ...] = ()
    """The stores that passed it on, the first one first."""
    allocation: NearbyAllocation | None = None
    """Of memory that was not written, if it is known."""
    allocated: ApiCallSite | None = None
    is_certain: bool = True
    """Whether the value can come from nowhere else."""
    made: Other | None = None
    """The operation that made NaN."""
    loaded: Other | None = None
    """The load by which the kernel of the finding got the value; None if it made it, or never wrote it, itself."""

    @property
    def text(self) -> str:
        """Return it as a sentence."""
        return f"the value {'comes' if self.is_certain else 'may come'} from {self.place}"


class FailedLaunch(Struct, frozen=True):
    """A launch that failed, its sizes, and the reason."""

    kernel: str
    """Symbol; "" if unknown."""
    groups: tuple[int, int, int]
    """Work-groups of the grid."""
    items: tuple[int, int, int]
    """Work-items of a work-group."""
    lds: int
    """Bytes of dynamic LDS."""
    reason: str
    """Empty if unknown."""


class Finding(Struct):
    """An error of a program, as first seen; `count` is the total number of occurrences."""

    kind: str
    """One of `luthier.findings.kinds.KINDS`."""
    process: int = 0
    """Process ID; 0 if it belongs to no program."""
    kernel: str = ""
    """Symbol; "" if no kernel caused it: then the fields up to `size` are unset."""
    object: str = ""
    """Name of the code object."""
    offset: int = 0
    """Virtual address of the instruction in the code object."""
    instruction: str = ""
    frames: tuple[SourceFrame, ...] = ()
    """Source frames, innermost first; empty if unknown."""
    no_source: str = ""
    """Why the source of the instruction is unknown; "" if it is known."""
    is_python: bool = False
    """Whether a Python function at a line caused it, which has no offset."""
    lane: int = 0
    """-1: a scalar register or value, or no lane."""
    wave: int = 0
    """Or `UNKNOWN`, as the next."""
    group: int = 0
    """Number of the work-group in the launch."""
    size: int = 0
    """Bytes of the access."""
    address: int = 0
    in_lds: bool = False
    """Whether the address is an offset in LDS."""
    allocation: NearbyAllocation | None = None
    other: Other | None = None
    origin: Origin | None = None
    """From where an undefined value or NaN comes; None if unknown."""
    call: str = ""
    """HIP function that the program called, for findings about a call (the object is then the file of the call)."""
    allocated: ApiCallSite | None = None
    """The call that allocated the memory; None if unknown. Also the location of a leak."""
    freed: ApiCallSite | None = None
    """The call that freed the memory; None if there was none, or it is unknown."""
    accessed: ApiCallSite | None = None
    """The instruction or call of the host that uses memory of an operation in flight."""
    enqueued: ApiCallSite | None = None
    """The call that enqueued that operation."""
    launch: FailedLaunch | None = None
    """What failed, for functions that launch."""
    rule: str = ""
    """For `WATCHED` kinds: the hazard (`luthier.arch.hazards.Hazard.name`), or the access of a register without a
    wait."""
    detail: str = ""
    """The rule with its requirement; why a float is exceptional; what an address without memory is; what stopped a
    kernel; the error that a HIP function returned; the bytes of arguments that a launch passes and its kernel
    takes; or what uses memory of an operation in flight."""
    count: int = 1
    """Number of lanes and times; for `WATCHED` kinds of launches."""
    first_launch: int = 0
    """Number among the kernel's launches in the process, from 0; or `UNKNOWN`."""
    last_launch: int = 0

    @property
    def key(self) -> tuple[str | int, ...]:
        """Return the key that equal findings share."""
        if self.call:
            return self.kind, self.process, self.object, self.offset, self.call, self.detail
        if not self.kernel:
            return self.kind, self.process, *(self.site if self.object else (self.address,))
        other = () if self.other is None else (self.other.object, self.other.offset)
        detail = self.detail if self.kind in WATCHED else ""
        return self.kind, self.kernel, self.object, self.offset, self.side, detail, *other

    @property
    def site(self) -> tuple[str | int, ...]:
        """Return what identifies the instruction, the call, or the line of the Python function."""
        return self.object, self.frames[0].line if self.is_python and self.frames else self.offset

    @property
    def defect(self) -> tuple[str | int, ...]:
        """Return the key that findings of the same defect share across launches and processes."""
        other = () if self.other is None else (self.other.offset,)
        return self.kind, self.offset, self.rule, self.access if self.in_lds or self.size else "", *other

    @property
    def host_calls(self) -> dict[str, ApiCallSite | None]:
        """Return the fields that are places in the host's code, by name."""
        return {
            "accessed": self.accessed,
            "enqueued": self.enqueued,
            "allocated": self.allocated,
            "freed": self.freed,
        }

    @property
    def check(self) -> str:
        """Return the check that reports it."""
        return KINDS[self.kind].check

    @property
    def side(self) -> str:
        """Return the position of the access relative to the allocation: before, after, inside; "" if there is none."""
        if self.allocation is None:
            return ""
        if self.address < self.allocation.address or (self.in_lds and self.address >> 31):
            return "before"
        return "inside" if self.address - self.allocation.address < self.allocation.size else "after"

    @property
    def distance(self) -> int:
        """Return the distance in bytes before, after the end of, or after the start of the allocation."""
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
        """Return whether the access may be intended for the allocation."""
        return self.side == "inside" or self.distance < REACH

    @property
    def access(self) -> str:
        """Return the kind of memory access: read, write, atomic."""
        return access_of(self.instruction, in_lds=self.in_lds)

    def belongs_to(self, memory: AllocationSites) -> None:
        """Set what is known of the allocation."""
        self.allocated, self.freed = first_call(memory.allocated), first_call(memory.freed)
        if memory.name and self.allocation is not None:
            self.allocation = msgspec.structs.replace(self.allocation, name=memory.name)

    def merge(self, other: Finding) -> None:
        """Add the same finding of a later launch."""
        self.count += other.count
        self.last_launch = max(self.last_launch, other.last_launch)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        kept = {**msgspec.to_builtins(self), **_plain(self.frames)}
        for name, about in (("other", self.other), *self.host_calls.items()):
            if about is not None:
                kept[name] |= _plain(about.frames)
            if isinstance(about, ApiCallSite):
                kept[name]["stack"] = [_plain_frame(frame) for frame in about.stack]
        if (origin := self.origin) is not None:
            for copy, plain in zip(origin.copies, kept["origin"]["copies"], strict=True):
                plain |= _plain(copy.frames)
            for name, step in (("made", origin.made), ("loaded", origin.loaded)):
                if step is not None:
                    kept["origin"][name] |= _plain(step.frames)
            if origin.allocated is not None:
                kept["origin"]["allocated"] |= _plain(origin.allocated.frames)
                kept["origin"]["allocated"]["stack"] = [_plain_frame(frame) for frame in origin.allocated.stack]
        return {**kept, "name": self.name, "side": self.side, "distance": self.distance}

    @property
    def name(self) -> str:
        """Return the kernel's name as in its source."""
        return spellings(self.kernel)[-1] if self.kernel else ""

    @property
    def message(self) -> str:
        """Return the kind and what happened, in one sentence."""
        return f"{self.kind}: {self.what}"

    @property
    def what(self) -> str:
        """Return what happened."""
        meaning = KINDS[self.kind].meaning
        if self.call:
            does = "passes" if self.kind == FindingKind.SHORT_ARGUMENTS.label else "returned"
            what = f" {does} {self.detail}" if self.detail else f": {meaning}"
            where = f", {self.size} bytes at {self.address:#x}{self._place()}" if self.size else ""
            why = f": {self.launch.reason}" if self.launch is not None and self.launch.reason else ""
            return f"{self.call}{what}{where}{why}"
        if not self.kernel and self.detail:
            return f"{self.detail}: {self.address:#x}{self._place()}"
        if not self.kernel:
            of = "" if self.allocation is None else f", in {self.allocation.title}"
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
        where = f"{self.name} at {self.offset:#x} ({self.instruction})"
        other = "" if self.other is None else f"; {self.other}"
        count = f"; {self.count} times" if self.count > 1 else ""
        source = in_source(SourceLocation(self.frames) if self.frames else None)
        numbers = {"work-group": self.group, "wave": self.wave, "lane": self.lane}
        known = [f"{what} {number}" for what, number in numbers.items() if number >= 0]
        who = f"{' '.join(known)}: " if known else ""
        return f"{self.kind} in {where}: {who}{self.what}{other}{count}{source}"

    def _place(self) -> str:
        if self.allocation is None:
            return ""
        whole = self.allocation.text
        if self.in_lds:
            whole = f"the work-group's {self.allocation.size} bytes"
        where = {
            "before": f"{self.distance} bytes before",
            "inside": f"at byte {self.distance} of",
            "after": f"{self.distance} bytes after the end of",
        }[self.side]
        return f", {where} {whole}"


def access_of(instruction: str, *, in_lds: bool) -> str:
    """Return the kind of access of an instruction to memory or LDS: read, write, atomic."""
    mnemonic = instruction.partition(" ")[0]
    kind = kind_in_lds(mnemonic) if in_lds else kind_of(mnemonic)
    return kind.name.lower()


def source_of(frames: tuple[SourceFrame, ...]) -> SourceFrame | None:
    """Return the innermost frame in the user's source; None if there is none."""
    return user_frame(frames) if frames else None


def _plain_frame(frame: SourceFrame) -> dict[str, Any]:
    return {**frame._asdict(), "name": frame.name}


def _plain(frames: tuple[SourceFrame, ...]) -> dict[str, Any]:
    plain = {frame: _plain_frame(frame) for frame in frames}
    source = source_of(frames)
    return {"source": plain[source] if source else None, "frames": [plain[frame] for frame in frames]}
