"""Number formats of matrix elements and small floats: fields, special codes, and conversion to numbers.

Two encodings of the 8-bit floats exist (OCP 8-bit floating point specification; ISA documents of CDNA3). OCP, of gfx950
and GFX12: bf8 is a small IEEE float, fp8 has one NaN and no infinity. FNUZ, of GFX94x: no infinity, no -0 (its pattern
is NaN), and an exponent bias larger by one. Floats of 4 and 6 bits (OCP microscaling formats) have neither infinity
nor NaN.
"""

from __future__ import annotations

from msgspec import Struct

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.values import TypedValue


class Format(Struct, frozen=True):
    """Widths of the fields in bits, and the special codes, which are given without sign."""

    bits: int
    exponent: int = 0
    """Bits of the exponent; 0 for integers."""
    fraction: int = 0
    bias: int = 0
    special: str = "ieee"
    """``ieee``: the highest exponent is infinity and NaN; ``one``: all ones is NaN; ``zero``: the code of -0 is NaN;
    ``none``: all codes are numbers."""
    signed: bool = True
    """True for signed integers."""

    @property
    def is_float(self) -> bool:
        """Return whether the numbers have an exponent."""
        return self.exponent > 0

    @property
    def sign(self) -> int:
        """Return the sign bit."""
        return 1 << (self.exponent + self.fraction)

    @property
    def infinity(self) -> int | None:
        """Return the code of infinity.

        None: an overflow gives NaN, or the largest number if there is no NaN.
        """
        return ((1 << self.exponent) - 1) << self.fraction if self.special == "ieee" else None

    @property
    def nan(self) -> int | None:
        """Return the canonical NaN; for ``zero``, the code of -0."""
        if self.infinity is not None:
            return self.infinity | 1 << (self.fraction - 1)
        return {"one": self.sign - 1, "zero": self.sign}.get(self.special)

    @property
    def largest(self) -> int:
        """Return the largest number."""
        if self.infinity is not None:
            return self.infinity - 1
        return self.sign - (2 if self.special == "one" else 1)


FORMATS = {
    "f64": Format(64, 11, 52, 1023),
    "f32": Format(32, 8, 23, 127),
    "xf32": Format(32, 8, 10, 127),
    "f16": Format(16, 5, 10, 15),
    "bf16": Format(16, 8, 7, 127),
    "fp8": Format(8, 4, 3, 7, "one"),
    "bf8": Format(8, 5, 2, 15),
    "fp8_fnuz": Format(8, 4, 3, 8, "zero"),
    "bf8_fnuz": Format(8, 5, 2, 16, "zero"),
    "fp6": Format(6, 2, 3, 1, "none"),
    "bf6": Format(6, 3, 2, 3, "none"),
    "fp4": Format(4, 2, 1, 1, "none"),
    "i8": Format(8),
    "u8": Format(8, signed=False),
    "i4": Format(4),
    "u4": Format(4, signed=False),
}


EIGHT_BIT = ("fp8", "bf8")
"""Names of the 8-bit floats in operations; their encoding depends on the processor."""


def format_of(processor: str, kind: str) -> Format:
    """Return the format of `kind` in operations of `processor`."""
    if kind in EIGHT_BIT and processor.startswith("gfx94"):
        return FORMATS[f"{kind}_fnuz"]
    return FORMATS[kind]


def float_value(b: Builder, raw: TypedValue, form: Format) -> TypedValue:
    """Return the exact number in 32 bits (64 bits for 64-bit elements).

    `raw` is an integer whose bits above the element are zero.
    """
    if form.bits == 64:
        return raw.as_("f64")
    if form.bits == 32:
        return (raw & (0xFFFFFFFF ^ ((1 << (23 - form.fraction)) - 1))).as_("f32")
    if form.special == "ieee" and form.exponent == 8:
        return (raw << 16).as_("f32")
    if form.special == "ieee" and form.fraction == 10:
        return raw.to("u16").as_("f16").to("f32")
    magnitude = raw & (form.sign - 1)
    sign = (raw >> (form.bits - 1)) << 31
    # Read as a 32-bit number, maybe denormal, the fields differ only in the bias.
    scaled = (magnitude << (23 - form.fraction)).as_("f32") * 2.0 ** (127 - form.bias)
    value = (scaled.as_("u32") | sign).as_("f32")
    if form.nan is None:
        return value
    nan = b.like(0x7FC00000, raw).as_("f32")
    if form.infinity is None:
        return b.select((raw if form.special == "zero" else magnitude) == form.nan, nan, value)
    infinity = (sign | 0x7F800000).as_("f32")
    return b.select(magnitude > form.infinity, nan, b.select(magnitude == form.infinity, infinity, value))


def integer_value(raw: TypedValue, form: Format) -> TypedValue:
    """Return a signed 32-bit integer."""
    kind = "i32" if form.signed else "u32"
    return raw.as_(kind).bits(0, form.bits).as_("i32")
