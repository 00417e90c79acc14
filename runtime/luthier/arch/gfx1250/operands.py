"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

_SCALED = (
    *(f"PK8_{wide}_{kind}" for wide in ("F32", "F16", "BF16") for kind in ("FP8", "BF8", "FP4")),
    *(f"PK16_{wide}_{kind}" for wide in ("F32", "F16", "BF16") for kind in ("FP6", "BF6")),
)
ANCHORS: Mapping[str, str] = {
    **{f"V_CVT_SCALE_{form}_e64_gfx1250": "vdst src0 src1 scale_sel" for form in _SCALED},
    "V_WMMA_SCALE_F32_16X16X128_F8F6F4_f8_f8_w32_gfx1250": (
        "vdst src0 src1 src2_modifiers src2 scale_src0 scale_src1 matrix_a_fmt matrix_b_fmt matrix_a_scale "
        "matrix_b_scale matrix_a_scale_fmt matrix_b_scale_fmt . . neg_lo neg_hi"
    ),
    "V_WMMA_SCALE_F32_32X16X128_F4_w32_gfx1250": (
        "vdst src0 src1 src2_modifiers src2 scale_src0 scale_src1 matrix_a_scale matrix_b_scale matrix_a_scale_fmt "
        "matrix_b_scale_fmt . . neg_lo neg_hi"
    ),
    "V_WMMA_F32_16X16X128_F8F6F4_f8_f8_w32_twoaddr_gfx1250": (
        "vdst src0 src1 src2_modifiers src2 matrix_a_fmt matrix_b_fmt neg_lo neg_hi"
    ),
    "V_SWMMAC_F32_16X16X128_FP8_FP8_w32_twoaddr_gfx1250": (
        "vdst src0 src1 srcTiedDef src2 index_key_32bit matrix_a_reuse matrix_b_reuse"
    ),
    "V_DUAL_FMA_F32_e64_X_FMA_F32_e64_e96_gfx1250": ("vdstX vdstY . src0X . vsrc1X . vsrc2X . src0Y . vsrc1Y . vsrc2Y"),
}
