"""Typed bit patterns and the exact arithmetic of the ISA documents' pseudo-code, in Python integers and fractions."""

from __future__ import annotations

import ctypes
import math
import struct
from fractions import Fraction
from typing import NamedTuple

NEAREST, UP, DOWN, ZERO = range(4)
"""Rounding modes, as MODE spells them."""


class Format(NamedTuple):
    """A floating-point format."""

    width: int
    exponent: int
    """Bits of the exponent."""
    fraction: int
    bias: int
    infinities: bool = True

    @property
    def emin(self) -> int:
        return 1 - self.bias

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def quiet(self) -> int:
        return 1 << (self.fraction - 1)


FORMATS = {
    ("f", 16): Format(16, 5, 10, 15),
    ("f", 32): Format(32, 8, 23, 127),
    ("f", 64): Format(64, 11, 52, 1023),
    ("bf", 16): Format(16, 8, 7, 127),
}
Loose = tuple[tuple[int, int], ...]


class V(NamedTuple):
    """A value: bits of a kind (u, i, b, f, bf, fp8, bf8, fp6, bf6, fp4) and a width."""

    bits: int
    kind: str
    width: int
    loose: Loose = ()
    """Ranges (low bit, width) that hold a NaN; the documents do not specify its bits."""
    signed_zero: bool = False
    """A zero written with its sign, which differs from the other zero in comparisons."""

    @property
    def is_float(self) -> bool:
        return self.kind == "f" or self.kind == "bf"

    @property
    def format(self) -> Format:
        return FORMATS[self.kind, self.width]

    def number(self) -> int:
        """The integer."""
        if self.kind == "i" and self.bits >> (self.width - 1):
            return self.bits - (1 << self.width)
        return self.bits


def make(value: int, kind: str, width: int) -> V:
    return V(value & ((1 << width) - 1), kind, width)


def u32(value: int) -> V:
    return make(value, "u", 32)


def i32(value: int) -> V:
    return make(value, "i", 32)


TRUE, FALSE = V(1, "u", 1), V(0, "u", 1)


def truth(condition: bool) -> V:
    return TRUE if condition else FALSE


# Looking at floats --------------------------------------------------------------------------------------------------


def is_nan(v: V) -> bool:
    f = v.format
    return v.bits & ~f.sign > f.infinity


def is_infinite(v: V) -> bool:
    f = v.format
    return v.bits & ~f.sign == f.infinity


def is_signalling(v: V) -> bool:
    return is_nan(v) and not v.bits & v.format.quiet


def is_zero(v: V) -> bool:
    return not v.bits & ~v.format.sign


def is_negative(v: V) -> bool:
    return bool(v.bits & v.format.sign)


def is_denormal(v: V) -> bool:
    f = v.format
    return 0 < v.bits & ~f.sign < 1 << f.fraction


def quieted(v: V) -> V:
    return v._replace(bits=v.bits | v.format.quiet)


def nan_of(kind: str, width: int) -> V:
    """Some NaN."""
    f = FORMATS[kind, width]
    return V(f.infinity | f.quiet, kind, width, ((0, width),))


def pick_nan(kind: str, width: int, *operands: V) -> V | None:
    """The result of arithmetic if an operand is NaN."""
    return nan_of(kind, width) if any(is_nan(v) for v in operands) else None


def exact(v: V) -> Fraction:
    """The value of a finite float."""
    f = v.format
    magnitude = v.bits & ~f.sign
    exponent, fraction = magnitude >> f.fraction, magnitude & ((1 << f.fraction) - 1)
    if exponent:
        fraction |= 1 << f.fraction
    shift = max(exponent, 1) - f.bias - f.fraction
    number = Fraction(fraction << shift) if shift >= 0 else Fraction(fraction, 1 << -shift)
    return -number if v.bits & f.sign else number


def as_float(v: V) -> float:
    """A float of at most 64 bits as Python's."""
    if v.kind == "f":
        if v.width == 32:
            return struct.unpack("<f", struct.pack("<I", v.bits))[0]  # type: ignore[no-any-return]
        if v.width == 64:
            return struct.unpack("<d", struct.pack("<Q", v.bits))[0]  # type: ignore[no-any-return]
        return struct.unpack("<e", struct.pack("<H", v.bits))[0]  # type: ignore[no-any-return]
    return struct.unpack("<f", struct.pack("<I", v.bits << 16))[0]  # type: ignore[no-any-return]


