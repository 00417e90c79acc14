"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "IMAGE_LOAD_V1_V1_gfx90a": "vdata vaddr srsrc dmask unorm cpol r128 lwe da",
}
