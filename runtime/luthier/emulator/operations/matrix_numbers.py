"""Summation of the products of matrix operations on each processor.

No ISA document gives the order and the width of the matrix units' additions. For integers they do not matter; 32-bit
and 64-bit floats were found to be a chain of fused multiply-adds over k. For the narrow formats of GFX908, GFX90A and
GFX942 we follow a model that was measured to be bit-exact on hardware (Xie, Wang, Yang, Yang: "MMA-Sim: Bit-Accurate
Reference Model of Tensor Cores and Matrix Cores", arXiv:2511.10909):

- GFX908, `Exact`: a few products and the accumulator are added exactly and rounded once.
- GFX90A, `Flushed`: products are added in pairs, each sum rounded; denormals are zero everywhere.
- GFX94x, `Fused`: products are cut to a common grid below the largest exponent and added as integers; then the
  accumulator.

GFX950 is assumed to add like GFX942. For GFX11 and GFX12, and for sparse and scaled operations, nothing is published.
These are bounded: a chain of fused multiply-adds (GFX11, GFX12), or like dense operations (GFX9). NaN results are the
canonical NaN; a zero sum of `Fused` is +0.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.exact import I32, I64
from luthier.emulator.ir.rounding import sticky
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.number_formats import Format, float_value, integer_value

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import WaveBuilder

Fields = tuple[TypedValue, ...]
"""Parts of an element that a sum needs: its value, its exponent and value, or significand, exponent and value."""


def significand(w: WaveBuilder, raw: TypedValue, form: Format) -> tuple[TypedValue, TypedValue]:
    """Return the significand and the exponent of a finite number.

    The significand is a signed 32-bit float in [1, 2), below for denormals.
    """
    if form.bits == 32:
        raw, fraction, top = raw >> (23 - form.fraction), form.fraction, form.exponent + form.fraction
    else:
        fraction, top = form.fraction, form.bits - 1
    field = (raw >> fraction) & ((1 << form.exponent) - 1)
    mantissa = raw & ((1 << fraction) - 1)
    whole = w.select(field == 0, mantissa, mantissa | 1 << fraction)
    unsigned = w.wrap(w.ir.sitofp(whole.llvm, w.shaped(ir.FloatType(), whole.lanes)), "f32") * 2.0**-fraction
    signed = (unsigned.as_("u32") | (raw >> top) << 31).as_("f32")
    return signed, w.maximum(field.as_("i32"), 1) - form.bias


# Sums ---------------------------------------------------------------------------------------------------------------


class Model(Struct, frozen=True):
    """Model of adding products to the accumulator: `group` at a time, in the order of k."""

    group: int
    rows_at_once: ClassVar[int] = 1
    """Number of rows to sum at once: two if each addition waits for the one before."""

    def decode(self, w: WaveBuilder, raw: TypedValue, form: Format, special: bool) -> Fields:
        """Return the parts of an element for `step`, with or without `special`."""
        return (float_value(w, raw, form) if form.is_float else integer_value(raw, form),)

    def start(self, w: WaveBuilder, accumulator: TypedValue) -> TypedValue:
        """Return the accumulator before the first product."""
        return accumulator

    def unusual(self, w: WaveBuilder, fields: Fields) -> TypedValue | None:
        """Return a mask of elements that require `step` with `special`; None if there are none."""
        return None

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the accumulator plus the products."""
        raise NotImplementedError


class Chain(Model, frozen=True):
    """A chain of fused multiply-adds; for integers, of multiply-adds."""

    rows_at_once: ClassVar[int] = 2

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the accumulator plus the products in sequence."""
        for (x,), (y,) in zip(a, b, strict=True):
            accumulator = w.fma(x, y, accumulator) if x.type.is_float else accumulator + x * y
        return accumulator


class Wide(Model, frozen=True):
    """A chain of additions in 64 bits, rounded at its end, so that small floats with scales do not overflow."""

    rows_at_once: ClassVar[int] = 2

    def decode(self, w: WaveBuilder, raw: TypedValue, form: Format, special: bool) -> Fields:
        """Return the number in 64 bits."""
        return (float_value(w, raw, form).to("f64"),)

    def start(self, w: WaveBuilder, accumulator: TypedValue) -> TypedValue:
        """Return the accumulator in 64 bits."""
        return accumulator.to("f64")

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the accumulator plus the products in sequence."""
        for (x,), (y,) in zip(a, b, strict=True):
            accumulator = w.fma(x, y, accumulator)
        return accumulator


def _flush(w: WaveBuilder, value: TypedValue, keep_sign: bool) -> TypedValue:
    """Return the value with denormals flushed to zero; without `keep_sign`, -0 becomes +0."""
    bits = value.as_("u32")
    zero = bits & 0x80000000 if keep_sign else w.like(0, bits)
    return w.select((bits & 0x7F800000) == 0, zero, bits).as_("f32")