def floor_log2(number: Fraction) -> int:
    """The exponent of the highest bit of a positive number."""
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    low = Fraction(1 << guess) if guess >= 0 else Fraction(1, 1 << -guess)
    return guess if number >= low else guess - 1


def round_to_integer(number: Fraction, mode: int, negative: bool) -> int:
    """A non-negative magnitude to an integer; `negative` is the sign it belongs to."""
    whole, rest = divmod(number.numerator, number.denominator)
    if rest == 0:
        return whole
    if mode == NEAREST:
        twice = 2 * rest
        return whole + (twice > number.denominator or (twice == number.denominator and whole & 1 == 1))
    return whole + (mode == (DOWN if negative else UP))


def encode(number: Fraction, negative: bool, f: Format, mode: int) -> int:
    """The pattern of the number rounded once; `negative` decides the sign of zero and of the result."""
    magnitude = abs(number)
    sign = f.sign if negative else 0
    if not magnitude:
        return sign
    exponent = max(floor_log2(magnitude), f.emin)
    step = exponent - f.fraction
    scaled = magnitude / (1 << step) if step >= 0 else magnitude * (1 << -step)
    whole = round_to_integer(scaled, mode, negative)
    pattern = whole + ((exponent - f.emin) << f.fraction)  # the implicit bit adds one to the exponent
    if pattern >= f.infinity:
        toward_zero = mode == ZERO or mode == (UP if negative else DOWN)
        pattern = f.infinity - 1 if toward_zero else f.infinity
    return sign | pattern


def from_fraction(number: Fraction, kind: str, width: int, mode: int, zero_sign: bool = False) -> V:
    negative = number < 0 or (number == 0 and zero_sign)
    return V(encode(number, negative, FORMATS[kind, width], mode), kind, width)


def from_float(value: float, width: int) -> V:
    """A Python float rounded to nearest even."""
    if width == 64:
        return V(struct.unpack("<Q", struct.pack("<d", value))[0], "f", 64)
    if width == 32:
        return V(struct.unpack("<I", struct.pack("<f", ctypes.c_float(value).value))[0], "f", 32)
    try:
        return V(struct.unpack("<H", struct.pack("<e", value))[0], "f", 16)
    except OverflowError:
        return V(0x7C00 | (0x8000 if value < 0 else 0), "f", 16)


def convert(v: V, kind: str, width: int, mode: int = NEAREST) -> V:
    """Between float formats; NaN keep their quiet bit and what fits of the rest."""
    if (v.kind, v.width) == (kind, width):
        return v
    source, target = v.format, FORMATS[kind, width]
    sign = target.sign if is_negative(v) else 0
    if is_nan(v):
        payload = v.bits & ((1 << source.fraction) - 1)
        shift = target.fraction - source.fraction
        payload = payload << shift if shift >= 0 else payload >> -shift
        loose = ((0, width),) if v.loose else ()
        return V(sign | target.infinity | (payload or target.quiet >> 1), kind, width, loose)
    if is_infinite(v):
        return V(sign | target.infinity, kind, width)
    return V(encode(exact(v), is_negative(v), target, mode), kind, width, (), v.signed_zero)


# Arithmetic ---------------------------------------------------------------------------------------------------------


def _common(x: V, y: V) -> tuple[str, int]:
    if x.kind == y.kind:
        return x.kind, max(x.width, y.width)
    return ("f", max(32, x.width, y.width))


def add(x: V, y: V, mode: int) -> V:
    kind, width = _common(x, y)
    x, y = convert(x, kind, width), convert(y, kind, width)
    if (nan := pick_nan(kind, width, x, y)) is not None:
        return nan
    if is_infinite(x) or is_infinite(y):
        if is_infinite(x) and is_infinite(y) and x.bits != y.bits:
            return nan_of(kind, width)
        return x if is_infinite(x) else y
    total = exact(x) + exact(y)
    both = is_negative(x) and is_negative(y)
    return from_fraction(total, kind, width, mode, both or (mode == DOWN and (is_negative(x) != is_negative(y))))


