"""Opcodes whose operands are known (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "V_DUAL_FMA_F32_e64_X_FMA_F32_e64_e96_gfx1250": ("vdstX vdstY . src0X . vsrc1X . vsrc2X . src0Y . vsrc1Y . vsrc2Y"),
}
