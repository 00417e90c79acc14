"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_BITOP3_B32_gfx9": "vdst src0 src1 src2 bitop3",
    "V_PERMLANE16_SWAP_B32_e32_gfx9": "vdst src0_out vdst_in src0",
    "V_MFMA_SCALE_F32_16X16X128_F8F6F4_f8_f4_gfx940_vcd": (
        "vdst src0 src1 src2 cbsz blgp scale_src0 scale_src1 src0_modifiers src1_modifiers"
    ),
}
