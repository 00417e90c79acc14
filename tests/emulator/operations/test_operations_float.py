"""Floating-point operations against NumPy, exact fractions and the host's libm."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest
from bit_patterns import flushed
from luthier.emulator.ir.variant import FloatMode

FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
FRACTION = {16: 10, 32: 23, 64: 52}


def as_float(bits_array):
    return bits_array.view(FLOATS[bits_array.itemsize * 8])


def as_bits(values):
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")


def assert_same(result, expected, *sources, name=""):
    """Equal bits, any NaN equal to any other."""
    expected = np.asarray(expected)
    both_nan = np.isnan(as_float(result)) & np.isnan(expected)
    wrong = np.flatnonzero((result != as_bits(expected)) & ~both_nan)
    assert not wrong.size, (
        f"{name}: {wrong.size} wrong, first {[hex(int(source[wrong[0]])) for source in sources]} gave "
        f"{int(result[wrong[0]]):#x}, not {int(as_bits(expected)[wrong[0]]):#x}"
    )


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# Rounding of an exact rational --------------------------------------------------------------------------------------


def rounded(value, bits, direction=0, sign=0):
    """The float nearest to a fraction (up, down, toward zero), as a pattern; `sign` is that of a zero."""
    fraction = FRACTION[bits]
    bias = (1 << (bits - 2 - fraction)) - 1
    top = 1 << (bits - 1)
    if value == 0:
        return sign * top
    negative = value < 0
    value = abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    scaled = value / Fraction(2) ** (exponent - fraction)
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    away = {0: rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1), 1: not negative, 2: negative, 3: False}
    if rest and away[direction]:
        whole += 1
    pattern = whole + ((exponent + bias - 1) << fraction) if whole >= 1 << fraction else whole
    infinite = ((1 << (bits - 1)) - 1) ^ ((1 << fraction) - 1)
    if pattern >= infinite:
        toward_zero = direction == 3 or (direction == 1 and negative) or (direction == 2 and not negative)
        pattern = infinite - 1 if toward_zero else infinite
    return negative * top | pattern


def fractions_of(array):
    """Return each finite element as a fraction, others as None."""
    return [Fraction(float(value)) if np.isfinite(value) else None for value in as_float(array)]


def fused(x, y, z, direction=0):
    """x * y + z by fractions where all are finite, else by NumPy."""
    bits = x.itemsize * 8
    plain = as_bits((as_float(x) * as_float(y) + as_float(z)).astype(FLOATS[bits]))
    result = []
    for index, (a, b, c) in enumerate(zip(fractions_of(x), fractions_of(y), fractions_of(z), strict=True)):
        if a is None or b is None or c is None:
            infinite = np.isinf(as_float(z)[index]) and a is not None and b is not None
            result.append(int(z[index]) if infinite else int(plain[index]))
            continue
        exact = a * b + c
        sign = int(x[index] ^ y[index]) >> (bits - 1)
        other = int(z[index]) >> (bits - 1)
        zero_sign = sign if sign == other else int(direction == 2)
        result.append(rounded(exact, bits, direction, zero_sign))
    return np.array(result, x.dtype).view(FLOATS[bits])


# Arithmetic ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_sums_and_products(evaluate, cases, bits):
    x, y = cases(f"f{bits} f{bits}")
    left, right = as_float(x), as_float(y)
    assert_same(evaluate(f"v_add_f{bits}", x, y), left + right, x, y, name="add")
    assert_same(evaluate(f"v_mul_f{bits}", x, y), left * right, x, y, name="mul")
    if bits < 64:
        assert_same(evaluate(f"v_sub_f{bits}", x, y), left - right, x, y, name="sub")
        assert_same(evaluate(f"v_subrev_f{bits}", x, y), right - left, x, y, name="subrev")


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_fused(evaluate, cases, bits):
    x, y, z = cases(f"f{bits} f{bits} f{bits}")
    expected = fused(x, y, z)
    for name in ("fma", "fmac"):
        assert_same(evaluate(f"v_{name}_f{bits}", x, y, z), expected, x, y, z, name=name)
    # Sums that cancel, where a second rounding would show.
    z = as_bits((-(as_float(x) * as_float(y))).astype(FLOATS[bits]))
    assert_same(evaluate(f"v_fma_f{bits}", x, y, z), fused(x, y, z), x, y, z, name="cancelling fma")


@pytest.mark.rows(5)
@pytest.mark.parametrize("direction", [1, 2, 3])
@pytest.mark.parametrize("bits", [16, 32, 64])
def test_rounding_modes(evaluate, cases, bits, direction):
    mode = FloatMode(round32=direction, round16_64=direction)
    x, y = cases(f"f{bits} f{bits}", random=512)
    finite = np.isfinite(as_float(x)) & np.isfinite(as_float(y))
    x, y = x[finite].copy(), y[finite].copy()
    ones = np.full_like(x, as_bits(np.ones(1, FLOATS[bits]))[0])
    zero = np.full_like(x, 1 << (bits - 1) if direction != 2 else 0)  # keeps the sign of a product that is zero
    assert_same(evaluate(f"v_add_f{bits}", x, y, mode=mode), fused(x, ones, y, direction), x, y, name="add")
    product = fused(x, y, zero, direction)
    got = evaluate(f"v_mul_f{bits}", x, y, mode=mode)
    nonzero = as_float(got) != 0
    assert_same(got[nonzero], product[nonzero], x[nonzero], y[nonzero], name="mul")
    z = as_bits((as_float(y) * FLOATS[bits](3)).astype(FLOATS[bits]))
    keep = np.isfinite(as_float(z))
    x, y, z = x[keep].copy(), y[keep].copy(), z[keep].copy()
    assert_same(evaluate(f"v_fma_f{bits}", x, y, z, mode=mode), fused(x, y, z, direction), x, y, z, name="fma")


def test_legacy_zero(evaluate, cases):
    x, y, z = cases("f32 f32 f32")
    left, right = as_float(x), as_float(y)
    zero = (left == 0) | (right == 0)
    expected = np.where(zero, np.float32(0), left * right)
    assert_same(evaluate("v_mul_legacy_f32", x, y), expected, x, y)
    expected = np.where(zero, as_float(z) + np.float32(0), fused(x, y, z))
    assert_same(evaluate("v_fma_legacy_f32", x, y, z), expected, x, y, z)


def test_unfused_flushes(evaluate, cases):
    x, y, z = cases("f32 f32 f32")

    def flush(values):
        return np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)

    product = flush(flush(as_float(x)) * flush(as_float(y)))
    expected = flush(product + flush(as_float(z)))
    assert_same(evaluate("v_mad_f32", x, y, z), expected, x, y, z)
    assert_same(evaluate("v_mac_f32", x, y, z), expected, x, y, z)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_integral_values(evaluate, cases, bits):
    (x,) = cases(f"f{bits}", random=4096)
    value = as_float(x)
    for name, function in {"trunc": np.trunc, "ceil": np.ceil, "floor": np.floor, "rndne": np.rint}.items():
        assert_same(evaluate(f"v_{name}_f{bits}", x), function(value), x, name=name)
    part = value - np.floor(value)
    below_one = np.nextafter(FLOATS[bits](1), FLOATS[bits](0))
    assert_same(evaluate(f"v_fract_f{bits}", x), np.where(part >= 1, below_one, part), x, name="fract")


# Order --------------------------------------------------------------------------------------------------------------


def is_signalling(x):
    bits = x.itemsize * 8
    return np.isnan(as_float(x)) & ((x >> np.array(FRACTION[bits] - 1, x.dtype) & np.array(1, x.dtype)) == 0)


def quieted(x):
    return x | np.array(1 << (FRACTION[x.itemsize * 8] - 1), x.dtype)


def key(x):
    """Integers in the order of the floats, -0 below +0."""
    bits = x.itemsize * 8
    value = x.view(f"i{x.itemsize}").astype(object)
    return np.where(value < 0, -(value + (1 << (bits - 1))) - 1, value)


def smaller(x, y, larger=False):
    first = key(x) > key(y) if larger else key(x) < key(y)
    return np.where(first, x, y)


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("larger", [False, True])
def test_minimum_and_maximum(evaluate, cases, bits, larger):
    x, y = cases(f"f{bits} f{bits}", random=512)
    x_nan, y_nan = np.isnan(as_float(x)), np.isnan(as_float(y))
    name = "max" if larger else "min"
    order = smaller(x, y, larger)
    loses = np.where(x_nan, y, np.where(y_nan, x, order))
    assert (evaluate(f"v_{name}_f{bits}", x, y, mode=FloatMode(ieee=False)) == loses).all()
    ieee = np.where(is_signalling(x), quieted(x), np.where(is_signalling(y), quieted(y), loses))
    assert (evaluate(f"v_{name}_f{bits}", x, y) == ieee).all()
    number = np.where(x_nan & y_nan, quieted(x), loses)
    assert (evaluate(f"v_{name}_num_f{bits}", x, y, major=12) == number).all()
    wins = np.where(x_nan, quieted(x), np.where(y_nan, quieted(y), order))
    wins = np.where(is_signalling(y) & x_nan & ~is_signalling(x), quieted(y), wins)
    assert (evaluate(f"v_{name}imum_f{bits}", x, y, major=12) == wins).all()


@pytest.mark.parametrize("bits", [16, 32])
def test_of_three(evaluate, cases, bits):
    x, y, z = (value for value in cases(f"f{bits} f{bits} f{bits}", random=512))
    numbers = ~(np.isnan(as_float(x)) | np.isnan(as_float(y)) | np.isnan(as_float(z)))
    x, y, z = x[numbers].copy(), y[numbers].copy(), z[numbers].copy()
    least = smaller(smaller(x, y), z)
    most = smaller(smaller(x, y, True), z, True)
    assert (evaluate(f"v_min3_f{bits}", x, y, z) == least).all()
    assert (evaluate(f"v_max3_f{bits}", x, y, z) == most).all()
    middle = as_float(evaluate(f"v_med3_f{bits}", x, y, z))
    ordered = np.sort(np.stack([as_float(x), as_float(y), as_float(z)]), axis=0)
    assert (middle == ordered[1]).all()
    nan = np.full(4, 0x7FC00000, np.uint32) if bits == 32 else np.full(4, 0x7E00, np.uint16)
    assert (evaluate(f"v_med3_f{bits}", nan, x[:4].copy(), y[:4].copy()) == smaller(x[:4], y[:4])).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_comparisons(evaluate, cases, bits):
    x, y = cases(f"f{bits} f{bits}", random=256)
    a, b = as_float(x), as_float(y)
    unordered = np.isnan(a) | np.isnan(b)
    expected = {
        "lt": a < b,
        "eq": a == b,
        "le": a <= b,
        "gt": a > b,
        "lg": (a != b) & ~unordered,
        "ge": a >= b,
        "o": ~unordered,
        "u": unordered,
        "nge": ~(a >= b),
        "nlg": (a == b) | unordered,
        "ngt": ~(a > b),
        "nle": ~(a <= b),
        "neq": a != b,
        "nlt": ~(a < b),
        "f": np.zeros(a.size, bool),
        "tru": np.ones(a.size, bool),
    }
    for name, flags in expected.items():
        assert (evaluate(f"v_cmp_{name}_f{bits}", x, y) == flags).all(), name
        if bits < 64 and name not in ("f", "tru"):
            assert (evaluate(f"s_cmp_{name}_f{bits}", x[:200], y[:200], major=12) == flags[:200]).all(), name


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_classes(evaluate, cases, bits):
    (x,) = cases(f"f{bits}", random=512)
    value = as_float(x)
    negative = np.signbit(value)
    tiny = np.finfo(value.dtype).tiny
    denormal = (np.abs(value) < tiny) & (value != 0)
    normal = np.isfinite(value) & (np.abs(value) >= tiny)
    kinds = [
        is_signalling(x),
        np.isnan(value) & ~is_signalling(x),
        np.isinf(value) & negative,
        normal & negative,
        denormal & negative,
        (value == 0) & negative,
        (value == 0) & ~negative,
        denormal & ~negative,
        normal & ~negative,
        np.isinf(value) & ~negative,
    ]
    assert (np.sum(kinds, axis=0) == 1).all()
    for place, expected in enumerate(kinds):
        wanted = np.full(x.size, 1 << place, np.uint16 if bits == 16 else np.uint32)
        assert (evaluate(f"v_cmp_class_f{bits}", x, wanted) == expected).all(), place


# Division -----------------------------------------------------------------------------------------------------------


def divide(evaluate, numerator, denominator):
    """The instructions that LLVM makes of an IEEE division."""
    bits = numerator.itemsize * 8
    kind = f"f{bits}"
    ones = np.full_like(numerator, as_bits(np.ones(1, FLOATS[bits]))[0])
    sign = np.array(1 << (bits - 1), numerator.dtype)
    below, _ = evaluate(f"v_div_scale_{kind}", denominator, denominator, numerator)
    above, mask = evaluate(f"v_div_scale_{kind}", numerator, denominator, numerator)

    def fma(a, b, c):
        return evaluate(f"v_fma_{kind}", a, b, c)

    guess = evaluate(f"v_rcp_{kind}", below)
    for _ in range(1 if bits == 32 else 2):
        guess = fma(fma(below ^ sign, guess, ones), guess, guess)
    quotient = evaluate(f"v_mul_{kind}", above, guess)
    if bits == 32:
        quotient = fma(fma(below ^ sign, quotient, above), guess, quotient)
    rest = fma(below ^ sign, quotient, above)
    result = evaluate(f"v_div_fmas_{kind}", rest, guess, quotient, mask)
    return evaluate(f"v_div_fixup_{kind}", result, denominator, numerator)


@pytest.mark.parametrize("bits", [32, 64])
def test_division_is_correctly_rounded(evaluate, cases, bits):
    x, y = cases(f"f{bits} f{bits}", random=20000)
    assert_same(divide(evaluate, x, y), as_float(x) / as_float(y), x, y)
    # Quotients around the least normal number.
    generator = np.random.default_rng(5)
    fraction, top = FRACTION[bits], {32: 254, 64: 2046}[bits]
    ones = (1 << fraction) - 1
    exponent = generator.integers(top // 2, top, 20000, dtype=np.uint64)
    drop = generator.integers(top // 2 - 1 - fraction - 3, top // 2 + 2, 20000, dtype=np.uint64)
    random = generator.integers(0, ones, (2, 20000), dtype=np.uint64)
    y = (exponent << np.uint64(fraction) | random[0]).astype(x.dtype)
    lower = np.maximum(exponent.astype(np.int64) - drop.astype(np.int64), 0).astype(np.uint64)
    x = (lower << np.uint64(fraction) | random[1]).astype(x.dtype)
    assert_same(divide(evaluate, x, y), as_float(x) / as_float(y), x, y)


def test_division_fixup_16(evaluate, cases):
    x, y = cases("f16 f16")
    quotient = as_float(x) / as_float(y)
    given = as_bits(np.where(np.isfinite(quotient), quotient, np.float16(1)))
    ordinary = np.isfinite(as_float(x)) & np.isfinite(as_float(y)) & ~np.isfinite(quotient) & (as_float(y) != 0)
    result = evaluate("v_div_fixup_f16", given, y, x)
    assert_same(result[~ordinary], quotient[~ordinary], x[~ordinary], y[~ordinary])
    zero = np.zeros(1, np.uint16)
    assert evaluate("v_div_fixup_f16", zero, zero, zero)[0] == 0xFE00


# Bounded functions --------------------------------------------------------------------------------------------------


def reciprocal_root(x):
    """1/sqrt(x) rounded once: of 64-bit numbers by way of 60 digits."""
    result = 1 / np.sqrt(x)
    if x.dtype == np.float64:
        usual = np.flatnonzero((x > 0) & (x < np.inf))
        with decimal.localcontext(prec=60):
            result[usual] = [float(1 / decimal.Decimal(value).sqrt()) for value in x[usual].tolist()]
    return result


SPECIAL = {
    "exp": lambda x: np.exp2(x),
    "log": lambda x: np.log2(x),
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: reciprocal_root(x),
    "sqrt": np.sqrt,
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("bits", [16, 32])
def test_special_functions(evaluate, cases, name, bits):
    (x,) = cases(f"f{bits}", random=20000)
    if name == "exp":
        more = np.random.default_rng(3).uniform(-160, 160, 20000).astype(FLOATS[bits])
        x = np.concatenate([x, as_bits(more)])
    value = as_float(x)
    if bits == 32:
        value = flushed(value)
    expected = SPECIAL[name](value.astype(np.float64)).astype(FLOATS[bits])
    if bits == 32:
        expected = flushed(expected)
    result = evaluate(f"v_{name}_f{bits}", x)
    assert_same(result, expected, x, name=name)
    few = x[:200].copy()
    assert (evaluate(f"v_s_{name}_f{bits}", few, major=12) == result[:200]).all()


@pytest.mark.parametrize("bits", [16, 32])
def test_sines(evaluate, cases, bits):
    (x,) = cases(f"f{bits}", random=10000)
    near = np.random.default_rng(4).uniform(-256, 256, 10000).astype(FLOATS[bits])
    quarters = (np.arange(-64, 65) / 8).astype(FLOATS[bits])
    x = np.concatenate([x, as_bits(near), as_bits(quarters)])
    value = as_float(x)
    if bits == 32:
        value = flushed(value)
    wide = value.astype(np.float64)
    for name, function, outside in (("sin", math.sin, 0.0), ("cos", math.cos, 1.0)):
        expected = []
        for turns in wide.tolist():
            if not math.isfinite(turns):
                expected.append(math.nan)
            elif abs(turns) > 256:
                expected.append(outside)
            else:
                part = math.fmod(turns, 1)
                eighths = round(part * 8)
                # Exact multiples of a quarter turn, where 2 pi is not exact.
                if part * 4 == round(part * 4):
                    quarter = int(part * 4) % 4
                    exact = [0.0, 1.0, 0.0, -1.0][(quarter + (name == "cos")) % 4]
                    expected.append(math.copysign(0.0, turns) if turns == 0 and name == "sin" else exact)
                    continue
                rest = (part - eighths / 8) * 2 * math.pi
                angle = eighths * math.pi / 4
                sine, cosine = math.sin(rest), math.cos(rest)
                if function is math.sin:
                    expected.append(math.sin(angle) * cosine + math.cos(angle) * sine)
                else:
                    expected.append(math.cos(angle) * cosine - math.sin(angle) * sine)
        expected = np.array(expected).astype(FLOATS[bits])
        if bits == 32:
            expected = flushed(expected)
        result = evaluate(f"v_{name}_f{bits}", x)
        got = as_float(result)
        zero = (expected == 0) & (got == 0)
        distance = np.abs(as_bits(np.abs(got)).astype(np.int64) - as_bits(np.abs(expected)).astype(np.int64))
        fine = zero | (np.isnan(got) & np.isnan(expected)) | ((distance <= 1) & (np.sign(got) == np.sign(expected)))
        assert fine.all(), (name, value[~fine][:5], got[~fine][:5], expected[~fine][:5])


@pytest.mark.parametrize("name", ["rcp", "rsq", "sqrt"])
def test_special_functions_64(evaluate, cases, name):
    (x,) = cases("f64", random=10000)
    assert_same(evaluate(f"v_{name}_f64", x), SPECIAL[name](as_float(x)), x)


# Taking apart -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_fraction_and_exponent(evaluate, cases, bits):
    (x,) = cases(f"f{bits}", random=2000)
    fraction, exponent = np.frexp(as_float(x).astype(np.float64))
    finite = np.isfinite(as_float(x))
    kind = "i16" if bits == 16 else "i32"
    assert_same(evaluate(f"v_frexp_mant_f{bits}", x), fraction.astype(FLOATS[bits]), x)
    result = evaluate(f"v_frexp_exp_{kind}_f{bits}", x)
    assert (result.view(kind.replace("i", "int")) == np.where(finite, exponent, 0)).all()


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_scaling(evaluate, cases, bits):
    kind = 16 if bits == 16 else 32
    x, y = cases(f"f{bits} u{kind}", random=2000)
    generator = np.random.default_rng(6)
    y[: y.size // 2] = generator.integers(-40 * bits, 40 * bits, y.size // 2).astype(f"i{kind // 8}").view(y.dtype)
    x = np.roll(x, 7)
    expected = []
    for pattern, value, power in zip(x.tolist(), fractions_of(x), y.view(f"i{kind // 8}").tolist(), strict=True):
        if value is None:
            expected.append(pattern)
        else:
            expected.append(
                rounded(value * Fraction(2) ** max(-5000, min(5000, power)), bits, 0, pattern >> (bits - 1))
            )
    assert_same(evaluate(f"v_ldexp_f{bits}", x, y), np.array(expected, x.dtype).view(FLOATS[bits]), x, y)


def test_digits_of_two_over_pi(evaluate):
    # pi from another formula than the operation's.
    digits = 1400

    def arctangent(inverse):
        total, term, n = 0, (1 << digits) // inverse, 0
        while term:
            total += term // (2 * n + 1) if n % 2 == 0 else -(term // (2 * n + 1))
            term //= inverse * inverse
            n += 1
        return total

    pi = 4 * (6 * arctangent(8) + 2 * arctangent(57) + arctangent(239))
    two_over_pi = (2 << 2 * digits) // pi
    for exponent in (1000, 1077, 1078, 1500, 1967, 1968, 2046):
        x = np.full(32, exponent << 52, np.uint64)
        result = as_float(evaluate("v_trig_preop_f64", x, np.arange(32, dtype=np.uint32)))
        for segment in range(32):
            shift = 53 * segment + max(exponent - 1077, 0)
            if shift + 53 > 1201:
                continue
            part = (two_over_pi >> digits - shift - 53) & (1 << 53) - 1
            power = -53 - shift + (128 if exponent >= 1968 else 0)
            assert result[segment] == math.ldexp(part, power), (exponent, segment)
