"""Floats of 4 to 8 bits against tables made from their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

# kind: exponent bits, fraction bits, bias, encoding of what is special
FORMATS = {
    ("fp8", "gfx942"): (4, 3, 8, "fnuz"),
    ("bf8", "gfx942"): (5, 2, 16, "fnuz"),
    ("fp8", "gfx950"): (4, 3, 7, "one nan"),
    ("bf8", "gfx950"): (5, 2, 15, "ieee"),
    ("fp8", "gfx1201"): (4, 3, 7, "one nan"),
    ("bf8", "gfx1201"): (5, 2, 15, "ieee"),
    ("fp6", "gfx950"): (2, 3, 1, "none"),
    ("bf6", "gfx950"): (3, 2, 3, "none"),
    ("fp4", "gfx950"): (2, 1, 1, "none"),
}


def table(form):
    """The number of each code, NaN and infinities as floats."""
    exponent_bits, fraction_bits, bias, special = form
    numbers = []
    for code in range(1 << (1 + exponent_bits + fraction_bits)):
        sign = -1 if code >> (exponent_bits + fraction_bits) else 1
        exponent = code >> fraction_bits & (1 << exponent_bits) - 1
        fraction = code & (1 << fraction_bits) - 1
        top = exponent == (1 << exponent_bits) - 1
        if (special == "fnuz" and code == 0x80) or (special == "one nan" and code & 0x7F == 0x7F):
            numbers.append(math.nan)
        elif special == "ieee" and top:
            numbers.append(math.nan if fraction else sign * math.inf)
        else:
            lead = fraction + ((1 << fraction_bits) if exponent else 0)
            numbers.append(sign * math.ldexp(lead, max(exponent, 1) - bias - fraction_bits))
    return numbers


def nearest(value, form):
    """The code nearest to a float, ties to the even code."""
    exponent_bits, fraction_bits, _, special = form
    sign = 1 << (exponent_bits + fraction_bits)
    negative = math.copysign(1, value) < 0
    numbers = table(form)
    nan = {"fnuz": 0x80, "one nan": 0x7F, "ieee": 0x7E, "none": sign - 1}[special]
    if math.isnan(value):
        return nan
    positive = [number for number in numbers[:sign] if math.isfinite(number)]
    step = positive[-1] - positive[-2]
    code = None
    if math.isfinite(value):
        # As if the format went on: halfway above the largest is still the largest only if that is even.
        exact = Fraction(abs(value))
        candidates = [*positive, positive[-1] + step]
        best = min(range(len(candidates)), key=lambda c: (abs(Fraction(candidates[c]) - exact), c & 1))
        if best < len(positive):
            code = best
    if code is None:
        code = {"fnuz": 0x80, "one nan": 0x7F, "ieee": 0x7C, "none": len(positive) - 1}[special]
    if special == "fnuz":
        return code | sign if negative and code not in (0, 0x80) else code
    return code | sign if negative else code


def major_of(processor):
    return 12 if processor.startswith("gfx12") else 9


EIGHT_BIT = [key for key in FORMATS if key[0] in ("fp8", "bf8")]


def same(result, expected):
    got = np.asarray(result).view(np.float32)
    want = np.array(expected, np.float32)
    nan = np.isnan(got) & np.isnan(want)
    return ((got.view(np.uint32) == want.view(np.uint32)) | nan).all()


@pytest.mark.parametrize(("kind", "processor"), EIGHT_BIT)
def test_reading(evaluate, kind, processor):
    numbers = table(FORMATS[kind, processor])
    codes = np.arange(256, dtype=np.uint32)
    settings = {"processor": processor, "major": major_of(processor)}
    assert same(evaluate(f"v_cvt_f32_{kind}", codes, **settings), numbers)
    pairs = evaluate(f"v_cvt_pk_f32_{kind}", (codes | codes[::-1] << 8).astype(np.uint16), **settings)
    assert same((pairs & 0xFFFFFFFF).astype(np.uint32), numbers)
    assert same((pairs >> 32).astype(np.uint32), numbers[::-1])


def values_to_write(form):
    generator = np.random.default_rng(11)
    numbers = np.array([number for number in table(form) if math.isfinite(number)])
    between = (numbers[:-1] + numbers[1:]) / 2
    small = generator.uniform(-1, 1, 500) * 2.0 ** generator.integers(-20, 18, 500)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-30, 2.0**-140]
    around = np.concatenate([numbers, between, between * 1.0000002, between * 0.9999998])
    return np.concatenate([around, small, special]).astype(np.float32)


@pytest.mark.parametrize(("kind", "processor"), EIGHT_BIT)
def test_writing(evaluate, kind, processor):
    form = FORMATS[kind, processor]
    x = values_to_write(form)
    y = x[::-1].copy()
    expected = [nearest(float(value), form) for value in x]
    exceptional = ~np.isfinite(x)
    if processor.startswith("gfx12"):
        pairs = evaluate(f"v_cvt_pk_{kind}_f32", x, y, major=12, processor=processor).astype(np.uint32)
    else:
        old = np.full(x.size, 0xAAAA5555, np.uint32)
        pairs = evaluate(f"v_cvt_pk_{kind}_f32", x, y, old, processor=processor, op_sel=8)
        assert (pairs & 0xFFFF == 0x5555).all()
        pairs >>= 16
    low = (pairs & 0xFF).tolist()
    for value, got, want, odd in zip(x.tolist(), low, expected, exceptional, strict=True):
        assert got == want or (odd and got & 0x7F == want & 0x7F and math.isnan(value)), (value, hex(got), hex(want))
    assert (pairs >> 8).tolist()[::-1] == low


@pytest.mark.parametrize(("kind", "processor"), EIGHT_BIT)
def test_stochastic_rounding(evaluate, kind, processor):
    form = FORMATS[kind, processor]
    numbers = np.array(table(form))
    settings = {"processor": processor, "major": major_of(processor)}
    generator = np.random.default_rng(12)
    largest = np.nanmax(np.abs(numbers[np.isfinite(numbers)]))
    x = generator.uniform(-largest, largest, 20).astype(np.float32)
    old = np.full(4096, 0x01020304, np.uint32)
    for value in x.tolist():
        random = generator.integers(0, 2**32, 4096, dtype=np.uint32)
        result = evaluate(f"v_cvt_sr_{kind}_f32", np.full(4096, value, np.float32), random, old, **settings)
        assert (result & 0xFFFFFF00 == 0x01020300).all()
        got = numbers[result & 0xFF]
        finite = numbers[np.isfinite(numbers)]
        below, above = finite[finite <= value].max(), finite[finite >= value].min()
        assert set(got.tolist()) <= {below, above}
        assert abs(got.mean() - value) < 0.06 * (above - below) + 1e-12


@pytest.mark.parametrize("kind", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("exponent", [100, 127, 140])
def test_block_scales(evaluate, kind, exponent):
    form = FORMATS[kind, "gfx950"]
    numbers = np.array(table(form))
    bits = 4 if kind == "fp4" else 8
    codes = np.arange(1 << bits, dtype=np.uint32)
    scale = np.full(codes.size, exponent << 23, np.uint32)
    result = evaluate(
        f"v_cvt_scalef32_pk_f32_{kind}", codes << (8 if kind == "fp4" else 16), scale, processor="gfx950", op_sel=1
    )
    assert same((result & 0xFFFFFFFF).astype(np.uint32), numbers * 2.0 ** (exponent - 127))
    halves = evaluate(f"v_cvt_scalef32_pk_f16_{kind}", codes, scale, processor="gfx950")
    with np.errstate(over="ignore"):
        expected = (numbers * 2.0 ** (exponent - 127)).astype(np.float16)
    got = halves.astype(np.uint16).view(np.float16)
    assert ((got == expected) | (np.isnan(got) & np.isnan(expected))).all()
    # Writing what was read gives the codes back.
    finite = np.isfinite(numbers)
    x = (numbers[finite] * 2.0 ** (exponent - 127)).astype(np.float32)
    scale = scale[finite].copy()
    old = np.zeros(x.size, np.uint32)
    packed = evaluate(f"v_cvt_scalef32_pk_{kind}_f32", x, x, scale, old, processor="gfx950")
    assert (packed == (codes[finite] | codes[finite] << bits)).all()
