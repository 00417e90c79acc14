"""Findings of a run, from the reports of the program's processes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

from luthier.emulator.inspection.value_sources import loads_before
from luthier.errors import DeviceError
from luthier.findings.calls import AllocationSites, Sites, first_call, frames_of_host
from luthier.findings.collector import (
    UNKNOWN_MEMORY,
    FindingSet,
    InstructionSite,
    KernelCode,
    instruction_site,
    locate,
)
from luthier.findings.finding import COPY, Finding, NearbyAllocation, Origin, Other, Unchecked
from luthier.findings.kinds import FindingKind
from luthier.findings.scope import CheckedScope
from luthier.run.findings.arguments import ArgumentSizes
from luthier.run.findings.failed_launches import launch_of
from luthier.run.findings.variables import Variables
from luthier.run.host_places import host_place
from luthier.run.planner import KernelPlan
from luthier.run.selection import Selection, is_of_runtime
from luthier.wire.messages import CallSighting, InFlightSighting, Sighting

_OUTSIDE = FindingKind.OUTSIDE.label
_VARIABLES = "bounds of the variables of the code object"
_BY_PAGES, _KNOWN_BY_PAGES = "bounds to the byte of memory", "only its pages are known"
_PIECES = "bounds of each variable that OpenMP maps", "only the memory of all variables that a construct maps is known"
_ONLY_PAGES = "bounds to the byte", "only the pages of the process's allocations were known"


class Collector(FindingSet):
    """Collects what the processes of a program report.

    Args:
        kinds: wanted kinds, of `luthier.findings.kinds.KINDS`.
        selection: launches that checks observe, whatever their device; None: all.
        budget: seconds that observed launches may take, besides the first of each size; None: no limit.
    """

    def __init__(self, kinds: Collection[str], selection: Selection | None = None, budget: float | None = None) -> None:
        super().__init__(kinds)
        self.selection, self.budget = selection or Selection(), budget
        self.scope: Callable[[], CheckedScope] = CheckedScope
        """Returns what was checked so far."""
        self.arguments = ArgumentSizes(self.keep)
        self.variables = Variables()

    def without_variables(self, process: int, plan: KernelPlan, why: str) -> None:
        """Record that the variables of a kernel's code object are unknown."""
        if _OUTSIDE in self.kinds and not is_of_runtime(plan.kernel.name):
            self.leave(Unchecked(process, plan.kernel.name, _VARIABLES, why))

    def add(
        self,
        process: int,
        seen: Sighting,
        code: KernelCode | None,
        other: KernelCode | None = None,
        calls: Sites = (),
        memory: AllocationSites = UNKNOWN_MEMORY,
        origin: Origin | None = None,
    ) -> None:
        """Add a sighting of a process; arguments and errors as for `FindingSet.add`."""
        if seen.kind == FindingKind.ONLY_PAGES and code is not None and not seen.has_other:
            if _OUTSIDE in self.kinds and code.of_program:
                self.leave(Unchecked(process, code.kernel, *_ONLY_PAGES))
            return
        super().add(process, seen, code, other, calls, memory, origin)

    def add_copy(self, process: int, seen: Sighting, code: KernelCode, function: str, symbol: str, file: str) -> None:
        """Add a race of a kernel with a copy.

        Args:
            code: code of the kernel.
            function: HIP function that copies; "" if unknown, like the rest.
            symbol: function that contains the call, if known.
            file: executable or library that contains the call.

        Raises:
            DeviceError: the kind is unknown.
        """
        kind = self.wanted(seen.kind)
        if kind is None:
            return
        finding = Finding(kind, process, address=seen.address, count=seen.count)
        finding.allocation = self.allocation(process, seen)
        locate(finding, seen, code, None)
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

    def add_call(
        self,
        process: int,
        seen: CallSighting,
        function: str,
        symbol: str,
        file: str,
        memory: AllocationSites = UNKNOWN_MEMORY,
        origin: Origin | None = None,
    ) -> None:
        """Add a sighting of a call of HIP.

        Args:
            function: HIP function, followed by the error, the kernel, or both, separated by colons.
            symbol: function that contains the call, if known.
            file: executable or library that contains the call.
            memory: the allocation that it belongs to.
            origin: from where an undefined value comes.

        Raises:
            DeviceError: the kind is unknown.
        """
        if seen.kind == FindingKind.ONLY_PAGES:
            if _OUTSIDE in self.kinds:
                what, why = _PIECES if function == "OpenMP's map" else (f"{_BY_PAGES} by {function}", _KNOWN_BY_PAGES)
                self.leave(Unchecked(process, "", what, why))
            return
        kind = self.wanted(seen.kind)
        if kind is None:
            return
        call, error, kernel = (*function.split(": ", 2), "", "")[:3]
        finding = Finding(kind, process, object=file, offset=seen.offset, call=call, detail=error)
        finding.launch = launch_of(seen, kernel)
        finding.frames = frames_of_host(file, seen.offset, symbol)
        if kind == FindingKind.SHORT_ARGUMENTS.label:
            self.arguments.given(finding, error, seen.size)
            return
        finding.address, finding.size = seen.address, seen.size
        if seen.base:
            finding.allocation = NearbyAllocation(seen.base, seen.extent, 0)
        finding.belongs_to(memory)
        finding.origin = origin
        self.keep(finding)

    def add_in_flight(
        self,
        process: int,
        seen: InFlightSighting,
        function: str,
        operation: str,
        calls: Sites,
        enqueued: Sites,
        memory: AllocationSites = UNKNOWN_MEMORY,
    ) -> None:
        """Add a use of memory by the host while an operation in flight uses it, or what could not be checked.

        Args:
            function: function that uses the memory for the program; "" for an instruction of the program. For
                `FindingKind.ONLY_PAGES`: what could not be checked.
            operation: HIP function that enqueued the operation; for `FindingKind.ONLY_PAGES`: why.
            calls: the access, and the calls that lead to it.
            enqueued: the calls that lead to the operation.
            memory: the allocation.

        Raises:
            DeviceError: the kind is unknown.
        """
        if seen.kind == FindingKind.ONLY_PAGES:
            self.leave(Unchecked(process, "", function, operation))
            return
        kind = self.wanted(seen.kind)
        if kind is None:
            return
        finding = Finding(kind, process, address=seen.address)
        finding.detail = _in_flight(kind, seen, function, operation)
        if seen.base:
            finding.allocation = NearbyAllocation(seen.base, seen.extent, 0)
        finding.belongs_to(memory)
        finding.accessed, finding.enqueued = first_call(calls), first_call(enqueued)
        if (at := finding.accessed) is not None:
            finding.object, finding.is_python, finding.frames = at.object, at.is_python, at.frames
            finding.offset = 0 if at.is_python else at.offset
        self.keep(finding)

    def allocation(self, process: int, seen: Sighting) -> NearbyAllocation | None:
        """Return the allocation or variable of a sighting; None if unknown."""
        if not seen.is_variable:
            return super().allocation(process, seen)
        return NearbyAllocation(seen.base, seen.extent, seen.allocation, *self.variables.at(process, seen.base))

    def place_of(self, process: int, address: int) -> str:
        """Describe an address of a process; "" if nothing is known about it."""
        return host_place(process, address)


