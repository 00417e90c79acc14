"""The 8-bit floats: fp8 has 4 bits of exponent and 3 of fraction, bf8 has 5 and 2.

Two encodings exist (OCP 8-bit floating point specification; ISA documents of CDNA3). OCP, of gfx950 and GFX12: bf8
like a small IEEE float, fp8 with one NaN and no infinity. FNUZ, of gfx942: no infinity, no -0 (its pattern is NaN),
exponent bias one higher.
"""

from __future__ import annotations

from luthier.emulator.builder import Builder
from luthier.emulator.values import Value

FORMATS = {"fp8": (4, 3), "bf8": (5, 2)}
"""Bits of exponent and fraction."""


def decode(b: Builder, x: Value, kind: str, *, ocp: bool) -> Value:
    """The low 8 bits of an integer as a 32-bit float, exactly."""
    exponent_bits, fraction_bits = FORMATS[kind]
    bits = x.to("u32") & 0xFF if x.type.bits != 32 else x & 0xFF
    magnitude = bits & 0x7F
    bias = (1 << (exponent_bits - 1)) - (1 if ocp else 0)
    # As a 32-bit denormal or small number with the same fields, scaled to its real exponent: exact for denormals too.
    scaled = (magnitude << (23 - fraction_bits)).as_("f32") * 2.0 ** (127 - bias)
    result = (scaled.as_("u32") | ((bits >> 7) << 31)).as_("f32")
    nan = b.bits_const("f32", 0x7FC00000)
    if not ocp:
        return b.select(bits == 0x80, nan, result)
    if kind == "fp8":
        return b.select(magnitude == 0x7F, nan, result)
    infinite = b.select(bits == 0xFC, b.bits_const("f32", 0xFF800000), b.bits_const("f32", 0x7F800000))
    return b.select(magnitude == 0x7C, infinite, b.select(magnitude > 0x7C, nan, result))
