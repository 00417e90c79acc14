"""Floats of 4 to 16 bits: reading and rounding to them, also stochastically.

Two encodings of the 8-bit ones exist (OCP 8-bit floating point specification; ISA documents of CDNA3). OCP, of gfx950
and GFX12: bf8 like a small IEEE float, fp8 with one NaN and no infinity. FNUZ, of gfx942: no infinity, no -0 (its
pattern is NaN), exponent bias one higher. Those of 4 and 6 bits (OCP microscaling formats) have neither infinity nor
NaN.
"""

from __future__ import annotations

from dataclasses import dataclass

from luthier.emulator.builder import Builder
from luthier.emulator.operations.floats import clamp_integer, power_of_two
from luthier.emulator.values import Value


@dataclass(frozen=True)
class Format:
    """Widths of the fields, and codes without sign."""

    exponent: int
    fraction: int
    bias: int
    largest: int
    """Code of the largest number."""
    infinity: int | None = None
    """None: what is too large becomes NaN, or the largest number where there is no NaN."""
    nan: int | None = None
    unsigned_zero: bool = False
    """There is no -0: its code is the only NaN."""

    @property
    def sign(self) -> int:
        """Code of the sign bit."""
        return 1 << (self.exponent + self.fraction)


FORMATS = ("fp8", "bf8")
"""The 8-bit ones, whose encoding depends on the target."""

_OCP = {"fp8": Format(4, 3, 7, 0x7E, nan=0x7F), "bf8": Format(5, 2, 15, 0x7B, 0x7C, 0x7E)}
_FNUZ = {
    "fp8": Format(4, 3, 8, 0x7F, nan=0x80, unsigned_zero=True),
    "bf8": Format(5, 2, 16, 0x7F, nan=0x80, unsigned_zero=True),
}
_OTHERS = {
    "f16": Format(5, 10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "bf16": Format(8, 7, 127, 0x7F7F, 0x7F80, 0x7FC0),
    "fp6": Format(2, 3, 1, 0x1F),
    "bf6": Format(3, 2, 3, 0x1F),
    "fp4": Format(2, 1, 1, 0x7),
}


def format_of(b: Builder, kind: str) -> Format:
    """The format called `kind` on the target that code is made for."""
    return _OTHERS.get(kind) or (_FNUZ if b.processor.startswith("gfx94") else _OCP)[kind]


def decode(b: Builder, x: Value, kind: str) -> Value:
    """The low bits of an integer as a 32-bit float, exactly."""
    form = format_of(b, kind)
    bits = x.to("u32") & (2 * form.sign - 1)
    magnitude = bits & (form.sign - 1)
    # A small 32-bit float, maybe denormal, with the same fields, scaled to its real exponent.
    scaled = (magnitude << (23 - form.fraction)).as_("f32") * 2.0 ** (127 - form.bias)
    sign = (bits >> (form.exponent + form.fraction)) << 31
    result = (scaled.as_("u32") | sign).as_("f32")
    nan = b.bits_const("f32", 0x7FC00000)
    if form.unsigned_zero:
        return b.select(bits == form.sign, nan, result)
    if form.infinity is not None:
        infinite = (sign | 0x7F800000).as_("f32")
        return b.select(magnitude == form.infinity, infinite, b.select(magnitude > form.infinity, nan, result))
    return b.select(magnitude > form.largest, nan, result) if form.nan is not None else result


def encode(b: Builder, x: Value, kind: str, random: Value | None = None) -> Value:
    """A 64-bit float rounded to nearest even, as a u32 code with its sign.

    Args:
        random: 32 bits that are added below the last place instead, the rest cut off. Only as many of them count, from
            the top, as a 32-bit float has fraction bits beyond the format's.
    """
    form = format_of(b, kind)
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
    overflow = form.infinity if form.infinity is not None else form.largest if form.nan is None else form.nan
    code = b.select((code > form.largest) | ~(magnitude < float("inf")), overflow, code).to("u32")
    sign = (x.as_("u64") >> 63).to("u32") * form.sign
    if form.unsigned_zero:
        sign = b.select((code == 0) | (code == form.sign), 0, sign)
    result = code | sign
    nan = form.nan if form.nan is not None else form.largest
    return b.select(
        b.is_nan(x), b.select(sign != 0, nan | (0 if form.unsigned_zero else form.sign), b.like(nan, result)), result
    )


def block_scale(b: Builder, scale: Value) -> Value:
    """2 to the exponent of a 32-bit float, in 64 bits; NaN where the exponent is that of NaN."""
    exponent = (scale.as_("u32") >> 23) & 0xFF
    power = power_of_two(clamp_integer(b, exponent.as_("i32").to("i64") - 127, -127, 127), 64)
    return b.select(exponent == 0xFF, b.bits_const("f64", 0x7FF8000000000000), power)


def block_unscale(b: Builder, scale: Value) -> Value:
    """The inverse of `block_scale`, exactly."""
    exponent = (scale.as_("u32") >> 23) & 0xFF
    power = power_of_two(127 - exponent.as_("i32").to("i64"), 64)
    return b.select(exponent == 0xFF, b.bits_const("f64", 0x7FF8000000000000), power)
