"""Findings of a run, as the processes of the program tell of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct

from luthier.emulator import layout
from luthier.errors import DeviceError, EmulationError
from luthier.objects import CodeObject
from luthier.objects.source import SourceFrame
from luthier.run.findings.arguments import ArgumentSizes
from luthier.run.findings.failed_launches import launch_of
from luthier.run.findings.finding import (
    COPY,
    DECISIONS,
    FLOAT_KINDS,
    NOWHERE,
    OUTSIDE,
    PAIRED,
    SHORT_ARGUMENTS,
    STOPPED,
    Allocation,
    Finding,
    Other,
    Unchecked,
)
from luthier.run.findings.floats import cause
from luthier.run.findings.host import Sites, first_call, frames_of_host
from luthier.run.findings.variables import Variables
from luthier.run.host_places import host_place
from luthier.run.planner import Plan
from luthier.run.selection import is_of_runtime
from luthier.wire.messages import CallSighting, Sight, Sighting

if TYPE_CHECKING:  # what few runs need
    from luthier.run.watching import Watched

_KINDS = {
    Sight.OUTSIDE: OUTSIDE,
    Sight.FREED: "use-after-free",
    Sight.NOWHERE: NOWHERE,
    Sight.DOUBLE_FREE: "double-free",
    Sight.INVALID_FREE: "invalid-free",
    Sight.LEAK: "leak",
    Sight.RACE: "race",
    Sight.UNORDERED_READ: "unordered-read",
    Sight.UNINITIALISED: "uninitialised-read",
    Sight.UNDEFINED_BRANCH: "uninitialised-branch",
    Sight.UNDEFINED_ADDRESS: "uninitialised-address",
    Sight.UNDEFINED_MASK: "uninitialised-mask",
    Sight.DIVERGENT_BARRIER: "divergent-barrier",
    Sight.MISSED_BARRIER: "missed-barrier",
    Sight.NAN: "nan",
    Sight.INFINITY: "infinity",
    Sight.DENORMAL: "denormal",
    Sight.NAN_FLOW: "nan-flow",
    Sight.INFINITY_FLOW: "infinity-flow",
    Sight.DENORMAL_FLOW: "denormal-flow",
    Sight.CALL_ERROR: "call-error",
    Sight.UNSEEN_ERROR: "unseen-error",
    Sight.OUTSIDE_COPY: "copy-out-of-bounds",
    Sight.FREED_COPY: "copy-after-free",
    Sight.BUSY_STREAM: "busy-stream",
    Sight.SHORT_ARGUMENTS: SHORT_ARGUMENTS,
    Sight.COPY_DIRECTION: "copy-direction",
    Sight.UNDEFINED_COPY: "uninitialised-copy",
}
_VARIABLES = "bounds of the variables of the code object"
_BY_PAGES, _KNOWN_BY_PAGES = "bounds to the byte of memory", "it is known by pages only"
_PIECES = "bounds of each variable that OpenMP maps", "what is known is the memory of all that one construct maps"
_ONLY_PAGES = "bounds to the byte", "the allocations of the process were known by pages only"


_IN_MEMORY = "memory:"
"""Begins the URIs of code objects that ROCr has loaded from memory."""
Place = tuple[int, str, tuple[SourceFrame, ...], str]
"""Virtual address, text and source of an instruction, innermost first, and why that is not known; empty where it is."""


class Running(Struct, frozen=True):
    """Code that runs."""

    kernel: str
    object: str
    instruction: Callable[[int], Place]
    """Called with an instruction's record."""
    is_program_s: bool = True
    """Whether the program launches it, not a runtime for itself."""


