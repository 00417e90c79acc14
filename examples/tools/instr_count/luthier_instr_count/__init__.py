"""Counts the instructions a kernel executes: vector ones per active lane or per wave, scalar ones per wave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from luthier import ExecutionCounts, InstrumentationTask, KernelCounts, Run, Table, Tool, ToolModule
from numpy.typing import NDArray

DEVICE = ToolModule.from_package(__name__, "device")


class InstrCount(Tool):
    """Adds executed instructions to the variable ``counter``."""

    @dataclass(frozen=True)
    class Options:
        """Options: how instructions are counted."""

        per_wave: bool = False
        """Count a vector instruction once per wave, not once per active lane."""
        per_block: bool = False
        """Also show the counted instructions of each basic block."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.by_lane: dict[tuple[str, int, int], NDArray[np.bool_]] = {}
        """Whether each instruction counts by lane, by index. Name, first address and number of instructions identify
        kernels: those of several objects may have one name."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook before every counted instruction."""
        for instruction in task.instructions:
            if instruction.is_vector:
                task.insert_hook_before(instruction, DEVICE.count_vector, self.options.per_wave)
            else:
                task.insert_hook_before(instruction, DEVICE.count_scalar)
        if self.options.per_block:
            self._count_blocks(task)

    def _count_blocks(self, task: InstrumentationTask) -> None:
        by_lane = np.zeros(len(task.lifted.code), bool)
        if not self.options.per_wave:
            by_lane[[one.index for one in task.instructions if one.is_vector]] = True
        addresses = task.lifted.code.addresses
        self.by_lane[task.lifted.kernel.name, int(addresses[0]), len(addresses)] = by_lane
        task.count(task.instructions)
        if by_lane.any():
            task.count(np.flatnonzero(by_lane).tolist(), per="lane")

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the counter, with what it counts, and the blocks of each kernel."""
        how = (
            "once for each wave" if self.options.per_wave else "vector ones for each active lane, others for each wave"
        )
        for table in super().report(run):
            yield Table(table.title or f"executed instructions, {how}", table.columns, table.rows)

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield the blocks of one kernel, those with most first."""
        counters = counts.counters
        by_lane = self.by_lane.get((counters.kernel, int(counters.addresses[0]), len(counters.addresses)))
        if by_lane is None:
            return
        executed = np.where(by_lane, counts.active_lanes, counts.executions)
        total = int(executed.sum())
        rows = []
        for row in counts.block_rows():
            count = int(executed[counters.block_of == row.block].sum())
            share = round(100 * count / max(total, 1), 2)
            rows.append((row.block, row.source, hex(row.address), row.executions, count, share))
        rows.sort(key=lambda row: -row[4])
        yield Table(counters.kernel, ("block", "source", "address", "entered", "instructions", "%"), rows)

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """Return what the counter must be, by the emulated device's own counts."""
        total = 0
        for instruction in task.instructions:
            per_lane = instruction.is_vector and not self.options.per_wave
            column = counts.active_lanes if per_lane else counts.executions
            total += int(column[instruction.index])
        return {"counter": total}
