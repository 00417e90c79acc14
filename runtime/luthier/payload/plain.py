"""Recognition of hooks that only count, in their optimized IR: one atomic addition to a tool's variable, of a constant
or a multiple of the number of active lanes, without reading registers or using the result."""

from __future__ import annotations

from msgspec import Struct

from luthier.module.llvm_types import integer_bits
from luthier.payload.ir import IrInstruction, IrOperand, read_instruction, symbol_of

_MOST_LANES = 64
"""Lanes of the largest wave."""


class PlainCount(Struct, frozen=True):
    """The addition that such a hook performs on each execution."""

    symbol: str
    """The variable."""
    offset: int
    """Byte offset in the variable of the 64-bit number."""
    weight: int
    lanes: bool
    """Whether `weight` is added once per active lane, instead of once per wave."""


def plain_count(body: str) -> PlainCount | None:
    """Return the count that a payload performs, if it does nothing else.

    Args:
        body: the lines of its function, before the replacement of intrinsics.
    """
    masks: set[str] = set()
    times: dict[str, int] = {}
    count: PlainCount | None = None
    for line in body.splitlines():
        instruction = read_instruction(line)
        if instruction is None or instruction.opcode == "ret":
            continue
        opcode, values = instruction.opcode, [value.text for value in instruction.operands]
        if instruction.callee.startswith("llvm.amdgcn.ballot.") and values == ["true"]:
            masks.add(instruction.result)
        elif instruction.callee.startswith("llvm.ctpop.") and values[0] in masks:
            times[instruction.result] = 1
        elif opcode == "zext" and values[0] in times:
            if not 0 <= times[values[0]] * _MOST_LANES < 1 << integer_bits(instruction.operands[0].type):
                return None  # the narrower product may wrap
            times[instruction.result] = times[values[0]]
        elif opcode in ("mul", "shl") and values[0] in times and (factor := instruction.operands[1].number) is not None:
            times[instruction.result] = times[values[0]] * (factor if opcode == "mul" else 1 << min(factor, 63))
        elif count is None and _adds(instruction):
            pointer, addend = instruction.operands[:2]
            place, weight, lanes = _place(pointer), addend.number, opcode == "atomicrmw"
            if weight is None and not lanes:
                weight, lanes = times.get(values[1]), True
            if place is None or weight is None:
                return None
            count = PlainCount(*place, weight, lanes)
        else:
            return None
    return count


def _adds(instruction: IrInstruction) -> bool:
    """Return whether an instruction adds a 64-bit integer to memory, for the wave or for each lane."""
    if instruction.opcode == "atomicrmw":
        relaxed = {"add", "monotonic"} <= instruction.words and "volatile" not in instruction.words
        return relaxed and instruction.operands[1].type == "i64"
    return instruction.callee.startswith("luthier::sAtomicAdd.i64.ptr")


def _place(pointer: IrOperand) -> tuple[str, int] | None:
    """Return the variable and byte offset of an address; None if it is not in a variable."""
    offset = 0
    while pointer.operation:
        if pointer.operation == "getelementptr":
            element, pointer, *indices = pointer.operands
            index = indices[0].number if len(indices) == 1 and element.type == "i8" else None
            if index is None:
                return None
            offset += index
        elif pointer.operation == "addrspacecast":
            pointer = pointer.operands[0]
        else:
            return None
    return (symbol_of(pointer.text), offset) if pointer.text.startswith("@") else None
