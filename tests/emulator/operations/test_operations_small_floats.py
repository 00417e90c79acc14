"""Floats of 4 to 8 bits against tables made from their definitions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly

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
    low, high = evaluate(f"v_cvt_pk_f32_{kind}", (codes | codes[::-1] << 8).astype(np.uint16), **settings)
    assert same(low, numbers)
    assert same(high, numbers[::-1])


def values_to_write(form):
    generator = np.random.default_rng(11)
    numbers = np.array([number for number in table(form) if math.isfinite(number)])
    between = (numbers[:-1] + numbers[1:]) / 2
    small = generator.uniform(-1, 1, 500) * 2.0 ** generator.integers(-20, 18, 500)
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e-30, 2.0**-140]
    around = np.concatenate([numbers, between, between * 1.0000002, between * 0.9999998])
    return np.concatenate([around, small, special]).astype(np.float32)


@pytest.mark.rows(1)
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


def encoded(values, kind):
    """Numbers as codes of a float type, cut off; and the numbers that these are."""
    bits = values.astype(np.float16).view(np.uint16) if kind == "f16" else values.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        bits = bits >> 16
    exact = bits.view(np.float16) if kind == "f16" else (bits << (16 if kind == "bf16" else 0)).view(np.float32)
    return bits.astype(np.uint32), exact.astype(np.float64)


@pytest.mark.rows(1)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["fp8", "bf8", "pk_fp4", "pk32_fp6", "pk32_bf6"])
def test_scaled_stochastic_rounding(kind, source):
    """To one of the two neighbours, on average to the number itself; zero random bits cut off."""
    count = {"pk_fp4": 2}.get(kind, 32 if kind.startswith("pk32") else 1)
    numbers = np.array(table(FORMATS[kind.split("_")[-1], "gfx950"]))
    finite = np.unique(numbers[np.isfinite(numbers)])
    width = int(math.log2(numbers.size))
    generator = np.random.default_rng(13)
    scale = 2.0**-3
    codes, exact = encoded(generator.uniform(finite[0], finite[-1], count) * scale, source)
    exact = exact / scale
    rows = codes if source == "f32" or count == 1 else codes[0::2] | codes[1::2] << 16
    given = {32 + row: np.full(64, code, np.uint32) for row, code in enumerate(rows)}
    given[101] = np.full(64, np.float32(scale).view(np.uint32), np.uint32)
    registers = f"v[32:{31 + len(rows)}]" if len(rows) > 1 else "v32"
    result = "v[0:5]" if count == 32 else "v0"
    text = f"v_cvt_scalef32_sr_{kind}_{source} {result}, {registers}, v100, v101"
    below = np.array([finite[finite <= value].max() for value in exact])
    above = np.array([finite[finite >= value].min() for value in exact])
    total, runs = np.zeros(count), 8
    for run in range(runs):
        random = generator.integers(0, 2**32, 64, dtype=np.uint32)
        if run == 0:
            random[0] = 0
        state = run_assembly("gfx950", text, {**given, 100: random})
        words = sum(state.vgpr(row).astype(object) << (32 * row) for row in range(6 if count == 32 else 1))
        got = np.array(
            [[numbers[int(word) >> (width * at) & (1 << width) - 1] for at in range(count)] for word in words]
        )
        assert ((got == below) | (got == above)).all()
        if run == 0 and count == 1:
            assert abs(got[0]) == min(abs(below), abs(above))
        total += got.mean(axis=0)
    assert (np.abs(total / runs - exact) <= 0.1 * (above - below)).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_stochastic_rounding_to_halves(kind):
    """To one of the two neighbours in either half of the result, on average to the number itself."""
    generator = np.random.default_rng(14)
    for half in (0, 1):
        for value in generator.uniform(-100, 100, 4).astype(np.float32):
            (code,), (cut,) = encoded(np.array([value]), "bf16") if kind == "bf16" else ([0], [np.float16(value)])
            if kind == "bf16":
                ends = cut, encoded(np.array([(code + 1 << 16)], np.uint32).view(np.float32), kind)[1][0]
            else:
                ends = cut, np.nextafter(cut, np.float16(np.inf if cut < value else -np.inf))
            low, high = sorted(float(end) for end in ends)
            assert low <= value <= high
            got = []
            for _ in range(8):
                random = generator.integers(0, 2**32, 64, dtype=np.uint32)
                given = {0: np.full(64, 0xABCDABCD, np.uint32), 1: np.full(64, value).view(np.uint32), 2: random}
                text = f"v_cvt_sr_{kind}_f32 v0, v1, v2" + (" op_sel:[0,0,1]" if half else "")
                words = run_assembly("gfx950", text, given).vgpr(0)
                assert (words >> (0 if half else 16) & 0xFFFF == 0xABCD).all()
                field = words >> (16 if half else 0) & 0xFFFF
                wide = (field << 16).view(np.float32) if kind == "bf16" else field.astype(np.uint16).view(np.float16)
                got += wide.astype(np.float64).tolist()
            assert set(got) == {low, high}
            assert abs(np.mean(got) - value) < 0.1 * (high - low)
