"""Costs of memory accesses, as the executor counts them, beside NumPy's from the same addresses."""

from __future__ import annotations

import random

import luthier
import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.errors import LuthierError
from luthier.projection import machine_named, measure
from luthier.projection.work import COLUMNS
from numpy.typing import NDArray

WAVE = 64
FIRST_LOAD = 24
"""Bytes from the entry to the load of the offsets."""
MACHINE = machine_named("mi250x")
GLOBAL = """
 s_load_dwordx2 s[2:3], s[0:1], 0x0
 v_lshlrev_b32 v1, 2, v0
 s_waitcnt lgkmcnt(0)
 global_load_dword v2, v1, s[2:3]
 s_waitcnt vmcnt(0)
 {access}
 s_waitcnt vmcnt(0) lgkmcnt(0)
 s_endpgm
"""


def costs(access: str, offsets: NDArray[np.int64], mnemonic: str, lds: int = 0) -> dict[str, int]:
    """Return the costs of an access of each work-item to its offset from the buffer, or in LDS."""
    text = kernel_text(function("k", [GLOBAL.format(access=access)]), "gfx90a", lds=lds)
    device = luthier.open_device("emu:gfx90a")
    kernel = device.load(assembled(text, "gfx90a")).kernel("k")
    buffer = device.allocate(1 << 16)  # at the beginning of a page
    assert buffer.address % 4096 == 0
    buffer.write(offsets.astype(np.uint32).tobytes())
    work = measure(kernel, buffer, machine=MACHINE, block=len(offsets))
    lifted = kernel.lift()
    rows = []
    for address, row in work.samples[0].table.items():
        index = lifted.index_at(address)
        assert index is not None
        if lifted.instructions[index].mnemonic == mnemonic and address > lifted.kernel.entry + FIRST_LOAD:
            rows.append(row)
    (row,) = rows
    counts = dict(zip((*COLUMNS, "first", "end"), row, strict=True))
    if counts["first"] != counts["end"]:
        counts |= {name: counts[name] - buffer.address for name in ("first", "end")}
    return counts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [1, 2])
def test_lines(seed: int, size: int) -> None:
    """A load touches as many lines as its lanes' bytes are in; a store as many requests to L2."""
    choose = np.random.default_rng(seed)
    offsets = 4 * choose.integers(0, (64, 512, 4000, 16000)[seed], WAVE)
    suffix = {1: "", 2: "x2"}[size]
    touched = (offsets[:, None] + np.arange(4 * size)) // 64
    row = costs(
        f"global_load_dword{suffix} v[4:{3 + size}], v2, s[2:3]".replace("v[4:4]", "v4"),
        offsets,
        f"global_load_dword{suffix}",
    )
    assert row["lines"] == len(np.unique(touched))
    assert row["lanes"] == row["accessing_lanes"] == WAVE
    assert (row["first"], row["end"]) == (offsets.min(), offsets.max() + 4 * size)
    assert row["quads"] == sum(1 if np.ptp(quad) <= 3 * 4 * size else 4 for quad in offsets.reshape(16, 4))
    row = costs(
        f"global_store_dword{suffix} v2, v[4:{3 + size}], s[2:3]".replace("v[4:4]", "v4"),
        offsets,
        f"global_store_dword{suffix}",
    )
    assert row["lines"] == row["l2"] == len(np.unique(touched))
    assert row["memory"] <= len(np.unique(touched // 2)) * 2


def test_lines_of_other_waves() -> None:
    """The first wave misses, the second one finds its lines, and the last one reads others."""
    lanes = 4096 + 4 * np.arange(WAVE)
    offsets = np.concatenate([lanes, lanes, 4096 + lanes // 2])  # 64 dwords that overlap, in three lines
    row = costs("global_load_dword v4, v2, s[2:3]", offsets, "global_load_dword")
    assert (row["lines"], row["l2"], row["shared"]) == (4 + 4 + 3, 4 + 3, 4)


@pytest.mark.parametrize("seed", range(6))
def test_bank_conflicts(seed: int) -> None:
    """A read of LDS takes for each half of the wave as many cycles as its worst bank has dwords."""
    choose = random.Random(seed)
    step = choose.choice([0, 1, 2, 4, 8, 32])
    offsets = np.array([4 * ((lane * step + choose.randrange(3)) % 1024) for lane in range(WAVE)])
    row = costs("ds_read_b32 v3, v2", offsets, "ds_read_b32", lds=4096)
    expected = 0
    for half in (offsets[:32], offsets[32:]):
        dwords = np.unique(half // 4)
        expected += np.bincount(dwords % 32).max()
    assert row["lds"] == expected
    assert row["first"] == row["end"]


def test_one_lane_in_a_bank_is_free() -> None:
    """Lanes 1 to 64 in one bank take what MI250 counts: their number and one more (SQ_LDS_IDX_ACTIVE)."""
    for lanes in (1, 2, 20, 32):
        offsets = np.array([128 * (lane if lane < lanes else 0) for lane in range(WAVE)])
        row = costs("ds_read_b32 v3, v2", offsets, "ds_read_b32", lds=32768)
        assert row["lds"] == lanes + 1


@pytest.mark.parametrize("most", [0, 2, 5, 6, 10, 16])
@pytest.mark.parametrize("groups", [1, 16, 17, 33, 100, 1001])
def test_no_work_group_runs_twice(groups: int, most: int) -> None:
    """Each work-group adds 1 to a number of its own, which samples share."""
    code = """
        s_load_dwordx2 s[4:5], s[0:1], 0x0
        s_lshl_b32 s6, s2, 2
        v_mov_b32 v0, s6
        v_mov_b32 v1, 1
        s_waitcnt lgkmcnt(0)
        s_mov_b64 exec, 1
        global_atomic_add v0, v1, s[4:5]
        s_endpgm"""
    kernel = (
        luthier.open_device("emu:gfx90a")
        .load(assembled(kernel_text(function("k", [code]), "gfx90a"), "gfx90a"))
        .kernel("k")
    )
    added = np.zeros(groups, np.uint32)
    work = measure(kernel, added, machine=machine_named("mi250x"), grid=groups, block=64, most_groups=most)
    assert added.max() == 1
    ran = groups if not most or groups <= 2 * most else int(added.sum())
    assert int(added.sum()) == ran == sum(sample.groups for sample in work.samples)
    assert most == 0 or ran <= 2 * most


def test_a_negative_number_of_work_groups() -> None:
    kernel = (
        luthier.open_device("emu:gfx90a")
        .load(assembled(kernel_text(function("k", ["s_endpgm"]), "gfx90a"), "gfx90a"))
        .kernel("k")
    )
    with pytest.raises(LuthierError, match="most_groups must be at least 0, not -1"):
        measure(kernel, np.zeros(1, np.uint32), machine=machine_named("mi250x"), grid=17, block=64, most_groups=-1)