class Flushed(Model, frozen=True):
    """GFX90A: ((p0 + p1) + (p2 + p3)), or of two (p0 + p1), added to the accumulator; denormals are zero."""

    def decode(self, w: WaveBuilder, raw: TypedValue, form: Format, special: bool) -> Fields:
        """Return the number in 32 bits, with denormals flushed to 0."""
        exponent = raw & (((1 << form.exponent) - 1) << form.fraction)
        return (w.select(exponent == 0, w.like(0, raw), float_value(w, raw, form).as_("u32")).as_("f32"),)

    def start(self, w: WaveBuilder, accumulator: TypedValue) -> TypedValue:
        """Return the accumulator, with denormals and -0 replaced by +0."""
        return _flush(w, accumulator, False)

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the accumulator plus the products: neighbours are added first, and every result is flushed."""
        sums = [_flush(w, x * y, True) for (x,), (y,) in zip(a, b, strict=True)]
        while len(sums) > 1:
            sums = [_flush(w, x + y, True) for x, y in zip(sums[::2], sums[1::2], strict=True)]
        return _flush(w, accumulator + sums[0], True)


def _two_sum(w: WaveBuilder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """Return the rounded sum of two 64-bit floats, and the rounding error."""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


class Exact(Model, frozen=True):
    """GFX908: the exact sum of the products and the accumulator, rounded once."""

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the exact sum by error-free additions in 64 bits, rounded once."""
        products = [x.to("f64") * y.to("f64") for (x,), (y,) in zip(a, b, strict=True)]
        c = accumulator.to("f64")
        plain = products[0]
        for product in products[1:]:
            plain = plain + product
        plain = plain + c
        if len(products) == 2:
            first, second = products
        else:
            # Products of 16-bit floats are multiples of 2**-48 below 2**32: integers and fractions add exactly.
            first = second = w.like(0.0, c)
            for product in products:
                whole = w.truncate(product)
                first, second = first + whole, second + (product - whole)
        high, low = _two_sum(w, second, c)
        top, middle = _two_sum(w, first, high)
        rest = sticky(w, *_two_sum(w, middle, low))
        total = sticky(w, *_two_sum(w, top, rest))
        finite = abs(plain) < float("inf")
        return w.select(finite, total, plain).to("f32")


_BIAS = 1023
"""Exponent bias of 64-bit floats."""


def _power(w: WaveBuilder, exponent: TypedValue) -> TypedValue:
    """Return 2**exponent in 64 bits, for exponents of normal numbers."""
    biased = w.ir.zext((exponent + _BIAS).llvm, w.shaped(I64, exponent.lanes))
    return (w.wrap(biased, "u64") << 52).as_("f64")


ZERO_EXPONENT = -126
"""Exponent of a product that is zero."""
_NO_EXPONENT = -4096
"""Exponent of an element that is zero: less than any other, also in products."""
_SMALLEST, _LARGEST = -51, 62
"""Range of exponents for which products, and the power of 2 that scales them, are exact in 32 bits."""


