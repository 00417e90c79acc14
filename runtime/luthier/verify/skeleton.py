"""Templates of launch plans: made-up numbers and buffers, and the fields of structures known from the code object."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from luthier.objects import CodeObject, Kernel
from luthier.objects.arguments import Argument, arguments_of, explicit, is_number
from luthier.objects.variables import DwarfType, VariableMap
from luthier.verify.launch_plan import made_up_argument, made_up_sizes

_FLOATS = {"_Float16": "float16", "half": "float16", "float": "float32", "double": "float64"}
_MOST_PARTS = 32
"""The most elements of an array that become separate fields."""


def structures_in(object: CodeObject, kernel: Kernel) -> list[tuple[int, Argument]]:
    """Return the arguments by value that are not numbers, with their positions from 1.

    An argument of the size of a number counts as one, unless the mangled name or debug information gives another type.
    """
    structures = []
    for number, argument in enumerate(arguments_of(kernel, object, b""), 1):
        unlike = argument.size not in (1, 2, 4, 8) or (argument.type and not is_number(argument.type))
        if not argument.is_pointer and unlike:
            structures.append((number, argument))
    return structures


def skeleton(object: CodeObject, kernels: Iterable[str]) -> str:
    """Return the text of a launch plan for kernels, in the format of `read_plans`."""
    lines = ["# Written by `luthier verify --write-plan`. Numbers and buffers are made up; fill in structures."]
    variables = VariableMap(object.elf) if ".debug_info" in object.elf.section_names else None
    for name in kernels:
        kernel = object.kernels[name]
        grid, block = made_up_sizes(kernel)
        lines += ["", f"[{json.dumps(name)}]", f"grid = {list(grid)}", f"block = {list(block)}", "arguments = ["]
        structures = dict(structures_in(object, kernel))
        types = {one.name: one.type for one in variables.near([kernel.entry])} if variables is not None else {}
        described = arguments_of(kernel, object, b"")
        for number, (argument, raw) in enumerate(zip(described, explicit(kernel), strict=True), 1):
            what = f"argument {number}, {argument.name}: {argument.type or raw.value_kind}, {argument.size} bytes"
            made_up = None if number in structures else made_up_argument(raw, grid, block)
            if made_up is not None and argument.type in _FLOATS:
                made_up = {**made_up, "scalar": _FLOATS[argument.type]}
            if made_up is not None:
                lines.append(f"    {_inline(made_up)},  # {what}")
            elif raw.value_kind == "by_value":
                lines += _structure(what, argument.size, types.get(argument.name))
            else:
                lines.append(f"    # {what}: a plan cannot give a value for it")
        lines.append("]")
    return "\n".join([*lines, ""])


def _structure(what: str, size: int, type: DwarfType | None) -> Iterator[str]:
    known = type is not None and type.kind == "record" and type.size == size
    yield f"    # {what}" + ("" if known else ": a structure whose fields are not known")
    if type is None or not known:
        yield f"    {{ structure = {size}, fields = [] }},"
        return
    yield f"    {{ structure = {size}, fields = ["
    for path, at, member in _fields(type, "", 0):
        field = _field(member)
        comment = f"{path}: {member.name}, {member.size} bytes"
        yield f"        {_inline({'at': at, **field})},  # {comment}" if field else f"        # at byte {at}, {comment}"
    yield "    ] },"


def _fields(type: DwarfType, path: str, at: int) -> Iterator[tuple[str, int, DwarfType]]:
    """Yield path, offset and type of all scalar fields of a structure, and of overlapping fields of unions.

    Large arrays are one field.
    """
    parts = type.members
    if type.element is not None and type.element.size:
        parts = tuple((f"[{n}]", n * type.element.size, type.element) for n in range(type.size // type.element.size))
    if not parts or len(parts) > _MOST_PARTS:
        yield path, at, type
        return
    for name, offset, member in parts:
        yield from _fields(member, f"{path}{'.' * bool(path and type.members)}{name}", at + offset)


def _field(type: DwarfType) -> Mapping[str, Any]:
    if type.kind == "pointer":
        return {"buffer": "int32", "count": 16384, "fill": "random"}
    letters = {"signed": "int", "unsigned": "uint", "float": "float", "boolean": "uint"}
    if type.kind in letters and type.size in ((2, 4, 8) if type.kind == "float" else (1, 2, 4, 8)):
        return {"scalar": f"{letters[type.kind]}{8 * type.size}", "value": 0}
    return {}


def _inline(value: Mapping[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(one)}" for key, one in value.items()) + " }"
