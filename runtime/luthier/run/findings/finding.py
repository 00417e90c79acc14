"""A finding: one thing that a program does wrong, however often it does it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.inspection.access_kinds import Kind, kind_in_lds, kind_of
from luthier.emulator.running.memory import REACH
from luthier.errors import LuthierError
from luthier.objects.names import spellings
from luthier.objects.source import SourceFrame
from luthier.objects.user_source import user_frame
from luthier.run.findings.host import Call
from luthier.support.wording import counted

OUTSIDE, NOWHERE, STOPPED = "out-of-bounds", "invalid-address", "fault"
KINDS = {
    OUTSIDE: "access of memory that is in none of the program's allocations",
    "use-after-free": "access of memory that the program has given back",
    NOWHERE: "access of an address where the device has no memory",
    STOPPED: "kernel that stops: a trap, a jump to no code, an access outside of scratch, or a misaligned one",
    "double-free": "memory is given back that was given back before",
    "invalid-free": "an address inside of an allocation is given back",
    "leak": "memory is never given back",
    "race": "two accesses of the same memory, one plain or of too small a scope, one a write, that nothing orders",
    "unordered-read": "read of LDS beside an atomic of another wave that nothing orders",
    "uninitialised-read": "read of memory that nobody has written",
    "uninitialised-branch": "a value that nobody has written decides where the wave goes on",
    "uninitialised-address": "a value that nobody has written decides which memory is accessed",
    "uninitialised-mask": "a value that nobody has written decides which lanes are active",
    "uninitialised-copy": "copy to the host of what nobody has written",
    "missing-wait": "use of a register before a wait for the operation that writes or reads it",
    "hazard": "instructions nearer to each other than the hardware allows",
    "divergent-barrier": "barrier that lanes skipped which went on behind it",
    "missed-barrier": "barrier that a wave of the work-group, or a lane of the wave, never came to",
    "call-error": "HIP function that returned an error",
    "unseen-error": "launch that failed, and the program did not ask for the error before its next launch or its end",
    "copy-out-of-bounds": "copy or fill beyond the end of the allocation that it begins in",
    "copy-after-free": "copy or fill of memory that the program has given back",
    "copy-direction": "copy whose kind says that memory of the device is the host's",
    "short-arguments": "launch that gives fewer bytes of arguments than the kernel takes",
    "busy-stream": "stream that is destroyed before its work is done",
    "nan": "result that is NaN where no operand is",
    "infinity": "result that is infinite where no operand is NaN or infinite",
    "denormal": "result that is denormal where no operand is NaN, infinite or denormal",
    "nan-flow": "result that is NaN from an operand that is",
    "infinity-flow": "result that is infinite from an operand that is NaN or infinite",
    "denormal-flow": "result that is denormal from an operand that is NaN, infinite or denormal",
}
"""Each kind, and what it means."""
FLOATS = {"nan": layout.FLOAT_NAN, "infinity": layout.FLOAT_INFINITY, "denormal": layout.FLOAT_DENORMAL}
"""Exceptional floats: the kind, and its bit in what native code is told."""
FLOAT_KINDS = frozenset({*FLOATS, *(f"{kind}-flow" for kind in FLOATS)})
CHECKS = {
    "memory": frozenset({OUTSIDE, "use-after-free", NOWHERE, STOPPED, "double-free", "invalid-free"}),
    "leak": frozenset({"leak"}),
    "race": frozenset({"race", "unordered-read"}),
    "init": frozenset({"uninitialised-read"}),
    "barrier": frozenset({"divergent-barrier"}),
    "early-exit": frozenset({"missed-barrier"}),
    "waits": frozenset({"missing-wait"}),
    "hazards": frozenset({"hazard"}),
    "fp": frozenset({"nan", "infinity"}),
    "host": frozenset(
        {
            "call-error",
            "unseen-error",
            "copy-out-of-bounds",
            "copy-after-free",
            "copy-direction",
            "busy-stream",
            "short-arguments",
        }
    ),
}
"""Each check, and the kinds that it finds; `fp` finds others if they are asked for."""
DECISIONS = frozenset({"uninitialised-branch", "uninitialised-address", "uninitialised-mask"})
"""Kinds of undefined values that decide something: what `init` finds if that is asked for."""
HANDED = frozenset({"uninitialised-copy"})
"""Kinds of undefined values that the program hands to the host, likewise."""
UNDEFINED = DECISIONS | HANDED
"""Kinds for which undefined values are followed."""
SHORT_ARGUMENTS = "short-arguments"
COPY = "copy"
"""Stands for the name of the function where it is not known which one copies."""
_NAMED = 8
"""Kernels that a sentence names at most."""
WATCHED = CHECKS["waits"] | CHECKS["hazards"]
"""Kinds that are seen of two instructions, not of an access."""
PAIRED = CHECKS["race"] | CHECKS["barrier"] | CHECKS["early-exit"]
"""Kinds that another access, or another lane or wave, has to do with."""
OF_ALLOCATIONS = CHECKS["memory"] | {"copy-out-of-bounds", "copy-after-free"}
"""Kinds that are told with the calls that their allocation is from."""
OBSERVED = CHECKS["race"] | CHECKS["init"] | CHECKS["barrier"] | CHECKS["early-exit"]
"""Kinds for which every access of memory and every barrier is looked at."""


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


class Allocation(Struct, frozen=True):
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
    allocation: Allocation | None = None
    other: Other | None = None
    call: str = ""
    """The HIP function that the program called, where it is about that; the object is the file of the call."""
    allocated: Call | None = None
    """The call that asked for the allocation; None if it is not known. A leak has its place, too."""
    freed: Call | None = None
    """The call that gave the allocation back; None if it was not, or it is not known."""
    launch: FailedLaunch | None = None
    """What failed, where the function is one that launches."""
    detail: str = ""
    """The use of which register, or the hazard's name, and what there should have been; what made a float
    exceptional; what an address without memory is, or what stopped a kernel; the error that a HIP function
    returned; the bytes of arguments of a launch, and of its kernel."""
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
        """Return what was done, in one sentence."""
        if self.call:
            does = "gives" if self.kind == SHORT_ARGUMENTS else "returned"
            what = f" {does} {self.detail}" if self.detail else f": {KINDS[self.kind]}"
            where = f", {self.size} bytes at {self.address:#x}{self._place()}" if self.size else ""
            why = f": {self.launch.reason}" if self.launch is not None and self.launch.reason else ""
            return f"{self.kind}: {self.call}{what}{where}{why}"
        if not self.kernel:
            of = "" if self.allocation is None else f", in an allocation of {self.allocation.size} bytes"
            return f"{self.kind}: {KINDS[self.kind]}: {self.address:#x}{of}"
        if not self.size:
            return f"{self.kind}: {self.detail or KINDS[self.kind]}"
        where = f"byte {self.address:#x} of LDS" if self.in_lds else f"{self.address:#x}"
        what = f": {self.detail}" if self.detail else ""
        return f"{self.kind}: {self.access} of {self.size} bytes at {where}{self._place()}{what}"

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

    def _launch(self) -> Iterator[str]:
        """Yield what a launch that failed asked for."""
        if self.launch is None:
            return
        groups, items = (" x ".join(f"{size:,}" for size in sizes) for sizes in (self.launch.groups, self.launch.items))
        lds = f", with {self.launch.lds:,} bytes of dynamic LDS" if self.launch.lds else ""
        name = spellings(self.launch.kernel)[-1] if self.launch.kernel else "(its name is not known)"
        yield f"    kernel {name}, {groups} work-groups of {items} work-items{lds}"

    def _copy(self) -> Iterator[str]:
        """Yield what comes behind the message of a race with a copy."""
        assert self.other is not None
        does = "writes" if self.other.writes else "reads"
        what = "fill" if "Memset" in self.other.call else "copy"
        yield f"  the other one is a {what} that {does} {self.other.size} bytes, from {self.other.address:#x} on"
        if self.other.call != COPY:
            yield f"    by {self.other.call}, last called at {self.other.offset:#x} of {self.other.object}"
            yield from _source(self.other.frames)

    def _other(self) -> str:
        assert self.other is not None
        if self.kind in CHECKS["race"]:
            access = access_of(self.other.instruction, in_lds=self.in_lds)
            return f"the other one is {'an' if access == 'atomic' else 'a'} {access} of {self.other.size} bytes by"
        return {"divergent-barrier": "skipped, and later reached here, by", "missed-barrier": "ended:"}[self.kind]

    def _watched(self) -> Iterator[str]:
        """Yield what comes behind the message of a `WATCHED` kind."""
        lane = "" if self.lane < 0 else f"lane {self.lane} of "
        yield f"    by {lane}wave {self.wave} of work-group {self.group}, kernel {self.name}"
        yield from _code(self)
        if self.other is not None:
            yield "  behind" if self.kind == "hazard" else "  the operation that it does not wait for"
            yield from _code(self.other)
        yield f"    in {counted(self.count, 'launch')} of the kernel, first in launch {self.first_launch}"

    @property
    def text(self) -> str:
        """Return it as text for people, in several lines."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield it as text for people."""
        yield from self._lines()
        if self.kind in OF_ALLOCATIONS:
            for what, call in (("allocated", self.allocated), ("given back", self.freed)):
                if call is not None:
                    yield f"    {what} at {call.place}"

    def _lines(self) -> Iterator[str]:
        """Yield what there is but the calls that the allocation is from."""
        yield self.message
        if self.call:
            yield from self._launch()
            yield f"    called at {self.offset:#x} of {self.object}"
            yield from _source(self.frames)
            yield f"    {counted(self.count, 'time')} in all"
        elif not self.kernel and self.object:
            yield f"    {'allocated' if self.kind == 'leak' else 'called'} at {self.offset:#x} of {self.object}"
            yield from _source(self.frames)
            if self.count > 1:
                yield f"    {counted(self.count, 'time')} in all"
        if not self.kernel:
            return
        if self.kind in WATCHED:
            yield from self._watched()
            return
        lane = "" if self.kind == "missed-barrier" or self.lane < 0 else f"lane {self.lane} of "
        yield f"    by {lane}wave {self.wave} of work-group {self.group}, kernel {self.name}"
        yield from _code(self)
        if self.other is not None and self.other.call:
            yield from self._copy()
        elif self.other is not None:
            is_of_lanes = bool(lane) or (self.kind == "missed-barrier" and self.other.wave == self.wave)
            other_lane = f"lane {self.other.lane} of " if is_of_lanes else ""
            launch = (
                f", kernel {spellings(self.other.kernel)[-1]}, launch {self.other.launch}" if self.other.kernel else ""
            )
            yield f"  {self._other()} {other_lane}wave {self.other.wave} of work-group {self.other.group}{launch}"
            yield from _code(self.other)
        launches = f"{self.first_launch}"
        if self.last_launch != self.first_launch:
            launches = f"{self.first_launch} to {self.last_launch}"
        yield f"    {counted(self.count, 'lane' if lane else 'time')} in all, launch {launches} of the kernel"


