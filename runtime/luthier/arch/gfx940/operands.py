"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_MFMA_F32_32X32X1F32_gfx940_vcd": "vdst src0 src1 src2 cbsz abid blgp",
    "V_SMFMAC_I32_16X16X64_I8_gfx940": "vdst src0 src1 idx cbsz abid src2",
    "SCRATCH_LOAD_SBYTE_D16_HI_ST_gfx940": "vdst offset cpol vdst_in",
}
