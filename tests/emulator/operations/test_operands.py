"""Operands that are not simply what is written: literals of 64-bit operands, constants of mixed products, indexed
registers."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.errors import EmulationError

TARGETS = ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
ALL_ONES = (1 << 64) - 1


def scalars(state: WaveState, first: int) -> int:
    return state.sgpr(first) | state.sgpr(first + 1) << 32


def single(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


@pytest.mark.parametrize("target", TARGETS)
def test_a_literal_is_extended_as_its_operand_says(target: str) -> None:
    """With its sign where that is a signed number of 64 bits, with zeros elsewhere ("Literal Constants")."""
    state = run_assembly(
        target,
        "s_ashr_i64 s[4:5], 0x80000010, 4\ns_lshr_b64 s[6:7], 0x80000010, 4\ns_mov_b64 s[8:9], 0x80000010\n"
        "s_ashr_i64 s[10:11], 0x70000010, 4\ns_ashr_i64 s[12:13], -16, 4",
    )
    assert [hex(scalars(state, first)) for first in range(4, 14, 2)] == [
        "0xfffffffff8000001",
        "0x8000001",
        "0x80000010",
        "0x7000001",
        "0xffffffffffffffff",
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "is_less"), [("i64", True), ("u64", False)])
def test_comparisons_extend_literals(target: str, kind: str, is_less: bool) -> None:
    mask = "vcc" if target.startswith("gfx9") else "vcc_lo"
    state = run_assembly(target, f"v_cmp_lt_{kind} {mask}, 0x80000000, v[0:1]\ns_mov_b32 s4, vcc_lo", {0: 5, 1: 0})
    assert state.sgpr(4) == (0xFFFFFFFF if is_less else 0)


def test_sums_extend_literals() -> None:
    source = "v_mad_i64_i32 v[4:5], null, v2, v2, 0x80000000\nv_mad_u64_u32 v[6:7], null, v2, v2, 0x80000000"
    state = run_assembly("gfx1100", source, {2: 1})
    assert [int(state.vgpr(number)[0]) for number in range(4, 8)] == [0x80000001, 0xFFFFFFFF, 0x80000001, 0]


def test_a_literal_of_64_bits_is_taken_as_it_is() -> None:
    """`0x868884ff` is s_ashr_i64 with a literal of 32 bits, which LLVM's assembler does not make."""
    source = "s_ashr_i64 s[4:5], 0x80000000, 4\n.long 0x868884ff\n.long 0x80000000"
    state = run_assembly("gfx1250", source)
    assert scalars(state, 4) == 0x8000000
    assert scalars(state, 8) == ALL_ONES & -0x8000000


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1.0, v0, 0", 2.0),
        ("v0, v0, 0.5", 4.5),
        ("-v0, 0.5, v0", 1.0),
        ("v0, 1.0, 0 op_sel_hi:[0,1,0]", 2.0),
        ("v0, v0, 63", 4.0 + 63 * 2**-24),  # a number of 16 bits, too
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_constants_of_mixed_products_have_16_bits(target: str, source: str, expected: float) -> None:
    """LLVM, VOP3PInstructions.td, VOP3P_Mix_Profile: also those that are read as numbers of 32 bits."""
    state = run_assembly(target, f"v_fma_mix_f32 v1, {source}", {0: single(2.0)})
    assert int(state.vgpr(1)[0]) == single(expected)


def test_constants_of_mixed_bfloats() -> None:
    source = "v_fma_mix_f32_bf16 v1, 1.0, v0, -0.5\nv_fma_mix_f32_bf16 v2, v0, v0, 1.0 op_sel_hi:[0,0,1]"
    state = run_assembly("gfx1250", source, {0: single(2.0)})
    assert [int(state.vgpr(number)[0]) for number in (1, 2)] == [single(1.5), single(5.0)]


def indexed(bits: int, source: str, target: str = "gfx906") -> WaveState:
    """Run an instruction in VGPR index mode, index 4; each register holds its number."""
    registers = {number: np.float32(number).view(np.uint32) for number in range(24)}
    return run_assembly(target, f"s_mov_b32 s0, 4\ns_set_gpr_idx_on s0, {bits}\n{source}\ns_set_gpr_idx_off", registers)


@pytest.mark.parametrize(
    ("bits", "source", "changed"),
    [
        (1, "v_add_f32 v10, v2, v3", {10: 9}),
        (2, "v_add_f32 v10, v2, v3", {10: 9}),
        (8, "v_add_f32 v10, v2, v3", {14: 5}),
        (8, "v_mac_f32 v10, v2, v3", {14: 20}),  # what is added goes with the result
        (4, "v_mac_f32 v10, v2, v3", {10: 16}),
        (4, "v_madmk_f32 v10, v2, 0x40000000, v3", {10: 11}),
        (2, "v_madmk_f32 v10, v2, 0x40000000, v3", {10: 7}),
        (2, "v_madak_f32 v10, v2, v3, 0x40000000", {10: 16}),
        (8, "v_writelane_b32 v2, 0, 0", {6: 0}),
    ],
)
@pytest.mark.parametrize("target", ["gfx900", "gfx906"])
def test_indexed_registers(target: str, bits: int, source: str, changed: dict[int, float]) -> None:
    """ISA documents of GFX9, "VGPR Indexing Details"."""
    state = indexed(bits, source, target)
    values = {number: float(state.vgpr(number).astype(np.uint32).view(np.float32)[0]) for number in range(24)}
    assert {number: value for number, value in values.items() if value != number} == changed


def test_indexed_registers_of_one_lane() -> None:
    state = indexed(1, "v_readlane_b32 s4, v2, 0\nv_readfirstlane_b32 s5, v2")
    assert [state.sgpr(4), state.sgpr(5)] == [single(6.0), single(6.0)]


def test_what_a_packing_keeps_goes_with_its_result() -> None:
    state = indexed(8, "v_cvt_pkaccum_u8_f32 v10, v2, 0")
    assert int(state.vgpr(14)[0]) == single(14.0) | 2
    assert int(state.vgpr(10)[0]) == single(10.0)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        ("gfx906", "v_swap_b32 v2, v3"),
        ("gfx908", "v_mfma_f32_4x4x1f32 a[0:3], v0, v1, a[0:3]"),
        ("gfx950", "v_permlane16_swap_b32 v2, v3"),
    ],
)
def test_what_indexing_does_is_not_documented(target: str, source: str) -> None:
    with pytest.raises(EmulationError, match="in VGPR index mode"):
        indexed(1, source, target)
