"""Matrix products on the matrix units: MFMA of GFX9, WMMA of GFX11 and GFX12."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl

TARGETS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@triton.jit
def matmul(
    a,
    b,
    c,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACCUMULATOR: tl.constexpr,
    PRECISION: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for k in range(0, K, BLOCK_K):
        x = tl.load(
            a + rows[:, None] * K + (k + inner)[None, :], mask=(rows[:, None] < M) & ((k + inner)[None, :] < K), other=0
        )
        y = tl.load(
            b + (k + inner)[:, None] * N + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=0,
        )
        accumulator = tl.dot(x, y, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], accumulator.to(c.dtype.element_ty), mask=mask)


M, N, K = 40, 33, 72
CONSTANTS = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}


def encode_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def operands(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A and B as stored and as numbers."""
    generator = np.random.default_rng(7)
    shapes = ((M, K), (K, N))
    if kind == "i8":
        stored = [generator.integers(-128, 128, shape, dtype=np.int8) for shape in shapes]
        return (*stored, *(x.astype(np.int64) for x in stored))
    values = [generator.uniform(-1, 1, shape) for shape in shapes]
    if kind == "bf16":
        stored = [encode_bf16(x) for x in values]
        return (*stored, *((x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in stored))
    stored = [x.astype({"fp32": np.float32, "fp16": np.float16, "fp64": np.float64}[kind]) for x in values]
    return (*stored, *(x.astype(np.float64) for x in stored))


def compile_product(compile_kernel, target: str, kind: str, precision: str = "ieee"):
    a, b, left, right = operands(kind)
    c = np.zeros((M, N), {"i8": np.int32, "fp64": np.float64}.get(kind, np.float32))
    accumulator = {"i8": tl.int32, "fp64": tl.float64}.get(kind, tl.float32)
    typed = [(a, kind), (b, kind), c, M, N, K]
    constants = {**CONSTANTS, "ACCUMULATOR": accumulator, "PRECISION": precision}
    return compile_kernel(matmul, target, typed, constants), [a, b, c, M, N, K], left @ right


@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16", "i8"])
@pytest.mark.parametrize("target", TARGETS)
def test_product(compile_kernel, target: str, kind: str) -> None:
    compiled, given, expected = compile_product(compile_kernel, target, kind)
    compiled.launch(*given, grid=(2, 2))
    if kind == "i8":
        np.testing.assert_array_equal(given[2], expected)
    else:
        # 72 products below 1: the sum's rounding errors stay below the products' number times half a unit.
        np.testing.assert_allclose(given[2], expected, rtol=0, atol=72 * 8 * 2**-24)


@pytest.mark.parametrize("per_wave", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_instr_count_of_a_product(compile_kernel, counter, target: str, per_wave: bool) -> None:
    compiled, given, _ = compile_product(compile_kernel, target, "fp16")
    verdict = compiled.verify(counter(per_wave=per_wave), *given, grid=(2, 2))
    assert verdict.problems == ()
    assert verdict.compared_bytes >= given[2].nbytes
    assert verdict.counters["counter"] == verdict.expected["counter"] > 1000
    if per_wave:
        assert verdict.counters["counter"] == verdict.instructions[0]
