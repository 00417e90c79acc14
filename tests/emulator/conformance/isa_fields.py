"""Types, bit ranges and indices after a name: reading and assigning them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from isa_language import FLOATS, Cell, Environment, Expression, Unreadable, retype
from isa_numbers import V, convert, make

_TYPE = re.compile(r"(bf|fp|f|u|i|b)(\d+)$")


def type_of(name: str) -> tuple[str, int] | None:
    """A type suffix: ``f32``, ``bf16``, ``fp8``."""
    if name in ("fp8", "bf8", "fp6", "bf6", "fp4"):
        return name, int(name[2:])
    match = _TYPE.match(name)
    return (match.group(1), int(match.group(2))) if match else None


@dataclass(frozen=True)
class Field:
    """One step of a postfix: a type, a bit range, an index or a member."""

    what: str
    """type, range, plus (from, width), index, member"""
    first: Any = None
    second: Any = None


def apply(value: V, fields: tuple[Field, ...], env: Environment) -> V:
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


def _bounds(step: Field, env: Environment) -> tuple[int, int, bool]:
    first, second = step.first(env).number(), step.second(env).number()
    if step.what == "plus":
        return first + second - 1, first, False
    return max(first, second), min(first, second), first < second


def _member(name: str, fields: tuple[Field, ...]) -> tuple[str, tuple[Field, ...]]:
    """``WAVE_MODE.IEEE`` is a name of its own."""
    while fields and fields[0].what == "member":
        name, fields = f"{name}.{fields[0].first}", fields[1:]
    return name, fields


_PLACES = {"VGPR": 2, "SGPR": 1, "MEM": 1, "LDS": 1}


def reader(name: str, fields: tuple[Field, ...]) -> Expression:
    name, fields = _member(name, fields)
    if name in _PLACES:
        count = _PLACES[name]
        indices, rest = [step.first for step in fields[:count]], fields[count:]
        kind, width = (rest[0].first, rest[0].second) if rest and rest[0].what == "type" else ("b", 32)
        rest = rest[1:] if rest and rest[0].what == "type" else rest

        def read_place(env: Environment) -> V:
            where = tuple(index(env).number() for index in indices)
            return apply(V(env.places[name].get(where, 0, width), kind, width), rest, env)

        return read_place

    def read(env: Environment) -> V:
        steps = fields
        if name in env.arrays:
            cell = env.arrays[name][steps[0].first(env).bits]
            return apply(cell.value(), steps[1:], env)
        known = env.cells.get(name)
        if known is not None:
            return apply(known.value(), steps, env) if steps else known.value()
        value = env.constants.get(name)
        if value is None:
            raise Unreadable(f"no {name}")
        return apply(value, steps, env)

    return read


def width_of(fields: tuple[Field, ...]) -> int:
    for step in reversed(fields):
        if step.what == "type":
            return int(step.second)
    return 32


def assigner(name: str, fields: tuple[Field, ...]) -> Callable[[Environment, V], None]:
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
        known = env.cells.get(name)
        if known is None:
            known = env.cells[name] = Cell()
        if not steps:
            known.kind = value.kind if known.written == 0 or known.kind != "b" else known.kind
            known.bits, known.width = 0, value.width
            known.put(0, value.width, value)
            return
        low, width, kind = _slice(steps, env, value)
        known.put(low, width, _fit(value, kind, width))
        if len(steps) == 1 and steps[0].what == "type" and known.width == width:
            known.kind = kind

    return put


def _slice(steps: tuple[Field, ...], env: Environment, value: V) -> tuple[int, int, str]:
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
