"""Timeline of launches: each launch if there are few, otherwise how busy each queue is in short intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.report.rows import KernelNumbers, numeric
from luthier.run.folder import RunFolder

SINGLE = 4_000
"""Up to this number, launches are drawn one by one."""
BINS = 1_200
"""Number of time intervals if there are more."""
COLOURS = 8
"""Number of kernels with colours of their own, by time; all others share one."""
_LANES = 48
"""Maximum number of queues drawn."""
_COLUMNS = ("process", "device", "queue", "number", "instrumented", "time_ns", "begin_ns", "end_ns")


def timeline(run: RunFolder, numbers: KernelNumbers, kernels: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the timeline as data.

    Returns:
        ``begin`` and ``end`` in nanoseconds since 1970; ``lanes``: process, device and queue of each; ``colours``: the
        kernels that have one. Either ``launches``: ``[lane, row in it, begin, end or null, kernel, number,
        instrumented]``, or ``bins``: ``[lane, bin, colour, nanoseconds, launches]`` with ``bin_ns``. Times are relative
        to ``begin``.

    Raises:
        LuthierError: the table is damaged.
    """
    lanes: dict[tuple[int, int, int], int] = {}
    first, last, rows, unknown = None, None, 0, 0
    for part in _parts(run, numbers, lanes):
        rows += len(part["begin"])
        unknown += int((part["end"] < 0).sum())
        if len(part["begin"]):
            low, high = int(part["begin"].min()), int(np.maximum(part["begin"], part["end"]).max())
            first, last = low if first is None else min(first, low), high if last is None else max(last, high)
    order = sorted(range(len(kernels)), key=lambda number: -(kernels[number]["time"] or 0))
    coloured = [number for number in order[:COLOURS] if kernels[number]["launches"]]
    result: dict[str, Any] = {
        "begin": first,
        "end": last,
        "rows": rows,
        "unknown": unknown,
        "lanes": [list(lane) for lane in lanes][:_LANES],
        "left_out": max(len(lanes) - _LANES, 0),
        "colours": coloured,
    }
    if first is None or last is None:
        return result
    if rows <= SINGLE:
        result["launches"] = _single(run, numbers, lanes, first)
    else:
        result |= _binned(run, numbers, lanes, first, last, coloured)
    return result


def _parts(
    run: RunFolder, numbers: KernelNumbers, lanes: dict[tuple[int, int, int], int]
) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Yield batches of launches.

    If the times are unknown, ``end`` is -1, and ``begin`` is when the launch was written.
    """
    with run.table("launches") as reader:
        for batch in reader.batches(["kernel", "digest", *_COLUMNS]):
            keys = np.stack([numeric(batch, name, -1) for name in ("process", "device", "queue")], axis=1)
            unique, which = np.unique(keys, axis=0, return_inverse=True)
            places = [lanes.setdefault((row[0], row[1], row[2]), len(lanes)) for row in unique.tolist()]
            begin, end = numeric(batch, "begin_ns", -1), numeric(batch, "end_ns", -1)
            known = (begin >= 0) & (end >= begin)
            yield {
                "lane": np.array(places, np.int64)[which.reshape(-1)],
                "kernel": numbers.column(batch),
                "begin": np.where(known, begin, numeric(batch, "time_ns")),
                "end": np.where(known, end, -1),
                "number": numeric(batch, "number"),
                "instrumented": numeric(batch, "instrumented"),
            }


def _single(
    run: RunFolder, numbers: KernelNumbers, lanes: dict[tuple[int, int, int], int], first: int
) -> list[list[int | None]]:
    launches: list[list[int | None]] = []
    for part in _parts(run, numbers, lanes):
        rows = zip(
            *(part[name].tolist() for name in ("lane", "begin", "end", "kernel", "number", "instrumented")), strict=True
        )
        for lane, begin, end, *rest in rows:
            if lane < _LANES:
                launches.append([lane, 0, begin - first, None if end < 0 else end - first, *rest])
    launches.sort(key=lambda launch: (launch[0], launch[2]))
    free: dict[int | None, list[int]] = {}
    for launch in launches:  # overlapping launches of a queue get rows of their own
        ends, begin = free.setdefault(launch[0], []), launch[2] or 0
        row = next((number for number, end in enumerate(ends) if end <= begin), len(ends))
        ends[row : row + 1] = [launch[3] or begin]
        launch[1] = row
    return launches


def _binned(
    run: RunFolder,
    numbers: KernelNumbers,
    lanes: dict[tuple[int, int, int], int],
    first: int,
    last: int,
    coloured: Sequence[int],
) -> dict[str, Any]:
    width = max(-(-(last - first + 1) // BINS), 1)
    shape = (min(len(lanes), _LANES), len(coloured) + 1, BINS + 1)
    busy, whole, begun = (np.zeros(shape, np.int64) for _ in range(3))
    colour_of = {number: colour for colour, number in enumerate(coloured)}
    for part in _parts(run, numbers, lanes):
        keep = part["lane"] < _LANES
        lane, begin, kernel = part["lane"][keep], part["begin"][keep] - first, part["kernel"][keep]
        end = np.where(part["end"][keep] < 0, begin, part["end"][keep] - first)
        unique, which = np.unique(kernel, return_inverse=True)
        colour = np.array([colour_of.get(one, len(coloured)) for one in unique.tolist()], np.int64)[which]
        low, high = begin // width, end // width
        np.add.at(begun, (lane, colour, low), 1)
        np.add.at(busy, (lane, colour, low), np.where(low == high, end - begin, (low + 1) * width - begin))
        far = high > low
        np.add.at(busy, (lane[far], colour[far], high[far]), (end - high * width)[far])
        np.add.at(whole, (lane[far], colour[far], (low + 1)[far]), width)
        np.add.at(whole, (lane[far], colour[far], high[far]), -width)
    busy += np.cumsum(whole, axis=2)
    places = np.argwhere((busy > 0) | (begun > 0))
    bins = [
        [lane, at, colour, int(busy[lane, colour, at]), int(begun[lane, colour, at])]
        for lane, colour, at in places.tolist()
    ]
    return {"bins": bins, "bin_ns": width}
