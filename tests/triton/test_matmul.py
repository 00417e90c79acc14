"""Matrix products on the matrix units: MFMA of GFX9, WMMA of GFX11 and GFX12."""

from __future__ import annotations

import numpy as np
import pytest
from effort import some

pytestmark = pytest.mark.rows()

triton = pytest.importorskip("triton", reason="needs Triton")
tl = pytest.importorskip("triton.language")


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
    ZERO: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATOR)
    for k in range(0, K, BLOCK_K):
        x = tl.load(
            a + rows[:, None] * K + (k + inner)[None, :],
            mask=(rows[:, None] < M) & ((k + inner)[None, :] < K),
            other=ZERO,
        )
        y = tl.load(
            b + (k + inner)[:, None] * N + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=ZERO,
        )
        accumulator = tl.dot(x, y, accumulator, input_precision=PRECISION, out_dtype=ACCUMULATOR)
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * N + columns[None, :], accumulator.to(c.dtype.element_ty), mask=mask)


M, N, K = 40, 33, 72
CONSTANTS = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}


def encode_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


# Triton's names of 8-bit floats: bits of the exponent, bias. Those with a "b" are the ones without infinity and -0.
EIGHT_BIT = {"fp8e4nv": (4, 7), "fp8e5": (5, 15), "fp8e4b8": (4, 8), "fp8e5b16": (5, 16)}


def decode_fp8(codes: np.ndarray, kind: str) -> np.ndarray:
    """Finite numbers only."""
    exponent_bits, bias = EIGHT_BIT[kind]
    fraction_bits = 7 - exponent_bits
    wide = codes.astype(np.int64)
    field, fraction = wide >> fraction_bits & ((1 << exponent_bits) - 1), wide & ((1 << fraction_bits) - 1)
    size = np.where(field == 0, fraction, fraction + (1 << fraction_bits)) * 2.0**-fraction_bits
    return np.where(wide & 128, -1, 1) * size * 2.0 ** (np.maximum(field, 1) - bias)


