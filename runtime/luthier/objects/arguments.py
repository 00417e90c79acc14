"""Arguments of a launch: names and types from metadata, the kernel's mangled name and debug information, and their
contents."""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Sequence

from msgspec import Struct

from luthier import _mc
from luthier.objects.code_object import CodeObject, Kernel
from luthier.objects.metadata import KernelArgument

_FORMATS = {
    "bool": "?",
    "char": "b",
    "signed char": "b",
    "unsigned char": "B",
    "short": "h",
    "unsigned short": "H",
    "int": "i",
    "unsigned int": "I",
    "long": "q",
    "unsigned long": "Q",
    "long long": "q",
    "unsigned long long": "Q",
    "_Float16": "e",
    "half": "e",
    "float": "f",
    "double": "d",
}
"""C++ types of numbers, as spelled by demanglers and compilers -> `struct` format letter."""
_QUALIFIERS = re.compile(r"\b(const|volatile|restrict|__restrict__)\b")
_OPENING, _CLOSING = "(<[{", ")>]}"


class Argument(Struct, frozen=True):
    """An argument of a launch."""

    name: str
    """Its number if the code object has no name for it."""
    type: str
    """C++ type; "" if unknown."""
    offset: int
    """Bytes from the beginning of the arguments."""
    size: int
    """Bytes."""
    is_pointer: bool
    contents: bytes
    """Empty if unknown."""

    @property
    def value(self) -> int | float | bool | None:
        """Return the number, or the address of a pointer; None if it is not a number, or unknown."""
        if len(self.contents) != self.size:
            return None
        letter = _FORMATS.get(_QUALIFIERS.sub("", self.type).strip())
        if self.is_pointer or letter is None or struct.calcsize(letter) != self.size:
            is_number = self.is_pointer or not self.type
            return int.from_bytes(self.contents, "little") if is_number and self.size <= 8 else None
        number: int | float | bool = struct.unpack(f"<{letter}", self.contents)[0]
        return number

    @property
    def text(self) -> str:
        """Return the value as text.

        Addresses and values that are not numbers are hexadecimal; numbers of unknown type are signed integers.
        """
        value = self.value
        if len(self.contents) != self.size:
            return "unknown"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return f"{value:.9g}" if self.size <= 4 else repr(value)
        if value is None or self.is_pointer or (not self.type and self.size not in (1, 2, 4, 8)):
            return hex(int.from_bytes(self.contents, "little"))
        return str(value) if self.type else str(int.from_bytes(self.contents, "little", signed=True))


def is_number(type: str) -> bool:
    """Return whether a C++ type, as spelled by demanglers and compilers, is a type of numbers."""
    return _QUALIFIERS.sub("", type).strip() in _FORMATS


def explicit(kernel: Kernel) -> list[KernelArgument]:
    """Return the arguments that the program passes."""
    return [one for one in kernel.arguments if not one.hidden]


def size_of(kernel: Kernel) -> int:
    """Return the size in bytes of the arguments that the program passes."""
    return max((one.offset + one.size for one in explicit(kernel)), default=0)


def arguments_of(kernel: Kernel, object: CodeObject, contents: bytes) -> list[Argument]:
    """Return the arguments that the program passes.

    Args:
        kernel: the launched kernel.
        object: its code object.
        contents: argument segment; empty if unknown.
    """
    described = explicit(kernel)
    known = _described(object, kernel.name, len(described), all(one.name for one in described))
    arguments = []
    for number, (argument, (name, type)) in enumerate(zip(described, known, strict=True)):
        data = contents[argument.offset : argument.offset + argument.size]
        named = argument.name.removesuffix(".coerce") or name or str(number)
        is_pointer = argument.value_kind != "by_value" or type.endswith("*")
        arguments.append(Argument(named, type or argument.type_name, argument.offset, argument.size, is_pointer, data))
    return arguments


@functools.lru_cache(maxsize=256)
def _described(object: CodeObject, kernel: str, count: int, named: bool) -> Sequence[tuple[str, str]]:
    """Return name and type of each argument, "" if unknown.

    Types are in mangled names. Debug information has the types of other kernels (``extern "C"``), and names, which some
    compilers omit from metadata.

    Args:
        named: whether metadata has all names.
    """
    types = parameter_types(kernel)
    if len(types) != count:
        types = []
    debugged = [] if named and types else _debugged(object, object.kernels[kernel].entry)
    if len(debugged) != count:
        debugged = [("", "")] * count
    return [(name, mangled or type) for mangled, (name, type) in zip(types or [""] * count, debugged, strict=True)]


def _debugged(object: CodeObject, entry: int) -> list[tuple[str, str]]:
    """Return name and type of the parameters of the function at an address, from debug information."""
    if ".debug_info" not in object.elf.section_names:
        return []
    from luthier.objects.dwarf import Dwarf, DwarfError  # imports pyelftools

    try:
        for unit in Dwarf(object.elf).units():
            if any(low <= entry < high for low, high in unit.ranges):
                return unit.parameters(entry)
    except DwarfError:
        pass  # reported by `CodeObject.source`
    return []


def parameter_types(symbol: str) -> list[str]:
    """Return the types of a function's parameters, from its mangled name; [] if it is not mangled."""
    whole = _mc.demangle(symbol)
    end = whole.rfind(")")
    if whole == symbol or end < 0:
        return []
    depth, begin = 0, end
    for begin in range(end, -1, -1):
        depth += (whole[begin] in _CLOSING) - (whole[begin] in _OPENING)
        if not depth:
            break
    types, depth, part = [], 0, ""
    for character in whole[begin + 1 : end]:
        depth += (character in _OPENING) - (character in _CLOSING)
        if character == "," and not depth:
            types.append(part.strip())
            part = ""
        else:
            part += character
    return [*types, part.strip()] if part.strip() and part.strip() != "void" else types
