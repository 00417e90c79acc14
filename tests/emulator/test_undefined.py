"""Undefined bits of registers: whatever depends on one is undefined, and what certainly does not is defined."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator import layout
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.findings.kinds import FindingKind
from luthier.isa import Isa
from numpy.typing import NDArray

Row = NDArray[np.uint32]
TARGETS = ["gfx90a", "gfx1030", "gfx1201"]
MAKE = """
v_and_b32 v10, v14, v200
v_xor_b32 v10, v10, v12
v_and_b32 v11, v15, v200
v_xor_b32 v11, v11, v13
"""
"""v10 and v11 get the values of v12 and v13, and are undefined in the bits of v14 and v15: nobody writes v200."""
OPERATIONS = (
    "v_mov_b32 {d}, v10",
    "v_not_b32 {d}, v10",
    "v_bfrev_b32 {d}, v10",
    *(f"v_{name}_b32 {{d}}, v10, v11" for name in ("and", "or", "xor")),
    *(f"v_{name} {{d}}, v11, v10" for name in ("lshlrev_b32", "lshrrev_b32", "ashrrev_i32")),
    *(f"v_{name} {{d}}, 5, v10" for name in ("lshlrev_b32", "lshrrev_b32", "ashrrev_i32")),
    *(f"v_{name} {{d}}, v10, v11" for name in ("min_u32", "max_i32", "mul_lo_u32", "mul_hi_u32", "mul_u32_u24")),
    *(f"v_{name} {{d}}, v10, v11" for name in ("add_f32", "mul_f32", "max_f32", "bcnt_u32_b32", "pk_add_u16")),
    *(f"v_{name} {{d}}, v10, 4, 9" for name in ("bfe_u32", "bfe_i32")),
    *(f"v_{name} {{d}}, v10, v11, v18" for name in ("bfi_b32", "alignbit_b32", "sad_u8", "med3_i32")),
    *(f"v_{name} {{d}}, v10, v11, v18" for name in ("add3_u32", "lshl_add_u32", "and_or_b32", "or3_b32", "fma_f32")),
    *(f"v_{name} {{d}}, v10" for name in ("cvt_f32_u32", "cvt_u32_f32", "rcp_f32", "cvt_f32_ubyte2")),
    *(f"v_cmp_{name} vcc{{h}}, v10, v11\nv_cndmask_b32 {{d}}, v18, v19, vcc{{h}}" for name in ("lt_u32", "gt_i32")),
    *(f"v_cmp_{name} vcc{{h}}, v10, v11\nv_cndmask_b32 {{d}}, v18, v19, vcc{{h}}" for name in ("lt_f32",)),
    "v_and_b32 {d}, 1, v10\nv_cmp_eq_u32 vcc{h}, 0, {d}\nv_cndmask_b32 {d}, v18, v19, vcc{h}",
    "v_readfirstlane_b32 s40, v10\nv_mov_b32 {d}, s40",
    "v_readfirstlane_b32 s40, v10\ns_add_u32 s41, s40, 7\nv_mov_b32 {d}, s41",
    "v_perm_b32 {d}, v10, v11, v20",
    "v_mov_b32 {d}, 0\nv_cvt_f16_f32 {d}, v10",
    "v_mov_b32_dpp {d}, v10 quad_perm:[1,2,3,0] row_mask:0xf bank_mask:0xf",
    "ds_bpermute_b32 {d}, v16, v10",
    "ds_write_b32 v17, v10\nds_read_b32 {d}, v17",
    "ds_write_b8 v17, v10\nds_read_u8 {d}, v17",
    "ds_write_b16 v17, v10 offset:2\nds_read_b32 {d}, v17",
    "ds_add_u32 v17, v10\nds_read_b32 {d}, v17",
)
EXACT = {
    "v_and_b32 {d}, 0xff0, v10": lambda mask: mask & 0xFF0,
    "v_or_b32 {d}, 0xff0, v10": lambda mask: mask & ~np.uint32(0xFF0),
    "v_xor_b32 {d}, 0xff0, v10": lambda mask: mask,
    "v_lshlrev_b32 {d}, 4, v10": lambda mask: mask << 4,
    "v_bfe_u32 {d}, v10, 8, 8": lambda mask: mask >> 8 & 0xFF,
    "v_mul_u32_u24 {d}, 0, v10": lambda mask: np.where(mask & 0xFFFFFF, -(mask & 0xFFFFFF & -(mask & 0xFFFFFF)), 0),
    "ds_write_b32 v17, v10\nds_read_u8 {d}, v17 offset:1": lambda mask: mask >> 8 & 0xFF,
    "v_xor_b32 {d}, v10, v10": lambda mask: mask & 0,
    "ds_write_b32 v17, v18\nds_read_b32 {d}, v17": lambda mask: mask & 0,
    "ds_write_b32 v17, v18\nds_add_u32 v17, v18\nds_read_b32 {d}, v17": lambda mask: mask & 0,
    "ds_write_b32 v17, v10\nds_read2_b32 v[22:23], v17 offset0:1\nv_mov_b32 {d}, v23": lambda mask: mask,
    "ds_write2_b32 v17, v18, v10 offset1:64\nds_read2_b32 v[22:23], v17 offset1:64\nv_mov_b32 {d}, v22": (
        lambda mask: mask & 0
    ),
}
"""Operations whose result is undefined in exactly these bits, of those of v10."""
FIRST = 24


def run(target: str, operations: list[str], rows: dict[int, Row]) -> WaveState:
    """Run operations, whose results go to v24 and those behind it."""
    half = "_lo" if Isa.of(target).wave_size == 32 else ""
    lines = [operation.format(d=f"v{FIRST + number}", h=half) for number, operation in enumerate(operations)]
    return run_assembly(target, MAKE + "\n".join(lines), rows, lds=1024, undefined=True)


def inputs(target: str) -> dict[int, Row]:
    """Return values and masks by register, an address of LDS and a lane's."""
    lanes, random = Isa.of(target).wave_size, np.random.default_rng(7)
    rows = {number: random.integers(0, 1 << 32, lanes, np.uint32) for number in (12, 13, 14, 15, 18, 19)}
    rows[14] &= random.integers(0, 1 << 32, lanes, np.uint32) & random.integers(0, 1 << 32, lanes, np.uint32)
    rows[15] &= rows[12] & random.integers(0, 1 << 32, lanes, np.uint32)
    rows[14][1::5] = 0
    rows[15][1::3] = 0
    rows[16] = random.integers(0, lanes, lanes).astype(np.uint32) * 4
    rows[16][1] = 4
    rows[20] = np.full(lanes, 0x05020104, np.uint32)
    rows[17] = np.arange(lanes, dtype=np.uint32) * 4
    return rows


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_what_depends_on_undefined_bits_is_undefined(target: str) -> None:
    rows, random = inputs(target), np.random.default_rng(11)
    first = run(target, list(OPERATIONS), rows)
    shadows = first.undefined.vgpr(FIRST, len(OPERATIONS))
    everywhere = {text for text, shadow in zip(OPERATIONS, shadows, strict=True) if shadow.all()}
    assert everywhere <= {text for text in OPERATIONS if "readfirstlane" in text}, "the others' are defined in lane 1"
    seen = np.zeros_like(shadows)
    for _ in range(8):
        other = {**rows}
        for value, mask in ((12, 14), (13, 15)):
            other[value] = rows[value] ^ (rows[mask] & random.integers(0, 1 << 32, len(rows[mask]), np.uint32))
        again = run(target, list(OPERATIONS), other)
        seen |= first.vgpr(FIRST, len(OPERATIONS)) ^ again.vgpr(FIRST, len(OPERATIONS))
    wrong = {
        text: hex(int((bits & ~shadow).max())) for text, bits, shadow in zip(OPERATIONS, seen, shadows, strict=True)
    }
    assert {text: bits for text, bits in wrong.items() if bits != "0x0"} == {}
    unseen = {text for text, bits in zip(OPERATIONS, seen, strict=True) if not bits.any()}
    assert not unseen, "each operation shows a bit that depends on undefined ones"


