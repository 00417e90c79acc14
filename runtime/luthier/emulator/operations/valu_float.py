"""Floating-point vector operations."""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.declare import OperationTable
from luthier.emulator.values import Value

operations = OperationTable()


@operations.lane("v_add_f32", "f32 f32 -> f32")
def add_f32(b: Builder, x: Value, y: Value) -> Value:
    """D = S0 + S1."""
    return x + y
