"""Other kernels of the Triton tutorials and standard library, compiled by Triton's own compiler."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg

pytestmark = pytest.mark.rows()

triton = pytest.importorskip("triton", reason="needs Triton")
tl = pytest.importorskip("triton.language")

TARGETS = ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"]


@triton.jit
def layer_norm(source, weight, bias, out, mean, reciprocal, columns, epsilon, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(source + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    average = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - average, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / columns + epsilon)
    y = centred * scale * tl.load(weight + offsets, mask=mask) + tl.load(bias + offsets, mask=mask)
    tl.store(mean + row, average)
    tl.store(reciprocal + row, scale)
    tl.store(out + row * columns + offsets, y.to(out.dtype.element_ty), mask=mask)


@pytest.mark.rows(5)
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_layer_norm(compile_kernel, target: str, kind: str) -> None:
    rows, columns = 4, 190
    generator = np.random.default_rng(2)
    x = generator.normal(1, 2, (rows, columns)).astype(kind)
    weight, bias = (generator.normal(0, 1, columns).astype(np.float32) for _ in range(2))
    out, mean, reciprocal = np.zeros_like(x), np.zeros(rows, np.float32), np.zeros(rows, np.float32)
    given = [x, weight, bias, out, mean, reciprocal, columns, 1e-5]
    compile_kernel(layer_norm, target, given, {"BLOCK": 256}).launch(*given, grid=(rows,))
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt(wide.var(axis=1) + 1e-5)
    expected = (wide - wide.mean(axis=1, keepdims=True)) * scale[:, None] * weight + bias
    np.testing.assert_allclose(mean, wide.mean(axis=1), rtol=1e-5)
    np.testing.assert_allclose(reciprocal, scale, rtol=1e-5)
    np.testing.assert_allclose(out, expected, rtol=0, atol=4e-6 if kind == "float32" else 8e-3)


@triton.jit
def attention(q, k, v, out, length, scale, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDTH: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    wide = tl.arange(0, WIDTH)
    queries = tl.load(q + rows[:, None] * WIDTH + wide[None, :], mask=rows[:, None] < length, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, WIDTH), tl.float32)
    for start in range(0, length, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        keys = tl.load(k + columns[None, :] * WIDTH + wide[:, None], mask=columns[None, :] < length, other=0.0)
        scores = tl.dot(queries, keys) * scale
        scores = tl.where((columns[None, :] <= rows[:, None]) & (columns[None, :] < length), scores, -1e30)
        top = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - top[:, None])
        shrink = tl.exp(largest - top)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v + columns[:, None] * WIDTH + wide[None, :], mask=columns[:, None] < length, other=0.0)
        result = result * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        largest = top
    tl.store(out + rows[:, None] * WIDTH + wide[None, :], result / total[:, None], mask=rows[:, None] < length)


def compile_attention(compile_kernel, target: str):
    length, width = 70, 32
    generator = np.random.default_rng(3)
    q, k, v = (generator.normal(0, 1, (length, width)).astype(np.float16) for _ in range(3))
    given = [q, k, v, np.zeros((length, width), np.float32), length, width**-0.5]
    return compile_kernel(attention, target, given, {"BLOCK_M": 32, "BLOCK_N": 32, "WIDTH": width}), given


@pytest.mark.rows(1)
def test_causal_attention(compile_kernel, target: str) -> None:
    compiled, given = compile_attention(compile_kernel, target)
    compiled.launch(*given, grid=(3,))
    q, k, v, out, length, scale = given
    scores = q.astype(np.float64) @ k.astype(np.float64).T * scale
    scores[np.triu_indices(length, 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights / weights.sum(axis=1, keepdims=True) @ v.astype(np.float64)
    # The weights are rounded to 16 bits.
    np.testing.assert_allclose(out, expected, rtol=0, atol=3e-3)


@pytest.mark.rows(1)
def test_instr_count_of_attention(compile_kernel, counter, target: str) -> None:
    compiled, given = compile_attention(compile_kernel, target)
    verdict = compiled.verify(counter(), *given, grid=(3,))
    assert verdict.problems == ()
    assert verdict.counters["counter"] == verdict.expected["counter"] > 10000


HOOK = """
__managed__ uint64_t total = 0;

