"""The matrix product of `bench_product`, which Triton reads from a file."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, SIZE: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr):
    """Put a tile of A times B into C; all are squares, row by row."""
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, STEP)
    accumulator = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(0, SIZE, STEP):
        x = tl.load(a + rows[:, None] * SIZE + (k + inner)[None, :])
        y = tl.load(b + (k + inner)[:, None] * SIZE + columns[None, :])
        accumulator = tl.dot(x, y, accumulator)
    tl.store(c + rows[:, None] * SIZE + columns[None, :], accumulator)
