"""Packed and mixed operations and dot products against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.ir.variant import FloatMode
from luthier.errors import EmulationError


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


INTEGERS = {
    "v_pk_add_u16": lambda x, y: x + y,
    "v_pk_sub_i16": lambda x, y: x - y,
    "v_pk_mul_lo_u16": lambda x, y: x * y,
    "v_pk_min_u16": np.minimum,
    "v_pk_max_i16": lambda x, y: np.maximum(x.view(np.int16), y.view(np.int16)).view(np.uint16),
    "v_pk_lshlrev_b16": lambda x, y: y << (x & 15),
    "v_pk_lshrrev_b16": lambda x, y: y >> (x & 15),
    "v_pk_ashrrev_i16": lambda x, y: (y.view(np.int16) >> (x & 15).view(np.int16)).view(np.uint16),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_elements(evaluate, cases, name):
    x, y = cases("u16 u16")
    assert (evaluate(name, x, y) == INTEGERS[name](x, y)).all()


def test_float_elements(evaluate, cases):
    x, y = cases("f16 f16")
    for name, plain in (("add", "add"), ("mul", "mul"), ("min", "min"), ("max", "max")):
        assert (evaluate(f"v_pk_{name}_f16", x, y) == evaluate(f"v_{plain}_f16", x, y)).all()


@pytest.mark.parametrize(
    "source",
    [
        "v_pk_add_u16 v0, v1, v2 neg_lo:[1,0]",
        "v_pk_mad_i16 v0, v1, v2, v3 neg_hi:[0,0,1]",
        "v_dot2_i32_i16 v0, v1, v2, v3 neg_lo:[0,1,0]",
        "v_dot4_u32_u8 v0, v1, v2, v3 neg_lo:[1,0,0]",
    ],
)
def test_integers_are_not_negated(source):
    with pytest.raises(EmulationError, match="with a negated integer"):
        run_assembly("gfx942", source)


def chosen(pattern, modifiers):
    """A source of v_fma_mix as its modifiers read it."""
    if modifiers & 8:
        half = pattern >> 16 if modifiers & 4 else pattern & 0xFFFF
        value = half.astype(np.uint16).view(np.float16).astype(np.float32)
    else:
        value = pattern.view(np.float32)
    value = np.abs(value) if modifiers & 2 else value
    return -value if modifiers & 1 else value


@pytest.mark.parametrize("modifiers", [(0, 0, 0), (8, 12, 0), (12, 8, 8), (9, 10, 5), (1, 2, 15), (8, 8, 8)])
def test_mixed_precision(evaluate, cases, modifiers):
    x, y, z = cases("f32 f32 f32", random=3000)
    settings = {f"src{place}_modifiers": bits for place, bits in enumerate(modifiers) if bits}
    a, b, c = (chosen(value, bits) for value, bits in zip((x, y, z), modifiers, strict=True))
    fused = evaluate("v_fma_f32", *(np.ascontiguousarray(value).view(np.uint32) for value in (a, b, c)))
    result = evaluate("v_fma_mix_f32", x, y, z, **settings)
    nan = np.isnan(result.view(np.float32)) & np.isnan(fused.view(np.float32))
    assert ((result == fused) | nan).all()
    half = fused.view(np.float32).astype(np.float16)
    old = np.full(x.size, 0x12345678, np.uint32)
    low = evaluate("v_fma_mixlo_f16", x, y, z, old, **settings)
    high = evaluate("v_fma_mixhi_f16", x, y, z, old, **settings)
    nan = np.isnan(half)
    assert ((low == (0x12340000 | half.view(np.uint16).astype(np.uint32))) | nan).all()
    assert ((high == (0x5678 | half.view(np.uint16).astype(np.uint32) << 16)) | nan).all()


@pytest.mark.parametrize("modifiers", [(0, 0, 0), (8, 12, 0), (12, 8, 8), (9, 10, 5), (1, 2, 15), (8, 8, 8)])
@pytest.mark.parametrize("denormals", [0, 3])
def test_mixed_precision_that_rounds_twice(evaluate, cases, modifiers, denormals):
    x, y, z = cases("f32 f32 f32", random=3000)
    settings = {f"src{place}_modifiers": bits for place, bits in enumerate(modifiers) if bits}
    sources = (chosen(value, bits) for value, bits in zip((x, y, z), modifiers, strict=True))
    apart = evaluate("v_mad_f32", *(np.ascontiguousarray(value).view(np.uint32) for value in sources))
    mode = FloatMode(denorm32=denormals)
    result = evaluate("v_mad_mix_f32", x, y, z, mode=mode, **settings)
    nan = np.isnan(result.view(np.float32)) & np.isnan(apart.view(np.float32))
    assert ((result == apart) | nan).all()
    half = apart.view(np.float32).astype(np.float16)
    old, bits, nan = np.full(x.size, 0x12345678, np.uint32), half.view(np.uint16).astype(np.uint32), np.isnan(half)
    low = evaluate("v_mad_mixlo_f16", x, y, z, old, mode=mode, **settings)
    high = evaluate("v_mad_mixhi_f16", x, y, z, old, mode=mode, **settings)
    assert ((low == (0x12340000 | bits)) | nan).all()
    assert ((high == (0x5678 | bits << 16)) | nan).all()


def test_mixed_precision_flushes_as_told(evaluate):
    denormal = np.full(4, 1, np.uint32)
    ones = np.full(4, 0x3F800000, np.uint32)
    zero = np.zeros(4, np.uint32)
    kept = evaluate("v_fma_mix_f32", denormal, ones, zero)
    assert (kept == 1).all()
    assert (evaluate("v_fma_mix_f32", denormal, ones, zero, mode=FloatMode(denorm32=0)) == 0).all()


@pytest.mark.parametrize(("name", "kind"), [("v_dot2_f32_f16", "f16"), ("v_dot2_f32_bf16", "bf16")])
def test_dot_products(evaluate, cases, name, kind):
    x0, x1, y0, y1 = cases("f16 f16 f16 f16", random=2000)
    (z,) = cases("f32", random=x0.size)
    z = np.resize(z, x0.size).astype(np.uint32)

    def wide(half):
        if kind == "f16":
            return half.view(np.float16).astype(np.float64)
        return (half.astype(np.uint32) << 16).view(np.float32).astype(np.float64)

    def flushed(single):
        return np.where(np.abs(single) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), single), single)

    # In 64 bits each sum of a product and a 32-bit float rounds to 32 bits as if exact, but for rare double roundings.
    first = (wide(x0) * wide(y0) + flushed(z.view(np.float32))).astype(np.float32)
    expected = flushed((wide(x1) * wide(y1) + first).astype(np.float32))
    result = evaluate(name, x0, x1, y0, y1, z).view(np.float32)
    fine = (result == expected) | (np.isnan(result) & np.isnan(expected))
    close = np.isclose(result, expected, rtol=3e-7, atol=0)
    assert (fine | close).all()
    assert fine.mean() > 0.999


def test_integer_dot_products_of_halves(evaluate, cases):
    x0, x1, y0, y1 = cases("u16 u16 u16 u16", random=500)
    z = np.arange(x0.size, dtype=np.uint32) * 0x01234567

    def expected(kind):
        a, b, c, d = (value.view(kind).astype(np.int64) for value in (x0, x1, y0, y1))
        return a * c + b * d

    total = (expected(np.int16) + z).astype(np.uint32)
    assert (evaluate("v_dot2_i32_i16", x0, x1, y0, y1, z) == total).all()
    clamped = np.clip(expected(np.int16) + z.view(np.int32), -(2**31), 2**31 - 1).astype(np.int32)
    assert (evaluate("v_dot2_i32_i16", x0, x1, y0, y1, z, clamp=1).view(np.int32) == clamped).all()
    assert (evaluate("v_dot2_u32_u16", x0, x1, y0, y1, z) == (expected(np.uint16) + z).astype(np.uint32)).all()
