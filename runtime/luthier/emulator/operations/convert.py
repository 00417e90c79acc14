"""Conversions between number formats."""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.declare import OperationTable
from luthier.emulator.values import Value

operations = OperationTable()


@operations.lane("v_cvt_f32_u32", "u32 -> f32")
def cvt_f32_u32(b: Builder, x: Value) -> Value:
    """D = float(S0)."""
    return x.to("f32")
