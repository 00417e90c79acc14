"""Powers, roots, logarithms and sines of vectors; extraction of parts of floats, and scaling.

Documents bound the error of the first group (about 1 ulp). Here, a value with a relative error below 2**-50 is rounded
to nearest, which is correct rounding except in a few of 10**8 cases. The 32-bit operations flush denormal sources and
results, which LLVM assumes of hardware (AMDGPU's lowering of fdiv, fsqrt, flog2, fexp2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.operands import flush_denormal
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.floats import exponent_field, power_of_two, quieted, scale, split
from luthier.emulator.operations.small_floats import bfloat

operations = OperationTable()

# Functions of 64-bit floats -----------------------------------------------------------------------------------------


def _polynomial(b: Builder, x: TypedValue, coefficients: list[float]) -> TypedValue:
    """Return the value of a polynomial, given its coefficients from the highest power."""
    total = b.like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = b.fma(total, x, coefficient)
    return total


def exponential(b: Builder, x: TypedValue) -> TypedValue:
    """Return 2**x for |x| below 1000; infinity or 0 beyond, NaN for NaN."""
    bounded = b.select(x > 1000.0, 1000.0, b.select(x < -1000.0, -1000.0, x))
    whole = b.round_even(bounded)
    rest = (bounded - whole) * math.log(2)
    power = _polynomial(b, rest, [1 / math.factorial(n) for n in range(14, -1, -1)])
    exponent = b.float_to_int(whole, "i64")
    return b.select(b.is_nan(x), x, power * power_of_two(exponent, 64))


def logarithm(b: Builder, x: TypedValue) -> TypedValue:
    """Return log2(x) of a normal number; -infinity for 0, NaN below."""
    fraction, exponent = split(b, x)
    # Reduce to [sqrt(1/2), sqrt(2)), so that the logarithm of a number near 1 keeps its relative precision.
    small = fraction < math.sqrt(0.5)
    fraction = b.select(small, fraction * 2.0, fraction)
    exponent = b.select(small, exponent - 1, exponent)
    ratio = b.divide(fraction - 1.0, fraction + 1.0)
    square = ratio * ratio
    series = _polynomial(b, square, [2 / math.log(2) / (2 * n + 1) for n in range(13, -1, -1)])
    result = b.fma(ratio, series, exponent.to("f64"))
    result = b.select(x == 0.0, -math.inf, result)
    result = b.select(x == math.inf, math.inf, result)
    result = b.select(x < 0.0, b.bits_const("f64", 0xFFF8000000000000), result)
    return b.select(b.is_nan(x), x, result)


def _turns(b: Builder, x: TypedValue, cosine: bool) -> TypedValue:
    """Return sin or cos of x full turns."""
    rest = x - b.round_even(x)  # exact, in [-1/2, 1/2]
    quarter = b.round_even(rest * 4.0)
    angle = (rest - quarter * 0.25) * (2 * math.pi)  # in [-pi/4, pi/4]
    square = angle * angle
    sine = angle * _polynomial(b, square, [(-1) ** n / math.factorial(2 * n + 1) for n in range(9, -1, -1)])
    other = _polynomial(b, square, [(-1) ** n / math.factorial(2 * n) for n in range(10, -1, -1)])
    place = b.float_to_int(quarter, "i32") + (1 if cosine else 0)
    result = b.select((place & 1) != 0, other, sine)
    return b.select((place & 2) != 0, -result, result)


# The operations -----------------------------------------------------------------------------------------------------

Function = Callable[[Builder, TypedValue], TypedValue]


def exp(b: Builder, x: TypedValue) -> TypedValue:
    """2**S0."""
    return exponential(b, x.to("f64"))


def log(b: Builder, x: TypedValue) -> TypedValue:
    """log2(S0)."""
    return logarithm(b, x.to("f64"))


def rcp(b: Builder, x: TypedValue) -> TypedValue:
    """1/S0."""
    return b.divide(1.0, x.to("f64"))


def rsq(b: Builder, x: TypedValue) -> TypedValue:
    """1/sqrt(S0)."""
    wide = x.to("f64")
    tiny = wide < 2.0**-500
    scaled = b.select(tiny, wide * 2.0**600, wide)
    root = b.sqrt(scaled)
    first = b.divide(1.0, root)
    # Add the errors of the root and the quotient: two roundings become one.
    lost_root, lost_quotient = b.fma(-root, root, scaled), b.fma(-root, first, 1.0)
    better = b.fma(first, lost_quotient - lost_root * first * first * 0.5, first)
    result = b.select((scaled > 0.0) & (scaled < math.inf), better, first)
    return b.select(tiny, result * 2.0**300, result)


def sqrt(b: Builder, x: TypedValue) -> TypedValue:
    """sqrt(S0)."""
    return b.sqrt(x.to("f64"))


def sin(b: Builder, x: TypedValue) -> TypedValue:
    """The sine of S0 full turns; 0 beyond 256 turns."""
    wide = x.to("f64")
    result = b.select(abs(wide) > 256.0, 0.0, _turns(b, wide, False))
    # A zero keeps its sign; the sine of infinity is NaN.
    result = b.select(wide == 0.0, wide, result)
    return b.select((abs(wide) == math.inf) | b.is_nan(wide), _invalid(b, wide), result)


def cos(b: Builder, x: TypedValue) -> TypedValue:
    """The cosine of S0 full turns; 1 beyond 256 turns."""
    wide = x.to("f64")
    result = b.select(abs(wide) > 256.0, 1.0, _turns(b, wide, True))
    return b.select((abs(wide) == math.inf) | b.is_nan(wide), _invalid(b, wide), result)


def _invalid(b: Builder, x: TypedValue) -> TypedValue:
    return b.select(b.is_nan(x), x, b.bits_const("f64", 0xFFF8000000000000))


_TANH_TERMS = 14


def _tanh_series() -> list[float]:
    """Return the coefficients of tanh(x) / x by powers of x**2, highest first, from t' = 1 - t**2."""
    series = [Fraction(1)]
    while len(series) < _TANH_TERMS:
        square = sum((series[i] * series[-1 - i] for i in range(len(series))), Fraction(0))
        series.append(-square / (2 * len(series) + 1))
    return [float(term) for term in reversed(series)]


