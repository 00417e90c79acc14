"""Counts of each wave of a kernel: a row for each wave, with its work-group and its number in it.

The rows follow the kernel's cells in device memory: the 64-bit number of waves that requested a row, the rows, and one
further row that all waves without a row of their own write.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import PatchError
from luthier.support.extras import extra

TICKETS_BYTES = 8
IDENTITY = ("group_x", "group_y", "group_z", "wave")
"""The first 32-bit words of each row: the work-group's id in three dimensions, the wave's number in it."""
USUAL_ROOM = 1 << 14
"""Default number of rows of a kernel."""
LARGEST_ROWS = 1 << 31
"""Maximum size of all rows of a kernel in bytes."""


_Edge = tuple[tuple[int, int], NDArray[np.int64]]
"""Last instruction of a stretch, first instruction of a successor, and how often each wave took this edge."""


class _WaveFlow(Protocol):
    """`luthier.tool.counts.CountedFlow`."""

    @property
    def stretches(self) -> tuple[tuple[int, int, int], ...]: ...

    def solved(self, cells: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[_Edge]]: ...


class _Request(Protocol):
    """`luthier.tool.counts.CountRequest`."""

    @property
    def sites(self) -> tuple[tuple[int, int], ...]: ...

    @property
    def per(self) -> Literal["wave", "lane"]: ...


class Word(NamedTuple):
    """Position of a counter in a row."""

    low: int
    """Index of the 32-bit word."""
    high: int | None
    """Index of the word with the upper 32 bits, if any."""
    bit: int | None
    """Bit of the word, if the counter is a single bit."""


class RowLayout(Struct, frozen=True):
    """Rows of a kernel's waves in memory."""

    offset: int
    """Bytes from the kernel's first cell to the number of waves."""
    room: int
    """Number of rows for waves."""
    words: int
    """Number of 32-bit words in each row."""
    values: tuple[Word, ...]
    """For each cell, the position of its counter."""

    @property
    def size(self) -> int:
        """Return the size of all rows in bytes, from `offset` on."""
        return TICKETS_BYTES + 4 * self.words * (self.room + 1)

    def rows(self, memory: bytes) -> tuple[NDArray[np.uint32], int]:
        """Return [rows, words] of all waves that got a row, and the number of those that did not.

        Args:
            memory: device memory from the kernel's first cell on.
        """
        head, end = self.offset + TICKETS_BYTES, self.offset + self.size
        waves = int.from_bytes(memory[self.offset : head], "little")
        rows = np.frombuffer(memory[head:end], "<u4").reshape(-1, self.words)
        return rows[: min(waves, self.room)], max(waves - self.room, 0)

    def cells(self, rows: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return [cells, rows] the counts of each wave."""
        cells = np.zeros((len(self.values), len(rows)), np.int64)
        for column, (low, high, bit) in zip(cells, self.values, strict=True):
            column[:] = rows[:, low]
            if bit is not None:
                column[:] = column >> bit & 1
            elif high is not None:
                column |= rows[:, high].astype(np.int64) << 32
        return cells

    def to_json(self) -> dict[str, Any]:
        """Return the layout as plain data."""
        return {"offset": self.offset, "room": self.room, "words": self.words, "values": self.values}

    @classmethod
    def of_json(cls, data: Mapping[str, Any]) -> RowLayout:
        """Return the layout from the data of `to_json`."""
        return cls(data["offset"], data["room"], data["words"], tuple(Word(*word) for word in data["values"]))


class WaveCounts(Struct, frozen=True, eq=False):
    """Executions of each block and each edge of a kernel by each wave.

    Waves of all launches are included, in no particular order.
    """

    kernel: str
    identity: NDArray[np.uint32]
    """[waves, 4] the words of `IDENTITY`."""
    missing: int
    """Number of waves without a row: only the sums of `KernelCounts` include them."""
    stretches: tuple[tuple[int, int], ...]
    """First and last instruction of each straight-line stretch for which executions were requested, in order."""
    runs: NDArray[np.int64]
    """[waves, stretches] executions of each stretch by each wave."""
    lane_stretches: tuple[tuple[int, int], ...]
    """Stretches for which active lanes were requested."""
    lane_runs: NDArray[np.int64]
    """[waves, lane_stretches] sum of the active lanes over these executions."""
    edges: tuple[tuple[int, int], ...]
    """Source and destination block of each edge, as in `EdgeRow`: indices in the lifted kernel."""
    gone: NDArray[np.int64]
    """[waves, edges] how often each wave took each edge."""
    block_of: NDArray[np.int32]
    """[n] block of each instruction."""

    @classmethod
    def of(
        cls,
        kernel: str,
        layout: RowLayout,
        flows: tuple[Sequence[_WaveFlow], Sequence[_WaveFlow]],
        block_of: NDArray[np.int32],
        memories: Iterable[bytes],
    ) -> WaveCounts:
        """Return the counts that rows contain.

        Args:
            flows: of waves and of active lanes.
            block_of: [n] block of each instruction.
            memories: contents of the kernel's cells and rows on each device of each process.
        """
        parts = [layout.rows(memory) for memory in memories]
        rows = np.concatenate([rows for rows, _ in parts]) if parts else np.zeros((0, layout.words), np.uint32)
        cells = layout.cells(rows)
        stretches, runs, edges = _solved(flows[0], cells)
        lane_stretches, lane_runs, _ = _solved(flows[1], cells)
        taken: dict[tuple[int, int], NDArray[np.int64]] = {}
        for (last, first), times in edges:
            edge = int(block_of[last]), int(block_of[first])
            taken[edge] = taken[edge] + times if edge in taken else times
        gone = np.array(list(taken.values()), np.int64).reshape(len(taken), len(rows)).T
        identity, missing = rows[:, : len(IDENTITY)], sum(missing for _, missing in parts)
        return cls(kernel, identity, missing, stretches, runs, lane_stretches, lane_runs, tuple(taken), gone, block_of)

    def __len__(self) -> int:
        """Return the number of waves with a row."""
        return len(self.identity)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Return the blocks for which executions were requested, as indices in the lifted kernel."""
        return tuple(int(self.block_of[first]) for first, _ in self.stretches)

    @property
    def instructions(self) -> NDArray[np.int64]:
        """Return [waves] the number of instructions that each wave executed in these blocks."""
        sizes = np.array([last + 1 - first for first, last in self.stretches], np.int64)
        return self.runs @ sizes

    def executions(self, instruction: int) -> NDArray[np.int64]:
        """Return [waves] the executions of an instruction, given by its index.

        Raises:
            PatchError: they were not requested.
        """
        return self._column(self.stretches, self.runs, instruction)

    def active_lanes(self, instruction: int) -> NDArray[np.int64]:
        """Return [waves] the sum of the lanes active at an instruction, given by its index.

        Raises:
            PatchError: it was not requested.
        """
        return self._column(self.lane_stretches, self.lane_runs, instruction)

    def total(self, request: _Request) -> NDArray[np.int64]:
        """Return [waves] the sum of a request.

        Raises:
            PatchError: an instruction of the request was not counted.
        """
        column = self.executions if request.per == "wave" else self.active_lanes
        totals = np.zeros(len(self), np.int64)
        for index, weight in request.sites:
            totals += weight * column(index)
        return totals

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a row for each wave.

        Its columns are `IDENTITY`, `instructions`, and ``block_N``, the number of times the wave entered block N.
        """
        pyarrow = extra("pyarrow")  # takes 0.2 s

        columns: dict[str, NDArray[Any]] = dict(zip(IDENTITY, self.identity.T, strict=True))
        columns["instructions"] = self.instructions
        columns |= {f"block_{block}": column for block, column in zip(self.blocks, self.runs.T, strict=True)}
        return pyarrow.table({name: np.ascontiguousarray(column) for name, column in columns.items()})

    def _column(
        self, stretches: Sequence[tuple[int, int]], runs: NDArray[np.int64], instruction: int
    ) -> NDArray[np.int64]:
        at = int(np.searchsorted([first for first, _ in stretches], instruction, "right")) - 1
        if at < 0 or instruction > stretches[at][1]:
            raise PatchError(f"instruction {instruction} was not counted", kernel=self.kernel)
        return runs[:, at]


def _solved(
    flows: Sequence[_WaveFlow], cells: NDArray[np.int64]
) -> tuple[tuple[tuple[int, int], ...], NDArray[np.int64], list[_Edge]]:
    """Return the stretches, [waves, stretches] their executions, and the edges between them.

    Args:
        cells: [cells, waves].
    """
    stretches: list[tuple[int, int]] = []
    columns: list[NDArray[np.int64]] = []
    edges: list[_Edge] = []
    for flow in flows:
        nodes, between = flow.solved(cells)
        stretches += [(first, last) for _, first, last in flow.stretches]
        columns += [nodes[node] for node, _, _ in flow.stretches]
        edges += between
    order = sorted(range(len(stretches)), key=stretches.__getitem__)
    runs = np.array([columns[at] for at in order], np.int64).reshape(len(order), cells.shape[1]).T
    return tuple(stretches[at] for at in order), runs, edges
