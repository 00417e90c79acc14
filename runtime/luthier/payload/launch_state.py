"""Launch state of a kernel that hooks read: ids, pointers, sizes.

Each LLVM intrinsic for it becomes IR over *states*, 32-bit values that the patcher locates or preserves throughout the
kernel (`luthier.patch.registers.launch_state`). Like registers, they are inputs with markers.

Sizes of work-groups and grids are always in the dispatch packet, but compilers load them from the implicit arguments,
which a kernel need not have (AMDGPUUsage, "Code Object V5 Kernel Argument Metadata"). Such loads are replaced by values
computed from the packet (`replace_size_loads`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec import Struct

from luthier.module.llvm_types import bits_of, integer_bits
from luthier.payload.calls import Intrinsic, IntrinsicCall, Lowering
from luthier.payload.ir import IrInstruction, IrOperand, read_instruction


class LaunchState(NamedTuple):
    """A value that is determined at the start of the kernel."""

    units: int
    """Number of 32-bit parts; the low part is first."""
    uniform: bool
    """Whether there is one value per wave; otherwise one per lane."""
    what: str
    """Name for authors of hooks."""


STATES: Mapping[str, LaunchState] = {
    **{f"workgroup_id_{axis}": LaunchState(1, True, f"blockIdx.{axis}") for axis in "xyz"},
    **{f"workitem_id_{axis}": LaunchState(1, False, f"threadIdx.{axis}") for axis in "xyz"},
    "workitem_id": LaunchState(1, False, "threadIdx"),
    "kernarg_segment_ptr": LaunchState(2, True, "the kernel's arguments"),
    "dispatch_ptr": LaunchState(2, True, "the dispatch packet (blockDim, gridDim)"),
    "queue_ptr": LaunchState(2, True, "the queue"),
    "dispatch_id": LaunchState(2, True, "the dispatch id"),
    **{f"implicit_offset{version}": LaunchState(1, True, "the kernel's hidden arguments") for version in ("", "_v4")},
}
"""Name -> state.

Work-group ids y and z may be 16 bits each of one register; ``workitem_id`` holds x, y and z in 10 bits each.
``implicit_offset`` is the byte offset from the kernel's arguments to its hidden ones in the layout of code object V5,
``implicit_offset_v4`` in the earlier layout.
"""

_SERVICES_V5 = (
    "printf_buffer",
    "hostcall_buffer",
    "multigrid_sync_arg",
    "heap_v1",
    "default_queue",
    "completion_action",
)
"""Consecutive hidden arguments."""
HIDDEN_V5: Mapping[str, tuple[int, int]] = {
    **{f"hidden_block_count_{axis}": (4 * number, 4) for number, axis in enumerate("xyz")},
    **{f"hidden_group_size_{axis}": (12 + 2 * number, 2) for number, axis in enumerate("xyz")},
    **{f"hidden_remainder_{axis}": (18 + 2 * number, 2) for number, axis in enumerate("xyz")},
    **{f"hidden_global_offset_{axis}": (40 + 8 * number, 8) for number, axis in enumerate("xyz")},
    "hidden_grid_dims": (64, 2),
    **{f"hidden_{name}": (72 + 8 * number, 8) for number, name in enumerate(_SERVICES_V5)},
    "hidden_dynamic_lds_size": (120, 4),
    "hidden_private_base": (192, 4),
    "hidden_shared_base": (196, 4),
    "hidden_queue_ptr": (200, 8),
}
"""Hidden argument -> byte offset from the first one, and size, in the layout since code object V5.