def _in_flight(kind: str, seen: InFlightSighting, function: str, operation: str) -> str:
    """Describe who uses memory, and the operation in flight that uses it."""
    stream = f"stream {seen.stream:#x}" if seen.stream else "the null stream"
    copy = f"{operation} of {seen.operation_size} bytes in {stream}"
    if kind == FindingKind.FREE_IN_FLIGHT.label:
        return f"{function} does not wait for {copy}, which uses the memory"
    does = "reads" if kind == FindingKind.WRITE_IN_FLIGHT.label else "writes"
    access = "writes" if seen.writes else "reads"
    return f"{function or 'the host'} {access} memory before it synchronises with {copy}, which {does} it"


def code_of(plan: KernelPlan) -> KernelCode:
    """Return the code of a planned kernel."""
    of_program = plan.code.object is not None and not is_of_runtime(plan.kernel.name)
    target = plan.code.code.isa.target.target
    loads = partial(_used_loads, plan)
    return KernelCode(plan.kernel.name, plan.object, partial(_instruction, plan), of_program, loads, target)


def _used_loads(plan: KernelPlan, record: int, loads: Collection[int]) -> Collection[int] | None:
    """Return which of some loads an instruction may use the results of; None if unknown."""
    code = plan.code.code
    places = {each: code.place_of(each) for each in (record, *loads, *plan.roots)}
    own = places[record]
    if own is None:
        return None
    positions = {place[1]: each for each, place in places.items() if place is not None and place[0] == own[0]}
    if any(load not in positions.values() for load in loads):
        return None
    entries = [position for position, each in positions.items() if each in plan.roots]
    wanted = [position for position, each in positions.items() if each in loads]
    used = loads_before(code.isa, code.parts[own[0]], own[1], wanted, entries)
    return None if used is None else [positions[position] for position in used]


def _instruction(plan: KernelPlan, record: int) -> InstructionSite:
    """Return the site of an instruction."""
    code = plan.code.code
    if record >= code.count:
        raise DeviceError("a finding is in code that was never planned")
    address, object = code.address_of(record), plan.code.object
    for other in plan.code.other_code.values():
        if record in other.records:
            address, object = address - other.distance, other.object
    return instruction_site(address, code.text(record), object)
