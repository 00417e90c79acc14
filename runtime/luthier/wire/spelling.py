"""Declarations in C++."""

from __future__ import annotations

import enum
import inspect
import json
import re
import struct
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_origin

from luthier.wire.structures import FieldLayout, File, ForeignText, Message, PathText, WireStructure


def camel(name: str) -> str:
    """Return the name of a constant: ``LAUNCH_END`` becomes ``kLaunchEnd``."""
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def structure(name: str, declared: WireStructure) -> Iterator[str]:
    """Yield a structure, and assertions of its offsets."""
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


PRELUDE = """struct File { int fd = -1; };
template <typename Row> struct Rows : std::vector<Row> { using std::vector<Row>::vector; };
struct Done {};
""".splitlines()
"""Types of fields and replies without other names: a descriptor, rows of numbers, nothing."""
_TYPES = {int: "uint64_t", bool: "bool", str: "std::string", File: "File", type(None): "Done"}


def message(declared: type[Message], requests: Container[type[Message]]) -> Iterator[str]:
    """Yield a message as a structure, with a function that calls another one with all fields.

    Args:
        requests: messages that native code sends, whose bytes and foreign texts are not copied.
    """
    blocks = "std::string_view" if declared in requests else "std::string"
    types = declared.types()
    yield f"struct {declared.__name__} {{"
    if declared.REQUEST:
        yield f"  static constexpr uint64_t kRequest = {declared.REQUEST};"
        yield f"  using Reply = {_spelled(declared.REPLY, 'std::string')};"
    yield from (f"  {_spelled(type, blocks)} {name};" for name, type in types.items())
    fields = ", ".join(f"message.{name}" for name in types)
    yield "  template <typename Message, typename Visit>"
    yield f"  static void fields([[maybe_unused]] Message &message, Visit visit) {{ visit({fields}); }}"
    yield "};"
    if types and all(type in (int, bool) for type in types.values()):
        size = struct.calcsize("".join("?" if type is bool else "Q" for type in types.values()) + "0Q")
        yield f'static_assert(sizeof({declared.__name__}) == {size}, "as Python has it");'


def parts(declared: type[Message]) -> Iterator[type[Message]]:
    """Yield a message and the messages in it."""
    yield declared
    for type in declared.types().values():
        for part in (type, *get_args(type)):
            if inspect.isclass(part) and issubclass(part, Message):
                yield from parts(part)


def _spelled(type: Any, blocks: str) -> str:
    """Return the type of a field; `blocks`: type of bytes."""
    if get_origin(type) is tuple:
        return f"std::vector<{_spelled(get_args(type)[0], blocks)}>"
    if get_origin(type) is Annotated:
        return f"Rows<{get_args(type)[1].__name__}>"
    if type in (bytes, ForeignText, PathText):
        return blocks
    return _TYPES.get(type) or str(type.__name__)


def enumeration(declared: type[enum.IntEnum], type: str, *, scoped: bool = True) -> Iterator[str]:
    """Yield an enumeration."""
    yield f"enum {'class ' if scoped else ''}{declared.__name__} : {type} {{"
    yield from (f"  {camel(one.name)} = {one.value}," for one in declared)
    yield "};"


def constants(values: Mapping[str, object]) -> Iterator[str]:
    """Yield constants for upper-case names of a module: numbers, texts and tuples of numbers."""
    for name, value in values.items():
        if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
            continue
        if isinstance(value, int):
            yield f"inline constexpr uint64_t {camel(name)} = {value}u;"
        elif isinstance(value, str):
            yield f"inline constexpr char {camel(name)}[] = {json.dumps(value)};"
        elif isinstance(value, tuple):
            yield f"inline constexpr uint64_t {camel(name)}[] = {{{', '.join(map(str, value))}}};"


def layout(name: str, declared: FieldLayout) -> str:
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