class Fused(Model, frozen=True):
    """GFX94x: products are truncated to multiples of 2**-24 of the largest product's exponent, and added as integers.
    The sum and the accumulator are truncated to 2**-31 and 2**-24 of the larger exponent, added, and rounded once."""

    split: bool = False
    """Whether even and odd products are summed separately (8-bit floats)."""

    def decode(self, w: WaveBuilder, raw: TypedValue, form: Format, special: bool) -> Fields:
        """Return exponent and number; with `special`, significand, exponent and unscaled number."""
        value = float_value(w, raw, form)
        if special:
            return (*significand(w, raw, form), value)
        magnitude = value.as_("u32") & 0x7FFFFFFF
        exponent = w.maximum((magnitude >> 23).as_("i32") - 127, 1 - form.bias)
        return w.select(magnitude == 0, _NO_EXPONENT, exponent), value

    def unusual(self, w: WaveBuilder, fields: Fields) -> TypedValue | None:
        """Return a mask of infinity, NaN, and numbers whose products may not be exact in 32 bits."""
        exponent = fields[0]
        return (exponent > _LARGEST) | ((exponent < _SMALLEST) & (exponent > _NO_EXPONENT // 2))

    def step(
        self, w: WaveBuilder, accumulator: TypedValue, a: Sequence[Fields], b: Sequence[Fields], special: bool
    ) -> TypedValue:
        """Return the sum of truncated products as integers in 64-bit floats; `special` includes non-finite ones."""
        products = list(map(self._product if special else self._exact, [w] * len(a), a, b))
        total, top = self._sums(w, products, special)
        bits = accumulator.as_("u32")
        own = w.maximum(((bits >> 23) & 0xFF).as_("i32"), 1) - 127
        scale = w.maximum(top, own)
        wide = w.wrap(w.ir.sitofp(total.llvm, w.shaped(ir.DoubleType(), total.lanes)), "f64")
        cut_sum = w.floor(wide * _power(w, top - scale + 7))
        power = _power(w, 24 - scale)
        cut_own = w.floor(accumulator.to("f64") * power) * 128.0
        if self.split:
            # Scales may make products exceed infinity's exponent.
            small = own < scale - 25
            cut_own = w.select(small & (own < 128) if special else small, 0.0, cut_own)
        unit = w.like((2 * _BIAS + 24 - 31) << 52, power.as_("u64")) - power.as_("u64")  # 2**(scale - 31), in one step
        result = ((cut_sum + cut_own) * unit.as_("f64")).to("f32")
        if special:
            for (_, _, x), (_, _, y) in zip(a, b, strict=True):
                product = y * x
                result = result + w.select(abs(product) < float("inf"), 0.0, product)
        return result

    @staticmethod
    def _product(w: WaveBuilder, a: Fields, b: Fields) -> tuple[TypedValue, TypedValue]:
        """Return a product's significand and exponent."""
        (sa, ea, _), (sb, eb, _) = a, b
        s = sb * sa
        return s, w.select(s == 0.0, ZERO_EXPONENT, eb + ea)

    @staticmethod
    def _exact(w: WaveBuilder, a: Fields, b: Fields) -> tuple[TypedValue, TypedValue]:
        """Return an exact product and its exponent, which for zero is less than any other."""
        (ea, x), (eb, y) = a, b
        return y * x, eb + ea

    def _sums(
        self, w: WaveBuilder, products: Sequence[tuple[TypedValue, TypedValue]], special: bool
    ) -> tuple[TypedValue, TypedValue]:
        """Return the integer sum in units of 2**-24 of the largest exponent, and that exponent."""
        add = self._sum if special else self._sum_of_exact
        if not self.split:
            return add(w, products)
        halves = [add(w, products[0::2]), add(w, products[1::2])]
        top = w.maximum(halves[0][1], halves[1][1])
        (first, own), (second, other) = halves
        return (first >> w.minimum(top - own, 31)) + (second >> w.minimum(top - other, 31)), top

    @staticmethod
    def _sum(w: WaveBuilder, products: Sequence[tuple[TypedValue, TypedValue]]) -> tuple[TypedValue, TypedValue]:
        """Return the sum of products given as significands and exponents."""
        top = functools.reduce(w.maximum, (exponent for _, exponent in products))
        parts = [s * (w.maximum(exponent - top + (127 + 24), 0) << 23).as_("f32") for s, exponent in products]
        return _integer_sum(w, parts), top

    @staticmethod
    def _sum_of_exact(
        w: WaveBuilder, products: Sequence[tuple[TypedValue, TypedValue]]
    ) -> tuple[TypedValue, TypedValue]:
        """Return the sum of exact products. They share one factor, which saves work for each."""
        top = functools.reduce(w.maximum, (exponent for _, exponent in products))
        factor = ((24 + 127 - w.maximum(top, 2 * _SMALLEST)) << 23).as_("f32")
        return _integer_sum(w, [product * factor for product, _ in products]), w.maximum(top, ZERO_EXPONENT)


def _integer_sum(w: WaveBuilder, numbers: Sequence[TypedValue]) -> TypedValue:
    """Return the sum of numbers without their fractions."""
    parts = [w.wrap(w.ir.fptosi(number.llvm, w.shaped(I32, number.lanes)), "i32") for number in numbers]
    return functools.reduce(operator.add, parts)


def model_of(processor: str, kind: str, steps: int, pairs: bool) -> Model:
    """Return the model of `processor` for sums of products of elements of format `kind`.

    Args:
        steps: number of products in a sum.
        pairs: whether it is one of GFX90A's older bfloat operations, with two elements per lane.
    """
    narrow = {"f16": 8, "bf16": 8, "xf32": 4, "fp8": 16, "bf8": 16, "fp6": 16, "bf6": 16, "fp4": 16}
    if kind in narrow:
        if processor == "gfx908":
            return Exact(min(steps, 4 if kind == "f16" else 2))
        if processor == "gfx90a":
            return Flushed(2 if pairs else 4)
        if processor.startswith(("gfx94", "gfx95")):
            return Fused(min(steps, narrow[kind]), narrow[kind] == 16)
    return Chain(min(steps, 4))
