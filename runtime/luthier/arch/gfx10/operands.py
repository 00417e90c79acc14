"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_FMA_MIX_F32_gfx10": "vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp op_sel op_sel_hi",
    "V_ADD_F32_dpp_gfx10": "vdst old src0_modifiers src0 src1_modifiers src1 dpp_ctrl row_mask bank_mask bound_ctrl fi",
    "DS_WRITE2_B32_gfx10": "addr data0 data1 offset0 offset1 gds",
    "EXP_gfx10": "tgt src0 src1 src2 src3 vm compr en",
    "IMAGE_LOAD_V1_V1_gfx10": "vdata vaddr0 srsrc dmask dim unorm cpol r128 a16 tfe lwe d16",
    "IMAGE_SAMPLE_C_D_CL_O_V1_V12_nsa_gfx10": (
        "vdata vaddr0 vaddr1 vaddr2 vaddr3 vaddr4 vaddr5 vaddr6 vaddr7 vaddr8 vaddr9 vaddr10 vaddr11 srsrc ssamp"
    ),
}
