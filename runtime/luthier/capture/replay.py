"""A captured launch, run again on an emulated device of this process, and compared with what was recorded."""

from __future__ import annotations

import copy
import functools
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from luthier.cache.memory import BoundedCache
from luthier.capture.form import COUNTS, PAGE, PLACES, Capture, Manifest, Pages, Triple
from luthier.capture.place import mapped, pieces, present
from luthier.emulator.binding.program import Code
from luthier.emulator.running.execution import Observer, execute
from luthier.emulator.running.executor import Executor
from luthier.emulator.running.memory import Memory, host_bytes
from luthier.emulator.running.plan import find_beyond, kernel_plan
from luthier.emulator.running.worker import WorkerState
from luthier.errors import DeviceError, EmulationError, LuthierError
from luthier.isa import Isa
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, Kernel
from luthier.objects.origins import teller

if TYPE_CHECKING:
    from luthier.capture.checking import Observed, Watching
    from luthier.emulator.inspection.checks import AnyFinding

STEP_LIMIT = 1 << 20
"""Quanta that a work-group may use before it counts as never ending."""
RESIDENT_GROUPS = 1024
"""Work-groups of the largest cooperative launch."""


@dataclass(frozen=True)
class Difference:
    """The first byte that a replay left otherwise than it was recorded."""

    address: int
    range: tuple[int, int]
    """Address and bytes of the memory that it is in."""
    expected: int
    found: int
    bytes: int
    """How many bytes differ in all."""
    store: str = ""
    """The instruction that wrote it last, with its source line; empty if none did, or nobody looked."""

    def __str__(self) -> str:
        begin, size = self.range
        text = (
            f"{self.bytes} bytes differ; the first is {self.address - begin} bytes into the {size} bytes at "
            f"{begin:#x}: {self.found:#04x}, recorded {self.expected:#04x}"
        )
        return f"{text}; written by {self.store}" if self.store else text


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay."""

    counts: NDArray[np.void]
    """`COUNTS`, of the code object that ran."""
    counts_equal: bool | None
    """Whether they are those recorded; None where other code ran and they cannot be compared."""
    difference: Difference | None
    fault: EmulationError | None
    touched: NDArray[np.uint64]
    """Addresses of the pages that were accessed, and of some beside them."""
    written: NDArray[np.uint64]
    """Those whose contents have changed."""
    seconds: float
    left: Mapping[int, NDArray[np.uint8]]
    """Contents of these, by address, where they were asked for."""
    findings: tuple[AnyFinding, ...] = ()
    """Findings of the checks that were asked for."""

    @property
    def equal(self) -> bool:
        """Return whether it did what was recorded, to the byte and the instruction, and no check found anything."""
        return self.same_bytes and self.counts_equal is not False and not self.findings

    @property
    def same_bytes(self) -> bool:
        """Return whether it came to its end and left in memory what was recorded."""
        return self.difference is None and self.fault is None

    @property
    def instructions(self) -> int:
        """Return how many instructions its waves executed."""
        return int(self.counts["executions"].sum())


def replay(
    capture: Capture,
    *,
    target: str | None = None,
    threads: int | None = None,
    find_store: bool = False,
    check: Collection[str] = (),
) -> Replayed:
    """Run a captured launch again.

    Args:
        target: of the device; the recorded one by default.
        threads: host threads that run work-groups; None: as many as there are cores.
        find_store: run a second time, slowly, if there is a difference, to find the instruction that wrote it.
        check: what to look for, of `luthier.emulator.inspection.checks.CHECKS`.

    Raises:
        AddressTaken: this process has something else where the program had its memory.
        LuthierError: the launch cannot be run, or there is no such check.
    """
    launch = PreparedLaunch(capture, target or capture.manifest.target)
    found = launch.run(threads, check)
    return launch.with_store(found) if find_store else found


Executed = tuple[NDArray[np.uint64], NDArray[np.uint64], float, EmulationError | None]
"""Executions and active lanes by record, seconds, and the fault."""


@dataclass(frozen=True)
class Program:
    """Code that runs in a captured launch, as it is loaded."""

    object: CodeObject
    """Code object that the code is from, for reports."""
    kernel: Kernel
    """The kernel, at its address in `code`."""
    code: Code
    place: int
    """Address of the code's first byte in memory."""
    group: int
    """Bytes of LDS of a work-group."""
    private: int
    """Bytes of scratch of a work-item."""
    kernarg: int
    """Address of the arguments."""


