"""Conversions against NumPy and Python integers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luthier.emulator.ir.variant import FloatMode

FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def typed(bits, kind):
    return bits.view(FLOATS[kind] if kind in FLOATS else f"{kind[0]}{int(kind[1:]) // 8}")


def same(result, expected):
    nan = np.isnan(result) & np.isnan(expected)
    unsigned = f"u{result.dtype.itemsize}"
    return ((result.view(unsigned) == np.ascontiguousarray(expected).view(unsigned)) | nan).all()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("u32", "f32"),
        ("i32", "f32"),
        ("u32", "f64"),
        ("i32", "f64"),
        ("u16", "f16"),
        ("i16", "f16"),
        ("f32", "f16"),
        ("f16", "f32"),
        ("f64", "f32"),
        ("f32", "f64"),
    ],
)
def test_numbers(evaluate, cases, source, target):
    (x,) = cases(source if source[0] == "f" else f"u{source[1:]}", random=4000)
    result = typed(evaluate(f"v_cvt_{target}_{source}", x), target)
    assert same(result, typed(x, source).astype(FLOATS[target]))


@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "u32"), ("f32", "i32"), ("f64", "u32"), ("f64", "i32"), ("f16", "u16"), ("f16", "i16")],
)
def test_to_integers(evaluate, cases, source, target):
    (x,) = cases(source, random=4000)
    near = np.random.default_rng(2).uniform(-70000, 70000, 2000).astype(FLOATS[source])
    x = np.concatenate([x, near.view(x.dtype)])
    bounds = np.iinfo(f"{'int' if target[0] == 'i' else 'uint'}{target[1:]}")
    expected = []
    for value in typed(x, source).astype(np.float64).tolist():
        if math.isnan(value):
            expected.append(0)
        elif math.isinf(value):
            expected.append(bounds.max if value > 0 else bounds.min)
        else:
            expected.append(max(bounds.min, min(bounds.max, math.trunc(value))))
    assert typed(evaluate(f"v_cvt_{target}_{source}", x), target).tolist() == expected


@pytest.mark.parametrize("direction", [0, 1, 2, 3])
def test_to_half_in_every_rounding_mode(evaluate, cases, direction):
    (x,) = cases("f32", random=4000)
    small = (
        np.random.default_rng(8).uniform(-1, 1, 4000) * 2.0 ** np.random.default_rng(9).integers(-28, 18, 4000)
    ).astype(np.float32)
    x = np.concatenate([x, small.view(np.uint32)])
    mode = FloatMode(round16_64=direction)
    result = evaluate("v_cvt_f16_f32", x, mode=mode).view(np.float16)
    value = x.view(np.float32)
    nearest = value.astype(np.float16)
    if direction:
        wide = nearest.astype(np.float64)
        below = np.nextafter(nearest, np.float16(-np.inf))
        above = np.nextafter(nearest, np.float16(np.inf))
        down = np.where(wide > value, below, nearest)
        up = np.where(wide < value, above, nearest)
        infinite = np.isinf(value) | np.isnan(value)
        directed = {1: up, 2: down, 3: np.where(value < 0, up, down)}[direction]
        # What rounds to zero keeps its sign.
        directed = np.where(directed == 0, np.copysign(np.float32(0), value), directed).astype(np.float16)
        nearest = np.where(infinite, nearest, directed)
    assert same(result, nearest)


@pytest.mark.parametrize("direction", [0, 1, 2, 3])
@pytest.mark.parametrize("target", ["f32", "f64"])
@pytest.mark.parametrize("source", ["u32", "i32"])
def test_integers_in_every_rounding_mode(evaluate, cases, source, target, direction):
    (x,) = cases("u32", random=2000)
    x = np.concatenate([x, np.uint32([0, 1, 0xFFFFFF, 0x1000001, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])])
    result = evaluate(f"v_cvt_{target}_{source}", x, mode=FloatMode(round32=direction, round16_64=direction))
    kind = FLOATS[target]
    exact = typed(x, source).astype(np.float64)
    nearest = exact.astype(kind)
    down = np.where(nearest > exact, np.nextafter(nearest, kind(-np.inf)), nearest)
    up = np.where(nearest < exact, np.nextafter(nearest, kind(np.inf)), nearest)
    expected = [nearest, up, down, np.where(exact < 0, up, down)][direction]
    assert same(typed(result, target), expected.astype(kind))


@pytest.mark.parametrize("keeps_nan", [False, True])
@pytest.mark.parametrize("name", ["v_cvt_pkrtz_f16_f32", "v_cvt_pk_f16_f32", "v_cvt_pk_bf16_f32"])
def test_clamped_pairs(evaluate, cases, name, keeps_nan):
    x, y = cases("f32 f32", random=1000)
    mode = FloatMode(dx10_clamp=not keeps_nan)
    plain, clamped = (evaluate(name, x, y, mode=mode, clamp=clamp).view(np.uint16) for clamp in (0, 1))
    unit, infinity = (0x3F80, 0x7F80) if "bf16" in name else (0x3C00, 0x7C00)
    nan = (plain & 0x7FFF) > infinity
    expected = np.where(plain >> 15 != 0, 0, np.minimum(plain, unit))
    assert (clamped == np.where(nan, plain if keeps_nan else 0, expected)).all()


def test_pairs(evaluate, cases):
    x, y = cases("f32 f32", random=1000)
    halves = evaluate("v_cvt_pk_f16_f32", x, y).view(np.uint16).reshape(-1, 2).view(np.float16)
    assert same(halves[:, 0].copy(), x.view(np.float32).astype(np.float16))
    assert same(halves[:, 1].copy(), y.view(np.float32).astype(np.float16))
    toward_zero = evaluate("v_cvt_pkrtz_f16_f32", x, y)
    single = evaluate("v_cvt_f16_f32", x, mode=FloatMode(round16_64=3))
    assert ((toward_zero & 0xFFFF) == single).all()
    bfloats = evaluate("v_cvt_pk_bf16_f32", x, y)
    numbers = ~np.isnan(x.view(np.float32))
    rounded = (x.astype(np.uint64) + 0x7FFF + (x >> 16 & 1)) >> 16 & 0xFFFF
    assert ((bfloats & 0xFFFF) == rounded)[numbers].all()
    assert ((bfloats[~numbers] & 0x7FFF) > 0x7F80).all()
    packed = evaluate("v_pack_b32_f16", x.astype(np.uint16), y.astype(np.uint16))
    assert (packed == (x & 0xFFFF | y << 16)).all()


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_normalized_integers(evaluate, cases, kind):
    x, y = cases(f"{kind} {kind}", random=1000)
    for sign, scale, low in (("i", 32767, -32767), ("u", 65535, 0)):
        expected = []
        for value in typed(x, kind).astype(np.float64).tolist():
            bounded = 0.0 if math.isnan(value) else max(-2.0, min(2.0, value))
            expected.append(max(low, min(scale, round(bounded * scale))) & 0xFFFF)
        assert (evaluate(f"v_cvt_pknorm_{sign}16_{kind}", x, y) & 0xFFFF).tolist() == expected
        assert evaluate(f"v_cvt_norm_{sign}16_{kind}", x).tolist() == expected


def test_bytes(evaluate, cases):
    x, y, z = cases("f32 u32 u32", random=500)
    for place in range(4):
        expected = (y >> (8 * place) & 0xFF).astype(np.float32)
        assert same(evaluate(f"v_cvt_f32_ubyte{place}", y).view(np.float32), expected)
    result = evaluate("v_cvt_pk_u8_f32", x, y, z)
    for value, place, old, new in zip(
        x.view(np.float32).tolist(), y.tolist(), z.tolist(), result.tolist(), strict=True
    ):
        bounded = 0 if math.isnan(value) else round(max(0.0, min(255.0, value)))
        shift = 8 * (place & 3)
        assert new == old & ~(0xFF << shift) | bounded << shift


def test_rounding_to_integers(evaluate, cases):
    (x,) = cases("f32", random=2000)
    value = np.where(np.isnan(x.view(np.float32)), np.float32(0), x.view(np.float32))
    limit = 2.0**31
    floor = np.clip(np.floor(value.astype(np.float64)), -limit, limit - 1).astype(np.int32)
    assert (evaluate("v_cvt_flr_i32_f32", x).view(np.int32) == floor).all()
    nearest = np.clip(np.floor(value + np.float32(0.5)).astype(np.float64), -limit, limit - 1).astype(np.int32)
    assert (evaluate("v_cvt_rpi_i32_f32", x).view(np.int32) == nearest).all()
    offsets = evaluate("v_cvt_off_f32_i4", np.arange(16, dtype=np.uint32)).view(np.float32)
    assert offsets.tolist() == [(n - 16 if n > 7 else n) / 16 for n in range(16)]