@pytest.mark.parametrize("target", TARGETS)
def test_what_does_not_is_defined(target: str) -> None:
    rows = inputs(target)
    state = run(target, list(EXACT), rows)
    for number, (text, expected) in enumerate(EXACT.items()):
        assert (state.undefined.vgpr(FIRST + number) == expected(rows[14]).astype(np.uint32)).all(), text


@pytest.mark.parametrize("target", TARGETS)
def test_lanes_that_are_off_keep_theirs(target: str) -> None:
    state = run_assembly(target, "v_mov_b32 v5, v1", {1: 3}, exec=0b1011, undefined=True)
    assert state.undefined.vgpr(5).tolist()[:5] == [0, 0, 0xFFFFFFFF, 0, 0xFFFFFFFF]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("s_cmp_eq_u32 vcc_lo, 0\ns_cbranch_scc1 end\nend:", FindingKind.UNDEFINED_BRANCH),
        ("s_cbranch_vccz end\nend:", FindingKind.UNDEFINED_BRANCH),
        ("v_mov_b32 v1, v200\nds_read_b32 v2, v1", FindingKind.UNDEFINED_ADDRESS),
        ("s_mov_b32 exec_lo, vcc_lo", FindingKind.UNDEFINED_MASK),
        ("s_and_saveexec_b64 s[2:3], vcc", FindingKind.UNDEFINED_MASK),
        ("s_and_b32 s4, vcc_lo, 0\ns_cmp_eq_u32 s4, 0\ns_cbranch_scc1 end\nend:", None),
        ("s_cbranch_execz end\nend:", None),
        ("s_mov_b32 s4, vcc_lo\nv_mov_b32 v5, s4", None),
    ],
)
def test_decisions(target: str, source: str, kind: FindingKind | None) -> None:
    if "b64" in source and Isa.of(target).wave_size == 32:
        source = "s_and_saveexec_b32 s2, vcc_lo"
    state = run_assembly(target, source, {1: 3}, lds=64, undefined=True)
    assert [seen.kind for seen in state.sightings] == ([] if kind is None else [kind])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", ["s_mov_b64 exec, vcc", "s_mov_b32 exec_hi, vcc_hi"])