class Collector:
    """Takes what was seen, and keeps equal findings as one. Safe from several threads.

    Args:
        kinds: what is wanted, of `luthier.run.findings.finding.KINDS`.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        self.kinds = frozenset(kinds)
        self._lock = threading.Lock()
        self._findings: dict[tuple[str | int, ...], Finding] = {}
        self._unchecked: dict[Unchecked, None] = {}
        self.arguments = ArgumentSizes(self.keep)
        self.variables = Variables()

    @property
    def findings(self) -> list[Finding]:
        """Return all findings so far, in the order in which they came."""
        with self._lock:
            return list(self._findings.values())

    @property
    def unchecked(self) -> list[Unchecked]:
        """Return what could not be checked so far."""
        with self._lock:
            return list(self._unchecked)

    def leave(self, unchecked: Unchecked) -> None:
        """Take what could not be checked."""
        with self._lock:
            self._unchecked[unchecked] = None

    def without_variables(self, process: int, plan: Plan, why: str) -> None:
        """Take that the variables of a kernel's code object are not known."""
        if OUTSIDE in self.kinds and not is_of_runtime(plan.kernel.name):
            self.leave(Unchecked(process, plan.kernel.name, _VARIABLES, why))

    def add(
        self,
        process: int,
        seen: Sighting,
        code: Running | None,
        other: Running | None = None,
        calls: Sequence[Sites] = ((), (), ()),
    ) -> None:
        """Take what a process has seen.

        Args:
            code: code of the kernel that did it; None if no kernel did.
            other: code of another launch that has to do with it; None if there is none.
            calls: that did it, if no kernel did, that asked for the allocation, and that gave it back.

        Raises:
            DeviceError: there is no such kind, or nothing else has to do with it.
        """
        if seen.kind == Sight.ONLY_PAGES and code is not None and not seen.has_other:
            if OUTSIDE in self.kinds and code.is_program_s:
                self.leave(Unchecked(process, code.kernel, *_ONLY_PAGES))
            return
        kind = self._wanted(seen.kind)
        if kind is None:
            return
        if seen.has_other and kind not in PAIRED:
            raise DeviceError(f"a finding of the kind {kind} that tells of another access")
        finding = Finding(kind, process, address=seen.address, count=seen.count)
        if seen.base or (seen.in_lds and seen.extent):
            finding.allocation = self._allocation(process, seen)
        call, finding.allocated, finding.freed = (first_call(sites) for sites in calls)
        if code is not None:
            _locate(finding, seen, code, other)
        elif (at := finding.allocated if kind == "leak" else call) is not None:
            finding.object, finding.offset, finding.frames = at.object, at.offset, at.frames
        if kind in DECISIONS and seen.lane == layout.ABSENT:
            finding.lane = -1
        if kind in FLOAT_KINDS:
            finding.detail = cause(kind, finding.instruction, seen.operands)
        if kind == NOWHERE:
            finding.detail = host_place(process, seen.address)
            if finding.detail or not finding.is_near:
                finding.allocation = finding.allocated = finding.freed = None
        self.keep(finding)

    def add_fault(self, process: int, fault: EmulationError, code: Running, record: int | None, launch: int) -> None:
        """Take what stopped a launch.

        Args:
            code: code of the kernel.
            record: of its instruction; None if it is not about one.
            launch: its number among those of the kernel in the process.
        """
        wrong = fault.wrong
        if wrong is None or record is None:
            why = fault.message.partition("\n")[0]
            self.leave(Unchecked(process, code.kernel, "what comes after it stopped", why))
            return
        finding = Finding(STOPPED, process, code.kernel, code.object, *code.instruction(record))
        finding.lane, finding.wave, finding.group = wrong.lane, wrong.wave, wrong.group
        finding.first_launch = finding.last_launch = launch
        if wrong.space:
            finding.kind, finding.address, finding.size = NOWHERE, wrong.address, wrong.size
        else:
            finding.detail = wrong.what
        if wrong.space == "LDS":
            finding.kind, finding.in_lds, finding.allocation = OUTSIDE, True, Allocation(0, wrong.extent, 0)
        if finding.kind in self.kinds:
            self.keep(finding)

    def add_copy(self, process: int, seen: Sighting, code: Running, function: str, symbol: str, file: str) -> None:
        """Take a race of a kernel with a copy.

        Args:
            code: code of the kernel.
            function: HIP's that copies; empty if it is not known, as the rest.
            symbol: what the call is in, as far as the file tells.
            file: executable or library of the call.

        Raises:
            DeviceError: there is no such kind.
        """
        kind = self._wanted(seen.kind)
        if kind is None:
            return
        finding = Finding(kind, process, address=seen.address, count=seen.count)
        if seen.base:
            finding.allocation = self._allocation(process, seen)
        _locate(finding, seen, code, None)
        finding.other = Other(
            file,
            seen.other_record,
            frames=frames_of_host(file, seen.other_record, symbol) if file else (),
            size=seen.other_size,
            address=seen.other_address,
            call=function or COPY,
            writes=bool(seen.copy_writes),
        )
        self.keep(finding)

    def add_watched(self, process: int, seen: Watched, plan: Plan, launch: int) -> None:
        """Take a missing wait or a hazard that a launch of a process met."""
        if seen.kind not in self.kinds:
            return
        code = running(plan)
        finding = Finding(seen.kind, process, code.kernel, code.object, *code.instruction(seen.record))
        finding.detail, finding.lane, finding.wave, finding.group = seen.detail, seen.lane, seen.wave, seen.group
        finding.first_launch = finding.last_launch = launch
        if seen.other is not None:
            finding.other = Other(code.object, *code.instruction(seen.other), wave=seen.wave, group=seen.group)
        self.keep(finding)

    def add_call(
        self, process: int, seen: CallSighting, function: str, symbol: str, file: str, calls: Sequence[Sites] = ((), ())
    ) -> None:
        """Take what a process has seen of a call of HIP.

        Args:
            function: HIP's, with the name of the error, or of the kernel, or of both, behind colons.
            symbol: what the call is in, as far as the file tells.
            file: executable or library of the call.
            calls: that asked for the allocation, and that gave it back, as of `add`.

        Raises:
            DeviceError: there is no such kind.
        """
        if seen.kind == Sight.ONLY_PAGES:
            if OUTSIDE in self.kinds:
                what, why = _PIECES if function == "OpenMP's map" else (f"{_BY_PAGES} by {function}", _KNOWN_BY_PAGES)
                self.leave(Unchecked(process, "", what, why))
            return
        kind = self._wanted(seen.kind)
        if kind is None:
            return
        call, error, kernel = (*function.split(": ", 2), "", "")[:3]
        finding = Finding(kind, process, object=file, offset=seen.offset, call=call, detail=error)
        finding.launch = launch_of(seen, kernel)
        finding.frames = frames_of_host(file, seen.offset, symbol)
        if kind == SHORT_ARGUMENTS:
            self.arguments.given(finding, error, seen.size)
            return
        finding.address, finding.size = seen.address, seen.size
        if seen.base:
            finding.allocation = Allocation(seen.base, seen.extent, 0)
        finding.allocated, finding.freed = (first_call(sites) for sites in calls)
        self.keep(finding)

    def _allocation(self, process: int, seen: Sighting) -> Allocation:
        variable = self.variables.at(process, seen.base) if seen.is_variable else ("", "")
        return Allocation(seen.base, seen.extent, seen.allocation, *variable)

    def _wanted(self, number: int) -> str | None:
        """Return the kind of what was seen; None if nobody wants it.

        Raises:
            DeviceError: there is no such kind.
        """
        if number not in _KINDS:
            raise DeviceError(f"a finding of the unknown kind {number}")
        kind = _KINDS[Sight(number)]
        return kind if kind in self.kinds else None

    def keep(self, finding: Finding) -> None:
        """Take a finding."""
        with self._lock:
            known = self._findings.setdefault(finding.key, finding)
            if known is not finding:
                known.merge(finding)


