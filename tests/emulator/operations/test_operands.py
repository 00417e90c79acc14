"""Operands that are not simply what is written: literals of 64-bit operands, constants of mixed products, indexed
registers."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.emulator.inspection.samples import samples
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.operations import operations_of
from luthier.errors import EmulationError
from luthier.isa import Isa

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


CODES = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 1 / (2 * np.pi)}
"""Floats by their encodings."""
MATRIX_C = [
    *(
        (target, f"v_wmma_{result}_16x16x16_{kind}", 8, result)
        for target in ("gfx1100", "gfx1151", "gfx1201")
        for result, kind in (("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"))
    ),
    ("gfx1250", "v_wmma_f32_16x16x32_f16", 8, "f32"),
    ("gfx1250", "v_wmma_f16_16x16x32_f16", 8, "f16"),
    ("gfx1250", "v_wmma_bf16_16x16x32_bf16", 8, "bf16"),
]


def narrow(value: float, kind: str) -> int:
    """Bits of an inline constant."""
    if kind == "bf16":
        return single(value) >> 16
    return single(value) if kind == "f32" else int(np.float16(value).view(np.uint16))


@pytest.mark.parametrize(("target", "name", "registers", "result"), MATRIX_C)
def test_constants_of_products_of_matrices(target: str, name: str, registers: int, result: str) -> None:
    """C has the format of the result, whatever LLVM takes it for; a product of zeros leaves it as it is."""
    small = target == "gfx1201"
    last = 16 + (registers if result == "f32" or target in ("gfx1100", "gfx1151") else registers // 2) - 1
    for value in list(CODES.values())[:-1]:
        source = f"{name} v[16:{last}], v[0:{3 if small else 7}], v[{'4:7' if small else '8:15'}], {value}"
        state = run_assembly(target, source, dict.fromkeys(range(32), 0))
        assert int(state.vgpr(16)[0]) & (0xFFFFFFFF if result == "f32" else 0xFFFF) == narrow(value, result), value


@pytest.mark.parametrize("target", ["gfx1150", "gfx1201", "gfx1250"])
def test_constants_of_scalar_halves(target: str) -> None:
    """An inline constant has the bits of a register that holds the number; a literal those that are written."""
    isa = Isa.of(target)
    table = operations_of(isa.target.target.emulated_major)
    names = {operation_name(isa.opcode(number)): number for number in samples(isa)}
    tried = 0
    for name, operation in table.items():
        if not name.startswith("s_") or [spec.type for spec in operation.sources] != [ScalarType("f", 16)]:
            continue
        tried += 1
        code, index = samples(isa)[names[name]]
        word = int.from_bytes(bytes(code.bytes_of(index))[:4], "little") & ~0xFF  # src0
        result = word >> 16 & 0x7F
        for number, value in CODES.items():
            source = f"s_mov_b32 s80, {narrow(value, 'f16')}\n"
            for register, to in ((number, 90), (80, 91)):
                source += f".long {word | register}\ns_mov_b32 s{to}, s{result}\n"
            state = run_assembly(target, source)
            assert state.sgpr(90) == state.sgpr(91), (name, value)
    assert tried > 4
    state = run_assembly(target, "s_floor_f16 s10, lit(0x3f803f80)\ns_floor_f16 s11, lit(0x3f800000)")
    assert [state.sgpr(10), state.sgpr(11)] == [0x3C00, 0]


HALVES_BY_DOCUMENT = {"v_ldexp_f16", "v_cmp_class_f16", "v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8"}
"""Operations with an integer of 16 bits that LLVM has a half in (of the first the ISA documents say so)."""


@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1030", "gfx1100", "gfx1201", "gfx1250"])
def test_floats_of_short_integers(target: str) -> None:
    """An integer of 16 bits has the low half of a single (LLVM, AMDGPUBaseInfo.cpp, getInlineEncodingV216): the same as
    an SGPR with that. Registers from v16 on collect how the two differ, one for each source."""
    isa = Isa.of(target)
    collected: list[str] = []
    lines: list[str] = []
    operations = operations_of(isa.target.target.emulated_major)
    for opcode, (sample, index) in samples(isa).items():
        name, words = (
            operation_name(isa.opcode(opcode)),
            struct.unpack(f"<{sample.size[index] // 4}I", sample.bytes_of(index)),
        )
        is_vop3 = len(words) == 2 and words[0] >> 26 in (0x34, 0x35)
        if name not in operations or name in HALVES_BY_DOCUMENT or not (is_vop3 or len(words) == 1):
            continue
        if (
            name.startswith("v_cmpx") or name == "v_swap_b16"
        ):  # the former's result is EXEC, the latter takes VGPRs alone
            continue
        for spec in operations[name].sources:
            if spec.type.kind not in "iu" or (spec.type.bits, spec.type.count) != (16, 1):
                continue
            if spec.name not in ("src0", "src1", "src2")[: 3 if is_vop3 else 1]:
                continue
            shift = 9 * int(spec.name[-1]) if is_vop3 else 0
            *before, last = words
            place = f"v{16 + len(collected)}"
            collected.append(f"{name} {spec.name}")
            lines.append(f"v_mov_b32 {place}, 0")
            for code, value in CODES.items():
                lines.append(f"s_mov_b32 s80, {single(value) & 0xFFFF}")
                for field in (code, 80):
                    changed = (*before, last & ~(0x1FF << shift) | field << shift)
                    lines += ["v_mov_b32 v1, v2", "v_mov_b32 v0, 0x1234", "s_mov_b32 s0, 0", "s_mov_b32 vcc_lo, 0"]
                    lines.append(".long " + ", ".join(map(hex, changed)))
                    lines += ["s_xor_b32 s0, s0, vcc_lo", "v_xor_b32 v2, s0, v0"]
                lines += ["v_xor_b32 v1, v1, v2", f"v_or_b32 {place}, {place}, v1"]
    assert len(collected) > 50
    state = run_assembly(target, "\n".join(lines))
    assert [name for at, name in enumerate(collected) if state.vgpr(16 + at).any()] == []


def test_constants_of_parts_are_refused() -> None:
    state = run_assembly("gfx1201", "s_cvt_hi_f32_f16 s10, 64\ns_cvt_hi_f32_f16 s11, 0x3c000000")
    assert [state.sgpr(10), state.sgpr(11)] == [0, 0x3F800000]
    for number in CODES:  # as the constants of s_cvt_hi_f32_f16, v_cvt_pk_fp8_f16 and v_cvt_pk_bf8_f16
        for target, words in (
            ("gfx1201", (0xBE8A6A00 | number,)),
            ("gfx1250", (0xD7720000, number)),
            ("gfx1250", (0xD7730000, number)),
        ):
            with pytest.raises(EmulationError, match="encoded inline"):
                run_assembly(target, "".join(f".long {word}\n" for word in words))


@pytest.mark.parametrize("target", TARGETS)
def test_scc_has_no_64_bits(target: str) -> None:
    state = run_assembly(target, "s_mov_b32 s4, src_scc\ns_add_u32 s5, src_scc, 1", scc=1)
    assert [state.sgpr(4), state.sgpr(5)] == [1, 2]
    for source in ("s_mov_b64 s[4:5], src_scc", "v_add_f64 v[0:1], src_scc, v[2:3]"):
        with pytest.raises(EmulationError, match="SCC as a 64-bit number"):
            run_assembly(target, source)


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


@pytest.mark.parametrize("before", [0, 1, 8])
@pytest.mark.parametrize(("bits", "changed"), [(0, {10: 5}), (1, {10: 10}), (2, {10: 10}), (8, {15: 5})])
@pytest.mark.parametrize(
    "write", ["s_mov_b32 m0, {}", "s_mov_b32 s7, {}; s_add_u32 m0, s7, 0", "s_mov_b32 s7, {}; s_or_b32 m0, s7, s7"]
)
def test_what_m0_says_is_indexed(before: int, write: str, bits: int, changed: dict[int, float]) -> None:
    """Its bits 15:12 say which operands, bits 7:0 by how much, also when another instruction writes it than those for
    the index mode."""
    write = write.format(hex(bits << 12 | 5)).replace("; ", "\n")
    state = indexed(before, f"{write}\nv_add_f32 v10, v2, v3")
    actual = [float(state.vgpr(number).astype(np.uint32).view(np.float32)[0]) for number in range(24)]
    assert actual == [changed.get(number, number) for number in range(24)]
