"""The pseudo-code's variables, tokens and operators.

Where the language leaves types open they follow C: an operation is as wide as its wider operand; what is a plain
field of bits takes part in arithmetic with at least 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from isa_numbers import V, add, compare, convert, divide, from_fraction, make, multiply, negate, truth

FLOATS = {"f", "bf"}
Expression = Callable[["Environment"], V]
Statement = Callable[["Environment"], None]


class Unreadable(ValueError):
    """Text that is not pseudo-code."""


class Break(Exception):
    pass


class Return(Exception):
    def __init__(self, value: V) -> None:
        self.value = value


@dataclass
class Cell:
    """A variable: bits, and which of them were assigned."""

    bits: int = 0
    width: int = 0
    kind: str = "b"
    written: int = 0
    loose: list[tuple[int, int]] = field(default_factory=list)

    def value(self) -> V:
        return V(self.bits, self.kind, self.width or 32, tuple(self.loose))

    def put(self, low: int, width: int, value: V) -> None:
        mask = ((1 << width) - 1) << low
        self.bits = (self.bits & ~mask) | ((value.bits << low) & mask)
        self.written |= mask
        self.width = max(self.width, low + width)
        self.loose = [(at, size) for at, size in self.loose if at + size <= low or at >= low + width]
        self.loose += [(at + low, size) for at, size in value.loose if at + size <= width]


class Places:
    """Something indexed that is not a variable (VGPR, SGPR, MEM): subclassed by the machine."""

    def get(self, indices: tuple[int, ...], low: int, width: int) -> int:
        raise NotImplementedError

    def put(self, indices: tuple[int, ...], low: int, width: int, value: V) -> None:
        raise NotImplementedError


class Environment:
    """What an instruction sees: variables, arrays, places and functions by name; MODE's rounding."""

    def __init__(self, functions: dict[str, Callable[..., V]], ieee: bool = True) -> None:
        self.cells: dict[str, Cell] = {}
        self.arrays: dict[str, list[Cell]] = {}
        self.places: dict[str, Places] = {}
        self.constants: dict[str, V] = {}
        self.functions = functions
        self.lambdas: dict[str, Any] = {}
        self.round32 = 0
        self.round16 = 0
        self.forced: int | None = None
        self.denorm = 15
        """FP_DENORM: two bits for 32-bit floats, two for others."""

    def denormals(self, width: int) -> int:
        """Bit 0: denormal sources are kept; bit 1: denormal results are."""
        return self.denorm & 3 if width == 32 else self.denorm >> 2

    def rounding(self, width: int) -> int:
        if self.forced is not None:
            return self.forced
        return self.round32 if width == 32 else self.round16


