"""Findings of a run, as the processes of the program tell of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from luthier.errors import DeviceError
from luthier.findings.calls import Sites, first_call, frames_of_host
from luthier.findings.collector import FindingSet, InstructionSite, KernelCode, instruction_site, locate
from luthier.findings.finding import COPY, Finding, NearbyAllocation, Other, Unchecked
from luthier.findings.kinds import FindingKind
from luthier.run.findings.arguments import ArgumentSizes
from luthier.run.findings.failed_launches import launch_of
from luthier.run.findings.variables import Variables
from luthier.run.host_places import host_place
from luthier.run.planner import KernelPlan
from luthier.run.selection import is_of_runtime
from luthier.wire.messages import CallSighting, Sighting

_OUTSIDE = FindingKind.OUTSIDE.label
_VARIABLES = "bounds of the variables of the code object"
_BY_PAGES, _KNOWN_BY_PAGES = "bounds to the byte of memory", "it is known by pages only"
_PIECES = "bounds of each variable that OpenMP maps", "what is known is the memory of all that one construct maps"
_ONLY_PAGES = "bounds to the byte", "the allocations of the process were known by pages only"


class Collector(FindingSet):
    """Takes what the processes of a program have seen.

    Args:
        kinds: what is wanted, of `luthier.findings.kinds.KINDS`.
    """

    def __init__(self, kinds: Collection[str]) -> None:
        super().__init__(kinds)
        self.arguments = ArgumentSizes(self.keep)
        self.variables = Variables()

    def without_variables(self, process: int, plan: KernelPlan, why: str) -> None:
        """Take that the variables of a kernel's code object are not known."""
        if _OUTSIDE in self.kinds and not is_of_runtime(plan.kernel.name):
            self.leave(Unchecked(process, plan.kernel.name, _VARIABLES, why))

    def add(
        self,
        process: int,
        seen: Sighting,
        code: KernelCode | None,
        other: KernelCode | None = None,
        calls: Sequence[Sites] = ((), (), ()),
    ) -> None:
        """Take what a process has seen; arguments and errors as of `FindingSet.add`."""
        if seen.kind == FindingKind.ONLY_PAGES and code is not None and not seen.has_other:
            if _OUTSIDE in self.kinds and code.of_program:
                self.leave(Unchecked(process, code.kernel, *_ONLY_PAGES))
            return
        super().add(process, seen, code, other, calls)

    def add_copy(self, process: int, seen: Sighting, code: KernelCode, function: str, symbol: str, file: str) -> None:
        """Take a race of a kernel with a copy.

        Args:
            code: code of the kernel.
            function: HIP's that copies; empty if it is not known, as the rest.
            symbol: what the call is in, as far as the file tells.
            file: executable or library of the call.

        Raises:
            DeviceError: there is no such kind.
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
        finding.allocated, finding.freed = (first_call(sites) for sites in calls)
        self.keep(finding)

    def allocation(self, process: int, seen: Sighting) -> NearbyAllocation | None:
        """Return the allocation, or the variable, that something was seen of; None: none is known."""
        if not seen.is_variable:
            return super().allocation(process, seen)
        return NearbyAllocation(seen.base, seen.extent, seen.allocation, *self.variables.at(process, seen.base))

    def place_of(self, process: int, address: int) -> str:
        """Return what an address of a process is; empty if nothing is known of it."""
        return host_place(process, address)


def code_of(plan: KernelPlan) -> KernelCode:
    """Return the code of a kernel that a program runs."""
    of_program = plan.code.object is not None and not is_of_runtime(plan.kernel.name)
    return KernelCode(plan.kernel.name, plan.object, partial(_instruction, plan), of_program)


def _instruction(plan: KernelPlan, record: int) -> InstructionSite:
    """Return where an instruction is."""
    code = plan.code.code
    if record >= code.count:
        raise DeviceError("a finding at code that was never planned")
    address, object = code.address_of(record), plan.code.object
    for other in plan.code.others.values():
        if record in other.records:
            address, object = address - other.distance, other.object
    return instruction_site(address, code.text(record), object)
