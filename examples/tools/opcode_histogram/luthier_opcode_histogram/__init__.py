"""Counts the executions of each opcode, per wave or per active lane.

It has neither hooks nor device code: the executions of blocks follow from a few counters in registers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, KernelCounts, Table, Tool


class OpcodeHistogram(Tool):
    """Wave-instructions by opcode."""

    @dataclass(frozen=True)
    class Options:
        """Options: what to count and show."""

        per_lane: bool = False
        """Add up the active lanes of executions, instead of counting executions by waves."""
        top: int = 20
        """Opcodes to show, most frequent first; 0: all."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Request counts."""
        task.count(task.instructions, per="lane" if self.options.per_lane else "wave")

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield the histogram of one kernel."""
        histogram = counts.opcode_lanes if self.options.per_lane else counts.opcodes
        shown = list(histogram.items())[: self.options.top or None]
        total = sum(histogram.values())
        rest = total - sum(count for _, count in shown)
        if rest:
            shown.append((f"{len(histogram) - len(shown)} others", rest))
        rows = [(opcode, count, round(100 * count / total, 2)) for opcode, count in [*shown, ("all", total)] if total]
        what = "lanes" if self.options.per_lane else "executed"
        yield Table(counts.counters.kernel, ("opcode", what, "%"), rows)
