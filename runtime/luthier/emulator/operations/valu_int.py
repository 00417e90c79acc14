"""Integer, bitwise and move vector operations."""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.declare import OperationTable
from luthier.emulator.values import Value

operations = OperationTable()


@operations.lane("v_add_u32 v_add_nc_u32", "u32 u32 -> u32")
def add_u32(b: Builder, x: Value, y: Value) -> Value:
    """D = S0 + S1; clamp saturates."""
    return b.add_saturate(x, y) if b.modifiers.get("clamp") else x + y
