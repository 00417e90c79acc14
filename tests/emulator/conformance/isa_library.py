"""The functions that the ISA documents' pseudo-code calls without defining them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import isa_numbers as n
import numpy as np
from isa_language import Environment
from isa_numbers import NEAREST, V, i32, make, truth

Function = Callable[..., V]
FUNCTIONS: dict[str, Function] = {}


def define(*names: str) -> Callable[[Function], Function]:
    def add(function: Function) -> Function:
        for name in names:
            FUNCTIONS[name] = function
        return function

    return add


@define("isNAN")
def _is_nan(env: Environment, v: V) -> V:
    return truth(n.is_nan(v))


@define("isSignalNAN")
def _is_signalling(env: Environment, v: V) -> V:
    return truth(n.is_signalling(v))


@define("isQuietNAN")
def _is_quiet(env: Environment, v: V) -> V:
    return truth(n.is_nan(v) and not n.is_signalling(v))


@define("cvtToQuietNAN")
def _quiet(env: Environment, v: V) -> V:
    return n.quieted(v)


@define("sign")
def _sign(env: Environment, v: V) -> V:
    return truth(n.is_negative(v))


@define("exponent")
def _exponent(env: Environment, v: V) -> V:
    f = v.format
    return i32(v.bits >> f.fraction & ((1 << f.exponent) - 1))


@define("mantissa")
def _mantissa(env: Environment, v: V) -> V:
    """In [0.5, 1), with the sign; of zero itself."""
    if n.is_zero(v):
        return v
    number = n.exact(v)
    return n.from_fraction(number / Fraction(2) ** (n.floor_log2(abs(number)) + 1), v.kind, v.width, NEAREST)


@define("abs")
def _abs(env: Environment, v: V) -> V:
    return n.magnitude(v)


@define("signext")
def _signext(env: Environment, v: V) -> V:
    return make(v._replace(kind="i").number(), "i", 64)


@define("signext_from_bit")
def _signext_from_bit(env: Environment, v: V, width: V) -> V:
    count = min(width.bits, v.width)
    if count == 0:
        return v._replace(bits=0)
    field = v.bits & ((1 << count) - 1)
    return make(field - (field >> (count - 1) << count), v.kind, v.width)


@define("fma")
def _fma(env: Environment, x: V, y: V, z: V) -> V:
    return n.fma(x, y, z, env.rounding(z.width))


@define("trunc")
def _trunc(env: Environment, v: V) -> V:
    return n.integral(v, "trunc")


@define("floor")
def _floor(env: Environment, v: V) -> V:
    return n.integral(v, "floor")


@define("fract")
def _fract(env: Environment, v: V) -> V:
    return n.add(v, n.negate(n.integral(v, "floor")), NEAREST)


@define("isEven")
def _is_even(env: Environment, v: V) -> V:
    return truth(not n.is_nan(v) and not n.is_infinite(v) and n.exact(v) % 2 == 0)


@define("sqrt")
def _sqrt(env: Environment, v: V) -> V:
    return n.square_root(v, NEAREST)


@define("ldexp")
def _ldexp(env: Environment, v: V, exponent: V) -> V:
    if n.is_nan(v):
        return n.nan_of(v.kind, v.width)
    if n.is_infinite(v) or n.is_zero(v):
        return v
    power = max(-5000, min(5000, exponent._replace(kind="i").number()))
    return n.from_fraction(n.exact(v) * Fraction(2) ** power, v.kind, v.width, env.rounding(v.width))


# Transcendental functions: 64 bits of significand, then rounded ------------------------------------------------------


def _fraction(value: Any) -> Fraction:
    """An 80-bit float exactly."""
    whole, exponent = np.frexp(value)
    high = float(whole)
    return (Fraction(high) + Fraction(float(whole - np.longdouble(high)))) * Fraction(2) ** int(exponent)


@define("pow")
def _pow(env: Environment, base: V, v: V) -> V:
    """Only of base 2."""
    if n.is_nan(v):
        return n.nan_of(v.kind, v.width)
    if n.is_infinite(v):
        return v._replace(bits=0) if n.is_negative(v) else v
    power = n.exact(v)
    whole = math.floor(power)
    part = np.exp2(np.longdouble(float(power - whole)))
    return n.from_fraction(_fraction(part) * Fraction(2) ** max(-4000, min(4000, whole)), v.kind, v.width, NEAREST)


@define("log2")
def _log2(env: Environment, v: V) -> V:
    if n.is_nan(v):
        return n.nan_of(v.kind, v.width)
    f = v.format
    if n.is_zero(v):
        return v._replace(bits=f.infinity | f.sign)
    if n.is_negative(v):
        return n.nan_of(v.kind, v.width)
    if n.is_infinite(v):
        return v
    number = n.exact(v)
    exponent = n.floor_log2(number)
    rest = number / Fraction(2) ** exponent
    if rest > Fraction(4, 3):
        rest, exponent = rest / 2, exponent + 1
    # log2(1 + x) near 1, where the plain logarithm would lose digits
    part = np.log1p(np.longdouble(float(rest - 1))) / np.log(np.longdouble(2))
    return n.from_fraction(_fraction(part) + exponent, v.kind, v.width, NEAREST)


def circular(v: V, shift: Fraction) -> V:
    """sin or cos of v turns."""
    if n.is_nan(v) or n.is_infinite(v):
        return n.nan_of(v.kind, v.width)
    turns = (n.exact(v)) % 1
    eighths = turns * 8
    quarter = math.floor(eighths / 2 + Fraction(1, 2))
    angle = _long_fraction(turns - Fraction(quarter, 4)) * _TWO_PI
    quarter = (quarter + int(shift * 4)) % 4
    value = (np.sin if quarter % 2 == 0 else np.cos)(angle)
    number = _fraction(value) * (-1 if quarter >= 2 else 1)
    return n.from_fraction(number, v.kind, v.width, NEAREST, zero_sign=n.is_negative(v))


def _long_fraction(number: Fraction) -> Any:
    high = float(number)
    return np.longdouble(high) + np.longdouble(float(number - Fraction(high)))


_TWO_PI = np.longdouble("6.283185307179586476925286766559005768")


# Conversions --------------------------------------------------------------------------------------------------------


def _to_float(width: int, kind: str = "f") -> Function:
    def run(env: Environment, v: V) -> V:
        mode = env.rounding(width)
        if v.is_float:
            if n.is_nan(v):
                return n.quieted(n.convert(v, kind, width))._replace(loose=((0, width),))
            return n.convert(v, kind, width, mode)
        return n.from_integer(v, width, mode)

    return run


for _name, _width in (
    *(("u32_to_f32", 32), ("i32_to_f32", 32), ("u32_to_f64", 64), ("i32_to_f64", 64), ("u16_to_f16", 16)),
    *(("i16_to_f16", 16), ("f32_to_f16", 16), ("f16_to_f32", 32), ("f32_to_f64", 64), ("f64_to_f32", 32)),
):
    FUNCTIONS[_name] = _to_float(_width)
FUNCTIONS["f32_to_bf16"] = _to_float(16, "bf")
FUNCTIONS["bf16_to_f32"] = _to_float(32)


def _to_integer(kind: str, width: int) -> Function:
    return lambda env, v: n.to_integer(v, kind, width)


for _name, _kind, _width in (
    *(("f32_to_i32", "i", 32), ("f32_to_u32", "u", 32), ("f64_to_i32", "i", 32), ("f64_to_u32", "u", 32)),
    *(("f16_to_i16", "i", 16), ("f16_to_u16", "u", 16), ("v_cvt_i16_f32", "i", 16), ("v_cvt_u16_f32", "u", 16)),
):
    FUNCTIONS[_name] = _to_integer(_kind, _width)


@define("f32_to_u8")
def _to_u8(env: Environment, v: V) -> V:
    """To nearest: which rounding is not told."""
    if n.is_nan(v):
        return make(0, "u", 8)
    if n.is_infinite(v):
        return make(0 if n.is_negative(v) else 255, "u", 8)
    number = n.exact(v)
    whole = n.round_to_integer(abs(number), NEAREST, number < 0)
    return make(0 if number < 0 else min(255, whole), "u", 8)


def _normalized(kind: str) -> Function:
    top = 32767 if kind == "i" else 65535

    def run(env: Environment, v: V) -> V:
        if n.is_nan(v):
            return make(0, kind, 16)
        low = -1 if kind == "i" else 0
        number = Fraction(-1 if n.is_negative(v) else 1) if n.is_infinite(v) else n.exact(v)
        number = max(Fraction(low), min(Fraction(1), number)) * top
        whole = n.round_to_integer(abs(number), NEAREST, number < 0)
        return make(-whole if number < 0 else whole, kind, 16)

    return run


for _source in ("f16", "f32"):
    FUNCTIONS[f"{_source}_to_snorm"] = _normalized("i")
    FUNCTIONS[f"{_source}_to_unorm"] = _normalized("u")


@define("u32_to_u16")
def _u32_to_u16(env: Environment, v: V) -> V:
    return make(min(v.number(), 65535), "u", 16)


@define("i32_to_i16")
def _i32_to_i16(env: Environment, v: V) -> V:
    return make(max(-32768, min(32767, v.number())), "i", 16)


for _kind, _width in (("i", 4), ("u", 4), ("i", 8), ("u", 8), ("i", 16), ("u", 16)):
    FUNCTIONS[f"{_kind}{_width}_to_{_kind}32"] = functools.partial(
        lambda kind, env, v: make(v.number(), kind, 32), _kind
    )


@define("s_ff1_i32_b64", "s_ff1_i32_b32")
def _first_one(env: Environment, v: V) -> V:
    return i32((v.bits & -v.bits).bit_length() - 1)


@define("nop", "s_nop")
def _nop(env: Environment, *arguments: V) -> V:
    return i32(0)


# Small floats -------------------------------------------------------------------------------------------------------


class Small(NamedTuple):
    """A float of 4 to 8 bits (OCP specifications; gfx942's 8-bit ones have a bias larger by one and one NaN)."""

    exponent: int
    fraction: int
    bias: int
    special: str
    """What the largest codes are: ``ieee``, ``nan`` (only the last one), ``finite``; ``fnuz``: 0x80 alone is NaN."""


SMALL = {
    "fp8": Small(4, 3, 7, "nan"),
    "bf8": Small(5, 2, 15, "ieee"),
    "fp6": Small(2, 3, 1, "finite"),
    "bf6": Small(3, 2, 3, "finite"),
    "fp4": Small(2, 1, 1, "finite"),
}
_FNUZ = {"fp8": Small(4, 3, 8, "fnuz"), "bf8": Small(5, 2, 16, "fnuz")}


def small_type(env: Environment, kind: str) -> Small:
    return _FNUZ[kind] if "FNUZ" in env.constants and kind in _FNUZ else SMALL[kind]


def small_magnitude(code: int, small: Small) -> Fraction | str:
    """The value of a code without its sign; ``nan`` or ``infinity``."""
    exponent, fraction = code >> small.fraction, code & ((1 << small.fraction) - 1)
    last = exponent == (1 << small.exponent) - 1
    if small.special == "ieee" and last:
        return "nan" if fraction else "infinity"
    if small.special == "nan" and last and fraction == (1 << small.fraction) - 1:
        return "nan"
    if exponent:
        fraction |= 1 << small.fraction
    return Fraction(fraction) * Fraction(2) ** (max(exponent, 1) - small.bias - small.fraction)


def from_small(env: Environment, v: V, scale: int = 0, kind: str = "f", width: int = 32) -> V:
    small = small_type(env, v.kind)
    sign = v.bits >> (v.width - 1) & 1
    value = small_magnitude(v.bits & ((1 << (v.width - 1)) - 1), small)
    if value == "nan" or (small.special == "fnuz" and v.bits == 0x80):
        return n.nan_of(kind, width)
    if isinstance(value, str):
        f = n.FORMATS[kind, width]
        return V(f.infinity | (f.sign if sign else 0), kind, width)
    number = value * Fraction(2) ** scale * (-1 if sign else 1)
    return n.from_fraction(number, kind, width, env.rounding(width), bool(sign))


@functools.cache
def _codes(small: Small) -> list[tuple[Fraction, int]]:
    """Finite non-negative values in order, with their codes."""
    values = [(small_magnitude(code, small), code) for code in range(1 << (small.exponent + small.fraction))]
    return sorted((value, code) for value, code in values if not isinstance(value, str))


def to_small(env: Environment, v: V, kind: str, scale: int = 0) -> V:
    """To nearest even; too large becomes NaN or infinity as the format has it (finite-only formats saturate)."""
    small = small_type(env, kind)
    bits = int(kind[2:])
    fnuz = small.special == "fnuz"
    codes = _codes(small)
    sign = 1 << (bits - 1) if n.is_negative(v) else 0
    if fnuz:
        if n.is_nan(v) or n.is_infinite(v):
            return make(0x80, kind, bits)
        nan = infinite = 0x80
    elif small.special == "finite":
        nan = infinite = codes[-1][1]
    else:
        nan, infinite = (0x7F, 0x7F) if kind == "fp8" else (0x7E, 0x7C)
    if n.is_nan(v):
        return V(sign | nan, kind, bits, ((0, bits),) if small.special != "finite" else ())
    if n.is_infinite(v):
        return make(sign | infinite, kind, bits)
    number = abs(n.exact(v)) / Fraction(2) ** scale
    top, step = codes[-1][0], codes[-1][0] - codes[-2][0]
    if number >= top + step / 2:
        return make(0x80 if fnuz else sign | infinite, kind, bits)
    best = min(codes, key=lambda pair: (abs(pair[0] - number), pair[1] & 1))
    if fnuz and best[1] == 0:
        sign = 0
    return make(sign | best[1], kind, bits)


for _kind in ("fp8", "bf8"):
    FUNCTIONS[f"{_kind}_to_f32"] = from_small
    FUNCTIONS[f"f32_to_{_kind}"] = functools.partial(lambda kind, env, v: to_small(env, v, kind), _kind)


def _define_scaled(kind: str, other: str) -> None:
    family, width = ("bf", 16) if other == "bf16" else ("f", int(other[1:]))

    def read(env: Environment, v: V, scale: V) -> V:
        if scale.bits & 255 == 255:
            return n.nan_of(family, width)
        return from_small(env, v, (scale.bits & 255) - 127, family, width)

    def write(env: Environment, v: V, scale: V) -> V:
        if scale.bits & 255 == 255:
            result = to_small(env, n.nan_of("f", 32), kind)
            return result if result.loose else result._replace(loose=((0, -result.width),))  # of either sign
        return to_small(env, v, kind, (scale.bits & 255) - 127)

    FUNCTIONS[f"{kind}_to_{other}_scale"] = read
    FUNCTIONS[f"{other}_to_{kind}_scale"] = write


for _kind in ("fp8", "bf8", "fp6", "bf6", "fp4"):
    for _other in ("f32", "f16", "bf16"):
        _define_scaled(_kind, _other)
