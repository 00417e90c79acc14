"""Blocks cut behind each write of EXEC: between two cuts every instruction runs with the same active lanes."""

from __future__ import annotations

from typing import NamedTuple

from luthier.isa import InstructionFlag
from luthier.isa import registers as r
from luthier.lifting.model import BasicBlock
from luthier.lifting.representation import LiftedRepresentation

from lift_reference.mask_operations import MaskOperation, MaskOperations, followed, is_mask_operation


class Segment(NamedTuple):
    """Instructions of a block up to a write of EXEC, or to the block's end. What they do together, as units."""

    first: int
    last: int
    """Instruction indices, inclusive."""
    reads: int
    """Read in active lanes before anything here replaces them, and scalars."""
    kills: int
    cross_reads: int
    """Read in any lane before anything here replaces them in every lane, and scalars."""
    hard_kills: int
    writes: int
    writes_anywhere: int
    """Written in lanes that may not be active."""
    stores: tuple[int, ...]
    """Instructions that put vector registers where others can see them."""
    operations: tuple[MaskOperation, ...]
    """On masks; the last one is the write of EXEC if there is one."""


def cut_blocks(lifted: LiftedRepresentation) -> list[tuple[Segment, ...]]:
    """The segments of all blocks."""
    table, columns = lifted.effect_table, lifted.columns
    kept = _lanes_kept(lifted)
    names = {number: table.opcode(number).opcode.pseudo for number in {*columns.opcode} if number >= 0}
    maker = MaskOperations(table.isa.register_first_unit.tolist(), lifted.wave_size, kept)
    stores = {
        number
        for number, name in names.items()
        if table.opcode(number).opcode.flags & InstructionFlag.STORE and not name.startswith("SCRATCH_")
    }
    anywhere = {number for number in names if table.opcode(number).writes_anywhere}
    plain = {number for number in names if not is_mask_operation(table.opcode(number))}
    return [_cut(lifted, block, maker, stores, anywhere, plain) for block in lifted.blocks]


def _lanes_kept(lifted: LiftedRepresentation) -> int:
    """VGPRs in whose lanes scalars are put."""
    table, columns = lifted.effect_table, lifted.columns
    numbers = {number for number in {*columns.opcode} if number >= 0}
    puts = {number for number in numbers if table.opcode(number).opcode.pseudo == "V_WRITELANE_B32"}
    kept = 0
    if puts:
        for index, number in enumerate(columns.opcode):
            if number in puts and lifted.block_of[index] >= 0:
                kept |= lifted.effects(index).writes & r.VECTOR_MASK
    return kept


def followed_units(lifted: LiftedRepresentation) -> int:
    """Bit set of the units whose writes change what is known of lane masks, EXEC included."""
    return followed(_lanes_kept(lifted))


def _cut(
    lifted: LiftedRepresentation,
    block: BasicBlock,
    maker: MaskOperations,
    stores: set[int],
    anywhere: set[int],
    plain: set[int],
) -> tuple[Segment, ...]:
    columns, table, interesting, exec_mask = lifted.columns, lifted.effect_table, maker.interesting, maker.exec_mask
    inserted = lifted.changed_by_inserted
    segments: list[Segment] = []
    first = block.first
    all_reads = all_kills = all_cross = all_hard = all_writes = all_anywhere = 0
    operations: list[MaskOperation] = []
    stored: list[int] = []
    forgotten = 0
    for index in range(block.first, block.last + 1):
        effects = lifted.effects(index)
        reads, cross, writes, kills, hard, _ = effects
        number = columns.opcode[index]
        all_reads |= reads & ~all_kills
        all_kills |= kills
        if cross:
            all_cross |= cross & ~all_hard
        if hard:
            all_hard |= hard
        all_writes |= writes
        if number in anywhere or (index in inserted and inserted[index] & exec_mask):
            all_anywhere |= writes & r.VECTOR_MASK
        if number in stores:
            stored.append(index)
        ends = index == block.last
        if writes & interesting:
            if number in plain and not writes & exec_mask:
                forgotten |= writes & interesting
            else:
                if forgotten:
                    operations.append(maker.forget(forgotten))
                    forgotten = 0
                if index in inserted:
                    operation = maker.unknown(effects)
                else:
                    entry = table.opcode(number)
                    operation = maker.make(entry, effects, columns.registers(index), columns.values(index))
                operations.append(operation)
                ends |= operation.sets_exec
        if ends:
            if forgotten:
                operations.append(maker.forget(forgotten))
                forgotten = 0
            segments.append(
                Segment(
                    first,
                    index,
                    all_reads,
                    all_kills,
                    all_cross,
                    all_hard,
                    all_writes,
                    all_anywhere,
                    tuple(stored),
                    tuple(operations),
                )
            )
            if index == block.last and index in inserted and inserted[index] & exec_mask:
                # A call has its lanes from the last segment: those behind what is inserted.
                segments.append(Segment(index + 1, index, 0, 0, 0, 0, 0, 0, (), ()))
            first = index + 1
            all_reads = all_kills = all_cross = all_hard = all_writes = all_anywhere = 0
            operations, stored = [], []
    return tuple(segments)
