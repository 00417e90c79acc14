"""Declarations as C++ has them."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Iterable, Iterator, Mapping

from luthier.wire.structures import Layout, Message, Structure


def camel(name: str) -> str:
    """Return a name of a constant: ``LAUNCH_END`` is ``kLaunchEnd``."""
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def structure(name: str, declared: Structure) -> Iterator[str]:
    """Yield a structure, and what holds the compiler to its offsets."""
    yield f"struct {name} {{"
    for member in declared.members:
        if member.kind == "S":
            type, extent = "char", "" if member.width == 1 else f"[{member.width}]"
        else:
            type, extent = f"{'u' if member.kind == 'u' else ''}int{8 * member.width}_t", ""
        yield f"  {type} {member.name}{extent}{'' if member.count is None else f'[{member.count}]'};"
    yield "};"
    places = [(f"__builtin_offsetof({name}, {one.name})", one.offset) for one in declared.members]
    for what, value in ((f"sizeof({name})", declared.size), *places):
        yield f'static_assert({what} == {value}, "as Python has it");'


def message(declared: type[Message]) -> Iterator[str]:
    """Yield the numbers of a message as a structure."""
    yield from structure(declared.__name__, Structure(**dict.fromkeys(declared.field_names(), "u8")))


def enumeration(declared: type[enum.IntEnum], type: str, *, scoped: bool = True) -> Iterator[str]:
    """Yield an enumeration."""
    yield f"enum {'class ' if scoped else ''}{declared.__name__} : {type} {{"
    yield from (f"  {camel(one.name)} = {one.value}," for one in declared)
    yield "};"


def constants(values: Mapping[str, object]) -> Iterator[str]:
    """Yield constants: those of a module that are named in capitals, numbers, texts and tuples of numbers."""
    for name, value in values.items():
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            continue
        if isinstance(value, int):
            yield f"inline constexpr uint64_t {camel(name)} = {value}u;"
        elif isinstance(value, str):
            yield f"inline constexpr char {camel(name)}[] = {json.dumps(value)};"
        elif isinstance(value, tuple):
            yield f"inline constexpr uint64_t {camel(name)}[] = {{{', '.join(map(str, value))}}};"


def layout(name: str, declared: Layout) -> str:
    """Return the namespace of a layout's fields."""
    fields = "".join(
        f"inline constexpr Field {key}{{{field.offset}, {field.size}}}; " for key, field in declared.fields.items()
    )
    return f"namespace {name.lower()} {{ {fields}inline constexpr uint32_t kSize = {declared.size}; }}"


def namespace(name: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield declarations in a namespace."""
    yield f"namespace {name} {{"
    yield from lines
    yield f"}}  // namespace {name}"
