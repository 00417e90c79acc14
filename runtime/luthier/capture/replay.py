"""Replay of a captured launch on an emulated device of this process, and comparison with the recorded results."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.form import COUNTS, KERNARG_ALIGNMENT, PAGE, USER_SPACE, Capture, Triple
from luthier.capture.grid import Part, chosen, parts, whole_groups
from luthier.capture.pages import Difference, by_address, compared, stretches, with_pages, without
from luthier.capture.place import mapped, pieces, present
from luthier.capture.program import Program, device_of, planned, recorded_program
from luthier.capture.room import ReplayRoom
from luthier.emulator.running.execution import QUANTUM, Observer, execute
from luthier.emulator.running.executor import Executor
from luthier.emulator.running.memory import AllocationTable, host_bytes
from luthier.emulator.running.plan import find_beyond
from luthier.emulator.running.worker import WorkerState
from luthier.errors import DeviceError, EmulationError

if TYPE_CHECKING:
    from luthier.emulator.running.observation import Observation
    from luthier.findings.collector import FindingSet
    from luthier.findings.finding import Finding

STEP_LIMIT = 1 << 20
"""Quanta after which a work-group counts as never ending."""
_SMALL = 1 << 14
"""Wave-instructions that one thread runs in some 0.1 ms."""
RESIDENT_GROUPS = 1024
"""Work-groups of the largest cooperative launch."""


class Replayed(Struct, frozen=True):
    """The outcome of a replay."""

    counts: NDArray[np.void]
    """`COUNTS` of the code object that ran."""
    counts_equal: bool | None
    """Whether they equal the recorded ones; None: other code ran, or none were recorded."""
    difference: Difference | None
    fault: EmulationError | None
    touched: NDArray[np.uint64]
    """Addresses of the pages that were accessed, and of some neighbours."""
    written: NDArray[np.uint64]
    """Addresses of the pages whose contents have changed."""
    seconds: float
    left: Mapping[int, NDArray[np.uint8]]
    """Contents of the changed pages by address, if requested."""
    findings: tuple[Finding, ...] = ()
    """Findings of the requested checks."""

    @property
    def equal(self) -> bool:
        """Return whether memory and counts equal the recorded ones and no check found anything."""
        return self.same_bytes and self.counts_equal is not False and not self.findings

    @property
    def same_bytes(self) -> bool:
        """Return whether the launch ended without a fault and left the recorded memory."""
        return self.difference is None and self.fault is None

    @property
    def instructions(self) -> int:
        """Return the number of wave-instructions executed."""
        return int(self.counts["executions"].sum())


def replay(
    capture: Capture,
    *,
    target: str | None = None,
    threads: int | None = None,
    find_store: bool = False,
    check: Collection[str] = (),
) -> Replayed:
    """Replay a captured launch.

    Args:
        target: target of the device; None: the recorded one.
        threads: host threads that run work-groups; None: one for each core.
        find_store: after a difference, run again, slowly, to find the instruction that wrote it.
        check: checks from `luthier.findings.kinds.DEVICE_CHECKS`.

    Raises:
        AddressTaken: this process uses addresses of the captured memory.
        LuthierError: the launch cannot be run, or a check does not exist.
    """
    launch = PreparedLaunch(capture, target or capture.manifest.target)
    outcome = launch.run(threads, check)
    return launch.with_store(outcome) if find_store else outcome


Executed = tuple[NDArray[np.uint64], NDArray[np.uint64], float, EmulationError | None]
"""Executions and active lanes by record, seconds, and the fault."""

_idle: dict[int, list[Executor]] = {}
"""Idle executors by number of threads: starting one takes longer than many launches."""


@contextmanager
def _executor(threads: int, looked_at: bool) -> Iterator[Executor]:
    """Provide an executor; a new one for an observed launch, so that the order of its waves is the same every time."""
    idle = _idle.setdefault(threads, [])
    executor = idle.pop() if idle and not looked_at else Executor(threads)
    yield executor
    if not looked_at:
        idle.append(executor)


class PreparedLaunch:
    """A launch whose code is decoded.

    Args:
        target: target of the device.
        program: code to run; None: the captured code.
        memory: what the program may access besides the captured memory; None: nothing.
        step_limit: quanta that a work-group may use.
    """

    def __init__(
        self,
        capture: Capture,
        target: str,
        program: Program | None = None,
        memory: AllocationTable | None = None,
        step_limit: int = STEP_LIMIT,
    ) -> None:
        self.capture = capture
        self.recorded = program is None
        """The captured code runs."""
        program = program or recorded_program(capture, target)
        self.device = device_of(capture, target, program.object)
        self.room: ReplayRoom | None = None
        """What it shares with other launches; only for the recorded code."""
        self.accessible = AllocationTable(limit=1 << 62) if memory is None else memory
        """Everything that the launch may access; while it runs, also the captured memory and scratch."""
        self._take(program, step_limit)

    def _take(self, program: Program, step_limit: int) -> None:
        self.program, self.step_limit = program, step_limit
        self.object, self.kernel, self.code = program.object, program.kernel, program.code
        self._planned = planned(self.kernel, self.device.target, self.code)
        self.plan = self._planned.fields
        self._check()

    def with_program(self, program: Program, step_limit: int) -> Self:
        """Return the launch with other code, which may access the same memory.

        Raises:
            DeviceError: sizes are too large for the device.
        """
        other = copy.copy(self)
        other.recorded = False
        other._take(program, step_limit)
        return other

    def _check(self) -> None:
        """Check that a device can run the launch.

        Raises:
            DeviceError: sizes are too large for the device.
        """
        manifest, plan = self.capture.manifest, self.plan
        items = manifest.block[0] * manifest.block[1] * manifest.block[2]
        for what, wanted, most in (
            ("work-items in a work-group", items, 1024),
            ("waves on a SIMD", -(-self.waves(manifest.block) // 4), plan["simd_waves"]),
            ("bytes of LDS", self.program.group, plan["lds_limit"]),
            ("bytes of scratch a work-item", self.program.private, plan["scratch_limit"]),
        ):
            if wanted > most:
                raise DeviceError(f"{wanted} {what}; at most {most} are allowed", kernel=manifest.kernel)

    def parts(self) -> Iterator[Part]:
        """Yield the parts of the launch."""
        manifest = self.capture.manifest
        grid, block = manifest.grid, manifest.block
        yield from chosen(manifest.groups, grid, block) if manifest.groups else parts(grid, block)

    def waves(self, block: Triple) -> int:
        """Return the number of waves of a work-group of this size."""
        return -(-(block[0] * block[1] * block[2]) // self.kernel.wave_size)

    def run(
        self,
        threads: int | None = None,
        check: Collection[str] = (),
        *,
        keep: bool = False,
        observed: Observation | None = None,
        findings: FindingSet | None = None,
    ) -> Replayed:
        """Run the launch and compare its results; arguments as for `replay` and `run_here`."""
        with self.memory():
            return self.run_here(threads, check, keep=keep, observed=observed, findings=findings)

    def run_here(
        self,
        threads: int | None = None,
        check: Collection[str] = (),
        *,
        keep: bool = False,
        observed: Observation | None = None,
        findings: FindingSet | None = None,
    ) -> Replayed:
        """Run the launch like `run`, while its memory is mapped (`memory`).

        All captured memory counts as allocated and written.

        Args:
            keep: also return the contents of changed pages.
            observed: observation of the launch, instead of checks.
            findings: receives findings of its own kinds; None: collect those of `check`.
        """
        capture = self.capture
        if check or findings is not None:
            from luthier.emulator.inspection.checks import LaunchChecks, kernel_code, kinds_of_checks
            from luthier.findings.collector import FindingSet  # loading it takes longer than running a small launch

            findings = FindingSet(kinds_of_checks(check)) if findings is None else findings
            kernel = kernel_code(self.code, self.kernel.name, self.object)
            observed = LaunchChecks(findings, self.code, kernel, capture.manifest.number)
        counts, lanes, seconds, fault = self.execute(threads, None, observed)
        touched = present(os.getpid(), pieces(capture.manifest.ranges))
        difference, written = compared(capture, touched.tolist(), partial(host_bytes, size=PAGE))
        left = {address: host_bytes(address, PAGE).copy() for address in written.tolist()} if keep else {}
        ran = np.flatnonzero(counts)
        table = np.zeros(len(ran), COUNTS)
        table["address"], table["executions"], table["lanes"] = self.code.addresses()[ran], counts[ran], lanes[ran]
        table.sort(order="address")
        comparable = self.recorded and capture.manifest.counted
        same = bool(np.array_equal(table, capture.counts)) if comparable else None
        seen = () if findings is None else tuple(findings.findings)
        return Replayed(table, same, difference, fault, touched, written, seconds, left, seen)

    def with_store(self, outcome: Replayed) -> Replayed:
        """Return an outcome with the instruction that wrote the first difference; this runs the launch again."""
        difference = outcome.difference
        if difference is None or outcome.fault is not None:
            return outcome
        return replace(outcome, difference=replace(difference, store=self.store_at(difference.address)))

    def store_at(self, address: int) -> str:
        """Run again and return the last instruction that changed the byte at an address, with its source line."""
        last: int | None = None
        before: tuple[int, int] | None = None

        def look(worker: WorkerState) -> bool:
            nonlocal last, before
            value = int(place[0])
            if before is not None and value != before[0]:
                last = before[1]
            before = value, worker.record_of(worker.current())
            return True

        with self.memory():
            place = host_bytes(address, 1)
            self.execute(1, look)
            if before is not None and int(place[0]) != before[0]:
                last = before[1]
        if last is None:
            return ""
        at = self.code.address_of(last)
        line = self.object.source.at(at) if self.object.source.present else None
        return f"{self.code.text(last)} at {at:#x}{'' if line is None else f', {line}'}"

    @contextmanager
    def memory(self) -> Iterator[None]:
        """Map the captured memory with its contents before the launch.

        Raises:
            AddressTaken: this process uses addresses of it.
        """
        capture, before = self.capture, self.capture.before
        if self.room is not None:
            memory = self.room.memory(capture)
        else:
            memory = mapped(capture.manifest.ranges, before["address"], capture.pages[before["page"]])
        with memory:
            self.prepare()
            yield

    def prepare(self) -> None:
        """Prepare what the launch needs besides the captured memory, which is mapped."""

    def execute(
        self,
        threads: int | None,
        observer: Observer | None,
        observed: Observation | None = None,
    ) -> Executed:
        """Execute the launch. The captured memory must be mapped (`memory`).

        Args:
            threads: host threads that run work-groups; None: one for each core.
            observer: sees every instruction.
            observed: observation by native code, instead of an observer.
        """
        plan = self.plan if observed is None else {**self.plan, "uses": observed.begin()}
        threads = threads or len(os.sched_getaffinity(0))
        looked_at = observer is not None or observed is not None
        watched = {} if observed is None else {"watch": observed.watch(), "costs": observed.costs()}
        with (
            self._accessible() as memory,
            _executor(threads, looked_at) as executor,
            self._dispatch(memory, executor.threads) as dispatch,
        ):
            outcome = execute(
                *(executor, memory, self.code, plan, {**dispatch, **watched}, self.kernel.name),
                parts=self._parts(),
                step_limit=self.step_limit,
                observer=observer,
                stepped=not looked_at and self._is_small,
                observed=0 if observed is None else observed.what,
                quantum=QUANTUM if observed is None else observed.quantum,
            )
            counts, lanes, fault = outcome.counts, outcome.lanes, outcome.fault
            fault = fault or find_beyond(self.kernel, self.code, counts != 0)
            if observed is not None:
                observed.end(executor, fault)
        if fault is not None and fault.offset is not None and self.object.source.present and not fault.source:
            line = self.object.source.at(fault.offset)
            fault.source = "" if line is None else str(line)
        return counts, lanes, outcome.seconds, fault

    @property
    def _is_small(self) -> bool:
        """Return whether the launch takes less time than waking threads for it."""
        capture = self.capture
        return self.recorded and capture.manifest.counted and int(capture.counts["executions"].sum()) < _SMALL

    @contextmanager
    def _accessible(self) -> Iterator[AllocationTable]:
        """Allow access to the captured memory."""
        ranges = without([*self._readable()], self.capture.manifest.left_out)
        if self.room is not None:
            yield self.room.table(self.capture.manifest, ranges)
            return
        taken = []
        try:
            for address, size in ranges:
                taken.append(self.accessible.register(address, size, "captured memory"))
            yield self.accessible
        finally:
            for allocation in taken:
                self.accessible.free(allocation)

    def _readable(self) -> Iterator[tuple[int, int]]:
        """Yield the captured ranges, that of the arguments with what loads of arguments may read beyond it."""
        manifest = self.capture.manifest
        following = [*(address for address, _ in manifest.ranges[1:]), USER_SPACE]
        for (address, size), limit in zip(manifest.ranges, following, strict=True):
            beyond = -(address + size) % KERNARG_ALIGNMENT if 0 <= manifest.kernarg - address < size else 0
            yield address, min(size + beyond, limit - address)

    @contextmanager
    def _dispatch(self, memory: AllocationTable, threads: int) -> Iterator[dict[str, int]]:
        """Allocate scratch, and yield the fields of `layout.DISPATCH` that all parts of the launch share."""
        manifest, plan, program = self.capture.manifest, self.plan, self.program
        wanted = program.private + plan["scratch_extra"]
        lane = -(-min(wanted, plan["scratch_limit"]) // 16) * 16
        count = sum(math.prod(groups) for _, groups, _ in self.parts())
        if manifest.cooperative and count > RESIDENT_GROUPS:
            message = f"a cooperative launch of {count} work-groups; at most {RESIDENT_GROUPS} are allowed"
            raise DeviceError(message, kernel=manifest.kernel)
        waves = max(self.waves(items) for *_, items in self.parts())
        held = count if manifest.cooperative else self._planned.resident(waves, program.group, lane)
        resident = min(count, max(threads, held))
        scratch = memory.allocate(resident * waves * self.kernel.wave_size * lane, "scratch")
        try:
            yield {
                **{name: getattr(manifest, name) for name in ("packet", "queue", "id", "cooperative")},
                "kernarg": program.kernarg,
                "code": program.place,
                **_triple("whole", whole_groups(manifest)),
                "lds_size": program.group,
                "resident": resident,
                "scratch": scratch.address,
                "scratch_lane": lane,
            }
        finally:
            memory.free(scratch)

    def _parts(self) -> list[dict[str, int]]:
        """Return the fields of `layout.DISPATCH` of each part of the launch."""
        return [
            _triple("grid", groups) | _triple("block", items) | _triple("first", first)
            for first, groups, items in self.parts()
        ]


def _triple(name: str, values: Triple) -> dict[str, int]:
    return {f"{name}_{axis}": value for axis, value in zip("xyz", values, strict=True)}


def reduced(capture: Capture, run: Replayed) -> tuple[Capture, Replayed]:
    """Return a capture with only the pages that its replay accessed and changed, and how the replay compares with it.

    This drops writes of others during the recording to pages that the launch does not write. The replay also holds for
    the reduced capture, since it did not access the pages that are left out.

    Args:
        run: replay of the whole capture, without a fault, and with the contents of changed pages (`keep`).
    """
    is_touched = np.isin(capture.before["address"], run.touched)
    is_written = np.isin(capture.after["address"], run.written)
    before, after = (
        {address: capture.pages[page] for address, page in by_address(places).items()}
        for places in (capture.before[is_touched], capture.after[is_written])
    )
    left: NDArray[np.uint64] = capture.before["address"][~is_touched]
    manifest = capture.manifest
    smaller_manifest = msgspec.structs.replace(manifest, left_out=tuple(stretches(left)), counted=True, replayed=True)
    counts = capture.counts if manifest.counted else run.counts
    smaller = replace(with_pages(capture, before, after), manifest=smaller_manifest, counts=counts)
    difference, _ = compared(smaller, run.written.tolist(), run.left.__getitem__)
    return smaller, replace(run, difference=difference)
