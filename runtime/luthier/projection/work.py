"""Work of a launch: counts of its instructions and costs of their accesses, of all or some work-groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture import Capture
from luthier.capture.grid import Part, chosen, whole_groups
from luthier.capture.replay import PreparedLaunch
from luthier.emulator import KernelHandle, layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.inspection.uses import uses_of
from luthier.emulator.running.executor import Executor, StructureBlock
from luthier.emulator.running.observation import Observation
from luthier.emulator.running.start import Triple, as_triple
from luthier.emulator.running.stats import AddressCounts
from luthier.errors import EmulationError, LuthierError
from luthier.objects import Kernel
from luthier.projection.machine import MachineModel
from luthier.projection.residency import GroupNeeds, residency
from luthier.support.arrays import counts_array, listed

COLUMNS = (
    *("executions", "lanes", "accesses", "accessing_lanes", "lines"),
    *("l2", "memory", "lds", "scratch", "quads", "shared"),
)
"""Columns of `SampleCounts.rows`; two more are the `first` and the `end` address of `ACCESS_COSTS`."""
Kept = TypeVar("Kept")


class SampleCounts(Struct, frozen=True, eq=False):
    """Counts of some work-groups that ran together."""

    groups: int
    waves: int
    addresses: NDArray[np.int64]
    """Virtual addresses of executed instructions, in order."""
    rows: NDArray[np.int64]
    """`COLUMNS` of each of them, and the bytes that it accesses: first, and the one after the last."""
    weight: float = 1.0
    """Equal parts of the launch that it stands for; 0: it only shows what neighbours share."""

    def __post_init__(self) -> None:
        if self.groups <= 0:
            raise ValueError("a sample must have work-groups")
        if self.addresses.ndim != 1 or self.rows.shape != (len(self.addresses), len(COLUMNS) + 2):
            raise ValueError(f"there must be {len(COLUMNS) + 2} counts for each instruction")
        if np.any(self.addresses[1:] <= self.addresses[:-1]):
            raise ValueError("addresses of counted instructions must increase")

    @property
    def table(self) -> dict[int, tuple[int, ...]]:
        """Return the rows by address."""
        return dict(zip(self.addresses.tolist(), map(tuple, self.rows.tolist()), strict=True))

    @property
    def instructions(self) -> int:
        """Return the wave-instructions."""
        return int(self.rows[:, 0].sum())


class MemoryRegion(NamedTuple):
    """Bytes that a launch accesses."""

    first: float
    end: float
    addresses: tuple[int, ...]
    """Of the instructions that access it."""


class LaunchWork(GroupNeeds, frozen=True, eq=False, kw_only=True):
    """Work of a launch. `to_json` and `from_json` keep it."""

    target: str
    scratch: int
    """Bytes of a work-item."""
    groups: int
    """Work-groups of the launch."""
    launched_groups: int = 0
    """Work-groups that the program launched, if `groups` are those of a minimised capture; otherwise 0."""
    machine: str
    """Whose caches the accesses went through."""
    samples: tuple[SampleCounts, ...]

    @property
    def measured_groups(self) -> int:
        """Return how many work-groups were executed."""
        return sum(sample.groups for sample in self.samples)

    @property
    def is_exact(self) -> bool:
        """Return whether all work-groups were executed."""
        return self.measured_groups == self.groups

    @property
    def spread(self) -> tuple[float, float]:
        """Return the smallest and the largest instructions per work-group of a sample, divided by their mean."""
        each = [sample.instructions / sample.groups for sample in self.samples if sample.weight]
        mean = sum(each) / len(each)
        return (1.0, 1.0) if self.is_exact or not mean else (min(each) / mean, max(each) / mean)

    @property
    def waves_of_mean_group(self) -> float:
        """Return the waves of a mean work-group."""
        return sum(sample.weight * sample.waves / sample.groups for sample in self.samples) / self._weights

    @property
    def _weights(self) -> float:
        return sum(sample.weight for sample in self.samples)

    def lines_by_groups(self) -> dict[int, list[float]]:
        """Return the lines that reached memory in each sample, by its number of work-groups."""
        memory = COLUMNS.index("memory")
        lines: dict[int, list[float]] = {}
        for sample in self.samples:
            lines.setdefault(sample.groups, []).append(float(sample.rows[:, memory].sum()))
        return lines

    def regions(self) -> list[MemoryRegion]:
        """Return the memory that the launch accesses, estimated from its samples, in address order.

        An instruction's bytes are from the first to the last one that a sample accesses, and as much more at both ends
        as the work-groups before the first sample and after the last one add at the same rate. Instructions whose
        bytes overlap access the same region.
        """
        addresses = np.concatenate([sample.addresses for sample in self.samples])
        spans = np.concatenate([sample.rows[:, len(COLUMNS) :] for sample in self.samples])
        accessed = spans[:, 0] != spans[:, 1]
        addresses, spans = addresses[accessed], spans[accessed]
        order = np.argsort(addresses, kind="stable")
        each, starts, counts = np.unique(addresses[order], return_index=True, return_counts=True)
        wide = []
        if len(each):
            firsts, ends = spans[order].T
            first, end = np.minimum.reduceat(firsts, starts), np.maximum.reduceat(ends, starts)
            own = np.maximum.reduceat(ends - firsts, starts)
            more = np.zeros(len(each))
            if not self.is_exact:
                more = np.where(counts < 2, 0.0, (end - first - own) / np.maximum(counts - 1, 1) / 2)
            wide = list(zip((first - more).tolist(), (end + more).tolist(), each.tolist(), strict=True))
        regions: list[MemoryRegion] = []
        for start, stop, address in sorted(wide):
            if regions and start < regions[-1].end:
                last = regions.pop()
                regions.append(MemoryRegion(last.first, max(stop, last.end), (*last.addresses, address)))
            else:
                regions.append(MemoryRegion(start, stop, (address,)))
        return regions

    def totals(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the addresses of executed instructions, and `COLUMNS` for each, for a mean work-group."""
        if not self.samples:
            raise LuthierError("nothing of the launch was measured")
        addresses = np.unique(np.concatenate([sample.addresses for sample in self.samples]))
        sums = np.zeros((len(addresses), len(COLUMNS)))
        for sample in self.samples:
            mean = sample.rows[:, : len(COLUMNS)] * (sample.weight / sample.groups / self._weights)
            sums[np.searchsorted(addresses, sample.addresses)] += mean
        executed = sums[:, 0] != 0
        return addresses[executed], sums[executed]


