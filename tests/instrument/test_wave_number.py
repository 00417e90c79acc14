"""The number by which a wave finds its part of LDS, in work-groups that are smaller than the dispatch packet says, as
those at the ends of a grid are: no two waves have the same, and none one that a whole work-group has no wave for."""

from __future__ import annotations

import random

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier import open_device
from luthier.isa.targets import target_named
from luthier.patch.registers.wave_number import wave_of_ttmp, wave_of_work_items

WAVES = [
    *(("gfx906", 64), ("gfx908", 64), ("gfx90a", 64), ("gfx942", 64), ("gfx1030", 32), ("gfx1030", 64)),
    *(("gfx1100", 32), ("gfx1100", 64), ("gfx1201", 32), ("gfx1201", 64)),
]
SIZES = 40
"""Of work-groups."""
MOST = 1024
"""Work-items."""
NUMBERS = 4
"""Of the buffer, the first word with a number: before it are two packets as far as they are read, the one that a launch
of whole work-groups has and the one of this work-group."""


def code_of(target: str, wave_size: int) -> str:
    """A kernel that puts each wave's number at the place that its true number says."""
    isa = target_named(target)
    work_item = {axis: "v0" if isa.packed_work_item_ids else f"v{'xyz'.index(axis)}" for axis in "xyz"}
    scalars = ("s8", "s9", "s10")

    def by_packet(address: str) -> list[str]:
        return wave_of_work_items(isa, wave_size, scalars, address, work_item.__getitem__)

    number = by_packet("s[0:1]") if isa.launch_ttmps is None else wave_of_ttmp(isa, "s8")
    settle = ["s_nop 7"] if isa.lane_mask_wait is None else [isa.lane_mask_wait]
    lines = [
        *("load2 s[0:1], s[0:1], 0x0", *isa.wait_for_every_load),
        *(*number, *settle, "s_mov_b32 s11, s8", "s_add_u32 s4, s0, 8", "s_addc_u32 s5, s1, 0"),
        *(*by_packet("s[4:5]"), *settle, "s_lshl_b32 s8, s8, 2", "v_mov_b32 v4, s8", "v_mov_b32 v3, s11"),
        *(f"global_store v4, v3, s[0:1] offset:{4 * NUMBERS}", "s_endpgm"),
    ]
    asked = {"system_vgpr_workitem_id": 2}
    text: str = kernel_text(function("k", lines), target, wave_size=wave_size, directives=asked, workgroup=MOST)
    return text


def random_sizes(random: random.Random) -> tuple[list[int], list[int]]:
    """Of a whole work-group and of one at an end of the grid."""
    axes = random.sample(range(3), 3)
    whole, left = [1, 1, 1], MOST
    for axis in axes:
        whole[axis] = random.choice([random.randint(1, left), min(left, random.randint(1, 12))])
        left //= whole[axis]
    return whole, [random.choice([random.randint(1, size), size]) for size in whole]


@pytest.mark.rows(5)
@pytest.mark.parametrize(("target", "wave_size"), WAVES)
def test_smaller_work_groups(target: str, wave_size: int) -> None:
    kernel = open_device(f"emu:{target}").load(assembled(code_of(target, wave_size), target, wave_size=wave_size))
    choose = random.Random(f"{target} {wave_size}")
    differ = 0
    for _ in range(SIZES):
        whole, sizes = random_sizes(choose)
        most, waves = (-(-int(np.prod(one)) // wave_size) for one in (whole, sizes))
        given = np.full(NUMBERS + MOST // 32, -1, np.int32)
        given[[1, 3]] = [one[0] | one[1] << 16 for one in (whole, sizes)]
        kernel.kernel("k").launch(given, grid=1, block=tuple(sizes))
        numbers = given[NUMBERS : NUMBERS + waves].tolist()
        assert len(set(numbers)) == waves, (whole, sizes)
        assert min(numbers) >= 0, (whole, sizes)
        assert max(numbers) < most, (whole, sizes)
        assert (given[NUMBERS + waves :] == -1).all()
        differ += numbers != list(range(waves))
    assert (differ > 0) == (target_named(target).launch_ttmps is None)