def test_upper_half_of_exec_decides_only_in_waves_of_64_lanes(target: str, source: str) -> None:
    state = run_assembly(target, f"s_mov_b32 vcc_lo, -1\n{source}", {1: 3}, undefined=True)
    expected = [FindingKind.UNDEFINED_MASK] if Isa.of(target).wave_size == 64 else []
    assert [seen.kind for seen in state.sightings] == expected


@pytest.mark.parametrize("source", ["ds_bpermute_b32 v5, v1, v2", "ds_swizzle_b32 v5, v2 offset:0x401f"])
def test_values_of_inactive_lanes(source: str) -> None:
    """With only that source, nothing else is undefined: VCC, and registers that are not given."""
    lanes = np.arange(64, dtype=np.uint32)
    exec = 0x00FFFFFF_0000FFFF
    state = run_assembly(
        *("gfx90a", f"{source}\nv_mov_b32 v6, vcc_lo\nv_mov_b32 v7, v200"),
        {1: (lanes ^ 16) * 4, 2: lanes},
        exec=exec,
        undefined=layout.LANE_VALUES,
    )
    active = np.array([exec >> int(lane) & 1 for lane in lanes], bool)
    taken = np.where(active & ~active[lanes ^ 16], np.uint32(0xFFFFFFFF), np.uint32(0))
    assert (state.undefined.vgpr(5) == taken).all()
    assert not state.undefined.vgpr(6).any() | state.undefined.vgpr(7).any()
    assert not state.sightings, "nothing depends on it"


OVERFLOWS = {
    "v_mul_f32 v24, v10, v10": 0x7F000000,
    "v_pk_mul_f16 v24, v10, v10": 0x78007800,
    "v_cvt_f16_f32 v24, v10": 0x7F000000,
    "v_add_f64 v[24:25], v[10:11], v[10:11]": 0x7FE00000,
}
"""Instructions whose results are infinite, and what v10 and v11 have then."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", OVERFLOWS)
def test_exceptional_floats_are_of_defined_values(target: str, source: str) -> None:
    """In lanes with an undefined operand, the result is unknown."""
    lanes = Isa.of(target).wave_size
    rows = dict.fromkeys((12, 13), np.full(lanes, OVERFLOWS[source], np.uint32))
    rows[14] = rows[15] = np.where(np.arange(lanes) % 4 == 0, np.uint32(0x10001), np.uint32(0))
    state = run_assembly(target, MAKE + source, rows, floats=layout.FLOAT_INFINITY, undefined=True)
    sightings = [(seen.kind, seen.lane, seen.count) for seen in state.sightings]
    assert sightings == [(FindingKind.INFINITY, 1, lanes - lanes // 4)]


@pytest.mark.parametrize("undefined", [False, True])
def test_exceptional_floats_of_matrices_likewise(undefined: bool) -> None:
    rows = {number: np.full(64, 0x7F000000, np.uint32) for number in (12, 13)} | {14: int(undefined), 15: 0}
    source = f"{MAKE}v_mfma_f32_4x4x1f32 v[24:27], v10, v11, 0"
    state = run_assembly("gfx90a", source, rows, floats=layout.FLOAT_INFINITY, undefined=True)
    assert {seen.kind for seen in state.sightings} == (set() if undefined else {FindingKind.INFINITY})
