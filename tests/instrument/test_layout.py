"""Placement of slots and branch islands, checked by following every hop."""

from __future__ import annotations

import random

import numpy as np
import pytest
from luthier.errors import PatchError
from luthier.patch.layout.slots import BRANCH_REACH, Branch, SlotLayout, lay_out, next_hop


def reach(source: int, target: int) -> bool:
    return -BRANCH_REACH - 4 <= target - (source + 4) <= BRANCH_REACH


def follow(layout: SlotLayout, number: int, branch: Branch) -> int:
    """Number of hops from a branch to its target; fails when one is out of reach."""
    origin, hops = int(layout.instruction[branch.slot]) + branch.place, 0
    target = int(layout.entry[branch.target])
    island = layout.hops.get(number)
    while island is not None:
        place = layout.island_offset(*island)
        assert reach(origin, place)
        assert layout.pools[island[0]][1][island[1]] == branch.target
        origin, hops = place, hops + 1
        island = next_hop(layout, island[0], branch.target, target)
    assert reach(origin, target)
    return hops


def test_without_insertions_code_keeps_its_shape() -> None:
    sizes = np.array([4, 8, 4, 12], np.int64)
    layout = lay_out(sizes, np.zeros(4, np.int64), {0: 256}, [Branch(2, 0)], np.zeros(4, bool))
    assert layout.entry.tolist() == [0, 4, 12, 16]
    assert layout.size == 28
    assert not layout.pools


@pytest.mark.rows(20)
@pytest.mark.parametrize("seed", range(30))
def test_every_branch_of_a_long_kernel_arrives(seed: int) -> None:
    randomness = random.Random(seed)
    count = randomness.randrange(1000, 6000)
    before = np.array([randomness.choice((0, 60, 160, 400)) for _ in range(count)], np.int64)
    sizes = before + np.array([randomness.choice((4, 8)) for _ in range(count)], np.int64)
    no_pool = np.array([randomness.random() < 0.1 for _ in range(count)])
    branches = [Branch(slot, randomness.randrange(count)) for slot in range(count) if randomness.random() < 0.2]
    shared = randomness.sample(range(count), 3)  # called from payloads in many slots
    branches += [
        Branch(slot, randomness.choice(shared), -randomness.randrange(4, before[slot] + 1, 4))
        for slot in range(count)
        if before[slot] and randomness.random() < 0.5
    ]
    layout = lay_out(sizes, before, {0: 256, count // 2: 4}, branches, no_pool)
    longest = max(follow(layout, *one) for one in enumerate(branches))
    if layout.size > 300_000:
        assert longest > 0
    ends = layout.entry + sizes
    starts = layout.entry.copy()
    for slot, (offset, targets) in layout.pools.items():
        assert not no_pool[slot]
        assert starts[slot] == offset + 4 + 4 * len(targets)
        starts[slot] = offset
    assert (starts[1:] >= ends[:-1]).all()  # nothing overlaps


def test_no_place_for_islands_is_an_error() -> None:
    sizes = np.full(3, 200_000, np.int64)
    with pytest.raises(PatchError, match="island"):
        lay_out(sizes, np.zeros(3, np.int64), {}, [Branch(0, 2)], np.ones(3, bool))
