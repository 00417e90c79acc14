"""Opcodes with known operands (`Generation.operand_anchors`)."""

from __future__ import annotations

from collections.abc import Mapping

ANCHORS: Mapping[str, str] = {
    "S_BITSET0_B32": "sdst src0 sdst_in",
}
