"""Counts how often waves enter each basic block of a kernel and of the functions it calls.

No block has a counter of its own: only some of the ways between them are counted, in registers, and the rest follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, KernelCounts, Table, Tool


class BlockProfile(Tool):
    """Executions by basic block."""

    @dataclass(frozen=True)
    class Options:
        """What to show."""

        top: int = 0
        """Show so many blocks, those with most wave-instructions first; 0: all, in address order."""

    def instrument(self, task: InstrumentationTask) -> None:
        """Ask for counts."""
        task.count(task.lifted.blocks)

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """The profile of one kernel."""
        rows = counts.block_rows()
        total = sum(row.executions * row.instructions for row in rows)
        if self.options.top:
            rows = sorted(rows, key=lambda row: -row.executions * row.instructions)[: self.options.top]
        cells = [
            (
                row.block,
                hex(row.address),
                row.executions,
                row.instructions,
                round(100 * row.executions * row.instructions / max(total, 1), 2),
            )
            for row in rows
        ]
        yield Table(counts.counters.kernel, ("block", "address", "entered", "instructions", "%"), cells)
