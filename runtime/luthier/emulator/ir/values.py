"""Values: what the semantic functions of operations compute with.

A `Value` is an LLVM value with an operand type. It is a scalar, or a vector with one element a lane; the same semantic
function serves both. Python operators and numbers work as in the ISA documents' pseudo-code. Nothing here knows
registers.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Protocol, Union

from llvmlite import ir

from luthier.emulator.ir.types import Type

Operand = Union["Value", int, float]


class Arithmetic(Protocol):
    """Operations that values delegate to the builder that made them (`ir.builder`)."""

    ir: Any
    """llvmlite's builder."""

    def wrap(self, llvm: Any, type: Type | str) -> Value:
        """Return an LLVM value, read as `type`."""

    def like(self, other: Operand, model: Value) -> Value:
        """Return `other` with type and shape of `model`."""

    def bitcast(self, value: Value, type: str | Type) -> Value:
        """Return the same bits read as another type."""

    def convert(self, value: Value, type: str | Type) -> Value:
        """Return the number as another type."""

    def binary(self, name: str, left: Value, right: Value) -> Value:
        """Return ``left name right``."""

    def compare(self, relation: str, left: Value, other: Operand) -> Value:
        """Return ``left relation other``: a mask, or scc."""

    def negate(self, value: Value) -> Value:
        """Return a float with its sign flipped."""

    def absolute(self, value: Value) -> Value:
        """Return the number without its sign."""


class Value:
    """An LLVM value and how its bits are read. Operators follow the type: ``>>`` and ``<`` of an ``i32`` are signed."""

    __slots__ = ("b", "llvm", "type")

    def __init__(self, builder: Arithmetic, llvm: Any, type: Type) -> None:
        self.b = builder
        self.llvm = llvm
        self.type = type

    @property
    def lanes(self) -> int:
        """Return the number of elements of the vector; 0 for a scalar."""
        llvm = self.llvm.type
        return llvm.count if isinstance(llvm, ir.VectorType) else 0

    # Conversions ----------------------------------------------------------------------------------------------------

    def as_(self, type: str | Type) -> Value:
        """Return the same bits read as another type of the same size."""
        return self.b.bitcast(self, type)

    def to(self, type: str | Type) -> Value:
        """Convert the number: integers are extended by this value's sign or truncated, floats rounded, ints to
        floats."""
        return self.b.convert(self, type)

    def bits(self, low: int, count: int) -> Value:
        """Return the field of `count` bits from bit `low`.

        It is an integer of the same type (sign-extended if signed).
        """
        shifted = self << (self.type.bits - low - count)
        return shifted >> (self.type.bits - count)

    # Arithmetic -----------------------------------------------------------------------------------------------------

    def _binary(self, name: str, other: Operand, swap: bool = False) -> Value:
        right = self.b.like(other, self)
        left = self
        if swap:
            left, right = right, left
        return self.b.binary(name, left, right)

    def __add__(self, other: Operand) -> Value:
        return self._binary("add", other)

    def __radd__(self, other: Operand) -> Value:
        return self._binary("add", other, True)

    def __sub__(self, other: Operand) -> Value:
        return self._binary("sub", other)

    def __rsub__(self, other: Operand) -> Value:
        return self._binary("sub", other, True)

    def __mul__(self, other: Operand) -> Value:
        return self._binary("mul", other)

    def __rmul__(self, other: Operand) -> Value:
        return self._binary("mul", other, True)

    def __and__(self, other: Operand) -> Value:
        return self._binary("and_", other)

    def __rand__(self, other: Operand) -> Value:
        return self._binary("and_", other)

    def __or__(self, other: Operand) -> Value:
        return self._binary("or_", other)

    def __ror__(self, other: Operand) -> Value:
        return self._binary("or_", other)

    def __xor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __rxor__(self, other: Operand) -> Value:
        return self._binary("xor", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._binary("shl", other)

    def __rlshift__(self, other: Operand) -> Value:
        return self._binary("shl", other, True)

    def __rshift__(self, other: Operand) -> Value:
        return self._binary("shr", other)

    def __rrshift__(self, other: Operand) -> Value:
        return self._binary("shr", other, True)

    def __invert__(self) -> Value:
        return self.b.wrap(self.b.ir.not_(self.llvm), self.type)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.b.negate(self)
        return self.b.wrap(self.b.ir.neg(self.llvm), self.type)

    def __abs__(self) -> Value:
        return self.b.absolute(self)

    # Comparisons: of floats all are false on NaN except != ----------------------------------------------------------

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return self.b.compare("==", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return self.b.compare("!=", self, other)  # type: ignore[arg-type]

    def __lt__(self, other: Operand) -> Value:
        return self.b.compare("<", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.b.compare("<=", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.b.compare(">", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.b.compare(">=", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a value is not known while code is generated; use b.select")


def constant(type: Type, number: int | float, lanes: int) -> Any:
    """Return an LLVM constant of `type`, splat over `lanes` (0: scalar)."""
    element = type.llvm
    if type.kind == "f":
        layout = {16: "<e", 32: "<f", 64: "<d"}[type.bits]
        scalar = ir.Constant(element, struct.unpack(layout, struct.pack(layout, number))[0])
    else:
        scalar = ir.Constant(element, int(number) & ((1 << type.bits) - 1))
    if not lanes:
        return scalar
    # llvmlite would spell a vector constant element by element.
    splat = ir.FormattedConstant(element, f"splat ({element} {scalar.get_reference()})")
    splat.type = ir.VectorType(element, lanes)
    return splat


def flatten(result: Value | Sequence[Value]) -> tuple[Value, ...]:
    """Return a semantic function's result as a tuple."""
    return (result,) if isinstance(result, Value) else tuple(result)
