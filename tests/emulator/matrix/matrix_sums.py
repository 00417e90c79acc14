"""Results of matrix instructions by exact fractions: element formats and sums.

Sums follow "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv:2511.10909) for the
processors measured there.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from fractions import Fraction

Number = Fraction | float
"""A fraction, or an infinity or NaN."""

# Formats ------------------------------------------------------------------------------------------------------------

FORMATS = {
    # name: bits, bits of the exponent, bias, kind of special codes
    "f64": (64, 11, 1023, "ieee"),
    "f32": (32, 8, 127, "ieee"),
    "xf32": (32, 8, 127, "ieee"),
    "f16": (16, 5, 15, "ieee"),
    "bf16": (16, 8, 127, "ieee"),
    "fp8": (8, 4, 7, "one"),
    "bf8": (8, 5, 15, "ieee"),
    "fp8_fnuz": (8, 4, 8, "minus zero"),
    "bf8_fnuz": (8, 5, 16, "minus zero"),
    "fp6": (6, 2, 1, ""),
    "bf6": (6, 3, 3, ""),
    "fp4": (4, 2, 1, ""),
}


def bits_of(kind: str) -> int:
    return FORMATS[kind][0] if kind in FORMATS else int(re.sub(r"\D", "", kind))


@functools.lru_cache(1 << 16)
def decode(kind: str, code: int) -> Number:
    """The number that a code means."""
    if kind[0] in "iu":
        bits = bits_of(kind)
        return Fraction(code - (1 << bits) if kind[0] == "i" and code >> (bits - 1) else code)
    if kind == "xf32":
        code &= ~0x1FFF
    bits, exponent_bits, bias, special = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    sign = -1 if code >> (bits - 1) else 1
    field = code >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = code & ((1 << fraction_bits) - 1)
    if special == "ieee" and field == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if (special == "one" and code & 0x7F == 0x7F) or (special == "minus zero" and code == 0x80):
        return math.nan
    if field == 0:
        return sign * Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (field - bias)


@functools.lru_cache(1 << 16)
def split(kind: str, number: Fraction) -> tuple[Fraction, int]:
    """Significand and exponent as the format stores them; of zero the exponent of denormals."""
    lowest = 1 - FORMATS[kind][2]
    if not number:
        return number, lowest
    exponent = max(floor_log2(abs(number)), lowest)
    return number / Fraction(2) ** exponent, exponent


def floor_log2(number: Fraction) -> int:
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def round_to(kind: str, number: Number) -> Number:
    """Nearest even, as a number of an IEEE-like format."""
    if not isinstance(number, Fraction) or not number:
        return number
    bits, exponent_bits, bias, _ = FORMATS[kind]
    unit = Fraction(2) ** (max(floor_log2(abs(number)), 1 - bias) - (bits - 1 - exponent_bits))
    rounded = round(number / unit) * unit
    largest = (2 - Fraction(2) ** -(bits - 1 - exponent_bits)) * Fraction(2) ** bias
    return (math.inf if number > 0 else -math.inf) if abs(rounded) > largest else rounded


def encode(kind: str, number: Number) -> int:
    """The code of a number that the format has; NaN is the canonical one, zero is +0."""
    bits, exponent_bits, bias, _ = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    top = ((1 << exponent_bits) - 1) << fraction_bits
    if not isinstance(number, Fraction):
        if math.isnan(number):
            return top | 1 << (fraction_bits - 1)
        return top | (number < 0) << (bits - 1)
    if not number:
        return 0
    significand, exponent = split(kind, abs(number))
    field = exponent + bias if significand >= 1 else 0
    code = int((significand - (1 if field else 0)) * (1 << fraction_bits)) | field << fraction_bits
    return code | (number < 0) << (bits - 1)


# Arithmetic with infinities and NaN ---------------------------------------------------------------------------------


def times(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    left, right = (float((n > 0) - (n < 0)) if isinstance(n, Fraction) else n for n in (x, y))
    return left * right


def plus(*numbers: Number) -> Number:
    special = [number for number in numbers if not isinstance(number, Fraction)]
    return (
        math.fsum(special)
        if special and not _opposing(special)
        else (math.nan if special else sum(numbers, Fraction()))
    )


def _opposing(numbers: list[float]) -> bool:
    return math.inf in numbers and -math.inf in numbers


# Sums ---------------------------------------------------------------------------------------------------------------

Pairs = list[tuple[Number, Number]]


def chain(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
    for x, y in pairs:
        total = round_to(result, plus(times(x, y), total))
    return total


def exact(count: int) -> Callable[..., Number]:
    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        for start in range(0, len(pairs), count):
            total = round_to("f32", plus(*(times(x, y) for x, y in pairs[start : start + count]), total))
        return total

    return add


def flush(kind: str, number: Number) -> Number:
    small = isinstance(number, Fraction) and abs(number) < Fraction(2) ** (1 - FORMATS[kind][2])
    return Fraction() if small else number


def flushed(count: int) -> Callable[..., Number]:
    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        def rounded(*numbers: Number) -> Number:
            return flush("f32", round_to("f32", plus(*numbers)))

        total = flush("f32", total)
        products = [rounded(times(flush(kind, x), flush(kind, y))) for x, y in pairs]
        for start in range(0, len(products), count):
            part = rounded(*products[start : start + 2])
            if count == 4:
                part = rounded(part, rounded(*products[start + 2 : start + 4]))
            total = rounded(total, part)
        return total

    return add


def cut(number: Fraction, exponent: int, bits: int, rounding: Callable[[Fraction], int]) -> Fraction:
    unit = Fraction(2) ** (exponent - bits)
    return rounding(number / unit) * unit


def fused(count: int, halves: bool = False) -> Callable[..., Number]:
    """Products cut toward zero at 24 bits below the largest exponent, sums and accumulator cut down at 31 and 24."""

    def part(kinds: str, pairs: Pairs) -> tuple[Fraction, int]:
        left, _, right = kinds.partition(" ")
        terms = []
        for (x, extra_x), (y, extra_y) in pairs:
            (sx, ex), (sy, ey) = split(left, x), split(right or left, y)
            terms.append((x * y * Fraction(2) ** (extra_x + extra_y), ex + ey + extra_x + extra_y if sx * sy else -126))
        top = max(exponent for _, exponent in terms)
        return sum((cut(value, top, 24, math.trunc) for value, _ in terms), Fraction()), top

    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        scaled = [tuple(n if isinstance(n, tuple) else (n, 0) for n in pair) for pair in pairs]
        for start in range(0, len(scaled), count):
            group = scaled[start : start + count]
            products = [times(x, y) for (x, _), (y, _) in group]
            special = [
                p if not isinstance(p, Fraction) else (math.inf if p > 0 else -math.inf)
                for p in products
                if not isinstance(p, Fraction) or (kind in ("bf16", "xf32") and abs(p) >= Fraction(2) ** 128)
            ]
            if special or not isinstance(total, Fraction):
                total = plus(*special, total)
                continue
            if halves:
                (s0, e0), (s1, e1) = part(kind, group[::2]), part(kind, group[1::2])
                top = max(e0, e1)
                value = cut(s0, top, 24, math.floor) + cut(s1, top, 24, math.floor)
            else:
                value, top = part(kind, group)
            own = split("f32", total)[1]
            scale = max(top, own)
            kept = cut(total, scale, 24, math.floor)
            if halves and own < scale - 25:
                kept = Fraction()
            total = round_to("f32", cut(value, scale, 31, math.floor) + kept)
        return total

    return add


def sum_of(target: str, kind: str, steps: int, pairs_in_lane: bool) -> Callable[..., Number]:
    """Return a processor's sum."""
    if kind in ("f16", "bf16") and target == "gfx908":
        return exact(4 if kind == "f16" else 2)
    if kind in ("f16", "bf16") and target == "gfx90a":
        return flushed(2 if pairs_in_lane else 4)
    if target in ("gfx942", "gfx950"):
        if kind in ("f16", "bf16"):
            return fused(min(8, steps))
        if kind == "xf32":
            return fused(4)
        if bits_of(kind) <= 8 and kind in FORMATS:
            return fused(16, halves=True)
    return chain