def multiply(x: V, y: V, mode: int) -> V:
    kind, width = _common(x, y)
    x, y = convert(x, kind, width), convert(y, kind, width)
    if (nan := pick_nan(kind, width, x, y)) is not None:
        return nan
    negative = is_negative(x) != is_negative(y)
    if is_infinite(x) or is_infinite(y):
        if is_zero(x) or is_zero(y):
            return nan_of(kind, width)
        f = FORMATS[kind, width]
        return V(f.infinity | (f.sign if negative else 0), kind, width)
    return V(encode(exact(x) * exact(y), negative, FORMATS[kind, width], mode), kind, width)


def divide(x: V, y: V, mode: int) -> V:
    kind, width = _common(x, y)
    x, y = convert(x, kind, width), convert(y, kind, width)
    f = FORMATS[kind, width]
    if (nan := pick_nan(kind, width, x, y)) is not None:
        return nan
    negative = is_negative(x) != is_negative(y)
    sign = f.sign if negative else 0
    if is_infinite(x) or is_zero(y):
        if is_infinite(y) or is_zero(x):
            return nan_of(kind, width)
        return V(f.infinity | sign, kind, width)
    if is_infinite(y) or is_zero(x):
        return V(sign, kind, width)
    return V(encode(exact(x) / exact(y), negative, f, mode), kind, width)


def fma(x: V, y: V, z: V, mode: int) -> V:
    kind, width = x.kind, max(x.width, y.width, z.width)
    f = FORMATS[kind, width]
    if (nan := pick_nan(kind, width, x, y, z)) is not None:
        return nan
    negative = is_negative(x) != is_negative(y)
    if is_infinite(x) or is_infinite(y):
        if is_zero(x) or is_zero(y) or (is_infinite(z) and is_negative(z) != negative):
            return nan_of(kind, width)
        return V(f.infinity | (f.sign if negative else 0), kind, width)
    if is_infinite(z):
        return z
    product = exact(x) * exact(y)
    zero_sign = (negative and is_negative(z)) or (mode == DOWN and negative != is_negative(z))
    return from_fraction(product + exact(z), kind, width, mode, zero_sign)


def square_root(x: V, mode: int) -> V:
    if (nan := pick_nan(x.kind, x.width, x)) is not None:
        return nan
    if is_zero(x) or x.bits == x.format.infinity:
        return x
    if is_negative(x):
        return nan_of(x.kind, x.width)
    number = exact(x)
    # So many bits of the root, and one more that tells whether something was lost, that it rounds as the root does.
    shift = x.format.fraction + 8 + max(0, -floor_log2(number))
    scaled, rest = divmod(number.numerator << (2 * shift), number.denominator)
    root = math.isqrt(scaled)
    lost = rest != 0 or root * root != scaled
    return from_fraction(Fraction(2 * root + lost, 2 << shift), x.kind, x.width, mode)


def negate(v: V) -> V:
    return v._replace(bits=v.bits ^ v.format.sign)


def magnitude(v: V) -> V:
    return v._replace(bits=v.bits & ~v.format.sign)


def compare(x: V, y: V) -> int | None:
    """-1, 0, 1, or None where one is NaN."""
    if is_nan(x) or is_nan(y):
        return None
    if (x.signed_zero or y.signed_zero) and is_zero(x) and is_zero(y):
        return is_negative(y) - is_negative(x)
    a, b = as_float(x), as_float(y)
    return (a > b) - (a < b)


def integral(v: V, how: str) -> V:
    """floor, trunc or ceil of a float, as a float."""
    if is_nan(v):
        return nan_of(v.kind, v.width)
    if is_infinite(v) or is_zero(v):
        return v
    number = exact(v)
    whole = {"floor": math.floor, "trunc": math.trunc, "ceil": math.ceil}[how](number)
    return from_fraction(Fraction(whole), v.kind, v.width, ZERO, is_negative(v))


def to_integer(v: V, kind: str, width: int) -> V:
    """Toward zero; saturated, NaN to 0."""
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
    if is_nan(v):
        return make(0, kind, width)
    if is_infinite(v):
        return make(low if is_negative(v) else high, kind, width)
    return make(max(low, min(high, math.trunc(exact(v)))), kind, width)


def from_integer(v: V, width: int, mode: int) -> V:
    return from_fraction(Fraction(v.number()), "f", width, mode)
