"""Traffic of a launch beyond its first caches, from counts of a few work-groups.

*Private memory* is interleaved: a dword of all lanes of a wave is contiguous. Its accesses go to L2. The resident waves
of the whole device use theirs in turn, so a cache serves all of it up to its size, and nothing from a quarter more on:
each line is then the least recently used one when its turn comes.

*Other memory*: the lines that ``k`` neighbouring work-groups access are ``a + b * k``: ``a`` are shared by all. A mean
work-group brings ``b`` new lines. Its other requests hit as far as the lines of all resident work-groups fit into L2;
if they do not, sharing neighbours still stay in step, so only requests for lines that are not shared miss.

The *memory side's cache* holds regions (`LaunchWork.regions`) that are read most often for each of their bytes. All
work-groups together access no more lines than their regions have: what comes again was there before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from luthier.projection.machine import MachineModel
from luthier.projection.work import LaunchWork, MemoryRegion

Row = Mapping[str, float]
"""`luthier.projection.work.COLUMNS` of an instruction in a mean work-group."""


class AccessTraffic(NamedTuple):
    """Traffic of an instruction of a mean work-group."""

    lines: float
    """Of the first cache."""
    l1_bytes: float
    """Of these lines."""
    l2_requests: float
    l2_bytes: float
    """Of these requests."""
    far_bytes: float
    """That L2 does not hold."""
    mall_share: float
    """Of these, the share that the memory side's cache holds."""


class _SharedLines(NamedTuple):
    """Lines of L2 outside private memory that neighbouring work-groups access: `common` and `own` for each of them."""

    common: float
    own: float


def traffic_of(
    work: LaunchWork,
    machine: MachineModel,
    rows: Mapping[int, Row],
    line_of: Callable[[int], float],
    address_of: Callable[[int], int],
    resident: int,
) -> dict[int, AccessTraffic]:
    """Return the traffic of instructions by index.

    Args:
        rows: by index of each memory instruction.
        line_of: returns the bytes of a line, or of a request of stores, of an instruction.
        address_of: returns the address of an instruction.
        resident: work-groups on the whole device.
    """
    value, line = machine.value, machine.value("l2_line")
    l2, mall = value("l2_size") * 1024, value("mall_size") * 1024
    private = resident * work.waves_per_group * work.wave_size * work.scratch
    private_miss = 1 - held_share(l2, private)
    private_mall = held_share(mall, private)
    regions = work.regions()
    shared = _shared_lines(work.lines_by_groups())
    size = sum(region.end - region.first for region in regions)
    requests = sum(row["l2"] * line_of(index) / line for index, row in rows.items())
    held = min(size, (shared.common + shared.own * resident) * line)
    everything = min(size, (shared.common + shared.own * work.groups) * line)
    hit = min(1.0, l2 / held) if held else 1.0
    apart = min(1.0, shared.own / (shared.common + shared.own)) if shared.own else 0.0
    misses = min(requests, shared.own) + max(0.0, requests * apart - shared.own) * (1 - hit)
    scale = misses / requests if requests else 0.0
    far_outside = {
        index: row["memory"] * line if work.is_exact else row["l2"] * line_of(index) * scale
        for index, row in rows.items()
    }
    shares = _mall_shares(regions, mall, everything / size if size else 0.0, far_outside, address_of)
    result = {}
    for index, row in rows.items():
        width = line_of(index)
        outside, inside = row["l2"] * width, row["scratch"]
        far_inside = inside * private_miss
        far = far_outside[index] + far_inside
        mall_bytes = far_outside[index] * shares.get(address_of(index), 0.0) + far_inside * private_mall
        result[index] = AccessTraffic(
            row["lines"] + inside / width,
            row["lines"] * width + inside,
            row["l2"] + inside / width,
            outside + inside,
            far,
            mall_bytes / far if far else 0.0,
        )
    return result


def _mall_shares(
    regions: Sequence[MemoryRegion],
    mall: float,
    density: float,
    far: Mapping[int, float],
    address_of: Callable[[int], int],
) -> dict[int, float]:
    """Return the share of an instruction's far bytes that the memory side's cache holds, by its address.

    Regions that are read at least half as often as another one compete with it.

    Args:
        density: share of the regions' bytes that the launch accesses.
        far: bytes beyond L2 of a mean work-group, by index of the instruction.
    """
    bytes_of = {address_of(index): size for index, size in far.items()}
    sizes = [(region.end - region.first) * density for region in regions]
    reads = [sum(bytes_of.get(address, 0.0) for address in region.addresses) for region in regions]
    rates = [count / size if size else math.inf for count, size in zip(reads, sizes, strict=True)]
    waiting = sorted(range(len(regions)), key=lambda number: -rates[number])
    shares: dict[int, float] = {}
    free = mall
    while waiting:
        alike = [number for number in waiting if rates[number] >= rates[waiting[0]] / 2]
        wanted = sum(sizes[number] for number in alike)
        share = min(1.0, free / wanted) if wanted else 1.0
        free -= min(free, wanted)
        shares.update((address, share) for number in alike for address in regions[number].addresses)
        waiting = waiting[len(alike) :]
    return shares


def held_share(size: float, footprint: float) -> float:
    """Return the share of a cyclic stream's accesses that a cache serves."""
    return min(1.0, max(0.0, 5 - 4 * footprint / size)) if size and footprint else float(size > 0)


def _shared_lines(samples: Mapping[int, Sequence[float]]) -> _SharedLines:
    """Return the lines from those of samples, by their number of work-groups."""
    smallest, largest = min(samples), max(samples)
    few = median(samples[smallest])  # work-groups at edges have less
    if smallest == largest:
        return _SharedLines(0.0, few / smallest)
    many = median(samples[largest])
    own = max(0.0, (many - few) / (largest - smallest))
    return _SharedLines(max(0.0, few - own * smallest), own)
