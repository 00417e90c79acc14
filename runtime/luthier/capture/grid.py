"""Parts of a grid whose work-groups have the same size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from luthier.capture.form import CaptureManifest, Triple

Part = tuple[Triple, Triple, Triple]
"""First work-group, number of work-groups, and work-items of a work-group."""


def parts(grid: Triple, block: Triple) -> Iterator[Part]:
    """Yield the parts of a grid. Work-groups at its ends are smaller if its size is not a multiple of the block."""

    def along(whole: int, size: int) -> list[tuple[int, int, int]]:
        full, rest = divmod(whole, size)
        return [part for part in ((0, full, size), (full, 1, rest)) if part[1] and part[2]]

    for z, y, x in itertools.product(*(along(grid[axis], block[axis]) for axis in (2, 1, 0))):
        yield (x[0], y[0], z[0]), (x[1], y[1], z[1]), (x[2], y[2], z[2])


def whole_groups(manifest: CaptureManifest) -> Triple:
    """Return the number of work-groups in the grid of a launch."""
    x, y, z = (-(-items // size) for items, size in zip(manifest.grid, manifest.block, strict=True))
    return x, y, z


def chosen(groups: Sequence[Triple], grid: Triple, block: Triple) -> Iterator[Part]:
    """Yield the parts of only these work-groups, which are in order."""

    def size(axis: int, place: int) -> int:
        return min(block[axis], grid[axis] - place * block[axis])

    at = 0
    while at < len(groups):
        x, y, z = groups[at]
        items = size(0, x), size(1, y), size(2, z)
        end = at + 1
        while end < len(groups) and groups[end] == (x + end - at, y, z) and size(0, x + end - at) == items[0]:
            end += 1
        yield (x, y, z), (end - at, 1, 1), items
        at = end


def rest_of(groups: Sequence[Triple], grid: Triple, block: Triple) -> Iterator[Part]:
    """Yield the parts of all other work-groups than these."""
    x, y, z = (-(-items // size) for items, size in zip(grid, block, strict=True))
    taken = sorted((group[2] * y + group[1]) * x + group[0] for group in groups)
    for begin, end in itertools.pairwise((-1, *taken, x * y * z)):
        for first, counts in _boxes(begin + 1, end, x, y):
            for start, whole, items in parts(grid, block):
                low = tuple(max(first[axis], start[axis]) for axis in range(3))
                high = tuple(min(first[axis] + counts[axis], start[axis] + whole[axis]) for axis in range(3))
                if all(low[axis] < high[axis] for axis in range(3)):
                    yield (
                        (low[0], low[1], low[2]),
                        (high[0] - low[0], high[1] - low[1], high[2] - low[2]),
                        items,
                    )


def _boxes(begin: int, end: int, x: int, y: int) -> Iterator[tuple[Triple, Triple]]:
    """Yield first and number of the work-groups of a range of numbers, in boxes of a grid with rows and planes."""
    while begin < end:
        # The largest box that begins here: whole planes, whole rows, or a part of a row.
        at = begin % x, begin // x % y, begin // (x * y)
        left = end - begin
        if not at[0] and not at[1] and left >= x * y:
            counts = x, y, left // (x * y)
        elif not at[0] and left >= x:
            counts = x, min(left // x, y - at[1]), 1
        else:
            counts = min(left, x - at[0]), 1, 1
        yield at, counts
        begin += math.prod(counts)
