"""Data formats of typed buffer access: tables for each generation, and conversion between memory and registers.

Sources: ISA documents, "Buffer data", "Data formats" (numbers as in LLVM). Where these leave it open, the rules of
Direct3D apply, which the texture unit follows: stores clamp to the format's range, and NaN becomes 0 in an integer.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.memory_code import fault, gather
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import WaveBuilder
from luthier.emulator.layout import FAULT_FORMAT, FAULT_NARROWED, FAULT_SCALED

KINDS = ("UNORM", "SNORM", "USCALED", "SSCALED", "UINT", "SINT", "SRGB", "FLOAT")
"""Numeric formats by GFX9's number. Its reserved number stands for sRGB, which only images have."""
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, SRGB, FLOAT = range(8)
_INTEGERS = "UNORM SNORM USCALED SSCALED UINT SINT"
_ALL = f"{_INTEGERS} FLOAT"
_LAYOUTS = {
    "8": _INTEGERS,
    "16": _ALL,
    "8_8": _INTEGERS,
    "32": "UINT SINT FLOAT",
    "16_16": _ALL,
    "10_11_11": _ALL,
    "11_11_10": _ALL,
    "10_10_10_2": _INTEGERS,
    "2_10_10_10": _INTEGERS,
    "8_8_8_8": _INTEGERS,
    "32_32": "UINT SINT FLOAT",
    "16_16_16_16": _ALL,
    "32_32_32": "UINT SINT FLOAT",
    "32_32_32_32": "UINT SINT FLOAT",
}
"""Bits of the components, highest first -> numeric formats; in the order of the numbers on every generation."""
_DROPPED = {"10_11_11": "FLOAT", "11_11_10": "FLOAT", "10_10_10_2": "UNORM SNORM UINT SINT"}
"""Numeric formats that GFX11 keeps of some data formats."""

_SRGB = ("8", "8_8", "8_8_8_8")
_FIRST_SRGB = {10: 128, 11: 64, 12: 64}
"""Number of the first sRGB format (ROCr, CFMT_8_SRGB of resource_nv.h and resource_gfx11.h)."""
_SRGB_OF_GFX9 = 9
"""The numeric format (ROCr, TYPE_SRGB of resource_kv.h)."""

FORMATS = 128
_KIND_SHIFT, _WIDTH_BITS = 24, 6


@functools.cache
def formats(major: int) -> dict[int, tuple[str, str]]:
    """Return the components' bits and the numeric format of each format number.

    GFX9's number is the data format in four bits and the numeric format above. Later generations number the valid
    combinations.
    """
    if major == 9:
        layouts = enumerate(_LAYOUTS.items(), 1)
        return {
            number | KINDS.index(kind) << 4: (bits, kind) for number, (bits, kinds) in layouts for kind in kinds.split()
        }
    table = _LAYOUTS if major == 10 else _LAYOUTS | _DROPPED
    return dict(enumerate(((bits, kind) for bits, kinds in table.items() for kind in kinds.split()), 1))


@functools.cache
def image_formats(major: int) -> dict[int, tuple[str, str]]:
    """Return the formats of images, which include those of buffers.

    GFX9's number has the numeric format above six bits.
    """
    if major == 9:
        wider = {number & 15 | number >> 4 << 6: one for number, one in formats(major).items()}
        return wider | {list(_LAYOUTS).index(bits) + 1 | _SRGB_OF_GFX9 << 6: (bits, "SRGB") for bits in _SRGB}
    return formats(major) | {number: (bits, "SRGB") for number, bits in enumerate(_SRGB, _FIRST_SRGB[major])}


def image_format_count(major: int) -> int:
    """Return the number of format numbers of images, a power of two."""
    return 1024 if major == 9 else 256


def _packed(bits: str, kind: str) -> int:
    """Return a format as a word for compiled code: four widths, X lowest, and the numeric format; 0 is no format."""
    widths = [int(width) for width in reversed(bits.split("_"))]
    return sum(width << _WIDTH_BITS * index for index, width in enumerate(widths)) | KINDS.index(kind) << _KIND_SHIFT


@functools.cache
def linear_of_srgb() -> list[int]:
    """Return the floats, as bits, that 8-bit codes stand for (IEC 61966-2-1; Direct3D's rules of conversion)."""
    fractions = [code / 255 for code in range(256)]
    values = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in fractions]
    return [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]


