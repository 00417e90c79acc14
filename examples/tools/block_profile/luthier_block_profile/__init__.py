"""Counts how often waves enter each basic block of a kernel and of the functions it calls.

Blocks have no counters: some edges between them are counted in registers, and the rest follows.
On request it tells waves apart: how many of them took which way at a branch how often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from luthier import InstrumentationTask, KernelCounts, Table, Tool, WaveCounts
from luthier.errors import ToolError
from luthier.tool.wave_counts import IDENTITY, USUAL_ROOM


class BlockProfile(Tool):
    """Executions by basic block."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is shown."""

        top: int = 0
        """Blocks to show, most wave-instructions first; 0: all, in address order. Also the number of rows of edges and
        waves."""
        edges: bool = False
        """Also show how often waves went from each block to each of its successors."""
        per: str = "kernel"
        """``wave``: also show how many waves took each edge how often, and a row for each wave."""
        rows: int = USUAL_ROOM
        """Waves of a kernel, over all launches, that can have a row."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if self.options.per not in ("kernel", "wave"):
            raise ToolError(f"option per of {self.label()} must be kernel or wave, not {self.options.per!r}")

    def instrument(self, task: InstrumentationTask) -> None:
        """Request counts."""
        each = self.options.per == "wave"
        if each:
            task.wave_rows = self.options.rows
        task.count(task.lifted.blocks, granularity="wave" if each else "total")

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield the profile of one kernel."""
        rows = counts.block_rows()
        total = sum(row.executions * row.instructions for row in rows)
        if self.options.top:
            rows = sorted(rows, key=lambda row: -row.executions * row.instructions)[: self.options.top]
        cells = [
            (
                row.block,
                row.source,
                hex(row.address),
                row.executions,
                row.instructions,
                round(100 * row.executions * row.instructions / max(total, 1), 2),
            )
            for row in rows
        ]
        yield Table(counts.counters.kernel, ("block", "source", "address", "entered", "instructions", "%"), cells)
        if self.options.edges:
            ways = sorted(counts.edges, key=lambda way: (way.source, way.to))
            left: dict[int, int] = {}
            for way in ways:
                left[way.source] = left.get(way.source, 0) + way.executions
            edges = [
                (way.source, way.to, way.executions, round(100 * way.executions / left[way.source], 2))
                for way in ways
                if left[way.source]
            ]
            yield Table(f"{counts.counters.kernel}: ways", ("from", "to", "times", "% of its block"), edges)
        if counts.waves is not None:
            yield from self._of_waves(counts.waves)

    def _of_waves(self, waves: WaveCounts) -> Iterable[Table]:
        top = self.options.top or None
        left_out = f", {waves.missing} more waves have no row: increase the option rows" if waves.missing else ""
        yield Table(f"{waves.kernel}: waves by way{left_out}", ("from", "to", "times", "waves"), _ways(waves)[:top])
        names = (*IDENTITY, "instructions", *(f"block {block}" for block in waves.blocks))
        order = np.lexsort(waves.identity[:, [3, 0, 1, 2]].T)  # launches stay in the order in which waves ended
        columns = np.column_stack((waves.identity, waves.instructions, waves.runs))[order]
        yield Table(f"{waves.kernel}: each wave{left_out}", names, [tuple(row) for row in columns[:top].tolist()])


def _ways(waves: WaveCounts) -> list[tuple[int, int, int, int]]:
    """Return for each edge out of a branch how many waves took it how often."""
    leaving = Counter(source for source, _ in waves.edges)
    rows = []
    for (source, to), times in zip(waves.edges, waves.gone.T, strict=True):
        if leaving[source] > 1:
            how_often, of_so_many = np.unique(times, return_counts=True)
            rows += [(source, to, *pair) for pair in zip(how_often.tolist(), of_so_many.tolist(), strict=True)]
    return rows