Source: LLVM, AMDGPUHSAMetadataStreamer.cpp, `MetadataStreamerMsgPackV5::emitHiddenKernelArgs`.
"""
HIDDEN_V4: Mapping[str, tuple[int, int]] = {
    **{f"hidden_global_offset_{axis}": (8 * number, 8) for number, axis in enumerate("xyz")},
    "hidden_printf_buffer": (24, 8),
    "hidden_hostcall_buffer": (24, 8),
    "hidden_default_queue": (32, 8),
    "hidden_completion_action": (40, 8),
    "hidden_multigrid_sync_arg": (48, 8),
}
"""Hidden arguments before code object V5 (`MetadataStreamerMsgPackV4`)."""

_CONSTANT = "ptr addrspace(4)"


def _pair(lowering: Lowering, name: str, result: str, kind: str) -> list[str]:
    """Return IR that joins a state of two parts to one value."""
    low, high, both, shifted = (lowering.fresh() for _ in range(4))
    lines = [
        f"{low} = zext i32 {lowering.state(name, 0)} to i64",
        f"{high} = zext i32 {lowering.state(name, 1)} to i64",
        f"{shifted} = shl nuw i64 {high}, 32",
    ]
    if kind == "i64":
        return [*lines, f"{result} = or disjoint i64 {shifted}, {low}"]
    return [*lines, f"{both} = or disjoint i64 {shifted}, {low}", f"{result} = inttoptr i64 {both} to {kind}"]


def packet_field(lowering: Lowering, kind: str, offset: int, result: str) -> list[str]:
    """Return IR that loads a field of the dispatch packet."""
    packet, place = lowering.fresh(), lowering.fresh()
    return [
        *_pair(lowering, "dispatch_ptr", packet, _CONSTANT),
        f"{place} = getelementptr i8, {_CONSTANT} {packet}, i64 {offset}",
        f"{result} = load {kind}, {_CONSTANT} {place}, align {bits_of(kind) // 8}, !invariant.load !{{}}",
    ]


def _field(source: str, shift: int, bits: int, lowering: Lowering, result: str) -> list[str]:
    moved = lowering.fresh()
    return [f"{moved} = lshr i32 {source}, {shift}", f"{result} = and i32 {moved}, {(1 << bits) - 1}"]


def _work_group_id(axis: str) -> Callable[[IntrinsicCall, Lowering], list[str]]:
    def lower(call: IntrinsicCall, lowering: Lowering) -> list[str]:
        if call.result is None:
            return []
        if lowering.target.launch_ttmps is not None and axis != "x":
            return _field(lowering.state(f"workgroup_id_{axis}"), 16 * (axis == "z"), 16, lowering, call.result)
        return [f"{call.result} = add i32 {lowering.state(f'workgroup_id_{axis}')}, 0"]

    return lower


def _work_item_id(axis: str) -> Callable[[IntrinsicCall, Lowering], list[str]]:
    def lower(call: IntrinsicCall, lowering: Lowering) -> list[str]:
        if call.result is None:
            return []
        if lowering.target.packed_work_item_ids:
            return _field(lowering.state("workitem_id"), 10 * "xyz".index(axis), 10, lowering, call.result)
        return [f"{call.result} = add i32 {lowering.state(f'workitem_id_{axis}')}, 0"]

    return lower


def _value(name: str, kind: str) -> Callable[[IntrinsicCall, Lowering], list[str]]:
    def lower(call: IntrinsicCall, lowering: Lowering) -> list[str]:
        return [] if call.result is None else _pair(lowering, name, call.result, kind)

    return lower


def _implicit_arguments(call: IntrinsicCall, lowering: Lowering) -> list[str]:
    if call.result is None:
        return []
    base, offset = lowering.fresh(), lowering.fresh()
    return [
        *_pair(lowering, "kernarg_segment_ptr", base, _CONSTANT),
        f"{offset} = zext i32 {lowering.state(lowering.implicit_offset)} to i64",
        f"{call.result} = getelementptr i8, {_CONSTANT} {base}, i64 {offset}",
    ]


LAUNCH: Mapping[str, Intrinsic] = {
    name: Intrinsic(name, name, what, lower)
    for name, what, lower in (
        *((f"llvm.amdgcn.workgroup.id.{axis}", f"blockIdx.{axis}", _work_group_id(axis)) for axis in "xyz"),
        *((f"llvm.amdgcn.workitem.id.{axis}", f"threadIdx.{axis}", _work_item_id(axis)) for axis in "xyz"),
        ("llvm.amdgcn.kernarg.segment.ptr", "the kernel's arguments", _value("kernarg_segment_ptr", _CONSTANT)),
        ("llvm.amdgcn.dispatch.ptr", "the dispatch packet", _value("dispatch_ptr", _CONSTANT)),
        ("llvm.amdgcn.queue.ptr", "the queue", _value("queue_ptr", _CONSTANT)),
        ("llvm.amdgcn.dispatch.id", "the dispatch id", _value("dispatch_id", "i64")),
        ("llvm.amdgcn.implicitarg.ptr", "the kernel's hidden arguments", _implicit_arguments),
    )
}
"""LLVM's intrinsics for launch state."""


