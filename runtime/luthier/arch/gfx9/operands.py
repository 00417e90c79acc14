"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_PK_ADD_F16_vi": "vdst src0_modifiers src0 src1_modifiers src1 clamp op_sel op_sel_hi neg_lo neg_hi",
    "V_ADD_CO_U32_e64_gfx9": "vdst sdst src0 src1 clamp",
    "V_ADD_F32_sdwa_gfx9": (
        "vdst src0_modifiers src0 src1_modifiers src1 clamp omod dst_sel dst_unused src0_sel src1_sel"
    ),
    "V_SWAP_B32_vi": "vdst vdst1 src0 src1",
    "V_WRITELANE_B32_vi": "vdst src0 src1 vdst_in",
    "V_MADAK_F32_vi": "vdst src0 src1 imm",
    "V_INTERP_P2_F16_vi": "vdst src0_modifiers src0 attr attrchan src2_modifiers src2 high clamp",
    "S_ADD_U32_vi": "sdst src0 src1",
    "S_SETREG_B32_vi": "sdst simm16",
    "S_LOAD_DWORD_SGPR_IMM_gfx9": "sdst sbase soffset offset cpol",
    "S_STORE_DWORD_IMM_vi": "sdata sbase offset cpol",
    "BUFFER_ATOMIC_ADD_BOTHEN_RTN_vi": "vdata vdata_in vaddr srsrc soffset offset cpol",
    "TBUFFER_LOAD_FORMAT_X_IDXEN_vi": "vdata vaddr srsrc soffset offset format cpol swz",
    "FLAT_ATOMIC_OR_vi": "vaddr vdata offset cpol",
    "DS_OR_B32_vi": "addr data0 offset gds",
}
