"""Computed hook arguments: arithmetic on registers and immediates, which becomes part of a payload's IR.

The leaves of an `Expression` are numbers of inputs, so that one template serves all points with the same expression.
Each point supplies the registers and numbers of its inputs (`luthier.tool.task.HookCall`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from msgspec import Struct

InputKind = Literal["wave", "lane", "immediate"]
"""Origin of a 32-bit input: a scalar register, a vector register, or a per-point number."""


class Expression(Struct, frozen=True):
    """An integer of `bits` bits. Operators wrap; both sides have the same width. A plain number is a constant."""

    operation: str
    """An `InputKind`, ``constant``, or an LLVM instruction: ``add``, ``zext``, ``select``, ``icmp eq``, …"""
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
        """Return a 32-bit 1 or 0 for a 32-bit scalar.

        A scalar instruction computes it, so that it is valid even if no lane is active.
        """
        return Expression("nonzero", 32, (self,))

    def equals(self, other: Expression | int) -> Expression:
        """Return one bit: whether both are equal."""
        return Expression("icmp eq", 1, self._with("", other).operands)

    def chooses(self, if_set: Expression, if_clear: Expression) -> Expression:
        """Return `if_set` if this bit is 1, otherwise `if_clear`."""
        return Expression("select", if_set.bits, (self, if_set, if_clear))

    def to(self, bits: int, *, signed: bool = False) -> Expression:
        """Return the same number in another width, truncated or extended."""
        if bits == self.bits:
            return self
        operation = "trunc" if bits < self.bits else "sext" if signed else "zext"
        return Expression(operation, bits, (self,))


def constant(value: int, bits: int) -> Expression:
    """Return a compile-time constant."""
    return Expression("constant", bits, value=value & (1 << bits) - 1)


class ExpressionInput(NamedTuple):
    """A leaf of an expression."""

    kind: InputKind
    number: int


_NONZERO = "s_cmp_lg_u32 $1, 0\\0As_cselect_b32 $0, 1, 0"


def lower(expression: Expression, value_of: Callable[[ExpressionInput], str], name: str) -> tuple[list[str], str]:
    """Return an expression as LLVM IR.

    Args:
        value_of: returns the ``i32`` value of an input; called once for each.
        name: prefix of the names of values.

    Returns:
        The lines, and the value of the expression, which may be a constant.
    """
    lines: list[str] = []
    results: dict[Expression, str] = {}

    def value(node: Expression) -> str:
        result = results.get(node)
        if result is None:
            result = results[node] = define(node)
        return result

    def define(node: Expression) -> str:
        if node.operation == "constant":
            return str(node.value)
        if node.operation in ("wave", "lane", "immediate"):
            return value_of(ExpressionInput(node.operation, node.value))  # type: ignore[arg-type]
        operands = [value(operand) for operand in node.operands]
        kinds = [f"i{operand.bits}" for operand in node.operands]
        result = f"{name}.{len(results)}"
        if node.operation == "nonzero":  # LLVM would compute it in a lane and read it back
            lines.append(f'{result} = call i32 asm "{_NONZERO}", "=s,s,~{{scc}}"(i32 {operands[0]})')
        elif node.operation in ("zext", "sext", "trunc"):
            lines.append(f"{result} = {node.operation} {kinds[0]} {operands[0]} to i{node.bits}")
        elif node.operation == "select":
            typed = ", ".join(f"{kind} {operand}" for kind, operand in zip(kinds, operands, strict=True))
            lines.append(f"{result} = select {typed}")
        else:
            lines.append(f"{result} = {node.operation} {kinds[0]} {', '.join(operands)}")
        return result

    return lines, value(expression)


class Inputs:
    """Collects the inputs of an expression at a point.

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
        """Return a per-point number.

        Args:
            fold: whether a first word of 0 becomes a constant. Further words of 0 always do.
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
    """Return the `Inputs.sources` of `Inputs.immediate` for a number of one or two words without folding."""
    low, high = value & 0xFFFFFFFF, value >> 32 & 0xFFFFFFFF
    return (low, high) if bits > 32 and high else (low,)


def joined(parts: list[Expression]) -> Expression:
    """Concatenate 32-bit numbers, low part first."""
    bits = 32 * len(parts)
    whole = parts[0].to(bits)
    for number, part in enumerate(parts[1:], 1):
        whole = whole | part.to(bits) << 32 * number
    return whole
