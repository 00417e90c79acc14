"""Checks of launches on an emulated device: the observations of native code, and the findings from them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.hazards import HAZARD, HazardWatch, hazard_watch
from luthier.emulator.inspection.uses import uses_of
from luthier.emulator.inspection.waits import MISSING_WAIT, WaitWatch, wait_watch
from luthier.emulator.running.execution import sources_of
from luthier.emulator.running.executor import Executor, StructureBlock
from luthier.emulator.running.memory import AllocationTable
from luthier.emulator.running.observation import Observation
from luthier.errors import DeviceError, EmulationError, LuthierError
from luthier.findings.collector import FindingSet, KernelCode, instruction_site
from luthier.findings.finding import Finding, NearbyAllocation
from luthier.findings.floats import has_flow, looked_for
from luthier.findings.kinds import DECISIONS, DEVICE_CHECKS, FLOAT_KINDS, KINDS, UNDEFINED, kinds_of_check, named_checks
from luthier.objects import CodeObject
from luthier.wire.messages import Sighting

OBSERVED = {
    "memory": layout.OBSERVE_LDS,
    "race": layout.OBSERVE_RACES,
    "init": layout.OBSERVE_UNWRITTEN,
    "barrier": layout.OBSERVE_BARRIERS,
    "early-exit": layout.OBSERVE_BARRIERS,
    "fp": layout.OBSERVE_FLOATS,
    "wave-size": layout.OBSERVE_LANES,
}
"""Observation bits of the checks that need accesses, barriers or results."""
_UNINITIALISED = kinds_of_check("init")


class CheckWarning(UserWarning):
    """A finding of a check."""


def kinds_of_checks(names: str | Collection[str]) -> frozenset[str]:
    """Return the kinds of findings of a device's checks.

    Raises:
        DeviceError: a check does not exist.
    """
    try:
        checks = named_checks([names] if isinstance(names, str) else names, DEVICE_CHECKS)
    except LuthierError as problem:
        raise DeviceError(problem.message) from None
    return frozenset[str]().union(*map(kinds_of_check, checks))


class DeviceFindings(FindingSet):
    """Findings of launches on a device of this process."""

    def __init__(self, kinds: Collection[str], memory: AllocationTable) -> None:
        super().__init__(kinds)
        self._memory = memory

    def allocation(self, process: int, seen: Sighting) -> NearbyAllocation | None:
        """Return the allocation of a sighting, or None if none is known."""
        inside = None if seen.in_lds else self._memory.find(seen.address)
        if inside is None:
            return super().allocation(process, seen)
        return NearbyAllocation(inside.address, inside.size, 0)


def kernel_code(code: DecodedCode, kernel: str, object: CodeObject) -> KernelCode:
    """Return a kernel of an object for findings."""
    return KernelCode(
        kernel,
        object.name,
        lambda record: instruction_site(code.address_of(record), code.text(record), object),
        target=code.isa.target.target,
    )


class LaunchChecks(Observation):
    """The checks of one launch.

    Args:
        findings: receives the findings; its kinds select the checks.
        code: code of the kernel.
        kernel: the kernel for findings.
        launch: number of the launch.
        filled: memory that was never written holds a recognisable pattern.
    """

    def __init__(
        self, findings: FindingSet, code: DecodedCode, kernel: KernelCode, launch: int = 0, *, filled: bool = False
    ) -> None:
        self._findings, self._code, self._kernel, self._launch = findings, code, kernel, launch
        kinds = findings.kinds
        self._floats = looked_for(kinds)
        checks = {KINDS[kind].check for kind in kinds - UNDEFINED}
        self.what = functools.reduce(int.__or__, (OBSERVED.get(check, 0) for check in checks), 0)
        if has_flow(kinds):
            self.what |= layout.OBSERVE_FLOW
        if DECISIONS & kinds or (filled and _UNINITIALISED & kinds and FLOAT_KINDS & kinds):
            self.what |= layout.OBSERVE_UNDEFINED
        self._watches: list[WaitWatch | HazardWatch] = [hazard_watch(code)] if HAZARD in kinds else []
        self._watches += [wait_watch(code)] if MISSING_WAIT in kinds else []
        fields = {name: value for watch in self._watches for name, value in watch.fields.items()}
        self._block = StructureBlock(layout.WATCH, fields) if fields else None

    def begin(self) -> int:
        """Return the address of the memory uses that the launch needs (`uses` of `layout.PLAN`); 0: none."""
        if not self.what:
            return 0
        self._code.floats, self._code.undefined = self._floats, sources_of(self.what)
        return uses_of(self._code)

    def watch(self) -> int:
        """Return the address of the launch's `layout.WATCH`; 0: there is none."""
        return 0 if self._block is None else self._block.address

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Collect the findings of a finished launch.

        Args:
            executor: the executor that ran it.
            fault: the fault that stopped it.
        """
        if self._block is not None:
            read = functools.partial(self._block.read, layout.WATCH)
            for pair in (sighting for watch in self._watches for sighting in watch.sightings(read)):
                self._findings.add_pair(0, pair, self._kernel, self._launch)
        for seen in executor.sightings() if self.what else ():
            self._findings.add(0, replace(seen, launch=self._launch), self._kernel)
        if fault is not None:
            record = None if fault.offset is None else self._code.record_at(fault.offset)
            self._findings.add_fault(0, fault, self._kernel, record, self._launch)


def warn_unchecked(what: str) -> None:
    """Warn that something is not checked, at the caller of a device's method."""
    warnings.warn(what, CheckWarning, stacklevel=3)


def warn(findings: Iterable[Finding]) -> None:
    """Warn of each finding, at the launch of the kernel."""
    for finding in findings:
        warnings.warn(str(finding), CheckWarning, stacklevel=4)
