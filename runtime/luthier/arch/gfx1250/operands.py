"""Opcodes whose operands are known (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

_SCALED = (
    *(f"PK8_{wide}_{kind}" for wide in ("F32", "F16", "BF16") for kind in ("FP8", "BF8", "FP4")),
    *(f"PK16_{wide}_{kind}" for wide in ("F32", "F16", "BF16") for kind in ("FP6", "BF6")),
)
ANCHORS: Mapping[str, str] = {
    **{f"V_CVT_SCALE_{form}_e64_gfx1250": "vdst src0 src1 scale_sel" for form in _SCALED},
    "V_DUAL_FMA_F32_e64_X_FMA_F32_e64_e96_gfx1250": ("vdstX vdstY . src0X . vsrc1X . vsrc2X . src0Y . vsrc1Y . vsrc2Y"),
}
