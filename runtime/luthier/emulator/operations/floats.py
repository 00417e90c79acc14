"""Parts of floating-point numbers, for operations on sign, exponent or fraction."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.values import TypedValue

FRACTION_BITS = {16: 10, 32: 23, 64: 52}
BIAS = {16: 15, 32: 127, 64: 1023}


def infinity(bits: int) -> int:
    """Return the bit pattern of +infinity."""
    return ((1 << (bits - 1)) - 1) ^ ((1 << FRACTION_BITS[bits]) - 1)


def exponent_field(x: TypedValue) -> TypedValue:
    """Return the biased exponent, as a signed integer of the float's width."""
    bits = x.type.bits
    return (x.as_(f"i{bits}") >> FRACTION_BITS[bits]) & ((1 << (bits - 1 - FRACTION_BITS[bits])) - 1)


def is_negative(x: TypedValue) -> TypedValue:
    """Return the mask of lanes whose sign bit is set, also of NaN."""
    return x.as_(f"i{x.type.bits}") < 0


def is_signalling(x: TypedValue) -> TypedValue:
    """Return the mask of lanes where x is a signalling NaN."""
    bits = x.type.bits
    return (x != x) & ((x.as_(f"u{bits}") & (1 << (FRACTION_BITS[bits] - 1))) == 0)


def quiet(b: Builder, x: TypedValue) -> TypedValue:
    """Return x, which must be NaN, with its quiet bit set."""
    bits = x.type.bits
    return (x.as_(f"u{bits}") | (1 << (FRACTION_BITS[bits] - 1))).as_(x.type)


def quieted(b: Builder, x: TypedValue) -> TypedValue:
    """Return x; set the quiet bit of NaN."""
    return b.select(b.is_nan(x), quiet(b, x), x)


def power_of_two(exponent: TypedValue, bits: int) -> TypedValue:
    """Return 2**exponent for an integer `exponent` of the float's width within the normal range."""
    return ((exponent + BIAS[bits]) << FRACTION_BITS[bits]).as_(f"f{bits}")


def clamp_integer(b: Builder, x: TypedValue, low: int, high: int) -> TypedValue:
    """Return the nearest integer from `low` to `high`."""
    return b.minimum(b.maximum(x, low), high)


def scale(b: Builder, x: TypedValue, exponent: TypedValue) -> TypedValue:
    """Return x * 2**exponent for any i32 exponent (i16 for f16), rounded once as MODE says."""
    bits = x.type.bits
    if bits < 64:
        # The product is exact in the next wider type.
        wide = bits * 2
        limit = 60 if bits == 16 else 400
        factor = power_of_two(clamp_integer(b, exponent.to("i32"), -limit, limit).to(f"i{wide}"), wide)
        return (x.to(f"f{wide}") * factor).to(x.type)
    # Each step leaves a normal number, or one so small that the last step makes it 0.
    rest = clamp_integer(b, exponent.to("i64"), -2200, 2200)
    for _ in range(2):
        step = b.select(rest > 1023, 1023, b.select(rest < -1022, -969, b.like(0, rest)))
        x = x * power_of_two(step, 64)
        rest = rest - step
    return x * power_of_two(clamp_integer(b, rest, -1022, 1023), 64)


def scale_by_power(b: Builder, x: TypedValue, exponent: int) -> TypedValue:
    """Return x * 2**exponent with a constant exponent inside the normal range."""
    return x * 2.0**exponent


def split(b: Builder, x: TypedValue) -> tuple[TypedValue, TypedValue]:
    """Return fraction in [0.5, 1) and exponent with x = fraction * 2**exponent.

    For zero, infinity and NaN, these are x and 0.
    """
    bits = x.type.bits
    fraction_bits, bias = FRACTION_BITS[bits], BIAS[bits]
    word, signed = f"u{bits}", f"i{bits}"
    pattern = x.as_(word)
    magnitude = pattern & ((1 << (bits - 1)) - 1)
    # Shift a denormal until its leading one is in the position of a normal number's.
    shift = b.leading_zeros(magnitude) - (bits - 1 - fraction_bits)
    is_denormal = magnitude < (1 << fraction_bits)
    normalized = b.select(is_denormal, magnitude << (shift & (bits - 1)), magnitude)
    exponent = b.select(is_denormal, 1 - shift.as_(signed), (magnitude >> fraction_bits).as_(signed)) - (bias - 1)
    fraction = (
        (pattern & (1 << (bits - 1))) | ((bias - 1) << fraction_bits) | (normalized & ((1 << fraction_bits) - 1))
    ).as_(x.type)
    special = (magnitude == 0) | (magnitude >= infinity(bits))
    return b.select(special, x, fraction), b.select(special, 0, exponent)