class DataFormat(Struct):
    """Format that is known only at run time, the same for all lanes."""

    w: WaveBuilder
    number: TypedValue
    word: TypedValue
    of_image: bool = False

    @classmethod
    def of(cls, w: WaveBuilder, number: TypedValue, *, of_image: bool = False) -> DataFormat:
        """Look up a format; a number without a format stops the wave."""
        count = image_format_count(w.major) if of_image else FORMATS
        known = image_formats(w.major) if of_image else formats(w.major)
        words = [_packed(*known[number]) if number in known else 0 for number in range(count)]
        table = w.constant_table(f"{'image' if of_image else 'buffer'}_formats.{w.major}", words)
        data_format = cls(w, number, w.constant_word(table, number & (count - 1)), of_image)
        data_format.refuse(data_format.word == 0, FAULT_FORMAT)
        return data_format

    def refuse(self, condition: TypedValue, kind: int) -> None:
        """Stop the wave if the scalar condition holds, unless no lane is active."""
        w = self.w
        with w.when(condition & (w.exec_bits != 0)):
            fault(w, self.number, w.number(0), 0, kind)

    @property
    def kind(self) -> TypedValue:
        """Return the numeric format: an index in `KINDS`, as a scalar."""
        return self.word >> _KIND_SHIFT & 7

    def width(self, component: int) -> TypedValue:
        """Return the number of bits of a component; 0 if the format lacks it."""
        return self.word >> _WIDTH_BITS * component & 63

    def start(self, component: int) -> TypedValue:
        """Return the first bit of a component in the element."""
        total = self.w.number(0)
        for earlier in range(component):
            total = total + self.width(earlier)
        return total

    @property
    def bytes(self) -> TypedValue:
        """Return the size of an element."""
        return self.start(4) >> 3

    def _is(self, *kinds: int) -> TypedValue:
        matches = self.kind == kinds[0]
        for kind in kinds[1:]:
            matches = matches | (self.kind == kind)
        return matches

    @property
    def is_integer(self) -> TypedValue:
        """Return whether registers hold integers, not floats."""
        return self._is(UINT, SINT)

    def one(self, half: bool) -> TypedValue:
        """Return the constant 1 in a register's format, a scalar u32."""
        return self.w.select(self.is_integer, self.w.number(1), 0x3C00 if half else 0x3F800000)

    # Loads ----------------------------------------------------------------------------------------------------------

    def read(self, words: Sequence[TypedValue], component: int, half: bool) -> TypedValue:
        """Return a component of the element in `words`, in a register's format: 32 bits, or the low 16 of them."""
        return self.w.with_rounding(0, lambda _: self._read(words, component, half))

    def _read(self, words: Sequence[TypedValue], component: int, half: bool) -> TypedValue:
        w = self.w
        width, start = self.width(component), self.start(component)
        word = words[0]
        for index in range(1, len(words)):
            word = w.select(start >> 5 == index, words[index], word)
        unused = (w.number(32) - width) & 31
        high = (word >> w.splat(start & 31)) << w.splat(unused)
        unsigned, signed = high >> w.splat(unused), high.as_("i32") >> w.splat(unused).as_("i32")
        whole = w.select(self._is(SINT), signed.as_("u32"), unsigned) & (0xFFFF if half else 0xFFFFFFFF)
        number = w.select(self._is(SNORM, SSCALED), signed.to("f64"), unsigned.to("f64"))
        fraction = w.divide(number, w.splat(self._scale(width)))
        fraction = w.select(fraction < -1.0, -1.0, fraction)
        number = w.select(self._is(UNORM, SNORM, SRGB), fraction, number)
        if self.of_image and component < 3:
            number = w.select(self._is(SRGB), self._linear(unsigned), number)
        value = w.select(
            self.is_integer, whole, number.to("f16").as_("u16").to("u32") if half else number.to("f32").as_("u32")
        )
        value = w.select(self._is(FLOAT), self._read_float(unsigned, width, half), value)
        return w.select(width == 0, w.const("u32", 0), value)

    def _linear(self, code: TypedValue) -> TypedValue:
        """Return the value of an 8-bit sRGB component, an f64."""
        w = self.w
        table = w.ir.ptrtoint(w.constant_table("linear_of_srgb", linear_of_srgb()), ir.IntType(64))
        places = w.splat(w.wrap(table, "u64")) + ((code & 0xFF) << 2).to("u64")
        return gather(w, places).as_("f32").to("f64")

    def _read_float(self, raw: TypedValue, width: TypedValue, half: bool) -> TypedValue:
        """Return a float component.

        Floats of 10 and 11 bits have the exponent of 16-bit floats, and no sign.
        """
        w = self.w
        widened = raw << w.splat(w.select(width == 16, w.number(0), w.number(15) - width) & 31)
        short = w.wrap(w.ir.trunc(widened.llvm, w.shaped(ir.IntType(16), raw.lanes)), "u16")
        if half:
            # 32-bit floats are truncated (ISA documents of RDNA3 and RDNA4, "D16 instructions").
            cut = w.with_rounding(3, lambda _: raw.as_("f32").to("f16")).as_("u16").to("u32")
            return w.select(width == 32, cut, short.to("u32"))
        return w.select(width == 32, raw, short.as_("f16").to("f32").as_("u32"))

    def _scale(self, width: TypedValue) -> TypedValue:
        """Return the integer that stands for 1, a scalar f64."""
        w = self.w
        bits = w.select(self._is(SNORM), width - 1, width) & 31
        largest = (w.number(1) << bits) - 1
        return w.select(width == 0, w.number(1), largest).to("f64")

    def refuse_narrowing(self) -> None:
        """Refuse 32-bit integers in 16 bits: no document says how they are converted."""
        self.refuse(self.is_integer & (self.width(0) == 32), FAULT_NARROWED)

    # Stores ---------------------------------------------------------------------------------------------------------

    def refuse_scaled(self) -> None:
        """Refuse scaled integers, which are only for loads, and sRGB, for which ROCr makes no writable images."""
        self.refuse(self._is(USCALED, SSCALED, SRGB), FAULT_SCALED)

    def widen(self, half: TypedValue) -> TypedValue:
        """Return the low 16 bits of a register, converted to 32 bits."""
        w = self.w
        low = w.wrap(w.ir.trunc(half.llvm, w.shaped(ir.IntType(16), half.lanes)), "u16")
        integer = w.select(self._is(SINT), low.as_("i16").to("i32").as_("u32"), low.to("u32"))
        return w.select(self.is_integer, integer, low.as_("f16").to("f32").as_("u32"))

    def write(self, registers: Sequence[TypedValue]) -> list[TypedValue]:
        """Return the element's words, given the register of each of the four components."""
        return self.w.with_rounding(0, lambda _: self._write(registers))

    def _write(self, registers: Sequence[TypedValue]) -> list[TypedValue]:
        w = self.w
        words = [w.const("u32", 0) for _ in range(4)]
        for component, register in enumerate(registers):
            start = self.start(component)
            code = self._encode(register, self.width(component)) << w.splat(start & 31)
            for index in range(4):
                in_word = (start >> 5 == index) & (self.width(component) != 0)
                words[index] = words[index] | w.select(in_word, code, 0)
        return words

    def _encode(self, register: TypedValue, width: TypedValue) -> TypedValue:
        w = self.w
        unused = (w.number(32) - width) & 31
        most = w.splat(w.number(0xFFFFFFFF) >> unused)
        half_most = (most >> 1).as_("i32")
        signed = register.as_("i32")
        signed = w.minimum(w.maximum(signed, ~half_most), half_most)
        code = w.select(self._is(SINT), signed.as_("u32"), w.minimum(register, most))
        number = register.as_("f32").to("f64")
        number = w.select(w.is_nan(number), 0.0, number)
        least = w.splat(w.select(self._is(SNORM), w.wrap(ir.Constant(ir.DoubleType(), -1.0), "f64"), 0.0))
        number = w.select(number < least, least, w.select(number > 1.0, 1.0, number))
        scaled = w.float_to_int(w.round_even(number * w.splat(self._scale(width))), "i32").as_("u32")
        code = w.select(self._is(UNORM, SNORM), scaled, code)
        code = w.select(self._is(FLOAT), self._encode_float(register, width), code)
        return code & most

    def _encode_float(self, register: TypedValue, width: TypedValue) -> TypedValue:
        w = self.w
        value = register.as_("f32")
        result = w.select(width == 16, value.to("f16").as_("u16").to("u32"), register)
        for bits in (10, 11):
            result = w.select(width == bits, _unsigned_float(w, value, bits - 5), result)
        return result


def _unsigned_float(w: WaveBuilder, value: TypedValue, fraction: int) -> TypedValue:
    """Return a float as an unsigned float with five bits of exponent and `fraction` bits of fraction.

    It is rounded to nearest even; negative numbers become 0.
    """
    bits = value.as_("u32")
    dropped = 23 - fraction
    normal = ((bits + ((bits >> dropped) & 1) + ((1 << (dropped - 1)) - 1)) >> dropped) - (112 << fraction)
    tiny = w.float_to_int(w.round_even(value * 2.0 ** (14 + fraction)), "u32")
    infinity = 31 << fraction
    code = w.minimum(w.select(value < 2.0**-14, tiny, normal), infinity)
    code = w.select(value > 0.0, code, 0)
    return w.select(w.is_nan(value), infinity | 1 << (fraction - 1), code)