def tanh(b: Builder, x: TypedValue) -> TypedValue:
    """The hyperbolic tangent of S0."""
    wide = x.to("f64")
    size = abs(wide)
    near = wide * _polynomial(b, wide * wide, _tanh_series())
    power = exponential(b, b.select(size > 30.0, 30.0, size) * (2 / math.log(2)))
    far = 1.0 - b.divide(2.0, power + 1.0)
    far = b.select(wide < 0.0, -far, far)
    return b.select(b.is_nan(wide), wide, b.select(size < 0.25, near, far))


FUNCTIONS: dict[str, Function] = {"exp": exp, "log": log, "rcp": rcp, "rsq": rsq, "sqrt": sqrt, "sin": sin, "cos": cos}


def bounded(b: Builder, x: TypedValue, function: Function) -> TypedValue:
    """Return the function, rounded to nearest to x's type; denormals of 32-bit numbers are zeros."""
    flushes = x.type.bits == 32
    if flushes:
        x = flush_denormal(b, x)
    result = b.with_rounding(0, lambda inner: function(inner, x).to(x.type))
    return flush_denormal(b, result) if flushes else result


def _declare(name: str, kind: str, function: Function) -> None:
    # Some scalar forms write an SGPR, as their mnemonics show.
    spelled = f"v_{name}_{kind}"
    if name == "rcp" and kind == "f32":
        spelled += " v_rcp_iflag_f32"
    if name in ("exp", "log") and kind == "f32":
        spelled += f" v_{name}_legacy_f32"

    operations.lane(spelled, f"{kind} -> {kind}", exact=False)(lambda b, x: bounded(b, x, function))

    if name not in ("sin", "cos"):

        @operations.scalar(f"v_s_{name}_{kind}", f"{kind} -> vdst:{kind}", exact=False, static=("src0_modifiers",))
        def scalar(b: Builder, x: TypedValue) -> TypedValue:
            """D = the function of S0 in scalar registers, with the modifiers of a vector operation."""
            chosen = b.modifiers.get("src0_modifiers", 0)
            x = abs(x) if chosen & 2 else x
            x = -x if chosen & 1 else x
            return bounded(b, x, function)


for _kind in ("f16", "f32"):
    for _name, _function in FUNCTIONS.items():
        _declare(_name, _kind, _function)


