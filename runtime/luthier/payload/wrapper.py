"""IR of the function that calls a hook with its arguments: the payload before inlining."""

from __future__ import annotations

from collections.abc import Sequence

from luthier.module.llvm_types import integer_bits, units_of
from luthier.payload.arguments import (
    Argument,
    ComputedArgument,
    ConstantArgument,
    EveryWorkGroup,
    Input,
    LaunchArgument,
)
from luthier.payload.expressions import Expression, ExpressionInput, lower
from luthier.payload.llvm import llvm
from luthier.payload.machine import TRIPLE
from luthier.payload.markers import input_marker


def _truth(kind: str, value: str, result: str) -> str:
    """Return IR that converts an integer to `bool` by the rule of C."""
    return f"{result} = icmp ne {kind} {value}, 0"


def _join(kind: str, parts: Sequence[str], result: str) -> list[str]:
    """Return IR that joins 32-bit parts, low part first, to a value of type `kind`."""
    if len(parts) == 1:
        if kind == "i32":
            return [f"{result} = add i32 {parts[0]}, 0"]
        if kind == "i1":
            return [_truth("i32", parts[0], result)]
        if kind in ("i8", "i16"):
            return [f"{result} = trunc i32 {parts[0]} to {kind}"]
        if kind in ("half", "bfloat"):
            return [f"{result}.bits = trunc i32 {parts[0]} to i16", f"{result} = bitcast i16 {result}.bits to {kind}"]
        return [f"{result} = {'inttoptr' if kind.startswith('ptr') else 'bitcast'} i32 {parts[0]} to {kind}"]
    vector = f"<{len(parts)} x i32>"
    lines, value = [], "poison"
    for index, part in enumerate(parts):
        name = f"{result}.{index}"
        lines.append(f"{name} = insertelement {vector} {value}, i32 {part}, i32 {index}")
        value = name
    if kind.startswith("ptr"):
        lines.append(f"{result}.bits = bitcast {vector} {value} to i64")
        lines.append(f"{result} = inttoptr i64 {result}.bits to {kind}")
    else:
        lines.append(f"{result} = bitcast {vector} {value} to {kind}")
    return lines


def _launch_type(argument: LaunchArgument) -> str:
    return "i32" if argument.offset is None else "ptr addrspace(4)"


def _launch_value(argument: LaunchArgument, kind: str, result: str) -> list[str]:
    """Return IR that converts launch state to a parameter's type."""
    lines = [f"{result}.state = call {_launch_type(argument)} @{argument.intrinsic}()"]
    if argument.offset is not None:
        align = argument.offset & -argument.offset or 16
        place = f"{result}.place = getelementptr i8, ptr addrspace(4) {result}.state, i64 {argument.offset}"
        memory = "i8" if kind == "i1" else kind
        load = f"load {memory}, ptr addrspace(4) {result}.place, align {min(align, 16)}"
        if kind != "i1":
            return [*lines, place, f"{result} = {load}"]
        return [*lines, place, f"{result}.byte = {load}", _truth("i8", f"{result}.byte", result)]
    if kind == "i1":
        return [*lines, _truth("i32", f"{result}.state", result)]
    bits = integer_bits(kind)
    convert = "add" if bits == 32 else "zext" if bits > 32 else "trunc"
    return [*lines, f"{result} = {convert} i32 {result}.state" + (", 0" if bits == 32 else f" to {kind}")]


def _computed(expression: Expression, position: int, inputs: list[Input]) -> tuple[list[str], str]:
    """Return IR of a computed argument, and its value."""
    markers = []

    def value_of(leaf: ExpressionInput) -> str:
        markers.append(input_marker(len(inputs), leaf.kind != "lane", f"%in.{len(inputs)}"))
        inputs.append(Input(leaf.kind != "lane", position, leaf.number, immediate=leaf.kind == "immediate"))
        return f"%in.{len(inputs) - 1}"

    lines, value = lower(expression, value_of, f"%computed.{position}")
    return markers + lines, value


def _typed(value: str, bits: int, kind: str, result: str) -> list[str]:
    """Return IR that converts an integer to a parameter's type, with zero extension."""
    width = integer_bits(kind)
    if width > bits:
        return [f"{result} = zext i{bits} {value} to {kind}"]
    if width == bits:
        return [f"{result} = or {kind} {value}, 0"]
    return [f"{result} = {'inttoptr' if kind.startswith('ptr') else 'bitcast'} i{bits} {value} to {kind}"]


_WORK_GROUP_IDS = tuple(f"llvm.amdgcn.workgroup.id.{axis}" for axis in "xy")


def _only_in(groups: EveryWorkGroup, lines: Sequence[str]) -> list[str]:
    """Return IR that runs `lines` only in some work-groups."""
    ids = [f"%group.{axis} = call i32 @{name}()" for axis, name in zip("xy", _WORK_GROUP_IDS, strict=True)]
    return [
        *ids,
        "%group = add i32 %group.x, %group.y",
        f"%group.rest = urem i32 %group, {groups.every}",
        f"%group.chosen = icmp eq i32 %group.rest, {groups.first}",
        "br i1 %group.chosen, label %run, label %done",
        "run:",
        *lines,
        "br label %done",
        "done:",
    ]


def wrapper_of(
    module: llvm.ModuleRef,
    hook: str,
    types: Sequence[str],
    arguments: Sequence[Argument],
    attributes: str,
    groups: EveryWorkGroup | None,
) -> tuple[str, list[Input]]:
    """Return the IR of a payload that calls a hook with its arguments, and the inputs of these arguments."""
    inputs: list[Input] = []
    lines: list[str] = []
    values: list[str] = []
    declared = {(name, "i32") for name in (_WORK_GROUP_IDS if groups is not None else ())}
    for position, (kind, argument) in enumerate(zip(types, arguments, strict=True)):
        if isinstance(argument, ConstantArgument):
            values.append(f"{kind} {argument.text}")
            continue
        if isinstance(argument, LaunchArgument):
            lines += _launch_value(argument, kind, f"%argument.{position}")
            declared.add((argument.intrinsic, _launch_type(argument)))
            values.append(f"{kind} %argument.{position}")
            continue
        if isinstance(argument, ComputedArgument):
            computed, value = _computed(argument.expression, position, inputs)
            lines += [*computed, *_typed(value, argument.expression.bits, kind, f"%argument.{position}")]
            values.append(f"{kind} %argument.{position}")
            continue
        parts = []
        for part in range(units_of(kind)):
            parts.append(f"%in.{len(inputs)}")
            lines.append(input_marker(len(inputs), argument.uniform, parts[-1]))
            inputs.append(Input(argument.uniform, position, part))
        lines += _join(kind, parts, f"%argument.{position}")
        values.append(f"{kind} %argument.{position}")
    call = [f'call void @"{hook}"({", ".join(values)})']
    body = "\n  ".join([*lines, *(call if groups is None else _only_in(groups, call)), "ret void"])
    declarations = "\n".join(sorted(f"declare {kind} @{name}()" for name, kind in declared))
    text = f"""
target datalayout = "{module.data_layout}"
target triple = "{TRIPLE}"
declare void @"{hook}"({", ".join(types)})
{declarations}
define void @luthier.payload() #0 {{
  {body}
}}
attributes #0 = {{ norecurse nounwind convergent {attributes} }}
"""
    return text, inputs
