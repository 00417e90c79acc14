"""Names of operand positions.

LLVM exports ``getNamedOperandIdx(opcode, name)`` but not the enumeration of names, whose order changes from release to
release. It is found here: each anchor below is an opcode whose operands are known from its assembly syntax and LLVM's
instruction definitions, and a name's number is the only one that has the right position in every anchor. An anchor that
contradicts another, or an LLVM without it, leaves its names unknown, which `tests/isa/test_opcodes.py` would notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Opcode -> its operands in order; "." is a position that is left open.
ANCHORS: Mapping[str, str] = {
    "V_FMA_F32_e64_gfx11": "vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp omod",
    "V_FMA_MIX_F32_gfx10": "vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp op_sel op_sel_hi",
    "V_PK_ADD_F16_vi": "vdst src0_modifiers src0 src1_modifiers src1 clamp op_sel op_sel_hi neg_lo neg_hi",
    "V_ADD_CO_U32_e64_gfx9": "vdst sdst src0 src1 clamp",
    "V_ADD_F32_dpp_gfx10": "vdst old src0_modifiers src0 src1_modifiers src1 dpp_ctrl row_mask bank_mask bound_ctrl fi",
    "V_ADD_F32_dpp8_gfx11": "vdst old src0_modifiers src0 src1_modifiers src1 dpp8 fi",
    "V_ADD_F32_sdwa_gfx9": (
        "vdst src0_modifiers src0 src1_modifiers src1 clamp omod dst_sel dst_unused src0_sel src1_sel"
    ),
    "V_BITOP3_B32_gfx9": "vdst src0 src1 src2 bitop3",
    "V_SWAP_B32_vi": "vdst vdst1 src0 src1",
    "V_PERMLANE16_SWAP_B32_e32_gfx9": "vdst src0_out vdst_in src0",
    "V_WRITELANE_B32_vi": "vdst src0 src1 vdst_in",
    "V_CVT_F32_FP8_e64_gfx12": "vdst . byte_sel",
    "V_MADAK_F32_vi": "vdst src0 src1 imm",
    "V_INTERP_P2_F16_vi": "vdst src0_modifiers src0 attr attrchan src2_modifiers src2 high clamp",
    "V_INTERP_P2_F32_inreg_gfx11": ("vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp waitexp"),
    "V_MFMA_F32_32X32X1F32_gfx940_vcd": "vdst src0 src1 src2 cbsz abid blgp",
    "V_SMFMAC_I32_16X16X64_I8_gfx940": "vdst src0 src1 idx cbsz abid src2",
    "V_MFMA_SCALE_F32_16X16X128_F8F6F4_f8_f4_gfx940_vcd": (
        "vdst src0 src1 src2 cbsz blgp scale_src0 scale_src1 src0_modifiers src1_modifiers"
    ),
    "V_SWMMAC_F16_16X16X32_F16_w32_twoaddr_gfx12": (
        "vdst src0_modifiers src0 src1_modifiers src1 srcTiedDef src2 index_key_16bit neg_lo neg_hi"
    ),
    "V_SWMMAC_F16_16X16X32_F16_w64_twoaddr_gfx12": (
        "vdst src0_modifiers src0 src1_modifiers src1 srcTiedDef src2 index_key_8bit neg_lo neg_hi"
    ),
    "V_DUAL_FMAC_F32_e32_X_FMAAK_F32_gfx11": "vdstX vdstY src0X vsrc1X src2X src0Y vsrc1Y imm",
    "V_DUAL_FMAAK_F32_X_FMAC_F32_e32_gfx11": "vdstX vdstY src0X vsrc1X imm src0Y vsrc1Y src2Y",
    "V_DUAL_FMAAK_F32_X_FMAAK_F32_gfx11": "vdstX vdstY src0X vsrc1X immDeferred src0Y vsrc1Y imm",
    "V_DUAL_FMA_F32_e64_X_FMA_F32_e64_e96_gfx1250": ("vdstX vdstY . src0X . vsrc1X . vsrc2X . src0Y . vsrc1Y . vsrc2Y"),
    "S_ADD_U32_vi": "sdst src0 src1",
    "S_BITSET0_B32": "sdst src0 sdst_in",
    "S_SETREG_B32_vi": "sdst simm16",
    "S_LOAD_DWORD_SGPR_IMM_gfx9": "sdst sbase soffset offset cpol",
    "S_STORE_DWORD_IMM_vi": "sdata sbase offset cpol",
    "BUFFER_LOAD_DWORD_BOTHEN_gfx11": "vdata vaddr srsrc soffset offset cpol swz",
    "BUFFER_ATOMIC_ADD_BOTHEN_RTN_vi": "vdata vdata_in vaddr srsrc soffset offset cpol",
    "TBUFFER_LOAD_FORMAT_X_IDXEN_vi": "vdata vaddr srsrc soffset offset format cpol swz",
    "FLAT_ATOMIC_OR_vi": "vaddr vdata offset cpol",
    "GLOBAL_LOAD_DWORD_SADDR_gfx11": "vdst saddr vaddr offset cpol",
    "SCRATCH_LOAD_SBYTE_D16_HI_ST_gfx940": "vdst offset cpol vdst_in",
    "DS_WRITE2_B32_gfx10": "addr data0 data1 offset0 offset1 gds",
    "DS_OR_B32_vi": "addr data0 offset gds",
    "DS_BVH_STACK_RTN_B32_gfx11": "vdst addr addr_in data0 data1 offset",
    "DS_PARAM_LOAD_gfx12": "vdst attr attrchan waitvdst waitvsrc",
    "EXP_gfx10": "tgt src0 src1 src2 src3 vm compr en",
    "IMAGE_LOAD_V1_V1_gfx10": "vdata vaddr0 srsrc dmask dim unorm cpol r128 a16 tfe lwe d16",
    "IMAGE_LOAD_V1_V1_gfx90a": "vdata vaddr srsrc dmask unorm cpol r128 lwe da",
    "IMAGE_LOAD_V1_V4_gfx12": "vdata vaddr0 vaddr1 vaddr2 vaddr3 rsrc dmask dim cpol r128 a16 tfe d16",
    "IMAGE_SAMPLE_V1_V1_gfx11": "vdata vaddr0 srsrc ssamp dmask",
    "IMAGE_SAMPLE_V1_V1_gfx12": "vdata vaddr0 rsrc samp dmask",
    "IMAGE_SAMPLE_C_D_CL_O_V1_V12_nsa_gfx10": (
        "vdata vaddr0 vaddr1 vaddr2 vaddr3 vaddr4 vaddr5 vaddr6 vaddr7 vaddr8 vaddr9 vaddr10 vaddr11 srsrc ssamp"
    ),
    "IMAGE_BVH8_INTERSECT_RAY_gfx12": "vdata ray_origin_out ray_dir_out vaddr0 vaddr1 vaddr2 vaddr3 vaddr4 rsrc",
}

NAMES = 138
"""Names in LLVM 22's enumeration; the exported function must not be asked beyond."""


def calibrate(opcodes: Mapping[str, int], positions_of: Callable[[int, int], list[int]]) -> dict[str, int]:
    """Operand name -> number in LLVM's enumeration.

    Args:
        opcodes: opcode name -> number.
        positions_of: LLVM's function for a number of names: the operand position each has in an opcode, -1 where it has
        none.
    """
    candidates: dict[str, set[int]] = {}
    for opcode_name, text in ANCHORS.items():
        opcode = opcodes.get(opcode_name)
        if opcode is None:
            continue
        numbers: dict[int, set[int]] = {}
        for number, position in enumerate(positions_of(opcode, NAMES)):
            if position >= 0:
                numbers.setdefault(position, set()).add(number)
        for position, name in enumerate(text.split()):
            here = numbers.get(position, set())
            if name != ".":
                candidates[name] = candidates.get(name, here) & here
    return {name: next(iter(left)) for name, left in candidates.items() if len(left) == 1}
