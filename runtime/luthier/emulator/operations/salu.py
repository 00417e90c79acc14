"""Scalar operations: SOP1, SOP2, SOPC and SOPK."""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.declare import OperationTable
from luthier.emulator.values import Value

operations = OperationTable()


@operations.scalar("s_add_u32 s_add_co_u32", "u32 u32 -> u32 scc")
def add_u32(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """D = S0 + S1; SCC = unsigned carry out."""
    total = x + y
    return total, total < x
