"""Values that the semantic functions of operations compute with.

A `TypedValue` is an LLVM value with an operand type: a scalar, or a vector with one element per lane. The same semantic
function serves both. Python operators and numbers work as in the ISA documents' pseudo-code. This module is independent
of registers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol, Union

from llvmlite import ir

from luthier.emulator.ir.types import ScalarType

Operand = Union["TypedValue", int, float]


class Arithmetic(Protocol):
    """Operations that values delegate to the builder that made them (`ir.builder`)."""

    ir: Any
    """llvmlite's builder."""

    def wrap(self, llvm: Any, type: ScalarType | str) -> TypedValue:
        """Return an LLVM value with `type`."""

    def like(self, other: Operand, model: TypedValue) -> TypedValue:
        """Return `other` with the type and shape of `model`."""

    def bitcast(self, value: TypedValue, type: str | ScalarType) -> TypedValue:
        """Return the same bits as another type."""

    def convert(self, value: TypedValue, type: str | ScalarType) -> TypedValue:
        """Return the number as another type."""

    def binary(self, name: str, left: TypedValue, right: TypedValue) -> TypedValue:
        """Return ``left name right``."""

    def compare(self, relation: str, left: TypedValue, other: Operand) -> TypedValue:
        """Return ``left relation other``: a mask, or scc."""

    def negate(self, value: TypedValue) -> TypedValue:
        """Return a float with its sign flipped."""

    def absolute(self, value: TypedValue) -> TypedValue:
        """Return the number without its sign."""


class TypedValue:
    """LLVM value with an operand type. Operators follow the type: ``>>`` and ``<`` of an ``i32`` are signed."""

    __slots__ = ("b", "llvm", "type")

    def __init__(self, builder: Arithmetic, llvm: Any, type: ScalarType) -> None:
        self.b = builder
        self.llvm = llvm
        self.type = type

    @property
    def lanes(self) -> int:
        """Return the number of elements of the vector; 0 for a scalar."""
        llvm = self.llvm.type
        return llvm.count if isinstance(llvm, ir.VectorType) else 0

    # Conversions ----------------------------------------------------------------------------------------------------

    def as_(self, type: str | ScalarType) -> TypedValue:
        """Return the same bits as another type of the same size."""
        return self.b.bitcast(self, type)

    def to(self, type: str | ScalarType) -> TypedValue:
        """Convert the number. Integers are truncated, or extended by this value's sign; floats are rounded."""
        return self.b.convert(self, type)

    def bits(self, low: int, count: int) -> TypedValue:
        """Return the field of `count` bits from bit `low`: an integer of the same type (sign-extended if signed)."""
        shifted = self << (self.type.bits - low - count)
        return shifted >> (self.type.bits - count)

    # Arithmetic -----------------------------------------------------------------------------------------------------

    def _binary(self, name: str, other: Operand, swap: bool = False) -> TypedValue:
        right = self.b.like(other, self)
        left = self
        if swap:
            left, right = right, left
        return self.b.binary(name, left, right)

    def __add__(self, other: Operand) -> TypedValue:
        return self._binary("add", other)

    def __radd__(self, other: Operand) -> TypedValue:
        return self._binary("add", other, True)

    def __sub__(self, other: Operand) -> TypedValue:
        return self._binary("sub", other)

    def __rsub__(self, other: Operand) -> TypedValue:
        return self._binary("sub", other, True)

    def __mul__(self, other: Operand) -> TypedValue:
        return self._binary("mul", other)

    def __rmul__(self, other: Operand) -> TypedValue:
        return self._binary("mul", other, True)

    def __and__(self, other: Operand) -> TypedValue:
        return self._binary("and_", other)

    __rand__ = __and__

    def __or__(self, other: Operand) -> TypedValue:
        return self._binary("or_", other)

    __ror__ = __or__

    def __xor__(self, other: Operand) -> TypedValue:
        return self._binary("xor", other)

    __rxor__ = __xor__

    def __lshift__(self, other: Operand) -> TypedValue:
        return self._binary("shl", other)

    def __rlshift__(self, other: Operand) -> TypedValue:
        return self._binary("shl", other, True)

    def __rshift__(self, other: Operand) -> TypedValue:
        return self._binary("shr", other)

    def __rrshift__(self, other: Operand) -> TypedValue:
        return self._binary("shr", other, True)

    def __invert__(self) -> TypedValue:
        return self.b.wrap(self.b.ir.not_(self.llvm), self.type)

    def __neg__(self) -> TypedValue:
        if self.type.is_float:
            return self.b.negate(self)
        return self.b.wrap(self.b.ir.neg(self.llvm), self.type)

    def __abs__(self) -> TypedValue:
        return self.b.absolute(self)

    # Comparisons: on NaN, all except != are false -------------------------------------------------------------------

    def __eq__(self, other: object) -> TypedValue:  # type: ignore[override]
        return self.b.compare("==", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> TypedValue:  # type: ignore[override]
        return self.b.compare("!=", self, other)  # type: ignore[arg-type]

    def __lt__(self, other: Operand) -> TypedValue:
        return self.b.compare("<", self, other)

    def __le__(self, other: Operand) -> TypedValue:
        return self.b.compare("<=", self, other)

    def __gt__(self, other: Operand) -> TypedValue:
        return self.b.compare(">", self, other)

    def __ge__(self, other: Operand) -> TypedValue:
        return self.b.compare(">=", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a value is unknown during code generation; use b.select")


def constant(type: ScalarType, number: int | float, lanes: int) -> Any:
    """Return an LLVM constant of `type`, splat over `lanes` (0: scalar)."""
    element = type.llvm
    if type.kind == "f":
        layout = {16: "<e", 32: "<f", 64: "<d"}[type.bits]
        scalar = ir.Constant(element, struct.unpack(layout, struct.pack(layout, number))[0])
    else:
        scalar = ir.Constant(element, int(number) & ((1 << type.bits) - 1))
    if not lanes:
        return scalar
    # llvmlite would write a vector constant element by element.
    splat = ir.FormattedConstant(element, f"splat ({element} {scalar.get_reference()})")
    splat.type = ir.VectorType(element, lanes)
    return splat


def flatten(result: TypedValue | Sequence[TypedValue]) -> tuple[TypedValue, ...]:
    """Return a semantic function's result as a tuple."""
    return (result,) if isinstance(result, TypedValue) else tuple(result)