def _locate(finding: Finding, seen: Sighting, code: Running, other: Running | None) -> None:
    finding.kernel, finding.object = code.kernel, code.object
    finding.offset, finding.instruction, finding.frames, finding.no_source = code.instruction(seen.record)
    finding.in_lds = bool(seen.in_lds)
    if seen.has_other:
        second = other or code
        finding.other = Other(
            second.object,
            *second.instruction(seen.other_record),
            lane=seen.other_lane,
            wave=seen.other_wave,
            group=seen.other_group,
            size=seen.other_size,
            address=seen.other_address,
            kernel="" if other is None else other.kernel,
            launch=seen.other_launch,
        )
    finding.lane, finding.wave, finding.group, finding.size = seen.lane, seen.wave, seen.group, seen.size
    finding.first_launch = finding.last_launch = seen.launch


def running(plan: Plan) -> Running:
    """Return the code of a kernel that a program runs."""
    is_program_s = plan.code.object is not None and not is_of_runtime(plan.kernel.name)
    return Running(plan.kernel.name, plan.object, partial(_instruction, plan), is_program_s)


def _instruction(plan: Plan, record: int) -> Place:
    """Return the address, the text and the source of an instruction."""
    code = plan.code.code
    if record >= code.count:
        raise DeviceError("a finding at code that was never planned")
    address, object = code.address_of(record), plan.code.object
    for other in plan.code.others.values():
        if record in other.records:
            address, object = address - other.distance, other.object
    return place_of(address, code.text(record), object)


def place_of(address: int, text: str, object: CodeObject | None) -> Place:
    """Return the place of an instruction.

    Args:
        object: the code object that it is from; None if that is not known.
    """
    if object is None:
        return address, text, (), "its code object is not known"
    location = object.source.at(address)
    if location is not None:
        return address, text, location.frames, ""
    problem = "; ".join(object.source.problems) or "debug information has none for this instruction"
    if object.name.startswith(_IN_MEMORY) and not object.source.present:
        problem += " (the program may have compiled it itself: -g is an option of that, too)"
    return address, text, (), problem
