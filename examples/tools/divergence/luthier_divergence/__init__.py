"""Measures divergence: the lanes active in vector instructions, and the branches that diverge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from luthier import Immediate, Instruction, InstrumentationTask, KernelCounts, Run, SiteSums, Table, Tool, ToolModule
from luthier.tool.site_sums import most_first, ratio
from numpy.typing import NDArray

from luthier_divergence.masks import Mask, mask_of, writes_exec

DEVICE = ToolModule.from_package(__name__, "device")
KERNELS, LANES = 256, 65
"""Rows and columns of the device's table of lanes."""


@dataclass
class Kernel:
    """A kernel that is measured."""

    name: str
    wave_size: int
    vector: NDArray[np.bool_]
    """By instruction index."""
    key: tuple[int, int]
    """First address and number of its instructions: kernels of several objects may have one name."""


class Divergence(Tool):
    """Reports active lanes by block and in total, and branches."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is measured and shown."""

        blocks: bool = True
        """Utilisation of each block, from counters in registers."""
        histogram: bool = True
        """Histogram of active lanes; a hook wherever EXEC may have changed."""
        branches: bool = True
        """Conditional branches that are taken or diverge; one or two hooks each."""
        top: int = 20
        """Blocks and branches to show, most frequent first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.sums = SiteSums(DEVICE, "branches", 3)
        self.kernels: list[Kernel] = []
        self.without_histogram: list[str] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Request counts of lanes, and insert hooks where EXEC has changed and at branches."""
        lifted = task.lifted
        vector = np.zeros(len(lifted.code), bool)
        for instruction in task.instructions:
            vector[instruction.index] = instruction.is_vector
        addresses = lifted.code.addresses
        kernel = Kernel(lifted.kernel.name, lifted.wave_size, vector, (int(addresses[0]), len(addresses)))
        self.kernels.append(kernel)
        vectors = [one for one in task.instructions if one.is_vector]
        if self.options.blocks and vectors:
            task.count(vectors)
            task.count(vectors, per="lane")
        if self.options.histogram:
            self._histogram(task, len(self.kernels) - 1)
        if self.options.branches:
            for instruction in task.instructions:
                if instruction.is_conditional:
                    self._branch(task, instruction)

    def _histogram(self, task: InstrumentationTask, number: int) -> None:
        if number >= KERNELS:
            self.without_histogram.append(task.lifted.kernel.name)
            return
        for block in task.lifted.blocks:
            run: list[Instruction] = []
            for instruction in task.lifted.instructions[block.first : block.last + 1]:
                if instruction.is_vector:
                    run.append(instruction)
                if writes_exec(instruction):
                    self._note(task, run, number)
                    run = []
            self._note(task, run, number)

    @staticmethod
    def _note(task: InstrumentationTask, run: list[Instruction], number: int) -> None:
        if run:
            task.insert_hook_before(run[0], DEVICE.active, number, len(run))

    def _branch(self, task: InstrumentationTask, branch: Instruction) -> None:
        mask = mask_of(task, branch)
        hook = DEVICE.divide64 if task.lifted.wave_size == 64 else DEVICE.divide32

        def insert(number: Immediate) -> None:
            task.insert_hook_before(branch, DEVICE.branch, task.predicate(branch), number)
            if isinstance(mask, Mask):
                task.insert_hook_before(mask.at, hook, mask.value, mask.how, number)

        self.sums.add(task, branch, insert, mask)

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield the utilisation of one kernel's blocks."""
        counters = counts.counters
        key = int(counters.addresses[0]), len(counters.addresses)
        kernel = next((one for one in self.kernels if (one.name, one.key) == (counters.kernel, key)), None)
        if kernel is None or not self.options.blocks:
            return
        rows = []
        for row in counts.block_rows():
            in_block = kernel.vector & (counters.block_of == row.block)
            waves, lanes = int(counts.executions[in_block].sum()), int(counts.active_lanes[in_block].sum())
            if waves:
                utilisation = ratio(100 * lanes, waves * kernel.wave_size)
                rows.append((row.block, row.source, hex(row.address), waves, lanes, utilisation))
        rows.sort(key=lambda row: -row[3])
        total, lanes = sum(row[3] for row in rows), sum(row[4] for row in rows)
        shown = rows[: self.options.top or None]
        if total:
            shown.append((None, None, "all", total, lanes, ratio(100 * lanes, total * kernel.wave_size)))
        yield Table(kernel.name, ("block", "source", "address", "vector instructions", "lanes", "utilisation %"), shown)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield blocks, histograms of lanes, branches."""
        for counts in run.counts():
            yield from self.tables(counts)
        if self.options.histogram:
            yield from self._lane_tables(run)
        if self.options.branches:
            measured = self.sums.read(run)
            rows = []
            for site, (came, taken, divided) in most_first(measured, 0, self.options.top):
                known = not isinstance(site.facts, str)
                note = "" if known else site.facts
                parts = (int(divided), ratio(100 * int(divided), int(came))) if known else (None, None)
                where = site.kernel, site.source, hex(site.address), site.text
                rows.append((*where, int(came), int(taken), int(came - taken), *parts, note))
            columns = ("kernel", "source", "address", "branch", "waves", "taken", "not taken", "divergent", "%", "note")
            yield Table("branches", columns, rows)
            yield from self.sums.tables()

    def _lane_tables(self, run: Run) -> Iterable[Table]:
        total = np.zeros((KERNELS, LANES), np.uint64)
        for variable in run.variables("lanes"):
            total += variable.read(np.uint64).reshape(total.shape)
        for kernel, row in zip(self.kernels, total, strict=False):
            if not row.any():
                continue
            waves = int(row.sum())
            rows = []
            for low, high in _buckets(kernel.wave_size):
                count = int(row[low : high + 1].sum())
                if count:
                    rows.append((f"{low}" if low == high else f"{low} to {high}", count, ratio(100 * count, waves)))
            yield Table(f"{kernel.name}: active lanes", ("lanes", "vector instructions", "%"), rows)
        if self.without_histogram:
            yield Table("no histogram", ("kernel",), [(name,) for name in self.without_histogram])


def _buckets(wave_size: int) -> list[tuple[int, int]]:
    """Return the ranges of lanes of the histogram: none, one, then eighths, and all."""
    eighth = wave_size // 8
    bounds = [(0, 0), (1, 1), (2, eighth), *((low + 1, low + eighth) for low in range(eighth, wave_size, eighth))]
    return [*bounds[:-1], (wave_size - eighth + 1, wave_size - 1), (wave_size, wave_size)]