# Sizes among the implicit arguments -------------------------------------------------------------------------------

_HALVES = 12
"""Number of 16-bit parts at the beginning of the implicit arguments that follow from the packet: three 32-bit counts of
complete work-groups, three 16-bit sizes of work-groups, three 16-bit remainders (code object V5 and later)."""
_IMPLICIT_ARGUMENTS = "llvm.amdgcn.implicitarg.ptr"
_OF_PLACES = (" call ", " getelementptr ", " load ", " extractelement ", " select ")
"""Spelling of the instructions that load sizes."""


class _ImplicitArgument(Struct, frozen=True):
    """The position of a pointer in the implicit arguments."""

    offset: int | str
    """Bytes, as a number or an IR value."""


def replace_size_loads(body: str, lowering: Lowering) -> tuple[str, list[str]]:
    """Replace loads of sizes from implicit arguments by values computed from the dispatch packet.

    Return the function's body, and IR for its beginning. A load from an offset that is not a compile-time constant
    becomes a selection among the sizes and the original load.
    """
    if f"@{_IMPLICIT_ARGUMENTS}(" not in body:
        return body, []
    lines = body.split("\n")
    read = [read_instruction(line) if any(word in line for word in _OF_PLACES) else None for line in lines]
    by_result = {each.result: each for each in read if each is not None}
    places, added = _implicit_places(by_result, lowering)
    halves, start = _sizes(lowering)
    result_lines = []
    replaced = False
    for line, current in zip(lines, read, strict=True):
        place = places.get(current.operands[1].text) if current is not None and _is_load(current) else None
        if current is not None and place is not None and (text := _read(current, place, halves, lowering)):
            result_lines += [f"  {each}" for each in text]
            replaced = True
            continue
        result_lines.append(line)
        if current is not None:
            result_lines += [f"  {each}" for each in added.get(current.result, ())]
    return ("\n".join(result_lines), start) if replaced else (body, [])


def _implicit_places(
    by_result: Mapping[str, IrInstruction], lowering: Lowering
) -> tuple[dict[str, _ImplicitArgument], dict[str, list[str]]]:
    """Return the pointers into the implicit arguments by their names, and IR to add after those that need it."""
    places = {name: _ImplicitArgument(0) for name, each in by_result.items() if each.callee == _IMPLICIT_ARGUMENTS}
    elements = {name: each for name, each in by_result.items() if _is_element(each)}
    added: dict[str, list[str]] = {}
    grew = True
    while grew:
        grew = False
        for result, instruction in elements.items():
            element, pointer, index = instruction.operands
            base = places.get(pointer.text)
            if result in places or base is None:
                continue
            size = bits_of(element.type) // 8
            if index.number is not None and isinstance(base.offset, int):
                places[result] = _ImplicitArgument(base.offset + size * index.number)
            else:
                scaled, total = lowering.fresh(), lowering.fresh()
                before, value = _index(index, by_result, lowering)
                added[result] = [
                    *before,
                    f"{scaled} = mul i64 {value}, {size}",
                    f"{total} = add i64 {scaled}, {base.offset}",
                ]
                places[result] = _ImplicitArgument(total)
            grew = True
    return places, added


def _is_element(instruction: IrInstruction) -> bool:
    """Return whether an instruction computes the address of a numbered integer in constant memory."""
    kinds = [value.type for value in instruction.operands]
    integer = instruction.opcode == "getelementptr" and kinds[0] in ("i8", "i16", "i32", "i64")
    return integer and kinds[1:] == [_CONSTANT, "i64"] and not instruction.operands[2].text.startswith("-")


def _is_load(instruction: IrInstruction) -> bool:
    """Return whether an instruction is a plain load of an integer, or of a vector of them, from constant memory."""
    if instruction.opcode != "load" or not instruction.words.isdisjoint(("atomic", "volatile")):
        return False
    loaded, pointer = instruction.operands
    return integer_bits(loaded.type.rpartition(" ")[2].rstrip(">")) > 0 and pointer.type == _CONSTANT