def operands(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A and B as stored and as numbers."""
    generator = np.random.default_rng(7)
    shapes = ((M, K), (K, N))
    if kind in EIGHT_BIT:
        # Below 2 in magnitude, denormals among them.
        top = EIGHT_BIT[kind][1] << (7 - EIGHT_BIT[kind][0])
        stored = [
            (generator.integers(0, top + 7, shape) | generator.integers(0, 2, shape) << 7).astype(np.uint8)
            for shape in shapes
        ]
        stored = [np.where(x == 0x80, 0, x).astype(np.uint8) for x in stored]
        return (*stored, *(decode_fp8(x, kind) for x in stored))
    if kind == "i8":
        stored = [generator.integers(-128, 128, shape, dtype=np.int8) for shape in shapes]
        return (*stored, *(x.astype(np.int64) for x in stored))
    values = [generator.uniform(-1, 1, shape) for shape in shapes]
    if kind == "bf16":
        stored = [encode_bf16(x) for x in values]
        return (*stored, *((x.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for x in stored))
    stored = [x.astype({"fp32": np.float32, "fp16": np.float16, "fp64": np.float64}[kind]) for x in values]
    return (*stored, *(x.astype(np.float64) for x in stored))


def compile_product(compile_kernel, target: str, kind: str, precision: str = "ieee", **options):
    a, b, left, right = operands(kind)
    c = np.zeros((M, N), {"i8": np.int32, "fp64": np.float64}.get(kind, np.float32))
    accumulator = {"i8": tl.int32, "fp64": tl.float64}.get(kind, tl.float32)
    typed = [(a, kind), (b, kind), c, M, N, K]
    constants = {**CONSTANTS, "ACCUMULATOR": accumulator, "PRECISION": precision, "ZERO": 0 if kind == "i8" else 0.0}
    return compile_kernel(matmul, target, typed, constants, **options), [a, b, c, M, N, K], left @ right


@pytest.mark.rows(2)
@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16", "i8"])
def test_product(compile_kernel, target: str, kind: str) -> None:
    compiled, given, expected = compile_product(compile_kernel, target, kind)
    compiled.launch(*given, grid=(2, 2))
    if kind == "i8":
        np.testing.assert_array_equal(given[2], expected)
    else:
        # 72 products below 1: the sum's rounding errors stay below the products' number times half a unit.
        np.testing.assert_allclose(given[2], expected, rtol=0, atol=72 * 8 * 2**-24)


@pytest.mark.rows(1)
@pytest.mark.parametrize("options", [{"small_pointers": False}, {"num_warps": 2, "num_stages": 3}, {"num_warps": 8}])
def test_product_compiled_otherwise(compile_kernel, target: str, options: dict) -> None:
    """Memory by pointers instead of buffers, other work-group sizes, deeper pipelines."""
    compiled, given, expected = compile_product(compile_kernel, target, "fp16", **options)
    stats = compiled.launch(*given, grid=(2, 2))
    loads = "buffer_load" if options.get("small_pointers", True) else "global_load"
    assert any(name.startswith(loads) for name in stats.opcodes)
    np.testing.assert_allclose(given[2], expected, rtol=0, atol=72 * 8 * 2**-24)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("gfx942", "fp8e4b8"),
        ("gfx942", "fp8e5b16"),
        *((target, kind) for target in ("gfx950", "gfx1201") for kind in ("fp8e4nv", "fp8e5")),
        *((target, "fp64") for target in ("gfx90a", "gfx942", "gfx950")),
    ],
)
def test_product_of_other_formats(compile_kernel, target: str, kind: str) -> None:
    compiled, given, expected = compile_product(compile_kernel, target, kind)
    compiled.launch(*given, grid=(2, 2))
    np.testing.assert_allclose(given[2], expected, rtol=0, atol=1e-14 if kind == "fp64" else 72 * 4 * 8 * 2**-24)


def test_product_with_xf32(compile_kernel) -> None:
    """The fraction of A and B is cut to ten bits."""
    compiled, given, _ = compile_product(compile_kernel, "gfx942", "fp32", "tf32")
    stats = compiled.launch(*given, grid=(2, 2))
    assert any("xf32" in name for name in stats.opcodes)
    a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for x in given[:2])
    np.testing.assert_allclose(given[2], a @ b, rtol=0, atol=72 * 8 * 2**-24)


@triton.jit
def scaled_matmul(
    a,
    a_scales,
    b,
    b_scales,
    c,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    A_FORMAT: tl.constexpr,
    B_FORMAT: tl.constexpr,
    A_PACKED: tl.constexpr,
    B_PACKED: tl.constexpr,
):
    rows, columns, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 32)
    left, right = tl.arange(0, K // A_PACKED), tl.arange(0, K // B_PACKED)
    x = tl.load(a + rows[:, None] * (K // A_PACKED) + left[None, :])
    y = tl.load(b + columns[None, :] * (K // B_PACKED) + right[:, None])
    x_scales = tl.load(a_scales + rows[:, None] * (K // 32) + blocks[None, :])
    y_scales = tl.load(b_scales + columns[:, None] * (K // 32) + blocks[None, :])
    product = tl.dot_scaled(x, x_scales, A_FORMAT, y, y_scales, B_FORMAT)
    tl.store(c + rows[:, None] * N + columns[None, :], product)


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.mark.rows(1)
@pytest.mark.parametrize("nonkdim", [16, 32])
@pytest.mark.parametrize(("left", "right"), [("e2m1", "e2m1"), ("e4m3", "e4m3"), ("e5m2", "e2m1"), ("e2m1", "e4m3")])
def test_scaled_product(compile_kernel, left: str, right: str, nonkdim: int) -> None:
    """Blocks of 32 numbers share a power of two (OCP microscaling formats), on gfx950's own instruction for them."""
    m, n, k = 32, 64, 128
    generator = np.random.default_rng(11)

    def operand(rows: int, form: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scales = generator.integers(120, 134, (rows, k // 32)).astype(np.uint8)
        factors = np.repeat(2.0 ** (scales.astype(int) - 127), 32, axis=1)
        if form == "e2m1":
            codes = generator.integers(0, 16, (rows, k))
            numbers = np.where(codes & 8, -1, 1) * FP4[codes & 7]
            return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8), scales, numbers * factors
        kind = {"e4m3": "fp8e4nv", "e5m2": "fp8e5"}[form]
        codes = (generator.integers(0, 64, (rows, k)) | generator.integers(0, 2, (rows, k)) << 7).astype(np.uint8)
        return codes, scales, decode_fp8(codes, kind) * factors

    a, a_scales, x = operand(m, left)
    b, b_scales, y = operand(n, right)
    c = np.zeros((m, n), np.float32)
    constants = {"M": m, "N": n, "K": k, "A_FORMAT": left, "B_FORMAT": right}
    constants |= {"A_PACKED": 1 + (left == "e2m1"), "B_PACKED": 1 + (right == "e2m1")}
    given = [a, a_scales, b, b_scales, c]
    compiled = compile_kernel(scaled_matmul, "gfx950", given, constants, matrix_instr_nonkdim=nonkdim)
    stats = compiled.launch(*given)
    assert any(name.startswith("v_mfma_scale") for name in stats.opcodes)
    expected = x @ y.T
    np.testing.assert_allclose(c, expected, rtol=0, atol=2**-20 * np.abs(x).max() * np.abs(y).max() * k)


@pytest.mark.rows(1)
@pytest.mark.parametrize("per_wave", [False, True])
def test_instr_count_of_a_product(compile_kernel, counter, target: str, per_wave: bool) -> None:
    compiled, given, _ = compile_product(compile_kernel, target, "fp16")
    verdict = compiled.verify(counter(per_wave=per_wave), *given, grid=(2, 2))
    assert verdict.problems == ()
    assert verdict.compared_bytes >= given[2].nbytes
    assert verdict.counters["counter"] == verdict.expected["counter"] > 1000
    if per_wave:
        assert verdict.counters["counter"] == verdict.instructions[0]


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize(
    ("target", "warps"),
    some([("gfx90a", 1), ("gfx942", 1), ("gfx950", 4), ("gfx1100", 4), ("gfx1201", 4)], 4),
)
def test_instr_count_of_a_large_product(compile_kernel, counter, target: str, warps: int) -> None:
    """A tile of 128 x 128: most of the register file, with one wave accumulation registers too."""
    generator = np.random.default_rng(9)
    a, b = (
        generator.uniform(-1, 1, (128, 64)).astype(np.float16),
        generator.uniform(-1, 1, (64, 128)).astype(np.float16),
    )
    c = np.zeros((128, 128), np.float32)
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "ACCUMULATOR": tl.float32, "PRECISION": "ieee"}
    given = [a, b, c, 128, 128, 64]
    compiled = compile_kernel(matmul, target, given, {**constants, "ZERO": 0.0}, num_warps=warps)
    kernel = compiled.object.kernels[compiled.name]
    assert kernel.vgpr_count > 100
    assert (kernel.agpr_count > 200) == (warps == 1)
    verdict = compiled.verify(counter(), *given)
    assert verdict.problems == ()
    compiled.launch(*given)
    # GFX90A's matrix units take 16-bit denormals as zero.
    atol = 2e-4 if target == "gfx90a" else 64 * 8 * 2**-24
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=0, atol=atol)
