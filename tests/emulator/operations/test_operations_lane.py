"""Operations across lanes and on EXEC, as instructions of one wave."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly
from luthier.errors import EmulationError

LANES = np.arange(64, dtype=np.uint32)
VALUES = LANES * np.uint32(0x01010101) + 7
TARGETS = [("gfx90a", 64), ("gfx1100", 32), ("gfx1100", 64), ("gfx1201", 32)]


@pytest.mark.parametrize(("target", "size"), TARGETS)
def test_single_lanes(target, size):
    state = run_assembly(
        target,
        """
        v_readfirstlane_b32 s4, v0
        v_readlane_b32 s5, v0, 7
        v_readlane_b32 s6, v0, s9
        v_writelane_b32 v1, s8, 9
        v_writelane_b32 v1, 17, s9
        v_mov_b32 v2, v0
        """,
        {0: VALUES[:size], 1: LANES[:size], 2: LANES[:size]},
        {8: 0xDEAD, 9: 64 + 30},
        exec=0b11011000,
        wave_size=size,
    )
    assert [state.sgpr(number) for number in (4, 5, 6)] == [VALUES[3], VALUES[7], VALUES[30]]
    expected = LANES[:size].copy()
    expected[[9, 30]] = 0xDEAD, 17
    assert (state.vgpr(1) == expected).all()
    expected = LANES[:size].copy()
    expected[[3, 4, 6, 7]] = VALUES[[3, 4, 6, 7]]
    assert (state.vgpr(2) == expected).all()


def test_nothing_active():
    state = run_assembly(
        "gfx90a",
        "v_readfirstlane_b32 s4, v0\nv_mov_b32 v1, v0\nv_cmp_eq_u32 vcc, v0, v0",
        {0: VALUES, 1: LANES},
        exec=0,
    )
    assert state.sgpr(4) == VALUES[0]
    assert (state.vgpr(1) == LANES).all()
    assert state.vcc == 0


LOGIC = {
    "and": lambda x, m: x & m,
    "or": lambda x, m: x | m,
    "xor": lambda x, m: x ^ m,
    "nand": lambda x, m: ~(x & m),
    "nor": lambda x, m: ~(x | m),
    "xnor": lambda x, m: ~(x ^ m),
    "andn2": lambda x, m: x & ~m,
    "orn2": lambda x, m: x | ~m,
    "andn1": lambda x, m: ~x & m,
    "orn1": lambda x, m: ~x | m,
}
NEWER = {"andn2": "and_not1", "orn2": "or_not1", "andn1": "and_not0", "orn1": "or_not0"}


@pytest.mark.parametrize("name", LOGIC)
@pytest.mark.parametrize(("target", "size"), [("gfx90a", 64), ("gfx1100", 32), ("gfx1100", 64)])
def test_save_exec(name, target, size):
    ones = (1 << size) - 1
    old, source = 0xF0F0FFFF00001234 & ones, 0xFF00FF00FF005678 & ones
    spelled = name if target == "gfx90a" else NEWER.get(name, name)
    pair = "s[4:5], s[8:9]" if size == 64 else "s4, s8"
    state = run_assembly(
        target,
        f"s_{spelled}_saveexec_b{size} {pair}",
        sgprs={8: source & 0xFFFFFFFF, 9: source >> 32},
        exec=old,
        wave_size=size,
    )
    new = LOGIC[name](source, old) & ones
    assert state.sgpr(4, size // 32) == old
    assert state.exec == new
    assert state.scc == (new != 0)


def test_write_exec():
    state = run_assembly("gfx942", "s_andn1_wrexec_b64 s[4:5], s[8:9]", sgprs={8: 0xFF, 9: 1}, exec=0x3_0000_0FFF)
    assert state.exec == state.sgpr(4, 2) == 0x2_0000_0F00


@pytest.mark.parametrize("crossed", [False, True])
@pytest.mark.parametrize(("inactive", "bound"), [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("size", [32, 64])
def test_permutations_of_rows(crossed, inactive, bound, size):
    choice = [3, 3, 0, 15, 8, 1, 2, 14, 7, 7, 6, 5, 4, 11, 12, 13]
    selectors = sum(place << 4 * lane for lane, place in enumerate(choice))
    active = 0xFFFF0FF7_FF5FF0FF & (1 << size) - 1
    state = run_assembly(
        "gfx1100",
        f"v_permlane{'x' if crossed else ''}16_b32 v1, v0, s4, s5 op_sel:[{inactive},{bound}]",
        {0: VALUES[:size], 1: LANES[:size]},
        {4: selectors & 0xFFFFFFFF, 5: selectors >> 32},
        exec=active,
        wave_size=size,
    )
    expected = []
    for lane in range(size):
        source = (lane & ~15 ^ (16 if crossed else 0)) + choice[lane & 15]
        if not active >> lane & 1:
            expected.append(lane)
        elif active >> source & 1 or inactive:
            expected.append(int(VALUES[source]))
        else:
            expected.append(0 if bound else lane)
    assert state.vgpr(1).tolist() == expected


def test_permutations_by_vector():
    choice = (LANES[:32] * 7 + 3) & 15
    state = run_assembly("gfx1201", "v_permlane16_var_b32 v2, v0, v1", {0: VALUES[:32], 1: choice, 2: LANES[:32]})
    assert (state.vgpr(2) == VALUES[(LANES[:32] & ~np.uint32(15)) + choice]).all()


def test_halves_of_a_wave():
    state = run_assembly("gfx1100", "v_permlane64_b32 v1, v0", {0: VALUES, 1: LANES}, wave_size=64)
    assert (state.vgpr(1) == np.roll(VALUES, 32)).all()


@pytest.mark.parametrize("distance", [16, 32])
def test_swapped_rows(distance):
    x, y = VALUES, LANES + 1000
    state = run_assembly("gfx950", f"v_permlane{distance}_swap_b32 v0, v1", {0: x, 1: y})
    first, second = x.copy(), y.copy()
    for lane in range(64):
        if not lane & distance:
            first[lane + distance], second[lane] = y[lane], x[lane + distance]
    assert (state.vgpr(0) == first).all()
    assert (state.vgpr(1) == second).all()
    with pytest.raises(EmulationError, match="some lanes are off"):
        run_assembly("gfx950", f"v_permlane{distance}_swap_b32 v0, v1", {0: x, 1: y}, exec=(1 << 64) - 2)


def test_swap_and_carry():
    state = run_assembly(
        "gfx90a",
        """
        v_swap_b32 v0, v1
        v_add_co_u32 v2, vcc, v0, v0
        v_addc_co_u32 v3, vcc, 0, v1, vcc
        """,
        {0: VALUES, 1: np.where(LANES & 1, 0x80000000 + LANES, LANES).astype(np.uint32), 2: 0, 3: 0},
    )
    assert (state.vgpr(1) == VALUES).all()
    assert (state.vgpr(3) == VALUES + (LANES & 1)).all()
    assert state.vcc == 0


def test_masked_sums_of_differences():
    data = np.random.default_rng(1).integers(0, 2**64, 64, dtype=np.uint64)
    pattern = np.random.default_rng(2).integers(0, 2**32, 64, dtype=np.uint32) & 0xFF00FFFF
    totals = np.random.default_rng(3).integers(0, 2**32, (4, 64), dtype=np.uint32)
    registers = {0: data, 2: pattern, **{4 + index: row for index, row in enumerate(totals)}}
    state = run_assembly("gfx90a", "v_mqsad_u32_u8 v[8:11], v[0:1], v2, v[4:7]", registers)
    for index in range(4):
        expected = []
        for lane in range(64):
            window = (int(data[lane]) >> 8 * index & 0xFFFFFFFF).to_bytes(4, "little")
            pairs = zip(window, int(pattern[lane]).to_bytes(4, "little"), strict=True)
            expected.append(int(totals[index][lane]) + sum(abs(a - b) for a, b in pairs if b) & 0xFFFFFFFF)
        assert state.vgpr(8 + index).tolist() == expected
