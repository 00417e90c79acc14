"""An interpreter of the pseudo-code in AMD's ISA documents.

`compile_text` turns the text of one instruction into a function of an `Environment`. Values are typed bit patterns
(`isa_numbers.V`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from isa_fields import Field, apply, assigner, reader, type_of, width_of
from isa_language import (
    FLOATS,
    Break,
    Cell,
    Environment,
    Expression,
    Return,
    Statement,
    Unreadable,
    binary,
    cast,
    number,
    tokens,
)
from isa_numbers import FALSE, TRUE, V, make, negate, truth

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
_ENDINGS = ("endif", "endfor", "endwhile", "else", "elsif", "end", "endfunction")


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
                raise Return(value(env))

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
                except Break:
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
            except Return as leave:
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
        return assigner(name, self.fields())

    def concatenated_target(self) -> Callable[[Environment, V], None]:
        self.take("{")
        parts = []
        while True:
            name = self.take()
            fields = self.fields()
            parts.append((assigner(name, fields), width_of(fields)))
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
            constant = number(text)
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
            return reader(text, self.fields())
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

    def fields(self) -> tuple[Field, ...]:
        fields: list[Field] = []
        while True:
            if self.peek() == "." and self.kind(1) == "name":
                self.take()
                member = self.take()
                known = type_of(member)
                fields.append(Field("type", *known) if known else Field("member", member))
            elif self.peek() == "[":
                self.take()
                first = self.expression()
                if self.accept(":"):
                    fields.append(Field("range", first, self.expression()))
                elif self.accept("+:"):
                    fields.append(Field("plus", first, self.expression()))
                else:
                    fields.append(Field("index", first))
                self.take("]")
            else:
                return tuple(fields)

    def with_fields(self, inner: Expression) -> Expression:
        fields = self.fields()
        return (lambda env: apply(inner(env), fields, env)) if fields else inner


def _nothing(env: Environment) -> None:
    pass


def _do_break(env: Environment) -> None:
    raise Break


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