def device_of(capture: Capture, target: str | None, object: CodeObject) -> TargetId:
    """Return the device that a launch runs on; None: the recorded one.

    Raises:
        DeviceError: it does not take this object's code.
    """
    device = TargetId.parse(target or capture.manifest.target)
    if not device.accepts(object.target):
        told = capture.manifest
        raise DeviceError(f"code for {object.target} on a device that is {device}", kernel=told.kernel)
    return device


def recorded_program(capture: Capture, target: str | None) -> Program:
    """Return the code that was captured, where it was, for a device.

    Raises:
        LuthierError: the code object is damaged, has no such kernel, or is not for the device.
    """
    told = capture.manifest
    object, codes = _read_object(capture.object, told.object)
    device = device_of(capture, target, object)
    if told.kernel not in object.kernels:
        raise LuthierError("the capture's code object has no such kernel", kernel=told.kernel)
    kernel = object.kernels[told.kernel]
    key = device, kernel.wave_size, told.load_address
    code = codes.use(key) or codes.put(key, _decoded(object, isa_of(object, device, kernel), told.load_address))
    place = told.load_address + code.base
    return Program(object, kernel, code, place, told.group_segment, told.private_segment, told.kernarg)


_Codes = BoundedCache[tuple[TargetId, int, int], Code]
"""Code by device, wave size and address, which launches share: what one has bound is there for the next."""


@functools.lru_cache(maxsize=2)
def _read_object(data: bytes, name: str) -> tuple[CodeObject, _Codes]:
    """Return a code object and its decoded code, also for the next capture: to run a small launch takes less time."""
    return CodeObject(data, name), _Codes(4)


def _decoded(object: CodeObject, isa: Isa, load_address: int) -> Code:
    """Return an object's code as it is loaded at an address."""

    def address_of(name: str) -> int | None:
        symbol = object.symbol(name)
        return None if symbol is None or not symbol.defined else symbol.address + load_address

    code = Code(isa, object.text_as_loaded(address_of))
    code.origin = teller(object)
    return code


_idle: dict[int, list[Executor]] = {}
"""Executors that run nothing, by their threads: to start one takes longer than many launches."""


@contextmanager
def _executor(threads: int, looked_at: bool) -> Iterator[Executor]:
    """Provide an executor; one that has run nothing where somebody looks at the launch, for the order of its waves."""
    idle = _idle.setdefault(threads, [])
    executor = idle.pop() if idle and not looked_at else Executor(threads)
    yield executor
    if not looked_at:
        idle.append(executor)


def isa_of(object: CodeObject, device: TargetId, kernel: Kernel) -> Isa:
    """Return the instructions of a kernel of an object on a device."""
    return Isa.of(replace(object.target, target=device.target), kernel.wave_size)


