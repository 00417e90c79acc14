"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_CVT_F32_FP8_e64_gfx12": "vdst . byte_sel",
    "V_SWMMAC_F16_16X16X32_F16_w32_twoaddr_gfx12": (
        "vdst src0_modifiers src0 src1_modifiers src1 srcTiedDef src2 index_key_16bit neg_lo neg_hi"
    ),
    "V_SWMMAC_F16_16X16X32_F16_w64_twoaddr_gfx12": (
        "vdst src0_modifiers src0 src1_modifiers src1 srcTiedDef src2 index_key_8bit neg_lo neg_hi"
    ),
    "DS_PARAM_LOAD_gfx12": "vdst attr attrchan waitvdst waitvsrc",
    "IMAGE_LOAD_V1_V4_gfx12": "vdata vaddr0 vaddr1 vaddr2 vaddr3 rsrc dmask dim cpol r128 a16 tfe d16",
    "IMAGE_SAMPLE_V1_V1_gfx12": "vdata vaddr0 rsrc samp dmask",
    "IMAGE_BVH8_INTERSECT_RAY_gfx12": "vdata ray_origin_out ray_dir_out vaddr0 vaddr1 vaddr2 vaddr3 vaddr4 rsrc",
}
