"""Counts the instructions a kernel executes: vector ones per active lane or per wave, scalar ones per wave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luthier import ExecutionCounts, InstrumentationTask, Tool, ToolModule

DEVICE = ToolModule.from_package(__name__, "device")


class InstrCount(Tool):
    """Adds up executed instructions in the variable ``counter``."""

    @dataclass(frozen=True)
    class Options:
        """How to count."""

        per_wave: bool = False
        """Count a vector instruction once a wave, not once an active lane."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Put the hook before every instruction that is counted."""
        for instruction in task.instructions:
            if instruction.is_vector:
                task.insert_hook_before(instruction, DEVICE.count_vector, self.options.per_wave)
            else:
                task.insert_hook_before(instruction, DEVICE.count_scalar)

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """What the counter must be, by the emulated device's own counts."""
        total = 0
        for instruction in task.instructions:
            per_lane = instruction.is_vector and not self.options.per_wave
            column = counts.active_lanes if per_lane else counts.executions
            total += int(column[instruction.index])
        return {"counter": total}