/// Divergent, with compares and loops inside: clobbers SCC and VCC and narrows EXEC.
LUTHIER_HOOK_ANNOTATE divergent(uint32_t value) {
  for (uint32_t i = 0; i < (__lane_id() & 1) + 1; ++i) {
    if (value & 1)
      atomicAdd(reinterpret_cast<unsigned long long *>(&total), value);
    else
      atomicAdd(reinterpret_cast<unsigned long long *>(&total), 1);
  }
}
"""


@pytest.mark.rows(1)
def test_a_divergent_hook_everywhere_changes_nothing(compile_kernel, make_module, target: str) -> None:
    """A vector register's worth of work before every instruction of a kernel with LDS, barriers and matrix units."""
    module = make_module(HOOK, *TARGETS)

    class Everywhere(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                task.insert_hook_before(instruction, module.divergent, reg("exec_lo"))

    compiled, given = compile_attention(compile_kernel, target)
    verdict = compiled.verify(Everywhere(), *given, grid=(3,))
    assert verdict.problems == ()
    assert verdict.counters["total"] > 10000


@triton.jit
def sort_rows(source, out, descending: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.sort(tl.load(source + offsets), descending=descending))


@pytest.mark.rows(1)
@pytest.mark.parametrize(("kind", "descending"), [("int32", False), ("float32", True)])
def test_sort(compile_kernel, target: str, kind: str, descending: bool) -> None:
    x = np.random.default_rng(4).integers(-1000, 1000, (2, 256)).astype(kind)
    out = np.zeros_like(x)
    compiled = compile_kernel(sort_rows, target, [x, out], {"descending": descending, "BLOCK": 256})
    compiled.launch(x, out, grid=(2,))
    expected = np.sort(x, axis=1)
    np.testing.assert_array_equal(out, expected[:, ::-1] if descending else expected)


@triton.jit
def _larger(left, right):
    return tl.maximum(left, right)


@triton.jit
def scans(source, sums, products, maxima, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + offsets)
    tl.store(sums + offsets, tl.cumsum(x, axis=0))
    tl.store(products + offsets, tl.cumprod(x % 3 - 1, axis=0, reverse=True))
    tl.store(maxima + offsets, tl.associative_scan(x, 0, _larger))


@pytest.mark.rows(5)
def test_scans(compile_kernel, target: str) -> None:
    x = np.random.default_rng(5).integers(0, 100, (2, 512)).astype(np.int32)
    x[:, 300:] = 99 + 2 * (x[:, 300:] > 50)  # later factors are -1 and 1
    sums, products, maxima = (np.zeros_like(x) for _ in range(3))
    given = [x, sums, products, maxima]
    compile_kernel(scans, target, given, {"BLOCK": 512}).launch(*given, grid=(2,))
    np.testing.assert_array_equal(sums, np.cumsum(x, axis=1))
    factors = x % 3 - 1
    np.testing.assert_array_equal(products, np.cumprod(factors[:, ::-1], axis=1)[:, ::-1])
    np.testing.assert_array_equal(maxima, np.maximum.accumulate(x, axis=1))


@triton.jit
def atomics(keys, values, counts, sums, floats, halves, lowest, highest, swapped, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + offsets)
    value = tl.load(values + offsets)
    tl.atomic_add(counts + key, 1)
    tl.atomic_add(sums + key, value.to(tl.int64))
    tl.atomic_add(floats + key, value.to(tl.float32))
    tl.atomic_add(halves + key, (value % 4).to(tl.float16))
    # Not negative: Triton 3.9 takes minima inside a wave of gfx942 as of unsigned numbers before the signed atomic.
    tl.atomic_min(lowest + key, value + 500)
    tl.atomic_max(highest + key, value + 500)
    tl.atomic_cas(swapped + key, tl.full((BLOCK,), -1, tl.int32), key)


@pytest.mark.rows(2)
def test_atomics(compile_kernel, target: str) -> None:
    generator = np.random.default_rng(6)
    keys = generator.integers(0, 10, 1024).astype(np.int32)
    values = generator.integers(-500, 500, 1024).astype(np.int32)
    counts, sums = np.zeros(16, np.int32), np.zeros(16, np.int64)
    floats, halves = np.zeros(16, np.float32), np.zeros(16, np.float16)
    lowest, highest = np.full(16, 9999, np.int32), np.full(16, -9999, np.int32)
    swapped = np.full(16, -1, np.int32)
    given = [keys, values, counts, sums, floats, halves, lowest, highest, swapped]
    compile_kernel(atomics, target, given, {"BLOCK": 256}).launch(*given, grid=(4,))
    groups = [values[keys == key].astype(np.int64) for key in range(10)]
    assert counts[:10].tolist() == [len(group) for group in groups]
    assert sums[:10].tolist() == floats[:10].tolist() == [group.sum() for group in groups]
    assert halves[:10].tolist() == [np.fmod(group, 4).sum() for group in groups]
    assert lowest[:10].tolist() == [group.min() + 500 for group in groups]
    assert highest[:10].tolist() == [group.max() + 500 for group in groups]
    assert swapped.tolist() == [*range(10), *[-1] * 6]


@triton.jit
def functions(source, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(source + offsets)
    tl.store(out + offsets, tl.exp(x))
    tl.store(out + BLOCK + offsets, tl.log(x))
    tl.store(out + 2 * BLOCK + offsets, tl.sin(x))
    tl.store(out + 3 * BLOCK + offsets, tl.cos(x))
    tl.store(out + 4 * BLOCK + offsets, tl.sqrt(x))
    tl.store(out + 5 * BLOCK + offsets, tl.rsqrt(x))
    tl.store(out + 6 * BLOCK + offsets, tl.exp2(x))
    tl.store(out + 7 * BLOCK + offsets, tl.log2(x))
    tl.store(out + 8 * BLOCK + offsets, tl.erf(x))
    tl.store(out + 9 * BLOCK + offsets, tl.floor(x) + tl.ceil(x) * 1000)
    tl.store(out + 10 * BLOCK + offsets, 1.0 / x)


@pytest.mark.rows(2)
def test_functions(compile_kernel, target: str) -> None:
    from math import erf

    x = np.random.default_rng(7).uniform(0.01, 30, 256).astype(np.float32)
    out = np.zeros((11, 256), np.float32)
    compile_kernel(functions, target, [x, out], {"BLOCK": 256}).launch(x, out)
    wide = x.astype(np.float64)
    expected = [
        *(np.exp(wide), np.log(wide), np.sin(wide), np.cos(wide), np.sqrt(wide), 1 / np.sqrt(wide)),
        *(np.exp2(wide), np.log2(wide), np.vectorize(erf)(wide), np.floor(wide) + np.ceil(wide) * 1000, 1 / wide),
    ]
    for got, value in zip(out, expected, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-5, atol=2e-6)
