"""Arguments of hooks that are computed: arithmetic on registers and immediates, which becomes part of a payload's IR.

An `Expression` says nothing of a point but its form, so that one template serves all points of the same form: its
leaves are numbers of inputs. Which registers these are, and which numbers, is the point's
(`luthier.tool.task.HookCall`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

InputKind = Literal["wave", "lane", "immediate"]
"""Origin of a 32-bit input: a scalar register, a vector register, the point itself."""


class Expression(Struct, frozen=True):
    """An integer of `bits` bits. Operators wrap; both sides have the same width. A plain number is a constant."""

    operation: str
    """An `InputKind`, ``constant``, or an instruction of LLVM's: ``add``, ``zext``, ``select``, ``icmp eq``, …"""
    bits: int
    operands: tuple[Expression, ...] = ()
    value: int = 0
    """Value of a constant; number of an input."""

    def _with(self, operation: str, other: Expression | int) -> Expression:
        if isinstance(other, int):
            other = constant(other, self.bits)
        return Expression(operation, self.bits, (self, other))

    def __add__(self, other: Expression | int) -> Expression:
        return self._with("add", other)

    def __sub__(self, other: Expression | int) -> Expression:
        return self._with("sub", other)

    def __mul__(self, other: Expression | int) -> Expression:
        return self._with("mul", other)

    def __and__(self, other: Expression | int) -> Expression:
        return self._with("and", other)

    def __or__(self, other: Expression | int) -> Expression:
        return self._with("or", other)

    def __lshift__(self, other: Expression | int) -> Expression:
        return self._with("shl", other)

    def __rshift__(self, other: Expression | int) -> Expression:
        return self._with("lshr", other)

    def __xor__(self, other: Expression | int) -> Expression:
        return self._with("xor", other)

    def is_not_zero(self) -> Expression:
        """Return 1 or 0 in 32 bits, for a scalar of 32 bits.

        It is made without a lane, so that it is known where none is active.
        """
        return Expression("nonzero", 32, (self,))

    def equals(self, other: Expression | int) -> Expression:
        """Return one bit: whether both are the same."""
        return Expression("icmp eq", 1, self._with("", other).operands)

    def chooses(self, one: Expression, other: Expression) -> Expression:
        """Return `one` where this bit is 1, else `other`."""
        return Expression("select", one.bits, (self, one, other))

    def to(self, bits: int, *, signed: bool = False) -> Expression:
        """Return the same number in another width, truncated or extended."""
        if bits == self.bits:
            return self
        operation = "trunc" if bits < self.bits else "sext" if signed else "zext"
        return Expression(operation, bits, (self,))


def constant(value: int, bits: int) -> Expression:
    """Return a number that is compiled in."""
    return Expression("constant", bits, value=value & (1 << bits) - 1)


class ExpressionInput(NamedTuple):
    """A leaf, as `lower` meets it."""

    kind: InputKind
    number: int


_NONZERO = "s_cmp_lg_u32 $1, 0\\0As_cselect_b32 $0, 1, 0"


def lower(expression: Expression, value_of: Callable[[ExpressionInput], str], name: str) -> tuple[list[str], str]:
    """Return an expression as LLVM IR.

    Args:
        value_of: gives the ``i32`` value of an input; asked once for each.
        name: prefix of the names of values.

    Returns:
        Lines, and the value that the last of them defines, or a constant.
    """
    lines: list[str] = []
    results: dict[Expression, str] = {}

    def value(one: Expression) -> str:
        result = results.get(one)
        if result is None:
            result = results[one] = define(one)
        return result

    def define(one: Expression) -> str:
        if one.operation == "constant":
            return str(one.value)
        if one.operation in ("wave", "lane", "immediate"):
            return value_of(ExpressionInput(one.operation, one.value))  # type: ignore[arg-type]
        operands = [value(operand) for operand in one.operands]
        kinds = [f"i{operand.bits}" for operand in one.operands]
        result = f"{name}.{len(results)}"
        if one.operation == "nonzero":  # LLVM would compute it in a lane and read it back
            lines.append(f'{result} = call i32 asm "{_NONZERO}", "=s,s,~{{scc}}"(i32 {operands[0]})')
        elif one.operation in ("zext", "sext", "trunc"):
            lines.append(f"{result} = {one.operation} {kinds[0]} {operands[0]} to i{one.bits}")
        elif one.operation == "select":
            typed = ", ".join(f"{kind} {operand}" for kind, operand in zip(kinds, operands, strict=True))
            lines.append(f"{result} = select {typed}")
        else:
            lines.append(f"{result} = {one.operation} {kinds[0]} {', '.join(operands)}")
        return result

    return lines, value(expression)


class Inputs:
    """Collects what an expression is computed from at a point.

    Attributes:
        sources: for each input its register unit, or the 32 bits of an immediate.
        registers: bit set of the units among them.
    """

    def __init__(self) -> None:
        self.sources: list[int] = []
        self.registers = 0
        self._units: dict[int, Expression] = {}

    def unit(self, unit: int, *, uniform: bool) -> Expression:
        """Return the 32 bits of a register unit."""
        expression = self._units.get(unit)
        if expression is None:
            kind = "wave" if uniform else "lane"
            expression = self._units[unit] = Expression(kind, 32, value=len(self.sources))
            self.sources.append(unit)
            self.registers |= 1 << unit
        return expression

    def immediate(self, value: int, bits: int = 32, *, fold: bool = True) -> Expression:
        """Return a number of the point's own.

        Args:
            fold: whether 0 is compiled in. Of a number of several words, those above the first always are.
        """
        parts = []
        for part in range(-(-bits // 32)):
            word = value >> 32 * part & 0xFFFFFFFF
            if not word and (fold or part):
                parts.append(constant(0, 32))
                continue
            parts.append(Expression("immediate", 32, value=len(self.sources)))
            self.sources.append(word)
        return joined(parts).to(bits)


def words_of(value: int, bits: int) -> tuple[int, ...]:
    """Return the `Inputs.sources` that `Inputs.immediate` makes of a number of one or two words without folding."""
    low, high = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
    return (low, high) if bits > 32 and high else (low,)


def joined(parts: list[Expression]) -> Expression:
    """Return 32-bit numbers as one, low part first."""
    bits = 32 * len(parts)
    whole = parts[0].to(bits)
    for number, part in enumerate(parts[1:], 1):
        whole = whole | part.to(bits) << 32 * number
    return whole
