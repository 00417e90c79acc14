"""Registers that instructions read and write."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.isa import Isa
from luthier.isa import registers as r
from luthier.isa.registers import UnitSet
from luthier.lifting.instructions.effects import Columns, Effects, EffectTable
from luthier.lifting.instructions.semantics import LaneChange

VGPRS_256 = r.mask_of(r.VGPRS[:256])


def effects_of(target: str, text: str, wave_size: int | None = None) -> Effects:
    isa = Isa.of(target, wave_size)
    code = isa.decode(isa.assemble(text).instructions.code)
    assert len(code) == 1
    return EffectTable(isa, isa.wave_size, 0).of(Columns(code), 0)


@pytest.mark.parametrize(("target", "sources"), [("gfx1100", "v[8:15], v[16:23]"), ("gfx1201", "v[8:11], v[16:19]")])
def test_a_matrix_operation_reads_what_it_adds_to(target: str, sources: str) -> None:
    """Also where that is not its destination."""
    effects = effects_of(target, f"v_wmma_f32_16x16x16_f16 v[0:7], {sources}, v[24:31]")
    assert UnitSet(effects.reads).names()[-1].endswith(":31]")
    assert UnitSet(effects.writes).names() == ["v[0:7]"]
    assert effects.hard_kills == effects.writes


@pytest.mark.parametrize("first", [4, 5])
def test_a_dual_operation_reads_both_sums(first: int) -> None:
    effects = effects_of("gfx1100", f"v_dual_fmac_f32 v{first}, v1, v2 :: v_dual_fmac_f32 v{11 - first}, v3, v8", 32)
    vectors = [unit - 256 for unit in UnitSet(effects.reads) if unit >= 256]
    assert vectors == sorted([1, 2, 3, 8, first, 11 - first])


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_a_packed_sum_reads_its_destination(target: str) -> None:
    vectors = [unit - 256 for unit in UnitSet(effects_of(target, "v_pk_fmac_f16 v2, v3, v4").reads) if unit >= 256]
    assert vectors == [2, 3, 4]


def test_a_block_of_loads_may_keep_registers() -> None:
    """Bits of M0 say which."""
    effects = effects_of("gfx1201", "global_load_block v[2:33], v34, s[8:9]")
    assert not effects.kills
    assert effects.reads >> r.M0 & 1


def test_half_of_exec_leaves_lanes_alone() -> None:
    effects = effects_of("gfx1201", "s_and_not1_saveexec_b32 s8, s9", 64)
    assert effects.lanes == LaneChange.ANY
    assert (
        effects_of("gfx1201", "s_and_not1_saveexec_b32 s8, s9", 32).lanes == LaneChange.ANY & ~LaneChange.STAYS_ACTIVE
    )


@pytest.mark.parametrize(
    "text", ["v_maximum_f32 v1, v2, v3", "s_minimum_f16 s1, s2, s3", "v_pk_maximum_f16 v1, v2, v3"]
)
def test_denormal_numbers_depend_on_the_mode(text: str) -> None:
    assert effects_of("gfx1201", text).reads >> r.MODE & 1


def test_a_sdwa_compare_writes_where_it_says() -> None:
    effects = effects_of("gfx1030", "v_cmp_class_f16_sdwa s0, v1, v2 src0_sel:BYTE_1 src1_sel:BYTE_1", 32)
    assert UnitSet(effects.writes).names() == ["s0"]
    effects = effects_of("gfx1030", "v_cmp_eq_u32_sdwa vcc_lo, v1, v2 src0_sel:BYTE_1 src1_sel:BYTE_1", 32)
    assert UnitSet(effects.writes).names() == ["vcc_lo"]


@pytest.mark.parametrize("ending", ["", "_sdwa", "_dpp"])
@pytest.mark.parametrize("name", ["v_movreld_b32", "v_movrels_b32", "v_movrelsd_2_b32", "v_swaprel_b32"])
def test_relative_registers_are_read_by_m0(name: str, ending: str) -> None:
    if name == "v_swaprel_b32" and ending:
        return
    isa = Isa.of("gfx1030", 32)
    code = isa.decode(
        isa.assemble(f"{name}{ending} v2, v3{' row_ror:1' if ending == '_dpp' else ''}").instructions.code
    )
    effects = EffectTable(isa, 32, VGPRS_256).of(Columns(code), 0)
    assert effects.reads == VGPRS_256 | 1 << r.M0 | 1 << r.EXEC_LO
    assert effects.writes == VGPRS_256
    assert not effects.kills


@pytest.mark.parametrize("name", ["v_permlane16_swap_b32", "v_permlane32_swap_b32"])
def test_a_swap_reads_both(name: str) -> None:
    effects = effects_of("gfx950", f"{name} v2, v3")
    assert effects.cross_reads & 15 << r.VGPR_FIRST == 12 << r.VGPR_FIRST
    assert effects.writes & 15 << r.VGPR_FIRST == 12 << r.VGPR_FIRST


def test_an_exchange_of_halves_does_nothing_where_there_are_none() -> None:
    effects = effects_of("gfx1100", "v_permlane64_b32 v2, v3", 32)
    assert not effects.kills


@pytest.mark.parametrize("text", ["s_set_gpr_idx_mode 1", "s_set_gpr_idx_on s1, 1", "s_set_gpr_idx_idx s1"])
def test_the_index_is_a_part_of_m0(text: str) -> None:
    effects = effects_of("gfx906", text)
    assert effects.writes >> r.M0 & 1
    assert not effects.kills >> r.M0 & 1


@pytest.mark.parametrize(
    ("target", "text", "first", "count"),
    [
        ("gfx1100", "buffer_load_b32 v[0:1], off, s[4:7], 0", 0, 2),
        ("gfx1030", "buffer_load_dword v[0:1], off, s[4:7], 0", 0, 2),
        ("gfx906", "buffer_load_format_xyz v[5:8], off, s[4:7], 0", 5, 4),
        ("gfx906", "image_load v[4:8], v[10:11], s[8:15] dmask:0xf unorm", 4, 5),
        ("gfx1030", "image_load v[4:8], [v10, v12], s[8:15] dmask:0xf dim:SQ_RSRC_IMG_2D", 4, 5),
        ("gfx1100", "image_load v[4:5], [v10, v11], s[8:15] dmask:0x1 dim:SQ_RSRC_IMG_2D", 4, 2),
    ],
)
def test_a_status_is_not_always_written(target: str, text: str, first: int, count: int) -> None:
    """That a load fails is said in a register behind its data, which keeps its value otherwise."""
    registers = (1 << count) - 1 << r.VGPR_FIRST + first
    effects = effects_of(target, f"{text} tfe")
    assert effects.writes & registers == registers
    assert not effects.kills & registers


@pytest.mark.parametrize(
    ("text", "reads"),
    [("ds_add_rtn_f32 v1, v2, v3", True), ("ds_pk_add_f16 v2, v3", True), ("ds_add_u32 v2, v3", False)],
)
def test_float_atomics_in_lds_depend_on_the_mode(text: str, reads: bool) -> None:
    assert effects_of("gfx942", text).reads >> r.MODE & 1 == reads


@pytest.mark.parametrize("target", ["gfx906", "gfx1030"])
def test_an_operand_in_lds_is_where_m0_says(target: str) -> None:
    assert effects_of(target, "v_mov_b32 v0, src_lds_direct").reads >> r.M0 & 1
    assert not effects_of(target, "v_mov_b32 v0, s0").reads >> r.M0 & 1


@pytest.mark.parametrize("target", ["gfx1100", "gfx1150", "gfx1200"])
def test_dual_operations_are_both_their_halves(target: str) -> None:
    """Every pair, with registers of either parity: what the two operations by themselves do."""
    isa = Isa.of(target, 32)
    table = EffectTable(isa, 32, 0)
    random = np.random.default_rng(0)
    # VOPD (RDNA3 and RDNA4 instruction set architecture): 110010 OPX OPY VSRC1X SRC0X, VDSTX VDSTY VSRC1Y SRC0Y
    opx, opy, _ = (field.ravel() for field in np.meshgrid(np.arange(16), np.arange(32), np.arange(8)))
    sources = np.r_[0:128, 240:248, 255:512]  # scalar registers, constants, a literal, vector registers
    source, vector = random.choice(sources, (2, len(opx))), random.integers(0, 256, (4, len(opx)))
    words = np.zeros((len(opx), 3), np.uint32)
    words[:, 0] = 0x32 << 26 | opx << 22 | opy << 17 | vector[0] << 9 | source[0]
    words[:, 1] = vector[1] << 24 | vector[2] >> 1 << 17 | vector[3] << 9 | source[1]
    words[:, 2] = 0x12345
    pairs = isa.decode(words.tobytes())
    dual = [index for index in np.flatnonzero(pairs.offset % 12 == 0).tolist() if pairs.opcode[index] >= 0]
    halves = []
    for index in dual:
        for half in isa.text(pairs, index).split(" :: "):
            name, rest = half.split(" ", 1)
            ending = "" if "fmaak" in name or "fmamk" in name else "_e32"
            vcc = ", vcc_lo" if name == "v_dual_cndmask_b32" else ""
            # Not every target has the dot products by themselves. They name the registers that v_fmac names.
            single = "v_fmac_f32" if "dot2acc" in name else name.replace("v_dual_", "v_")
            halves.append(f"{single}{ending} {rest}{vcc}")
    alone = isa.assemble("\n".join(halves)).instructions
    both, separate = Columns(pairs), Columns(alone)
    for number, index in enumerate(dual):
        x, y = table.of(separate, 2 * number), table.of(separate, 2 * number + 1)
        effects = table.of(both, index)
        for name in ("reads", "cross_reads", "writes", "kills", "hard_kills"):
            expected = getattr(x, name) | getattr(y, name)
            assert UnitSet(getattr(effects, name)) == UnitSet(expected), (name, halves[2 * number : 2 * number + 2])
    assert len({int(pairs.opcode[index]) for index in dual}) > 200


@pytest.mark.parametrize(
    ("target", "text", "most"),
    [
        ("gfx906", "image_load v[0:3], v[20:22], s[8:15] dmask:0xf unorm da", 4),
        ("gfx90a", "image_store v[0:3], v[20:21], s[8:15] dmask:0xf unorm", 4),
        ("gfx900", "image_get_resinfo v[0:3], v20, s[8:15] dmask:0xf", 4),
        ("gfx906", "image_sample v[0:3], v[20:22], s[8:15], s[16:19] dmask:0xf", 3),
        ("gfx906", "image_sample_c_d_cl_o v[0:3], v[20:31], s[8:15], s[16:19] dmask:0xf", 12),
        ("gfx906", "image_gather4_c_b_cl_o v[0:3], v[20:27], s[8:15], s[16:19] dmask:0x1", 7),
        ("gfx906", "image_sample v[0:3], v254, s[8:15], s[16:19] dmask:0xf", 2),
    ],
)
def test_coordinates_of_images_whose_number_is_in_the_descriptor(target: str, text: str, most: int) -> None:
    """GFX9: LLVM names the first alone."""
    first = 254 if "v254" in text else 20
    coordinates = r.mask_of(r.VGPRS[first : first + most])
    assert effects_of(target, text).reads & VGPRS_256 & ~r.mask_of(r.VGPRS[:4]) == coordinates


def test_coordinates_in_any_case() -> None:
    """What findings stand on: the registers that are read whatever the descriptor says."""
    isa = Isa.of("gfx906")
    code = isa.decode(isa.assemble("image_store v[0:3], v[20:22], s[8:15] dmask:0xf unorm da").instructions.code)
    columns = Columns(code)
    certain = EffectTable(isa, isa.wave_size, 0).certain_reads(columns, 0)
    assert certain & VGPRS_256 == r.mask_of((*r.VGPRS[:4], r.VGPRS[20]))
