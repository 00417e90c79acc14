"""Rounding to floats of 4 to 16 bits, also stochastic, and the scales of their blocks."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.floats import clamp_integer, power_of_two
from luthier.emulator.operations.number_formats import float_value, format_of


def decode(b: Builder, x: TypedValue, kind: str) -> TypedValue:
    """Return the low bits of an integer as a 32-bit float, exactly."""
    form = format_of(b.processor, kind)
    return float_value(b, x.to("u32") & (2 * form.sign - 1), form)


def bfloat(b: Builder, x: TypedValue) -> TypedValue:
    """Return a 64-bit float as a bfloat, rounded once to nearest even."""
    return encode(b, x, "bf16").to("u16").as_("bf16")


def encode(
    b: Builder, x: TypedValue, kind: str, random: TypedValue | None = None, *, saturates: bool = True
) -> TypedValue:
    """Return a 64-bit float rounded to nearest even, as a u32 code with its sign.

    Args:
        saturates: MODE.FP16_OVFL applies.
        random: 32 bits for stochastic rounding, added below the last place before truncation. Only as many of the
            highest bits count as a 32-bit float has more fraction bits than the format.
    """
    form = format_of(b.processor, kind)
    magnitude = abs(x)
    bits = magnitude.as_("u64")
    dropped = 52 - form.fraction
    least = 2.0 ** (1 - form.bias - form.fraction)
    if random is None:
        rounded = bits + ((bits >> dropped) & 1) + ((1 << (dropped - 1)) - 1)
        small = b.round_even(magnitude * (1 / least))
    else:
        used = 23 - form.fraction
        top = (random >> (32 - used)).to("u64")
        rounded = bits + (top << (dropped - used))
        small = b.floor(magnitude * (1 / least) + top.to("f64") * 2.0**-used)
    normal = (rounded >> dropped) - ((1023 - form.bias) << form.fraction)
    tiny = b.float_to_int(small, "u64")
    code = b.select(magnitude < 2.0 ** (1 - form.bias), tiny, normal)
    infinite = form.infinity if form.infinity is not None else form.largest if form.nan is None else form.nan
    overflow = form.largest if saturates and b.mode.fp16_ovfl and kind != "bf16" else infinite
    code = b.select(magnitude < float("inf"), b.select(code > form.largest, overflow, code), infinite).to("u32")
    sign = (x.as_("u64") >> 63).to("u32") * form.sign
    if form.special == "zero":
        sign = b.select((code == 0) | (code == form.sign), 0, sign)
    result = code | sign
    nan = form.nan if form.nan is not None else form.largest
    return b.select(
        b.is_nan(x),
        b.select(sign != 0, nan | (0 if form.special == "zero" else form.sign), b.like(nan, result)),
        result,
    )


def block_scale(b: Builder, scale: TypedValue) -> TypedValue:
    """Return 2 to the exponent of a 32-bit float, in 64 bits; NaN for the exponent of NaN."""
    exponent = (scale.as_("u32") >> 23) & 0xFF
    power = power_of_two(clamp_integer(b, exponent.as_("i32").to("i64") - 127, -127, 127), 64)
    return b.select(exponent == 0xFF, b.bits_const("f64", 0x7FF8000000000000), power)


def block_unscale(b: Builder, scale: TypedValue) -> TypedValue:
    """Return the exact inverse of `block_scale`."""
    exponent = (scale.as_("u32") >> 23) & 0xFF
    power = power_of_two(127 - exponent.as_("i32").to("i64"), 64)
    return b.select(exponent == 0xFF, b.bits_const("f64", 0x7FF8000000000000), power)
