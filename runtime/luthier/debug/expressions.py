"""Expressions over the state of a stopped wave, for conditions, watchpoints and printing.

They use Python syntax, without side effects or other calls: numbers, variables of the source, registers (``v4``,
``a0``, ``s2``, ``vcc``, ``exec``, ``m0``, ``scc``, ``pc``), ``wave``, ``workgroup``, ``lane``, arithmetic, comparisons,
``and``/``or``/``not``, ``[lane]``, and the functions of `FUNCTIONS` and `REDUCTIONS`. A value that differs by lane is
an array of all lanes. A condition holds if it holds in any active lane.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from luthier.emulator.running.registers import WaveRegisters
from luthier.errors import DeviceError, LuthierError

_MOST_BITS = 4096
"""The most bits of a number: otherwise a short expression could take hours."""
_TOO_LONG = f"a number has more than {_MOST_BITS} bits"


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and right > _MOST_BITS:
        raise LuthierError(_TOO_LONG)
    return left << right


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: _shifted,
    ast.RShift: operator.rshift,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: np.logical_not,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_REGISTER = re.compile(r"([vas])(\d{1,4})")


class ExpressionState(Protocol):
    """State that expressions need (`luthier.debug.view.StoppedWave`)."""

    @property
    def registers(self) -> WaveRegisters:
        """Return the registers of the wave."""

    @property
    def pc(self) -> int:
        """Return the virtual address of the next instruction."""

    @property
    def wave(self) -> int:
        """Return the index of the wave in its work-group."""

    @property
    def workgroup(self) -> int:
        """Return the number of the work-group."""

    def variable(self, name: str) -> NDArray[Any] | None:
        """Return a variable by lane; None: there is none with this name."""


def _as(kind: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        return np.asarray(value).astype(np.uint32).view(kind)

    return convert


def _finite(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: check(np.asarray(value, np.float64))


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "f32": _as("f4"),
    "i32": _as("i4"),
    "isnan": _finite(np.isnan),
    "isinf": _finite(np.isinf),
    "abs": np.abs,
}
"""Functions of one value, by lane. ``f32`` and ``i32`` reinterpret the bits of a register."""
REDUCTIONS: dict[str, Callable[[Any], Any]] = {
    "any": np.any,
    "all": np.all,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
}
"""Functions of the active lanes."""


class ParsedExpression:
    """A parsed expression.

    Raises:
        LuthierError: the text is not an expression.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise LuthierError(f"{self.text!r} is not an expression") from None
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Constant) and _is_long(node.value):
                raise LuthierError(_TOO_LONG)
            if not isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and not _is_number(node.value)):
                raise LuthierError(f"an expression cannot contain {ast.unparse(node)!r}")

    def value(self, state: ExpressionState) -> Any:
        """Return its value: a number, or an array of lanes.

        Raises:
            LuthierError: a name is not known, or an operation fails.
        """
        try:
            with np.errstate(all="ignore"):
                return self._of(self._tree, state)
        except LuthierError:
            raise
        except (ArithmeticError, TypeError, ValueError, IndexError, RecursionError, MemoryError) as problem:
            raise LuthierError(f"{self.text}: {problem}") from None

    def holds(self, state: ExpressionState) -> bool:
        """Return whether the value is true; for an array of lanes, in any active one."""
        return bool(np.any(_active(self.value(state), state)))

    def _of(self, node: ast.expr, state: ExpressionState) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return _name(node.id, state)
        if isinstance(node, ast.BinOp):
            result = _BINARY[type(node.op)](self._operand(node.left, state), self._operand(node.right, state))
            if _is_long(result):
                raise LuthierError(_TOO_LONG)
            return result
        if isinstance(node, ast.UnaryOp):
            return _UNARY[type(node.op)](self._operand(node.operand, state))
        if isinstance(node, ast.BoolOp):
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            parts = [self._of(part, state) for part in node.values]
            result = parts[0]
            for part in parts[1:]:
                result = combine(result, part)
            return result
        if isinstance(node, ast.Compare):
            return self._compare(node, state)
        if isinstance(node, ast.Subscript):
            return np.asarray(self._of(node.value, state))[self._of(node.slice, state)]
        assert isinstance(node, ast.Call)
        return self._call(node, state)

    def _operand(self, node: ast.expr, state: ExpressionState) -> Any:
        """Return the value of an operand; small integers become 64-bit, so that arithmetic does not overflow."""
        value = self._of(node, state)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.dtype.itemsize < 8:
            return value.astype(np.int64)
        return value

    def _compare(self, node: ast.Compare, state: ExpressionState) -> Any:
        left, result = self._operand(node.left, state), True
        for kind, other in zip(node.ops, node.comparators, strict=True):
            right = self._operand(other, state)
            result = np.logical_and(result, _COMPARE[type(kind)](left, right))
            left = right
        return result

    def _call(self, node: ast.Call, state: ExpressionState) -> Any:
        name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
        if len(node.args) != 1 or node.keywords or name not in {*FUNCTIONS, *REDUCTIONS}:
            known = ", ".join([*FUNCTIONS, *REDUCTIONS])
            raise LuthierError(f"{ast.unparse(node)} must call one of these functions with one argument: {known}")
        value = self._of(node.args[0], state)
        if name in FUNCTIONS:
            return FUNCTIONS[name](value)
        taken = _active(value, state)
        if name in ("min", "max") and not np.size(taken):
            raise LuthierError(f"{ast.unparse(node)}: no lane is active")
        return REDUCTIONS[name](taken)


_ALLOWED = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.Call, ast.Name, ast.Load, ast.Constant),
    *(*_BINARY, *_UNARY, *_COMPARE, ast.And, ast.Or),
)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _is_long(value: object) -> bool:
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def _active(value: Any, state: ExpressionState) -> Any:
    """Return the values of active lanes; a value that does not differ by lane is returned unchanged."""
    size = state.registers.wave_size
    if isinstance(value, np.ndarray) and value.shape[:1] == (size,):
        return value[[bool(state.registers.exec >> lane & 1) for lane in range(size)]]
    return value


def _name(name: str, state: ExpressionState) -> Any:
    if (values := state.variable(name)) is not None:
        return values
    registers = state.registers
    if register := _REGISTER.fullmatch(name):
        index = int(register[2])
        try:
            if register[1] == "s":
                return registers.sgpr(index)
            return registers.vgpr(index) if register[1] == "v" else registers.agpr(index)
        except DeviceError as problem:
            raise LuthierError(f"{name}: {problem.message}") from None
    if name in ("vcc", "exec", "m0", "scc"):
        return getattr(registers, name)
    if name in ("pc", "wave", "workgroup"):
        return getattr(state, name)
    if name == "lane":
        return np.arange(registers.wave_size)
    raise LuthierError(f"there is no variable or register {name!r} here")
