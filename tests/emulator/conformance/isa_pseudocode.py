"""An interpreter of the pseudo-code in AMD's ISA documents.

`compile_text` turns the text of one instruction into a function of an `Environment`. Values are typed bit patterns
(`isa_numbers.V`). Where the language leaves types open they follow C: an operation is as wide as its wider operand;
what is a plain field of bits takes part in arithmetic with at least 32 bits.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from isa_numbers import (
    FALSE,
    TRUE,
    V,
    add,
    compare,
    convert,
    divide,
    from_fraction,
    make,
    multiply,
    negate,
    truth,
)

FLOATS = {"f", "bf"}
Expression = Callable[["Environment"], V]
Statement = Callable[["Environment"], None]


class Unreadable(ValueError):
    """Text that is not pseudo-code."""


class _Break(Exception):
    pass


class _Return(Exception):
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
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Unreadable(f"at {text[position : position + 20]!r}")
        position = match.end()
        if match.lastgroup not in ("space", "string"):
            found.append((str(match.lastgroup), match.group()))
    return [*found, ("end", "")]


def _number(text: str) -> V:
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


# The parser ---------------------------------------------------------------------------------------------------------

_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "<>"),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
    ("**",),
)
_TYPE = re.compile(r"(bf|fp|f|u|i|b)(\d+)$")
_ENDINGS = ("endif", "endfor", "endwhile", "else", "elsif", "end", "endfunction")


def type_of(name: str) -> tuple[str, int] | None:
    """A type suffix: ``f32``, ``bf16``, ``fp8``."""
    if name in ("fp8", "bf8", "fp6", "bf6", "fp4"):
        return name, int(name[2:])
    match = _TYPE.match(name)
    return (match.group(1), int(match.group(2))) if match else None


@dataclass(frozen=True)
class _Field:
    """One step of a postfix: a type, a bit range, an index or a member."""

    what: str
    """type, range, plus (from, width), index, member"""
    first: Any = None
    second: Any = None


class Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0

    def peek(self, offset: int = 0) -> str:
        return self.tokens[min(self.at + offset, len(self.tokens) - 1)][1]

    def kind(self, offset: int = 0) -> str:
        return self.tokens[min(self.at + offset, len(self.tokens) - 1)][0]

    def take(self, expected: str | None = None) -> str:
        text = self.tokens[self.at][1]
        if expected is not None and text != expected:
            raise Unreadable(f"{expected!r} expected, not {text!r}")
        self.at += 1
        return text

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.at += 1
            return True
        return False

    # Statements

    def block(self, *ends: str) -> Statement:
        statements: list[Statement] = []
        while True:
            while self.accept(";"):
                pass
            if self.kind() == "end" or self.peek() in ends:
                break
            if self.peek() in _ENDINGS:
                raise Unreadable(f"unexpected {self.peek()}")
            statements.append(self.statement())
        if self.kind() == "end" and ends:
            raise Unreadable(f"{ends[0]} is missing")
        if len(statements) == 1:
            return statements[0]
        chain = tuple(statements)

        def run(env: Environment) -> None:
            for statement in chain:
                statement(env)

        return run

    def statement(self) -> Statement:
        word = self.peek()
        if word == "if":
            return self.condition()
        if word == "for":
            return self.loop()
        if word == "declare":
            return self.declaration()
        if word == "break":
            self.take()
            return _do_break
        if word == "return":
            self.take()
            value = self.expression()

            def leave(env: Environment) -> None:
                raise _Return(value(env))

            return leave
        if self.kind() == "name" and self.peek(1) == "=" and self.peek(2) == "lambda":
            return self.function()
        return self.assignment()

    def condition(self) -> Statement:
        self.take()
        test = self.expression()
        self.take("then")
        yes = self.block("else", "elsif", "endif")
        if self.peek() == "elsif":
            no: Statement = self.condition()
        elif self.accept("else"):
            no = self.block("endif")
            self.take("endif")
        else:
            self.take("endif")
            no = _nothing

        def run(env: Environment) -> None:
            (yes if test(env).bits else no)(env)

        return run

    def loop(self) -> Statement:
        self.take("for")
        name = self.take()
        self.take("in")
        first = self.expression()
        self.take(":")
        last = self.expression()
        self.take("do")
        body = self.block("endfor")
        self.take("endfor")

        def run(env: Environment) -> None:
            begin, end = first(env), last(env)
            kind = "u" if begin.kind == "u" else "i"
            for value in range(begin.number(), end.number() + 1):
                env.cells[name] = Cell(value, max(begin.width, 32), kind)
                try:
                    body(env)
                except _Break:
                    break

        return run

    def declaration(self) -> Statement:
        self.take("declare")
        name = self.take()
        self.take(":")
        width = int(self.take().rstrip("'"))
        kind = {"U": "u", "I": "i", "F": "f", "B": "b"}[self.take()]
        count = 0
        if self.accept("["):
            count = int(self.take())
            self.take("]")

        def run(env: Environment) -> None:
            if name in env.constants or (name == "S" and "S" in env.arrays):
                return  # given by the instruction
            if count:
                env.arrays[name] = [Cell(0, width, kind) for _ in range(count)]
            else:
                env.cells[name] = Cell(0, width, kind)

        return run

    def function(self) -> Statement:
        name = self.take()
        self.take("=")
        self.take("lambda")
        self.take("(")
        parameters = [self.take()]
        while self.accept(","):
            parameters.append(self.take())
        self.take(")")
        self.take("(")
        if self.peek() in ("if", "declare", "for"):
            body: Any = self.block(")")
        else:
            body = self.expression()
        self.take(")")

        def call(env: Environment, *arguments: V) -> V:
            saved = {key: env.cells.get(key) for key in parameters}
            for key, argument in zip(parameters, arguments, strict=True):
                env.cells[key] = Cell(argument.bits, argument.width, argument.kind)
            try:
                result = body(env)
            except _Return as leave:
                result = leave.value
            finally:
                for key, old in saved.items():
                    if old is None:
                        env.cells.pop(key, None)
                    else:
                        env.cells[key] = old
            return result  # type: ignore[no-any-return]

        def run(env: Environment) -> None:
            env.lambdas[name] = call

        return run

    def assignment(self) -> Statement:
        start = self.at
        if self.peek() == "{":
            target = self.concatenated_target()
        elif self.kind() == "name" and self.peek(1) == "(":
            call = self.expression()
            return lambda env: (call(env), None)[1]
        else:
            target = self.target()
        op = self.take()
        if op == "=":
            after = self.at
            # A second target: EXEC.u64[laneId] = D0.u64[laneId] = …
            try:
                second = self.target()
                if self.peek() == "=":
                    self.take()
                    value = self.expression()

                    def both(env: Environment) -> None:
                        result = value(env)
                        target(env, result)
                        second(env, result)

                    return both
            except Unreadable:
                pass
            self.at = after
            value = self.expression()
            return lambda env: target(env, value(env))
        if op in ("+=", "-=", "|=", "&="):
            amount = self.expression()
            end = self.at
            self.at = start
            current = self.primary_with_fields()
            self.at = end

            def update(env: Environment) -> None:
                target(env, binary(op[0], current(env), amount(env), env))

            return update
        raise Unreadable(f"assignment expected at {op!r}")

    def target(self) -> Callable[[Environment, V], None]:
        if self.kind() != "name":
            raise Unreadable(f"a target expected, not {self.peek()!r}")
        name = self.take()
        return _assigner(name, self.fields())

    def concatenated_target(self) -> Callable[[Environment, V], None]:
        self.take("{")
        parts = []
        while True:
            name = self.take()
            fields = self.fields()
            parts.append((_assigner(name, fields), _width_of(fields)))
            if not self.accept(","):
                break
        self.take("}")

        def put(env: Environment, value: V) -> None:
            low = 0
            for assign, width in reversed(parts):
                assign(env, V(value.bits >> low & ((1 << width) - 1), "b", width))
                low += width

        return put

    # Expressions

    def expression(self) -> Expression:
        test = self.level(0)
        if not self.accept("?"):
            return test
        yes = self.expression()
        self.take(":")
        no = self.expression()
        return lambda env: yes(env) if test(env).bits else no(env)

    def level(self, depth: int) -> Expression:
        if depth == len(_LEVELS):
            return self.unary()
        left = self.level(depth + 1)
        while self.peek() in _LEVELS[depth]:
            op = self.take()
            left = _joined(op, left, self.level(depth + 1))
        return left

    def unary(self) -> Expression:
        op = self.peek()
        if op in ("-", "+", "~", "!"):
            self.take()
            operand = self.unary()
            return functools.partial(_unary, op, operand)
        return self.primary_with_fields()

    def primary_with_fields(self) -> Expression:
        kind, text = self.tokens[self.at]
        if kind == "number":
            self.take()
            constant = _number(text)
            return self.with_fields(lambda env: constant)
        if kind == "sized":
            self.take()
            return self.with_fields(self.cast_expression(int(text.rstrip("'"))))
        if text == "(":
            self.take()
            inner = self.expression()
            self.take(")")
            return self.with_fields(inner)
        if text == "{":
            return self.with_fields(self.concatenation())
        if kind == "name":
            self.take()
            if self.peek() == "(":
                return self.with_fields(self.call(text))
            return _reader(text, self.fields())
        raise Unreadable(f"unexpected {text!r}")

    def cast_expression(self, width: int) -> Expression:
        kind = {"U": "u", "I": "i", "F": "f", "B": "b", "BF": "bf"}[self.take()]
        self.take("(")
        inner = self.expression()
        self.take(")")
        return lambda env: cast(inner(env), kind, width, env)

    def concatenation(self) -> Expression:
        self.take("{")
        parts = [self.expression()]
        while self.accept(","):
            parts.append(self.expression())
        self.take("}")

        def join(env: Environment) -> V:
            bits = width = 0
            loose: list[tuple[int, int]] = []
            for part in reversed(parts):
                value = part(env)
                bits |= value.bits << width
                loose += [(low + width, size) for low, size in value.loose]
                width += value.width
            return V(bits, "b", width, tuple(loose))

        return join

    def call(self, name: str) -> Expression:
        self.take("(")
        arguments = []
        if self.peek() != ")":
            arguments.append(self.expression())
            while self.accept(","):
                arguments.append(self.expression())
        self.take(")")

        def run(env: Environment) -> V:
            values = [argument(env) for argument in arguments]
            if name in env.lambdas:
                return env.lambdas[name](env, *values)  # type: ignore[no-any-return]
            function = env.functions.get(name)
            if function is None:
                raise Unreadable(f"no function {name}")
            return function(env, *values)

        return run

    def fields(self) -> tuple[_Field, ...]:
        found: list[_Field] = []
        while True:
            if self.peek() == "." and self.kind(1) == "name":
                self.take()
                member = self.take()
                known = type_of(member)
                found.append(_Field("type", *known) if known else _Field("member", member))
            elif self.peek() == "[":
                self.take()
                first = self.expression()
                if self.accept(":"):
                    found.append(_Field("range", first, self.expression()))
                elif self.accept("+:"):
                    found.append(_Field("plus", first, self.expression()))
                else:
                    found.append(_Field("index", first))
                self.take("]")
            else:
                return tuple(found)

    def with_fields(self, inner: Expression) -> Expression:
        fields = self.fields()
        return (lambda env: _apply(inner(env), fields, env)) if fields else inner


def _nothing(env: Environment) -> None:
    pass


def _do_break(env: Environment) -> None:
    raise _Break


def _joined(op: str, left: Expression, right: Expression) -> Expression:
    if op == "&&":
        return lambda env: truth(bool(left(env).bits) and bool(right(env).bits))
    if op == "||":
        return lambda env: truth(bool(left(env).bits) or bool(right(env).bits))
    if op == "*":

        def times(env: Environment) -> V:
            x, y = left(env), right(env)
            if y.kind == "power" or x.kind == "power":
                power, other = (y, x) if y.kind == "power" else (x, y)
                return env.functions["ldexp"](env, other, V(power.loose[0][0] & 0xFFFFFFFF, "i", 32))
            return binary("*", x, y, env)

        return times
    return lambda env: binary(op, left(env), right(env), env)


def _unary(op: str, operand: Expression, env: Environment) -> V:
    value = operand(env)
    if op == "!":
        return FALSE if value.bits else TRUE
    if op == "~":
        return value._replace(bits=~value.bits & ((1 << value.width) - 1))
    if value.kind in FLOATS:
        zero = not value.bits & ~value.format.sign
        return (negate(value) if op == "-" else value)._replace(signed_zero=zero)
    return make(-value.number(), "i" if value.kind == "b" else value.kind, value.width) if op == "-" else value


def _apply(value: V, fields: tuple[_Field, ...], env: Environment) -> V:
    for step in fields:
        if step.what == "type":
            value = retype(value, step.first, step.second)
        elif step.what == "index":
            value = V(value.bits >> step.first(env).bits & 1, "b", 1)
        elif step.what in ("range", "plus"):
            high, low, backwards = _bounds(step, env)
            width = high - low + 1
            bits = value.bits >> low & ((1 << width) - 1)
            if backwards:
                bits = int(f"{bits:0{width}b}"[::-1], 2)
            loose = tuple((at - low, size) for at, size in value.loose if low <= at and at + size <= high + 1)
            value = V(bits, "b", width, loose)
        else:
            raise Unreadable(f"no member {step.first}")
    return value


def _bounds(step: _Field, env: Environment) -> tuple[int, int, bool]:
    first, second = step.first(env).number(), step.second(env).number()
    if step.what == "plus":
        return first + second - 1, first, False
    return max(first, second), min(first, second), first < second


def _member(name: str, fields: tuple[_Field, ...]) -> tuple[str, tuple[_Field, ...]]:
    """``WAVE_MODE.IEEE`` is a name of its own."""
    while fields and fields[0].what == "member":
        name, fields = f"{name}.{fields[0].first}", fields[1:]
    return name, fields


def _place_parts(fields: tuple[_Field, ...]) -> tuple[list[_Field], tuple[_Field, ...]]:
    indices = []
    while fields and fields[0].what == "index":
        indices.append(fields[0])
        fields = fields[1:]
    return indices, fields


_PLACES = {"VGPR": 2, "SGPR": 1, "MEM": 1, "LDS": 1}


def _reader(name: str, fields: tuple[_Field, ...]) -> Expression:
    name, fields = _member(name, fields)
    if name in _PLACES:
        count = _PLACES[name]
        indices, rest = [step.first for step in fields[:count]], fields[count:]
        kind, width = (rest[0].first, rest[0].second) if rest and rest[0].what == "type" else ("b", 32)
        rest = rest[1:] if rest and rest[0].what == "type" else rest

        def read_place(env: Environment) -> V:
            where = tuple(index(env).number() for index in indices)
            return _apply(V(env.places[name].get(where, 0, width), kind, width), rest, env)

        return read_place

    def read(env: Environment) -> V:
        steps = fields
        if name in env.arrays:
            cell = env.arrays[name][steps[0].first(env).bits]
            return _apply(cell.value(), steps[1:], env)
        found = env.cells.get(name)
        if found is not None:
            return _apply(found.value(), steps, env) if steps else found.value()
        value = env.constants.get(name)
        if value is None:
            raise Unreadable(f"no {name}")
        return _apply(value, steps, env)

    return read


def _width_of(fields: tuple[_Field, ...]) -> int:
    for step in reversed(fields):
        if step.what == "type":
            return int(step.second)
    return 32


def _assigner(name: str, fields: tuple[_Field, ...]) -> Callable[[Environment, V], None]:
    name, fields = _member(name, fields)
    if name in _PLACES:
        count = _PLACES[name]
        indices, rest = [step.first for step in fields[:count]], fields[count:]

        def put_place(env: Environment, value: V) -> None:
            where = tuple(index(env).number() for index in indices)
            low, width, kind = _slice(rest, env, value)
            env.places[name].put(where, low, width, _fit(value, kind, width))

        return put_place

    def put(env: Environment, value: V) -> None:
        steps = fields
        if name == "ROUND_MODE":
            env.forced = None if value.kind == "b" else value.bits
            return
        if name in env.arrays:
            cell = env.arrays[name][steps[0].first(env).bits]
            cell.put(0, cell.width, _fit(value, cell.kind, cell.width))
            return
        if name == "TRAPSTS.INVALID":
            return
        found = env.cells.get(name)
        if found is None:
            found = env.cells[name] = Cell()
        if not steps:
            found.kind = value.kind if found.written == 0 or found.kind != "b" else found.kind
            found.bits, found.width = 0, value.width
            found.put(0, value.width, value)
            return
        low, width, kind = _slice(steps, env, value)
        found.put(low, width, _fit(value, kind, width))
        if len(steps) == 1 and steps[0].what == "type" and found.width == width:
            found.kind = kind

    return put


def _slice(steps: tuple[_Field, ...], env: Environment, value: V) -> tuple[int, int, str]:
    """Low bit, width and kind of what is assigned."""
    low, width, kind = 0, value.width, value.kind
    for step in steps:
        if step.what == "type":
            kind, width = step.first, step.second
        elif step.what == "index":
            low, width, kind = low + step.first(env).bits, 1, "b"
        elif step.what in ("range", "plus"):
            high, first, backwards = _bounds(step, env)
            if backwards:
                raise Unreadable("assignment to a reversed range")
            low, width, kind = low + first, high - first + 1, "b"
    return low, width, kind


def _fit(value: V, kind: str, width: int) -> V:
    if kind in FLOATS and value.kind in FLOATS:
        return convert(value, kind, width)
    if value.kind == "i" and width > value.width:
        return make(value.number(), kind, width)
    return V(value.bits & ((1 << width) - 1), kind, width, value.loose)


@functools.cache
def compile_text(text: str) -> Statement:
    """The instruction's function.

    Raises:
        Unreadable: the text is prose, or uses what the interpreter does not know.
    """
    parser = Parser(text)
    run = parser.block()
    if parser.kind() != "end":
        raise Unreadable(f"unexpected {parser.peek()!r}")
    return run
