"""Live registers at many points: what is asked of all points together, against each point alone."""

from __future__ import annotations

import random

import pytest
from live_points import points_of
from luthier.isa.registers import UNIT_LIMIT
from luthier.lifting import Live


def some_units(rng: random.Random) -> int:
    """Return a set with a few units, or none."""
    return sum(1 << unit for unit in rng.sample(range(UNIT_LIMIT), rng.randrange(4)))


@pytest.mark.parametrize("seed", range(8))
def test_units_live_anywhere(seed: int) -> None:
    """The union over all points is right at first and after each change, and so is what uses it."""
    rng = random.Random(seed)
    lives = [Live(some_units(rng), some_units(rng)) for _ in range(rng.randrange(1, 6))]
    points = points_of(lives)
    kept, changed = some_units(rng) | 1 << 300, rng.randrange(len(lives))
    for change in ("nothing", "kept", "any lane"):
        if change == "kept":
            points.keep(kept)
            lives = [Live(live.active_bits | kept, live.inactive_bits) for live in lives]
        elif change == "any lane":
            points.let_any_lane_be_active([changed])
            lives[changed] = Live(lives[changed].all_bits, lives[changed].inactive_bits)
        for in_all_lanes in (False, True):
            sets = [live.all_bits if in_all_lanes else live.active_bits for live in lives]
            union = 0
            for units in sets:
                union |= units
            assert points.anywhere(in_all_lanes=in_all_lanes) == union
            for asked in (union, some_units(rng), union & -union):
                expected = [bool(units & asked) for units in sets]
                assert points.has(asked, in_all_lanes=in_all_lanes).tolist() == expected
