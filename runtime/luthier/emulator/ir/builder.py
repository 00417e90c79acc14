"""The builder that semantic functions receive as `b`: arithmetic on values, bit-exact on every host CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from llvmlite import ir
from msgspec.structs import replace

from luthier.emulator.ir.exact import ExactBuilder
from luthier.emulator.ir.rounding import rounded
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import Operand, TypedValue

Result = TypeVar("Result")


class Builder(ExactBuilder):
    """Makes values; see README.md for the list with examples."""

    def convert(self, value: TypedValue, type: str | ScalarType) -> TypedValue:
        """Return the number as another type.

        Integers are truncated, or extended by the value's sign. Floats, also those made from integers, are rounded as
        MODE says.
        """
        kind = ScalarType.parse(type) if isinstance(type, str) else type
        source = value.type
        if source == kind or source.kind == "bf" or not kind.is_float:
            return super().convert(value, kind)
        if kind.kind == "bf":
            return self._to_bfloat(self.convert(value, "f32"), kind)
        if not source.is_float:
            return self._rounded("sitofp" if source.is_signed else "uitofp", [value], kind)
        return super().convert(value, kind) if kind.bits > source.bits else self._rounded("fptrunc", [value], kind)

    def _to_bfloat(self, value: TypedValue, kind: ScalarType) -> TypedValue:
        """Round a float to bfloat, to nearest even; NaN is quieted."""
        bits = value.as_("u32")
        chosen = self.select(self.is_nan(value), (bits >> 16) | 0x40, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)
        return self.wrap(self.ir.trunc(chosen.llvm, self.shaped(ir.IntType(16), value.lanes)), kind)

    def binary(self, name: str, left: TypedValue, right: TypedValue) -> TypedValue:
        """Return one of add, sub, mul, and_, or_, xor, shl, shr on two values of one type."""
        if left.type.kind != "f" or name not in ("add", "sub", "mul"):
            return super().binary(name, left, right)
        left, right = self._same_shape(left, right)
        if left.type.llvm != right.type.llvm:
            raise TypeError(f"{name} of different types: {left.type} and {right.type}")
        return self._rounded(f"f{name}", [left, right], left.type)

    def fma(self, a: TypedValue, x: Operand, c: Operand) -> TypedValue:
        """Return ``a * x + c`` with one rounding."""
        return self._rounded("fma", [a, self.like(x, a), self.like(c, a)], a.type)

    def sqrt(self, value: TypedValue) -> TypedValue:
        """Return the correctly rounded square root."""
        return self._rounded("sqrt", [value], value.type)

    def divide(self, left: Operand, right: TypedValue) -> TypedValue:
        """Return the correctly rounded quotient of floats."""
        return self._rounded("fdiv", [self.like(left, right), right], right.type)

    def _rounded(self, name: str, values: list[TypedValue], result: ScalarType) -> TypedValue:
        """Return the result of a floating-point operation, rounded to `result` as MODE says."""
        return rounded(self, name, values, result, self.mode.rounding(result.bits))

    def with_rounding(self, rounding: int, make: Callable[[Builder], Result]) -> Result:
        """Return the result of `make` under another rounding mode (an FP_ROUND code)."""
        saved = self.mode
        self.mode = replace(saved, round32=rounding, round16_64=rounding)
        try:
            return make(self)
        finally:
            self.mode = saved
