"""Traffic of a launch beyond its first caches, from counts of a few work-groups.

*Private memory* is interleaved: a dword of all lanes of a wave is contiguous. Its accesses go to L2. The resident waves
of the whole device use theirs in turn, so a cache serves all of it up to its size, and nothing from a quarter more on:
each line is then the least recently used one when its turn comes.

*Other memory*: the lines that ``k`` neighbouring work-groups access are ``a + b * k``: ``a`` are shared by all. A mean
work-group brings ``b`` new lines. Its other requests hit as far as the lines of all resident work-groups fit into L2;
if they do not, sharing neighbours still stay in step, so only requests for lines that are not shared miss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from luthier.projection.machine import MachineModel
from luthier.projection.work import LaunchWork

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
    work: LaunchWork, machine: MachineModel, rows: Mapping[int, Row], line_of: Callable[[int], float], resident: int
) -> dict[int, AccessTraffic]:
    """Return the traffic of instructions by index.

    Args:
        rows: by index of each memory instruction.
        line_of: returns the bytes of a line, or of a request of stores, of an instruction.
        resident: work-groups on the whole device.
    """
    value, line = machine.value, machine.value("l2_line")
    l2, mall = value("l2_size") * 1024, value("mall_size") * 1024
    private = resident * work.waves_per_group * work.wave_size * work.scratch
    private_miss = 1 - held_share(l2, private)
    private_mall = held_share(mall, private)
    shared = _shared_lines(work.lines_by_groups())
    requests = sum(row["l2"] * line_of(index) / line for index, row in rows.items())
    held = (shared.common + shared.own * resident) * line
    everything = (shared.common + shared.own * work.groups) * line
    shared_mall = min(1.0, mall / everything) if everything else 0.0
    hit = min(1.0, l2 / held) if held else 1.0
    apart = min(1.0, shared.own / (shared.common + shared.own)) if shared.own else 0.0
    misses = min(requests, shared.own) + max(0.0, requests * apart - shared.own) * (1 - hit)
    scale = misses / requests if requests else 0.0
    result = {}
    for index, row in rows.items():
        size = line_of(index)
        outside, inside = row["l2"] * size, row["scratch"]
        far_outside = row["memory"] * line if work.is_exact else outside * scale
        far_inside = inside * private_miss
        far = far_outside + far_inside
        mall_bytes = far_outside * shared_mall + far_inside * private_mall
        result[index] = AccessTraffic(
            row["lines"] + inside / size,
            row["lines"] * size + inside,
            row["l2"] + inside / size,
            outside + inside,
            far,
            mall_bytes / far if far else 0.0,
        )
    return result


def held_share(size: float, footprint: float) -> float:
    """Return the share of a cyclic stream's accesses that a cache serves."""
    return min(1.0, max(0.0, 5 - 4 * footprint / size)) if size and footprint else float(size > 0)


def _shared_lines(samples: Mapping[int, Sequence[float]]) -> _SharedLines:
    """Return the lines from those of samples, by their number of work-groups."""
    smallest, largest = min(samples), max(samples)
    few = sum(samples[smallest]) / len(samples[smallest])
    if smallest == largest:
        return _SharedLines(0.0, few / smallest)
    many = sum(samples[largest]) / len(samples[largest])
    own = max(0.0, (many - few) / (largest - smallest))
    return _SharedLines(max(0.0, few - own * smallest), own)