def sentences(unchecked: Iterable[Unchecked]) -> list[str]:
    """Return what was not checked, each with the kernels whose launches it is about."""
    kernels: dict[tuple[str, str], dict[str, None]] = {}
    for one in unchecked:
        kernels.setdefault((one.what, one.why), {})[one.name] = None
    told = []
    for (what, why), names in kernels.items():
        some = [name for name in names if name][:_NAMED]
        more = f" and {counted(len(names) - len(some), 'other kernel')}" if len(names) > _NAMED else ""
        told.append(f"{what}{', of launches of ' if some else ''}{', '.join(some)}{more}: {why}")
    return told


def kinds_of_init(words: Collection[str]) -> frozenset[str]:
    """Return the kinds of findings that the words of ``--init`` mean.

    Raises:
        LuthierError: there is no such word.
    """
    meant = {"reads": CHECKS["init"], "decisions": DECISIONS, "copies": HANDED}
    for word in words:
        if word not in meant:
            raise LuthierError(f"--init has no {word!r}: {', '.join(meant)}")
    return frozenset[str]().union(*(meant[word] for word in words))


def access_of(instruction: str, *, in_lds: bool) -> str:
    """Return what an instruction does to memory, or to LDS: read, write, atomic."""
    mnemonic = instruction.partition(" ")[0]
    kind = kind_in_lds(mnemonic) if in_lds else kind_of(mnemonic)
    return {Kind.READ: "read", Kind.WRITE: "write", Kind.ATOMIC: "atomic"}[kind]


def source_of(frames: tuple[SourceFrame, ...]) -> SourceFrame | None:
    """Return the user's own line of a place in the source; None if none is known."""
    return user_frame(frames) if frames else None


def _plain(frames: tuple[SourceFrame, ...]) -> dict[str, Any]:
    plain = {frame: {**frame._asdict(), "name": frame.name} for frame in frames}
    source = source_of(frames)
    return {"source": plain[source] if source else None, "frames": [plain[frame] for frame in frames]}


def _code(of: Finding | Other) -> Iterator[str]:
    yield f"    at {of.offset:#x} {of.instruction}"
    yield from _source(of.frames)
    if of.no_source:
        yield f"    no source line: {of.no_source}"


def _source(frames: tuple[SourceFrame, ...]) -> Iterator[str]:
    """Yield the user's line, where that was inlined, and last what of headers is inlined there."""
    at = frames.index(user_frame(frames)) if frames else 0
    words = ["source", *["inlined at"] * len(frames[at + 1 :]), *["with inlined"] * at]
    for word, frame in zip(words, (*frames[at:], *reversed(frames[:at])), strict=False):
        yield f"    {word} {frame.place if frame.line else 'no line is known'} ({frame.name})"
