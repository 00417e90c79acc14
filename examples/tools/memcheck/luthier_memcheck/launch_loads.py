"""Scalar loads from the kernel's arguments and its dispatch packet, which are always valid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from luthier import Instruction
from luthier.isa import OperandKind
from luthier.isa.registers import SGPRS, mask_of
from luthier.lifting import BasicBlock, LiftedRepresentation

_POINTERS = ("kernarg_segment_ptr", "dispatch_ptr")


def launch_loads(lifted: LiftedRepresentation) -> frozenset[int]:
    """Return the indices of scalar loads by a pointer in its launch register, on all paths from the entry."""
    return _loads_by(lifted, _POINTERS)


def kernarg_loads(lifted: LiftedRepresentation) -> frozenset[int]:
    """Return those by the pointer to the kernel's arguments, at a constant offset."""
    loads = _loads_by(lifted, _POINTERS[:1])
    return frozenset(index for index in loads if _is_at_number(lifted, lifted.instructions[index]))


def _is_at_number(lifted: LiftedRepresentation, instruction: Instruction) -> bool:
    """Return whether a load has no offset register except SGPR_NULL."""
    offset = instruction.operand("soffset")
    return offset is None or offset[0] != OperandKind.REGISTER or lifted.isa.register(offset[1]).first_unit < 0


def _loads_by(lifted: LiftedRepresentation, names: Iterable[str]) -> frozenset[int]:
    """Return scalar loads by some of the launch's pointers."""
    inputs = lifted.kernel.descriptor.sgpr_inputs
    pointers = [SGPRS[inputs[name][0]] for name in names if name in inputs]
    return frozenset(
        instruction.index
        for block, kept in _kept(lifted, mask_of(unit for first in pointers for unit in (first, first + 1)))
        for instruction, left in _along(lifted, block, kept)
        if (first := _base(lifted, instruction)) in pointers and left >> first & 3 == 3
    )


def _base(lifted: LiftedRepresentation, instruction: Instruction) -> int:
    """Return the first unit of a scalar load's base; -1 for other instructions."""
    access = instruction.memory
    base = instruction.operand("sbase") if access is not None and access.space == "scalar" else None
    if base is None or base[0] != OperandKind.REGISTER:
        return -1
    return lifted.isa.register(base[1]).first_unit


def _along(lifted: LiftedRepresentation, block: BasicBlock, kept: int) -> Iterator[tuple[Instruction, int]]:
    """Yield each instruction of a block with the units that still hold their values from the entry."""
    for index in range(block.first, block.last + 1):
        instruction = lifted.instructions[index]
        yield instruction, kept
        kept &= ~instruction.effects.writes


def _kept(lifted: LiftedRepresentation, units: int) -> Iterator[tuple[BasicBlock, int]]:
    """Yield the blocks of the kernel's own function with those of `units` that are not written before them."""
    blocks = {block.index: block for block in lifted.functions[0].blocks}
    kept = dict.fromkeys(blocks, units)
    waiting = list(blocks)
    while waiting:
        block = blocks[waiting.pop()]
        *_, (last, left) = _along(lifted, block, kept[block.index])
        left = 0 if last.is_call else left & ~last.effects.writes
        for edge in block.successors:
            if kept[edge.to] & ~left:
                kept[edge.to] &= left
                waiting.append(edge.to)
    return iter([(block, kept[block.index]) for block in blocks.values()])
