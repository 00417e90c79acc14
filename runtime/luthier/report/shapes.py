"""Launches of each kernel by size, since launches of different sizes must not be averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from luthier.report.overview import is_emulated
from luthier.report.rows import KernelNumbers, numeric
from luthier.run.folder import RunFolder
from luthier.support.extras import extra

SHOWN = 20_000
"""Maximum number of sizes on a page, over all kernels; those with most launches come first."""
_SUMS = ("launches", "instrumented", "timed", "time")
_SIZES = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "group_segment")


def shapes(run: RunFolder, numbers: KernelNumbers, kernels: Sequence[dict[str, Any]]) -> list[list[Any]]:
    """Return launches by kernel and size, those with most launches first.

    Returns:
        rows of kernel, work-items of the grid, work-items of a group, bytes of LDS, launches, instrumented launches,
        waves of all launches, and nanoseconds of timed launches; on an emulated device without a kernel's first.

    Raises:
        LuthierError: the table is damaged.
    """
    pa = extra("pyarrow")

    emulated = is_emulated(run)
    sums_by_size: dict[tuple[int, ...], list[int]] = {}
    with run.table("launches") as reader:
        for batch in reader.batches(["kernel", "digest", *_SIZES, "instrumented", "number", "begin_ns", "end_ns"]):
            begin, end = numeric(batch, "begin_ns", -1), numeric(batch, "end_ns", -1)
            timed = (begin >= 0) & (end >= begin)
            if emulated:
                timed &= numeric(batch, "number") != 0
            keys = {"kernel": numbers.column(batch)} | {name: numeric(batch, name) for name in _SIZES}
            sums = {"instrumented": numeric(batch, "instrumented"), "timed": timed.astype(np.int64)}
            sums |= {"launches": np.ones(len(begin), np.int64), "time": np.where(timed, end - begin, 0)}
            grouped = pa.table(keys | sums).group_by([*keys]).aggregate([(name, "sum") for name in _SUMS])
            columns = [grouped.column(name).to_pylist() for name in (*keys, *(f"{name}_sum" for name in _SUMS))]
            for row in zip(*columns, strict=True):
                entry = sums_by_size.setdefault(row[: len(keys)], [0] * len(_SUMS))
                entry[:] = [old + new for old, new in zip(entry, row[len(keys) :], strict=True)]
    rows: list[list[Any]] = []
    for (kernel_number, *sizes), (launches, instrumented, timed_ones, took) in sums_by_size.items():
        if kernel_number >= len(kernels):
            continue
        grid, block, lds = sizes[:3], sizes[3:6], sizes[6]
        waves = waves_of(grid, block, kernels[kernel_number]["wave_size"])
        total = None if waves is None else waves * launches
        time = took if timed_ones else None
        rows.append([kernel_number, grid, block, lds, launches, instrumented, total, time])
    rows.sort(key=lambda row: -row[4])
    return rows


def filled(rows: Sequence[Sequence[Any]], kernels: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the share of lanes of launched waves that hold a work-item, by kernel, where it is known.

    Args:
        rows: from `shapes`.
        kernels: from `luthier.report.overview.kernels`.
    """
    items: dict[int, int] = {}
    lanes: dict[int, int] = {}
    for number, (x, y, z), _, _, launches, _, waves, _ in rows:
        if waves:
            items[number] = items.get(number, 0) + x * y * z * launches
            lanes[number] = lanes.get(number, 0) + waves * kernels[number]["wave_size"]
    return {number: items[number] / lanes[number] for number in items}


def waves_of(grid: Sequence[int], block: Sequence[int], wave_size: int | None) -> int | None:
    """Return the number of waves of a launch; None if a size is unknown. Groups at the edge may be smaller."""
    if not wave_size or not all(grid) or not all(block):
        return None
    waves = 0
    whole = [(size // of, size % of) for size, of in zip(grid, block, strict=True)]
    for nx, x in ((whole[0][0], block[0]), (1, whole[0][1])):
        for ny, y in ((whole[1][0], block[1]), (1, whole[1][1])):
            for nz, z in ((whole[2][0], block[2]), (1, whole[2][1])):
                waves += nx * ny * nz * -(-(x * y * z) // wave_size)
    return waves