def _index(index: IrOperand, by_result: Mapping[str, IrInstruction], lowering: Lowering) -> tuple[list[str], str]:
    """Return IR for the index of a getelementptr, and the index.

    An element of a selection between constant vectors becomes a scalar selection, which LLVM can analyse.
    """
    part = by_result.get(index.text)
    if part is None or part.opcode != "extractelement":
        return [], index.text
    vector, number = part.operands
    choice = by_result.get(vector.text)
    if choice is None or choice.opcode != "select" or number.number is None:
        return [], index.text
    mask, *sides = choice.operands
    if not (mask.type.startswith("<") and all(side.text.startswith("<") for side in sides)):
        return [], index.text
    if_set, if_clear = (side.text.strip("<>").split(", ")[number.number] for side in sides)
    condition, value = lowering.fresh(), lowering.fresh()
    return [
        f"{condition} = extractelement {mask.type} {mask.text}, i64 {number.text}",
        f"{value} = select i1 {condition}, {if_set}, {if_clear}",
    ], value


def _sizes(lowering: Lowering) -> tuple[list[str], list[str]]:
    """Return the 16-bit parts of the sizes (`_HALVES`), and the IR that computes them."""
    packet = lowering.fresh()
    lines = _pair(lowering, "dispatch_ptr", packet, _CONSTANT)
    counts: list[str] = []
    sizes: list[str] = []
    rests: list[str] = []

    def load(kind: str, offset: int) -> str:
        place, value = lowering.fresh(), lowering.fresh()
        lines.append(f"{place} = getelementptr i8, {_CONSTANT} {packet}, i64 {offset}")
        lines.append(f"{value} = load {kind}, {_CONSTANT} {place}, align {bits_of(kind) // 8}, !invariant.load !{{}}")
        return value

    for axis in range(3):
        size, grid = load("i16", 4 + 2 * axis), load("i32", 12 + 4 * axis)
        wide, count, rest, low, shifted, high, short = (lowering.fresh() for _ in range(7))
        lines += [
            f"{wide} = zext i16 {size} to i32",
            f"{count} = udiv i32 {grid}, {wide}",
            f"{rest} = urem i32 {grid}, {wide}",
            f"{low} = trunc i32 {count} to i16",
            f"{shifted} = lshr i32 {count}, 16",
            f"{high} = trunc i32 {shifted} to i16",
            f"{short} = trunc i32 {rest} to i16",
        ]
        counts += [low, high]
        sizes.append(size)
        rests.append(short)
    return [*counts, *sizes, *rests], [f"  {line}" for line in lines]


def _read(load: IrInstruction, place: _ImplicitArgument, halves: list[str], lowering: Lowering) -> list[str]:
    """Return IR to replace a load; empty if it loads something other than sizes."""
    loaded, pointer = load.operands
    kind, result, bits = loaded.type, load.result, bits_of(loaded.type)
    if bits % 16:
        return []
    count = bits // 16
    whole = f"i{bits}"
    lines: list[str] = []

    def at(first: int) -> str:
        value = "0"
        for number, half in enumerate(halves[first : first + count]):
            if count == 1:
                return half
            wide, moved, joined = (lowering.fresh() for _ in range(3))
            lines.append(f"{wide} = zext i16 {half} to {whole}")
            lines.append(f"{moved} = shl {whole} {wide}, {16 * number}")
            lines.append(f"{joined} = or {whole} {moved}, {value}")
            value = joined
        return value

    if isinstance(place.offset, int):
        if place.offset % 2 or place.offset + bits // 8 > 2 * _HALVES:
            return []
        value = at(place.offset // 2)
    else:
        pointed = lowering.fresh()
        value = lowering.fresh()
        lines.append(f"{pointed} = load {kind}, {_CONSTANT} {pointer.text}, align 2")
        lines.append(f"{value} = bitcast {kind} {pointed} to {whole}")
        for first in range(_HALVES - count + 1):
            candidate, same, chosen = at(first), lowering.fresh(), lowering.fresh()
            lines.append(f"{same} = icmp eq i64 {place.offset}, {2 * first}")
            lines.append(f"{chosen} = select i1 {same}, {whole} {candidate}, {whole} {value}")
            value = chosen
    return [*lines, f"{result} = bitcast {whole} {value} to {kind}"]