class PreparedLaunch:
    """A launch whose code is decoded.

    Args:
        target: of the device.
        program: what runs; None: what was captured.
        memory: what the program may access beside the captured memory; None: nothing.
        step_limit: quanta that a work-group may use.
    """

    def __init__(
        self,
        capture: Capture,
        target: str,
        program: Program | None = None,
        memory: Memory | None = None,
        step_limit: int = STEP_LIMIT,
    ) -> None:
        self.capture = capture
        self.recorded = program is None
        """It is the code that was captured."""
        program = program or recorded_program(capture, target)
        self.device = device_of(capture, target, program.object)
        self.accessible = Memory(limit=1 << 62) if memory is None else memory
        """Everything that the launch may access; the captured memory and scratch are among it while it runs."""
        self._take(program, step_limit)

    def _take(self, program: Program, step_limit: int) -> None:
        self.program, self.step_limit = program, step_limit
        self.object, self.kernel, self.code = program.object, program.kernel, program.code
        self.plan = kernel_plan(self.kernel, self.device.target, self.code)
        self._check()

    def with_program(self, program: Program, step_limit: int) -> Self:
        """Return the launch with other code in the place of its own, which may access the same memory.

        Raises:
            DeviceError: sizes that are too large.
        """
        other = copy.copy(self)
        other.recorded = False
        other._take(program, step_limit)
        return other

    def _check(self) -> None:
        """Refuse what no device would take.

        Raises:
            DeviceError: sizes that are too large.
        """
        told, plan = self.capture.manifest, self.plan
        items = told.block[0] * told.block[1] * told.block[2]
        for what, wanted, most in (
            ("work-items in a work-group", items, 1024),
            ("waves on a SIMD", -(-self.waves(told.block) // 4), plan["simd_waves"]),
            ("bytes of LDS", self.program.group, plan["lds_limit"]),
            ("bytes of scratch a work-item", self.program.private, plan["scratch_limit"]),
        ):
            if wanted > most:
                raise DeviceError(f"{wanted} {what}; {most} are the most", kernel=told.kernel)

    def parts(self) -> Iterator[tuple[Triple, Triple, Triple]]:
        """Yield first work-group, number of work-groups and work-items of one, of each part of the launch."""
        told = self.capture.manifest
        yield from chosen(told.groups, told.grid, told.block) if told.groups else parts(told.grid, told.block)

    def waves(self, block: Triple) -> int:
        """Return the waves of a work-group of so many work-items."""
        return -(-(block[0] * block[1] * block[2]) // self.kernel.wave_size)

    def run(
        self,
        threads: int | None = None,
        check: Collection[str] = (),
        *,
        keep: bool = False,
        observed: Observed | None = None,
    ) -> Replayed:
        """Run the launch on so many threads, and compare; arguments as of `replay` and `run_here`."""
        with self.memory():
            return self.run_here(threads, check, keep=keep, observed=observed)

    def run_here(
        self,
        threads: int | None = None,
        check: Collection[str] = (),
        *,
        keep: bool = False,
        observed: Observed | None = None,
    ) -> Replayed:
        """Run the launch, as `run`, where its memory is there (`memory`).

        Args:
            keep: also return what it has changed.
            observed: gets what it does with memory and barriers; without `check`.
        """
        capture = self.capture
        watched = self._watching(check) if check else None
        counts, lanes, seconds, fault = self.execute(threads, None, watched, observed)
        touched = present(os.getpid(), pieces(capture.manifest.ranges))
        difference, written = compared(capture, touched.tolist(), partial(host_bytes, size=PAGE))
        left = {address: host_bytes(address, PAGE).copy() for address in written.tolist()} if keep else {}
        ran = np.flatnonzero(counts)
        table = np.zeros(len(ran), COUNTS)
        table["address"], table["executions"], table["lanes"] = self.code.addresses()[ran], counts[ran], lanes[ran]
        table.sort(order="address")
        same = bool(np.array_equal(table, capture.counts)) if self.recorded else None
        findings = () if watched is None else watched.findings(self.object.source)
        return Replayed(table, same, difference, fault, touched, written, seconds, left, findings)

    def _watching(self, check: Collection[str]) -> Watching:
        """Return what looks for findings of checks.

        Raises:
            DeviceError: there is no such check.
        """
        from luthier.capture.checking import Watching  # which takes longer to load than small launches to run

        return Watching(check, self.code, self.kernel.name)

    def with_store(self, found: Replayed) -> Replayed:
        """Return what a run did, with the instruction that wrote the first difference, for which it is run again."""
        difference = found.difference
        if difference is None or found.fault is not None:
            return found
        return replace(found, difference=replace(difference, store=self.store_at(difference.address)))

    def store_at(self, address: int) -> str:
        """Run again and return the instruction that was the last to change the byte at an address, with its source."""
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
        """Provide the captured memory as it was before the launch.

        Raises:
            AddressTaken: this process has something else there.
        """
        before = self.capture.before
        with mapped(self.capture.manifest.ranges, before["address"], self.capture.pages[before["page"]]):
            self.prepare()
            yield

    def prepare(self) -> None:
        """Prepare what the launch needs beside the captured memory, which is there."""

    def execute(
        self,
        threads: int | None,
        observer: Observer | None,
        watched: Watching | None = None,
        observed: Observed | None = None,
    ) -> Executed:
        """Return executions and active lanes by record, the seconds and the fault, if there was one.

        The captured memory must be there (`memory`).

        Args:
            threads: host threads that run work-groups; None: as many as there are cores.
            observer: looks at every instruction.
            watched: looks for what checks find, instead.
            observed: gets what is looked at by native code, instead.
        """
        counts, lanes = np.zeros(self.code.count, np.uint64), np.zeros(self.code.count, np.uint64)
        seconds = 0.0
        fault: EmulationError | None = None
        plan = self.plan if observed is None else {**self.plan, "uses": observed.begin(self.code)}
        threads = threads or len(os.sched_getaffinity(0))
        looked_at = any(one is not None for one in (observer, watched, observed))
        with self._accessible() as memory, _executor(threads, looked_at) as executor:
            for dispatch in self._dispatches(memory, executor.threads):
                numbering = partial(number_in, self.capture.manifest, dispatch)
                observing, watch = (observer, 0) if watched is None else watched.begin()
                outcome = execute(
                    *(executor, memory, self.code, plan, {**dispatch, "watch": watch}, self.kernel.name),
                    step_limit=self.step_limit,
                    observer=observing,
                    numbering=numbering,
                    observed=0 if observed is None else observed.what,
                )
                if watched is not None:
                    watched.end(numbering)
                size = min(len(counts), len(outcome.counts))
                counts[:size] += outcome.counts[:size]
                lanes[:size] += outcome.lanes[:size]
                seconds += outcome.seconds
                fault = outcome.fault
                if fault is not None:
                    break
            if observed is not None:
                observed.take(executor)
        fault = fault or find_beyond(self.kernel, self.device.target, self.code, counts != 0)
        if fault is not None and fault.offset is not None and self.object.source.present and not fault.source:
            line = self.object.source.at(fault.offset)
            fault.source = "" if line is None else str(line)
        return counts, lanes, seconds, fault

    @contextmanager
    def _accessible(self) -> Iterator[Memory]:
        """Let the launch access the captured memory, beside what is its own."""
        taken = []
        try:
            for address, size in without(self.capture.manifest.ranges, self.capture.manifest.left_out):
                taken.append(self.accessible.register(address, size, "captured memory"))
            yield self.accessible
        finally:
            for allocation in taken:
                self.accessible.free(allocation)

    def _dispatches(self, memory: Memory, threads: int) -> Iterator[dict[str, int]]:
        """Yield fields of `layout.DISPATCH` of the parts of the launch, with their scratch in memory."""
        told, plan, program = self.capture.manifest, self.plan, self.program
        whole = [-(-items // size) for items, size in zip(told.grid, told.block, strict=True)]
        wanted = program.private + plan["scratch_extra"]
        lane = -(-min(wanted, plan["scratch_limit"]) // 16) * 16
        for first, groups, items in self.parts():
            count = groups[0] * groups[1] * groups[2]
            if told.cooperative and count > RESIDENT_GROUPS:
                raise DeviceError(f"a cooperative launch of {count} work-groups", kernel=told.kernel)
            workers = count if told.cooperative else min(threads, count)
            scratch = memory.allocate(workers * self.waves(items) * self.kernel.wave_size * lane, "scratch")
            try:
                yield {
                    **{name: getattr(told, name) for name in ("packet", "queue", "id", "cooperative")},
                    "kernarg": program.kernarg,
                    "code": program.place,
                    **{f"grid_{axis}": value for axis, value in zip("xyz", groups, strict=True)},
                    **{f"block_{axis}": value for axis, value in zip("xyz", items, strict=True)},
                    **{f"first_{axis}": value for axis, value in zip("xyz", first, strict=True)},
                    **{f"whole_{axis}": value for axis, value in zip("xyz", whole, strict=True)},
                    "lds_size": program.group,
                    "scratch": scratch.address,
                    "scratch_lane": lane,
                }
            finally:
                memory.free(scratch)


def compared(
    capture: Capture, addresses: Collection[int], contents: Callable[[int], NDArray[np.uint8]]
) -> tuple[Difference | None, NDArray[np.uint64]]:
    """Return the first difference from what was recorded, and which pages have changed.

    Args:
        addresses: of the pages that may have.
        contents: returns those of the page at an address.
    """
    before, after = by_address(capture.before), by_address(capture.after)
    first: tuple[int, int, int] | None = None
    total, written, zeros = 0, [], np.zeros(PAGE, np.uint8)
    for address in sorted({*addresses, *after}):
        now = contents(address)
        old = capture.pages[before[address]] if address in before else zeros
        wanted = capture.pages[after[address]] if address in after else old
        here = now.tobytes()  # far quicker to compare than arrays
        same = here == old.tobytes()
        if not same:
            written.append(address)
        if (same and wanted is old) or here == wanted.tobytes():
            continue
        wrong = np.flatnonzero(now != wanted)
        total += len(wrong)
        if first is None:
            at = int(wrong[0])
            first = address + at, int(wanted[at]), int(now[at])
    changed = np.array(written, np.uint64)
    if first is None:
        return None, changed
    inside = next((r for r in capture.manifest.ranges if 0 <= first[0] - r[0] < r[1]), (first[0], 1))
    return Difference(first[0], inside, first[1], first[2], total), changed


def by_address(places: NDArray[np.void]) -> dict[int, int]:
    """Return `PLACES` as a mapping of addresses to numbers of pages."""
    return dict(zip(places["address"].tolist(), places["page"].tolist(), strict=True))


def parts(grid: Triple, block: Triple) -> Iterator[tuple[Triple, Triple, Triple]]:
    """Yield first work-group, number of work-groups and work-items of one, of each part of a grid: those at its ends
    are smaller where it is no multiple of the work-group."""

    def along(whole: int, size: int) -> list[tuple[int, int, int]]:
        full, rest = divmod(whole, size)
        return [part for part in ((0, full, size), (full, 1, rest)) if part[1] and part[2]]

    for z, y, x in itertools.product(*(along(grid[axis], block[axis]) for axis in (2, 1, 0))):
        yield (x[0], y[0], z[0]), (x[1], y[1], z[1]), (x[2], y[2], z[2])


def number_in(told: Manifest, dispatch: Mapping[str, int], number: int) -> int:
    """Return the number of a work-group in the whole grid, for its number in a dispatch of a part of it."""
    wide, high = (dispatch[f"grid_{axis}"] for axis in "xy")
    inside = number % wide, number // wide % high, number // wide // high
    x, y, z = (dispatch[f"first_{axis}"] + at for axis, at in zip("xyz", inside, strict=True))
    groups = [-(-whole // size) for whole, size in zip(told.grid, told.block, strict=True)]
    return (z * groups[1] + y) * groups[0] + x


def chosen(groups: Sequence[Triple], grid: Triple, block: Triple) -> Iterator[tuple[Triple, Triple, Triple]]:
    """Yield parts, as `parts`, of only these work-groups, which are in their order."""

    def size(axis: int, place: int) -> int:
        return min(block[axis], grid[axis] - place * block[axis])

    at = 0
    while at < len(groups):
        x, y, z = groups[at]
        items = size(0, x), size(1, y), size(2, z)
        end = at + 1
        while end < len(groups) and groups[end] == (x + end - at, y, z) and size(0, x + end - at) == items[0]:
            end += 1
        yield (x, y, z), (end - at, 1, 1), items
        at = end


def with_pages(
    capture: Capture, before: Mapping[int, NDArray[np.uint8]], after: Mapping[int, NDArray[np.uint8]]
) -> Capture:
    """Return a capture with other pages, by address, each page's contents being in it once."""
    known: dict[bytes, int] = {}
    kept: list[Pages] = []
    tables = []
    for places in (before, after):
        table = np.zeros(len(places), PLACES)
        for row, address in enumerate(sorted(places)):
            contents = places[address].tobytes()
            if contents not in known:
                known[contents] = len(kept)
                kept.append(places[address])
            table[row] = address, known[contents]
        tables.append(table)
    pages = np.stack(kept) if kept else np.zeros((0, PAGE), np.uint8)
    return replace(capture, pages=pages, before=tables[0], after=tables[1])


def compact(capture: Capture) -> Capture:
    """Return a capture whose pages all have different contents."""
    before, after = (
        {address: capture.pages[page] for address, page in by_address(places).items()}
        for places in (capture.before, capture.after)
    )
    return with_pages(capture, before, after)


def reduced(capture: Capture, run: Replayed) -> tuple[Capture, Replayed]:
    """Return a capture with only the pages that its replay accessed, and of what changed only what it changed, and how
    that replay compares with it.

    What others have written meanwhile, to pages that the launch never writes, is not what it did. The replay is one of
    the reduced capture, too: nothing that is left out was there for it.

    Args:
        run: of all of the capture, without a fault, and with what it has changed (`keep`).
    """
    touched, written = set(run.touched.tolist()), set(run.written.tolist())
    before = {a: capture.pages[p] for a, p in by_address(capture.before).items() if a in touched}
    after = {a: capture.pages[p] for a, p in by_address(capture.after).items() if a in written}
    left = sorted({*capture.before["address"].tolist()} - before.keys())
    manifest = msgspec.structs.replace(capture.manifest, left_out=tuple(_stretches(left)), replayed=True)
    smaller = replace(with_pages(capture, before, after), manifest=manifest)
    difference, _ = compared(smaller, run.written.tolist(), run.left.__getitem__)
    return smaller, replace(run, difference=difference)


def _stretches(pages: Sequence[int]) -> list[tuple[int, int]]:
    """Return address and bytes of the stretches of pages at these addresses, which are in their order."""
    return [(begin, end - begin) for begin, end in pieces([(page, PAGE) for page in pages])]


def without(ranges: Sequence[tuple[int, int]], left_out: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield address and bytes of what remains of ranges; both are in their order."""
    at = 0
    for address, size in ranges:
        begin, end = address, address + size
        while at < len(left_out) and left_out[at][0] < end:
            first, length = left_out[at]
            if begin < first:
                yield begin, first - begin
            begin = max(begin, first + length)
            if first + length > end:
                break  # the next range may have the rest of it
            at += 1
        if begin < end:
            yield begin, end - begin
