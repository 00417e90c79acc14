"""Minimum and maximum of what arithmetic does not order: NaN of both kinds, zeros of both signs."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly

QUIET, OTHER, LOUD, LOUDER = 0x7FC00001, 0xFFE00002, 0x7F800003, 0xFFA00004
NUMBERS = (0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 1, 0x80000001)
BITS = (*NUMBERS, QUIET, OTHER, LOUD, LOUDER)
SIGN, QUIET_BIT, INFINITY = 1 << 31, 1 << 22, 0x7F800000


def is_nan(bits: int) -> bool:
    return bits & ~SIGN > INFINITY


def is_loud(bits: int) -> bool:
    return is_nan(bits) and not bits & QUIET_BIT


def order(bits: int) -> int:
    """A key by which numbers are ordered, -0 below 0."""
    return -(bits & ~SIGN) - 1 if bits & SIGN else bits


def chosen(target: str, larger: bool, x: int, y: int) -> int:
    """By the documents: of two quiet NaN the second up to GFX10, on GFX11 the first; on GFX12 the first, quieted."""
    if not target.startswith("gfx12"):
        for operand in (x, y):
            if is_loud(operand):
                return operand | QUIET_BIT
    if is_nan(x) and is_nan(y):
        return {"gfx11": x, "gfx12": x | QUIET_BIT}.get(target[:5], y)
    if is_nan(x) or is_nan(y):
        return y if is_nan(x) else x
    return (max if larger else min)(x, y, key=order)


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1150", "gfx1201"])
def test_all_pairs(target: str, larger: bool) -> None:
    name = f"v_{'max' if larger else 'min'}{'_num' if target.startswith('gfx12') else ''}_f32"
    pairs = [(x, y) for x in BITS for y in BITS]
    for start in range(0, len(pairs), 32):
        part = pairs[start : start + 32]
        lanes = np.zeros((2, 64 if target.startswith("gfx9") else 32), np.uint32)
        lanes[:, : len(part)] = np.array(part, np.uint32).T
        state = run_assembly(target, f"{name} v2, v0, v1", {0: lanes[0], 1: lanes[1]})
        results = state.vgpr(2)[: len(part)].tolist()
        assert results == [chosen(target, larger, x, y) for x, y in part]