def _declare_newer(name: str, kind: str, function: Function) -> None:
    """Declare additional operations of GFX1250; bfloats keep denormals, as no source says otherwise."""

    @operations.lane(f"v_{name}_{kind}", f"{kind} -> {kind}", exact=False, since=(125,))
    def special(b: Builder, x: TypedValue) -> TypedValue:
        """D = the function of S0."""
        if kind != "bf16":
            return bounded(b, x, function)
        return b.with_rounding(0, lambda inner: bfloat(b, function(inner, x.to("f32"))))


_declare_newer("tanh", "f16", tanh)
_declare_newer("tanh", "f32", tanh)
for _name, _function in {**FUNCTIONS, "tanh": tanh}.items():
    _declare_newer(_name, "bf16", _function)


def _declare_64(name: str, function: Function) -> None:
    @operations.lane(f"v_{name}_f64", "f64 -> f64", exact=False)
    def special(b: Builder, x: TypedValue) -> TypedValue:
        """D = the function of S0."""
        return b.with_rounding(0, lambda inner: function(inner, x))


for _name in ("rcp", "rsq", "sqrt"):
    _declare_64(_name, FUNCTIONS[_name])

# Parts of floats -----------------------------------------------------------------------------------------------------


def _apart(kind: str) -> None:
    bits = int(kind[1:])
    exponent_kind = "i16" if bits == 16 else "i32"

    # D = the fraction of S0 in [0.5, 1); S0 for zero, infinity and NaN.
    operations.lane(f"v_frexp_mant_{kind}", f"{kind} -> {kind}")(lambda b, x: quieted(b, split(b, x)[0]))

    @operations.lane(f"v_frexp_exp_{exponent_kind}_{kind}", f"{kind} -> {exponent_kind}")
    def frexp_exp(b: Builder, x: TypedValue) -> TypedValue:
        """D = the exponent for the fraction; 0 for zero, infinity and NaN."""
        return split(b, x)[1].to(exponent_kind)

    @operations.lane(f"v_ldexp_{kind}", f"{kind} {exponent_kind} -> {kind}")
    def ldexp(b: Builder, x: TypedValue, exponent: TypedValue) -> TypedValue:
        """D = S0 * 2**S1."""
        return scale(b, x, exponent)


for _kind in ("f16", "f32", "f64"):
    _apart(_kind)

# Digits of 2/pi -----------------------------------------------------------------------------------------------------

_FRACTION_BITS = 1201


def _two_over_pi() -> int:
    """Return floor(2/pi * 2**1201), by Machin's formula."""
    extra = 64
    unit = 1 << (_FRACTION_BITS + extra)

    def arctangent(inverse: int) -> int:
        term = unit // inverse
        total, sign, divisor = term, -1, 3
        while term:
            term //= inverse * inverse
            total += sign * (term // divisor)
            sign, divisor = -sign, divisor + 2
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return ((2 * unit * unit) // pi) >> extra


@operations.lane("v_trig_preop_f64", "f64 u32 -> f64")
def trig_preop_f64(b: Builder, x: TypedValue, segment: TypedValue) -> TypedValue:
    """D = 53 bits of 2/pi at their position: segment S1 of the bits that matter for the exponent of S0."""
    exponent = exponent_field(x)
    shift = (segment & 31).to("i64") * 53 + b.select(exponent > 1077, exponent - 1077, 0)
    # Read 64 bits at a time from a table of the digits: the bits above the point after shifting left by `shift`.
    digits = _two_over_pi()
    words = [(digits >> (_FRACTION_BITS - 32 * (index + 1))) & 0xFFFFFFFF for index in range(_FRACTION_BITS // 32)]
    words.append((digits << (32 * (len(words) + 1) - _FRACTION_BITS)) & 0xFFFFFFFF)
    first = shift >> 5
    window = [b.like(0, shift.as_("u64")) for _ in range(3)]
    for place, word in enumerate(words):
        for ahead in range(3):
            window[ahead] = b.select(first + ahead == place, word, window[ahead])
    within = (shift & 31).as_("u64")
    high = (window[0] << 32) | window[1]
    # 53 bits from bit `within` of the 96.
    low = (window[2] << 32).as_("u64")
    joined = b.select(within == 0, high, (high << within) | (low >> ((64 - within) & 63)))
    result = (joined >> 11).to("f64")
    power = -53 - shift + b.select(exponent >= 1968, 128, b.like(0, shift))
    return scale(b, result, power)
