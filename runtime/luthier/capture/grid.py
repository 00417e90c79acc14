"""Parts of a grid whose work-groups have one size, and the numbers of their work-groups."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from luthier.capture.form import CaptureManifest, Triple

Part = tuple[Triple, Triple, Triple]
"""First work-group, number of work-groups, and work-items of one."""


def parts(grid: Triple, block: Triple) -> Iterator[Part]:
    """Yield first work-group, number of work-groups and work-items of one, of each part of a grid: those at its ends
    are smaller where it is no multiple of the work-group."""

    def along(whole: int, size: int) -> list[tuple[int, int, int]]:
        full, rest = divmod(whole, size)
        return [part for part in ((0, full, size), (full, 1, rest)) if part[1] and part[2]]

    for z, y, x in itertools.product(*(along(grid[axis], block[axis]) for axis in (2, 1, 0))):
        yield (x[0], y[0], z[0]), (x[1], y[1], z[1]), (x[2], y[2], z[2])


def whole_groups(told: CaptureManifest) -> Triple:
    """Return how many work-groups the grid of a launch has."""
    x, y, z = (-(-items // size) for items, size in zip(told.grid, told.block, strict=True))
    return x, y, z


def chosen(groups: Sequence[Triple], grid: Triple, block: Triple) -> Iterator[Part]:
    """Yield parts, as `parts`, of only these work-groups, which are in their order."""

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
