"""Vector comparisons (VOPC)."""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.declare import OperationTable
from luthier.emulator.values import Value

operations = OperationTable()


@operations.compare("v_cmp_lt_u32", "u32 u32")
def lt_u32(b: Builder, x: Value, y: Value) -> Value:
    """D.lane = S0 < S1."""
    return x < y