# Tokens -------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?P<sized>\d+'(?=[A-Z]))|(?P<number>(?:\d+')?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F|L)?)
    |(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<string>"[^"]*")
    |(?P<op>\*\*|<<|>>|<=|>=|==|!=|<>|&&|\|\||\+=|-=|\|=|&=|\+:|[-+*/%&|^~!<>=?:;,.(){}\[\]])|(?P<space>\s+)""",
    re.X,
)


def tokens(text: str) -> list[tuple[str, str]]:
    text = re.sub(r"//[^\n]*", "", text)
    result: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"at {text[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup not in ("space", "string"):
            result.append((str(match.lastgroup), match.group()))
    return [*result, ("end", "")]


def number(text: str) -> V:
    width = 0
    if "'" in text:
        sized, text = text.split("'")
        width = int(sized)
    if "." in text:
        single = text.endswith("F")
        number = Fraction(text.rstrip("F"))
        return from_fraction(number, "f", width or (32 if single else 64), 0)
    if text.endswith("F") and not text.startswith("0x"):
        return from_fraction(Fraction(text[:-1]), "f", 32, 0)
    suffix = re.search(r"(ULL|LL|U|L)$", text)
    ending = suffix.group() if suffix else ""
    digits = text[: len(text) - len(ending)]
    value = int(digits, 16 if digits.startswith("0x") else 10)
    kind = "u" if ending.startswith("U") else "i"
    if digits.startswith("0x") and not ending:
        kind = "b"
    if not width:
        width = 64 if ending.endswith("LL") or value >= 1 << 32 else 32
    return make(value, kind, width)


# Meaning of operators -----------------------------------------------------------------------------------------------


def retype(v: V, kind: str, width: int) -> V:
    """``v.f32``: the bits read so; between float formats a conversion."""
    if v.kind in FLOATS and kind in FLOATS:
        return convert(v, kind, width)
    if v.kind == "i" and kind == "i" and width > v.width:
        return make(v.number(), kind, width)
    return V(v.bits & ((1 << width) - 1), kind, width, v.loose)


def cast(v: V, kind: str, width: int, env: Environment) -> V:
    """``32'F(v)``, ``64'I(v)``."""
    if v.kind == "power":
        return v
    if kind in FLOATS:
        if v.kind in FLOATS:
            return convert(v, kind, width, env.rounding(width))
        if v.kind in ("fp8", "bf8"):
            return env.functions[f"{v.kind}_to_f32"](env, v)
        return V(v.bits & ((1 << width) - 1), kind, width)
    if v.kind in FLOATS or kind == "b" or v.kind == "b":
        return V(v.bits & ((1 << width) - 1), kind, width, v.loose)
    return make(v.number(), kind, width)


def _arithmetic_type(x: V, y: V) -> tuple[str, int]:
    width = max(32 if v.kind == "b" and v.width < 32 else v.width for v in (x, y))
    if "b" in (x.kind, y.kind):
        other = y.kind if x.kind == "b" else x.kind
        return ("u" if other == "b" else other), width
    if x.kind == y.kind:
        return x.kind, width
    # C: unsigned wins, unless the signed one is wider.
    signed = x if x.kind == "i" else y
    unsigned = y if x.kind == "i" else x
    return ("i" if signed.width > unsigned.width else "u"), width


def binary(op: str, x: V, y: V, env: Environment) -> V:
    if x.kind in FLOATS or y.kind in FLOATS:
        return _float_binary(op, x, y, env)
    if op in ("<<", ">>"):
        count = y.bits
        width = max(x.width, 32) if x.kind == "b" else x.width
        if op == "<<":
            return make(x.bits << min(count, 4096), x.kind, width)
        return make(x.number() >> count, x.kind, width)
    kind, width = _arithmetic_type(x, y)
    a, b = x.number(), y.number()
    if op == "+":
        return make(a + b, kind, width)
    if op == "-":
        return make(a - b, kind, width)
    if op == "*":
        return make(a * b, kind, width)
    if op == "&":
        return make(a & b, _bits_kind(x, y), max(x.width, y.width))
    if op == "|":
        return make(a | b, _bits_kind(x, y), max(x.width, y.width))
    if op == "^":
        return make(a ^ b, _bits_kind(x, y), max(x.width, y.width))
    if op in ("/", "%"):
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return make(quotient if op == "/" else a - quotient * b, kind, width)
    if op == "**":
        return make(a**b, kind, width)
    return truth({"<": a < b, ">": a > b, "<=": a <= b, ">=": a >= b, "==": a == b, "!=": a != b, "<>": a != b}[op])


def _bits_kind(x: V, y: V) -> str:
    return x.kind if x.width >= y.width and x.kind != "b" else y.kind


def _float_binary(op: str, x: V, y: V, env: Environment) -> V:
    if op == "**":
        return V(0, "power", 0, ((y.number(), x.width),))
    if op in ("<", ">", "<=", ">=", "==", "!=", "<>"):
        if x.kind not in FLOATS:
            x = convert(from_fraction(Fraction(x.number()), "f", 64, 0), y.kind, y.width)
        if y.kind not in FLOATS:
            y = convert(from_fraction(Fraction(y.number()), "f", 64, 0), x.kind, x.width)
        order = compare(x, y)
        if order is None:
            return truth(op == "!=")
        tests = {"<": order < 0, ">": order > 0, "<=": order <= 0, ">=": order >= 0, "==": order == 0}
        return truth(tests.get(op, order != 0))
    mode = env.rounding(max(x.width, y.width))
    if op == "+":
        return add(x, y, mode)
    if op == "-":
        return add(x, negate(y), mode)
    if op == "*":
        return multiply(x, y, mode)
    if op == "/":
        return divide(x, y, mode)
    raise Unreadable(f"{op} of floats")
