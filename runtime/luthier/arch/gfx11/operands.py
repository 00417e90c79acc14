"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_FMA_F32_e64_gfx11": "vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp omod",
    "V_ADD_F32_dpp8_gfx11": "vdst old src0_modifiers src0 src1_modifiers src1 dpp8 fi",
    "V_INTERP_P2_F32_inreg_gfx11": ("vdst src0_modifiers src0 src1_modifiers src1 src2_modifiers src2 clamp waitexp"),
    "V_DUAL_FMAC_F32_e32_X_FMAAK_F32_gfx11": "vdstX vdstY src0X vsrc1X src2X src0Y vsrc1Y imm",
    "V_DUAL_FMAAK_F32_X_FMAC_F32_e32_gfx11": "vdstX vdstY src0X vsrc1X imm src0Y vsrc1Y src2Y",
    "V_DUAL_FMAAK_F32_X_FMAAK_F32_gfx11": "vdstX vdstY src0X vsrc1X immDeferred src0Y vsrc1Y imm",
    "BUFFER_LOAD_DWORD_BOTHEN_gfx11": "vdata vaddr srsrc soffset offset cpol swz",
    "GLOBAL_LOAD_DWORD_SADDR_gfx11": "vdst saddr vaddr offset cpol",
    "DS_BVH_STACK_RTN_B32_gfx11": "vdst addr addr_in data0 data1 offset",
    "IMAGE_SAMPLE_V1_V1_gfx11": "vdata vaddr0 srsrc ssamp dmask",
}
