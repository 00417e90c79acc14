"""Hooks that do nothing but count, recognised in their optimized IR: one atomic addition to a variable of the tool, of
a constant or of so many times the active lanes, that reads no register and whose result is unused."""

from __future__ import annotations

from msgspec import Struct

from luthier.module.llvm_types import integer_bits
from luthier.payload.ir import IrInstruction, IrOperand, read_instruction, symbol_of

_MOST_LANES = 64
"""Lanes of the largest wave."""


class PlainCount(Struct, frozen=True):
    """Number that such a hook adds, each time it runs."""

    symbol: str
    """The variable."""
    offset: int
    """Bytes from its beginning to the 64-bit number that is added to."""
    weight: int
    lanes: bool
    """Once for each active lane, not once for the wave."""


def plain_count(body: str) -> PlainCount | None:
    """Return what a payload adds, if that is all it does.

    Args:
        body: the lines of its function, intrinsics not yet replaced.
    """
    masks: set[str] = set()
    times: dict[str, int] = {}
    count: PlainCount | None = None
    for line in body.splitlines():
        one = read_instruction(line)
        if one is None or one.opcode == "ret":
            continue
        values = [value.text for value in one.operands]
        if one.callee.startswith("llvm.amdgcn.ballot.") and values == ["true"]:
            masks.add(one.result)
        elif one.callee.startswith("llvm.ctpop.") and values[0] in masks:
            times[one.result] = 1
        elif one.opcode == "zext" and values[0] in times:
            if not 0 <= times[values[0]] * _MOST_LANES < 1 << integer_bits(one.operands[0].type):
                return None  # the narrower product has wrapped
            times[one.result] = times[values[0]]
        elif one.opcode in ("mul", "shl") and values[0] in times and (factor := one.operands[1].number) is not None:
            times[one.result] = times[values[0]] * (factor if one.opcode == "mul" else 1 << min(factor, 63))
        elif count is None and _adds(one):
            place, weight, lanes = _place(one.operands[0]), one.operands[1].number, one.opcode == "atomicrmw"
            if weight is None and not lanes:
                weight, lanes = times.get(values[1]), True
            if place is None or weight is None:
                return None
            count = PlainCount(*place, weight, lanes)
        else:
            return None
    return count


def _adds(one: IrInstruction) -> bool:
    """Return whether an instruction adds a 64-bit integer to memory, for the wave or for each lane."""
    if one.opcode == "atomicrmw":
        relaxed = {"add", "monotonic"} <= one.words and "volatile" not in one.words
        return relaxed and one.operands[1].type == "i64"
    return one.callee.startswith("luthier::sAtomicAdd.i64.ptr")


def _place(pointer: IrOperand) -> tuple[str, int] | None:
    """Return the variable that an address lies in, and how far; None for any other address."""
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