def to_json(value: object) -> bytes:
    """Return a record that contains work of launches as JSON."""
    return msgspec.json.encode(value, enc_hook=listed)


def from_json(text: bytes, type: type[Kept]) -> Kept:
    """Return a record from its JSON.

    Raises:
        msgspec.MsgspecError: it is damaged.
    """
    return msgspec.json.decode(text, type=type, dec_hook=counts_array)


def cost_model(work: LaunchWork, machine: MachineModel) -> StructureBlock:
    """Return the caches and the LDS with which a launch on a machine is measured, as `layout.COST_MODEL`.

    Raises:
        LuthierError: a work-group does not fit on a compute unit.
    """
    target, held = machine.target, residency(work, machine)
    sharing = -(-held.groups // held.units)  # work-groups that share a vector cache
    return StructureBlock(
        layout.COST_MODEL,
        {
            "line": target.vector_cache_line,
            "store_line": target.vector_store_line,
            "scalar_line": int(machine.scalar_line.value),
            "l2_line": int(machine.l2_line.value),
            "vector_lines": max(1, int(machine.l1_size.value * 1024) // target.vector_cache_line // sharing),
            "scalar_lines": int(machine.scalar_size.value * 1024 // machine.scalar_line.value),
            "l2_lines": int(machine.l2_size.value * 1024 // machine.l2_line.value),
            "lds_banks": target.lds_banks,
            "lds_store_banks": target.lds_store_banks,
            "lds_mixed": target.lds_reads_128_mixed,
        },
    )


def counted(
    groups: int, waves: int, executed: AddressCounts, costs: NDArray[np.void], places: NDArray[np.int64], weight: float
) -> SampleCounts:
    """Return the counts of a sample.

    Args:
        executed: in any order; rows without executions are left out.
        costs: `ACCESS_COSTS` of records; others have none.
        places: addresses by record.
        weight: as of `SampleCounts`.

    Raises:
        ValueError: costs are of records that there are not.
    """
    record, *columns = (costs[name].astype(np.int64) for name in costs.dtype.names or ())
    if np.any((record < 0) | (record >= len(places))):
        raise ValueError("costs of an instruction that the code does not have")
    ran = np.flatnonzero(executed.executions)
    ran = ran[np.argsort(executed.addresses[ran])]
    addresses = executed.addresses[ran]
    rows = np.zeros((len(ran), len(COLUMNS) + 2), np.int64)
    rows[:, 0], rows[:, 1] = executed.executions[ran], executed.active_lanes[ran]
    place = np.searchsorted(addresses, places[record])
    known = place < len(addresses)
    known[known] = addresses[place[known]] == places[record[known]]
    rows[place[known], 2:] = np.column_stack(columns)[known]
    return SampleCounts(groups, waves, addresses, rows, weight)


class _CostObservation(Observation):
    """Costs of the accesses of a launch, in the caches of a machine."""

    what = layout.OBSERVE_COSTS
    quantum = 8

    def __init__(self, code: DecodedCode, work: LaunchWork, machine: MachineModel) -> None:
        self._code = code
        self._model = cost_model(work, machine)
        self._rows: list[NDArray[np.void]] = []
        """By launch, then by record."""

    def begin(self) -> int:
        """Return the address of the memory uses of the code."""
        return uses_of(self._code)

    def costs(self) -> int:
        """Return the address of the model."""
        return self._model.address

    def end(self, executor: Executor, fault: EmulationError | None) -> None:
        """Take the costs of the finished launch."""
        self._rows.append(executor.costs())

    def counts(self, launch: int, groups: int, waves: int, executed: AddressCounts, weight: float) -> SampleCounts:
        """Return the counts of a launch, with the costs of its accesses."""
        return counted(groups, waves, executed, self._rows[launch], self._code.addresses(), weight)


def measure(
    kernel: KernelHandle,
    *arguments: Any,
    machine: MachineModel,
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 1,
    dynamic_lds: int = 0,
    most_groups: int = 16,
) -> LaunchWork:
    """Run a kernel, or some of its work-groups, on the emulated device and return its work.

    Arrays receive what the work-groups that ran have written.

    Args:
        arguments: as for `KernelHandle.launch`, like `grid`, `block` and `dynamic_lds`.
        machine: whose caches accesses go through: one with the device's processor.
        most_groups: work-groups that run, in samples over the grid; 0: all. Work-groups that wait for others
            must all run.

    Raises:
        LuthierError: the launch cannot be run.
    """
    counts, size = as_triple(grid), as_triple(block)
    needs = unmeasured(kernel.kernel, math.prod(size), int(dynamic_lds), machine)
    observation = _CostObservation(kernel.module.code(kernel.kernel.wave_size), needs, machine)
    samples = samples_of(counts, most_groups)
    whole = [count * items for count, items in zip(counts, size, strict=True)]
    places = [list(chosen(sample, (whole[0], whole[1], whole[2]), size)) for sample, _ in samples]
    weights = [weight for _, weight in samples] or [1.0]
    results = kernel.observe(
        observation,
        [[_fields(part) for part in sample] for sample in places] or [[{}]],
        *arguments,
        grid=grid,
        block=block,
        dynamic_lds=dynamic_lds,
    )
    measured = []
    for number, (stats, weight) in enumerate(zip(results, weights, strict=True)):
        measured.append(observation.counts(number, stats.workgroups, stats.waves, stats.by_address, weight))
    return replace(needs, groups=math.prod(counts), samples=tuple(measured))


def measure_capture(capture: Capture, machine: MachineModel, most_groups: int = 16) -> LaunchWork:
    """Return the work of a captured launch; arguments as for `measure`.

    Raises:
        LuthierError: the launch cannot be run, or faults.
    """
    return measure_launch(PreparedLaunch(capture, capture.manifest.target), machine, most_groups)


def measure_launch(launch: PreparedLaunch, machine: MachineModel, most_groups: int = 16) -> LaunchWork:
    """Run a captured launch, or some of its work-groups, and return its work; arguments as for `measure`.

    Raises:
        LuthierError: the launch cannot be run, or faults.
    """
    capture, kernel = launch.capture, launch.kernel
    manifest = capture.manifest
    dynamic_lds = launch.program.group - kernel.group_segment_fixed_size
    needs = unmeasured(kernel, math.prod(manifest.block), dynamic_lds, machine)
    observation = _CostObservation(launch.code, needs, machine)
    counts = whole_groups(manifest)
    samples = [] if manifest.groups or manifest.cooperative else samples_of(counts, most_groups)
    measured = []
    with launch.memory(), _restoring(launch, capture):
        for number, (sample, weight) in enumerate(samples or [(list(manifest.groups), 1.0)]):
            launch.capture = replace(capture, manifest=replace(manifest, groups=tuple(sample)))
            executions, lanes, _, fault = launch.execute(None, None, observation)
            if fault is not None:
                raise fault
            places = list(launch.parts())
            groups = sum(math.prod(count) for _, count, _ in places)
            waves = sum(math.prod(count) * launch.waves(size) for _, count, size in places)
            executed = AddressCounts(launch.code.addresses(), executions.astype(np.int64), lanes.astype(np.int64))
            measured.append(observation.counts(number, groups, waves, executed, weight))
    launched = math.prod(counts) if manifest.groups else 0
    groups = len(manifest.groups) or math.prod(counts)
    return replace(needs, groups=groups, launched_groups=launched, samples=tuple(measured))


@contextmanager
def _restoring(launch: PreparedLaunch, capture: Capture) -> Iterator[None]:
    try:
        yield
    finally:
        launch.capture = capture


def unmeasured(kernel: Kernel, items: int, dynamic_lds: int, machine: MachineModel) -> LaunchWork:
    """Return the work of a launch of which nothing has run.

    Args:
        items: of a work-group.
        machine: whose caches accesses will go through.

    Raises:
        LuthierError: the machine has another processor.
    """
    descriptor = kernel.descriptor
    if descriptor.target is not machine.target:
        raise LuthierError(
            f"the kernel is for {descriptor.target.name}: measure it with a machine of that processor, not with "
            f"{machine.name}; it can be projected on others",
            kernel=kernel.name,
        )
    return LaunchWork(
        kernel=kernel.name,
        target=descriptor.target.name,
        wave_size=descriptor.wave_size,
        vgprs=descriptor.vgprs,
        sgprs=descriptor.allocated_sgprs if descriptor.target.sgpr_file else 0,
        wgp_mode=bool(descriptor.wgp_mode),
        lds=descriptor.group_segment_fixed_size + dynamic_lds,
        scratch=descriptor.private_segment_fixed_size,
        items=items,
        groups=0,
        machine=machine.name,
        samples=(),
    )


def samples_of(counts: Triple, most: int) -> list[tuple[list[Triple], float]]:
    """Return ids of work-groups by sample, each in one of them, and the sample's weight; none: all run.

    Most are single ones, in the middle of equal parts of the launch. If there are enough, a quarter are neighbours, in
    a row in its middle: what they share shows in the lines that they access.
    """
    if most < 0:
        raise LuthierError(f"most_groups must be at least 0, not {most}")
    total, width = math.prod(counts), counts[0]
    if not most or total <= 2 * most:
        return []
    length = max(2, most // 4) if most >= 4 else 0
    strata = most - length
    row, column = divmod(total // 2, width)
    first, last = (row * width, row * width + width) if width >= length else (0, total)
    begin = min(max(row * width + column - length // 2, first), last - length)
    singles = [total * (2 * number + 1) // (2 * strata) for number in range(strata)]
    runs = [(single, 1, 1.0) for single in singles if not begin <= single < begin + length]
    if length:
        runs.append((begin, length, float(strata - len(runs))))
    return [
        (
            [(at % width, at // width % counts[1], at // (width * counts[1])) for at in range(start, start + size)],
            weight,
        )
        for start, size, weight in runs
    ]


def _fields(part: Part) -> dict[str, int]:
    """Return the fields of `layout.DISPATCH` of a part of a grid."""
    return {
        f"{name}_{axis}": value
        for name, triple in zip(("first", "grid", "block"), part, strict=True)
        for axis, value in zip("xyz", triple, strict=True)
    }
