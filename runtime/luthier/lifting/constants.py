"""Constants that registers certainly hold at a point, according to the moves that reach it inside one function.

Registers are unknown at function entries, and after calls that may change them. A constant moved while some lanes were
inactive becomes unknown where lanes may have become active again.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from luthier.isa import OperandKind
from luthier.isa import registers as r
from luthier.lifting.instructions.semantics import LaneChange
from luthier.lifting.model import LiftedKernel

_MASK = (1 << 32) - 1
_MOVES = ("V_MOV_B32_e32", "V_MOV_B32_e64", "S_MOV_B32", "S_MOVK_I32")
_DUAL, _SECOND = "V_DUAL_MOV_B32", "_X_MOV_B32"
_MOST_COPIES = 4
"""Maximum length of a chain of moves between registers that is followed."""


class _Event(NamedTuple):
    """An instruction that writes a register or EXEC."""

    at: int
    """Instruction index."""
    writes: int
    """Bit set of units."""
    grows: bool
    """Whether lanes may become active."""


class Constants:
    """Constants in the registers of a kernel."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        self._entries = {function.entry_block for function in lifted.functions}
        self._entries |= {lifted.block_of[at] for at in map(lifted.index_at, lifted.hardware_entries) if at is not None}
        self._native = lifted.effect_table.code(lifted.columns)
        self._events: dict[tuple[int, int], list[_Event]] = {}
        self._before: dict[tuple[int, int, int], frozenset[int] | None] = {}

    def before(self, index: int, unit: int, copies: int = _MOST_COPIES) -> frozenset[int] | None:
        """Return the possible values of a register before an instruction, in the active lanes; None if unknown."""
        block = self._lifted.block_of[index]
        key = block, unit, sum(event.at < index for event in self._of(block, unit))
        if key not in self._before:
            self._before[key] = self._search(index, unit, copies)
        return self._before[key]

    def _search(self, index: int, unit: int, copies: int) -> frozenset[int] | None:
        blocks, constants = self._lifted.blocks, set[int]()
        waiting, seen = [(self._lifted.block_of[index], index, False)], set[tuple[int, bool]]()
        while waiting:
            number, end, grown = waiting.pop()
            for event in reversed(self._of(number, unit)):
                if event.at >= end:
                    continue
                if event.writes >> unit & 1:
                    values = self._moved(event.at, unit, copies)
                    if values is None or (grown and unit >= r.VGPR_FIRST and not self._all_lanes(event.at)):
                        return None
                    constants |= values
                    break
                grown |= event.grows
            else:
                predecessors = blocks[number].predecessors
                if (
                    number in self._entries
                    or not predecessors
                    or any(blocks[one].exit == "call" for one in predecessors)
                ):
                    return None
                for predecessor in predecessors:
                    if (predecessor, grown) not in seen:
                        seen.add((predecessor, grown))
                        waiting.append((predecessor, blocks[predecessor].last + 1, grown))
        return frozenset(constants) if constants else None

    def _of(self, number: int, unit: int) -> list[_Event]:
        """Return the events of a block that concern a register or EXEC."""
        events = self._events.get((number, unit))
        if events is None:
            block, watched, events = self._lifted.blocks[number], 1 << unit | r.EXEC_MASK, []
            if self._native.together(block.first, block.last)[1] & watched:
                for index in range(block.first, block.last + 1):
                    effects = self._lifted.effects(index)
                    if effects.writes & watched:
                        events.append(_Event(index, effects.writes, bool(effects.lanes & LaneChange.BECOMES_ACTIVE)))
            self._events[number, unit] = events
        return events

    def _all_lanes(self, index: int) -> bool:
        """Return whether EXEC has not been written since the function was entered."""
        number = self._lifted.block_of[index]
        written = any(event.at < index and event.writes & r.EXEC_MASK for event in self._of(number, r.EXEC_LO))
        return number in self._whole and not written

    @cached_property
    def _whole(self) -> set[int]:
        """Return the blocks before which EXEC has not been written since the function was entered."""
        blocks = self._lifted.blocks
        whole = {block.index for block in blocks}
        waiting = [block.index for block in blocks if any(self._of(block.index, r.EXEC_LO))]
        while waiting:
            for edge in blocks[waiting.pop()].successors:
                if edge.to in whole:
                    whole.remove(edge.to)
                    waiting.append(edge.to)
        return whole

    def _moved(self, index: int, unit: int, copies: int) -> frozenset[int] | None:
        """Return the possible values that an instruction moves into a register; None if it is not such a move."""
        lifted = self._lifted
        if index in lifted.index_mode or index in lifted.skipped or lifted.columns.opcode[index] < 0:
            return None
        instruction, first_unit = lifted.instructions[index], lifted.isa.register_first_unit
        name = instruction.opcode.pseudo
        pairs = [("vdst", "src0"), ("sdst", "src0"), ("sdst", "simm16")] if name in _MOVES else []
        pairs += [("vdstX", "src0X")] if name.startswith(_DUAL) else []
        pairs += [("vdstY", "src0Y")] if _SECOND in name else []
        for to, source in pairs:
            written, moved = instruction.operand(to), instruction.operand(source)
            if written is None or moved is None or first_unit[written[1]] != unit:
                continue
            kind, value = moved
            if kind == OperandKind.IMMEDIATE:
                short = source == "simm16"
                return frozenset([((value & 0xFFFF ^ 0x8000) - 0x8000 if short else value) & _MASK])
            if kind == OperandKind.REGISTER and copies and first_unit[value] >= 0:
                return self.before(index, int(first_unit[value]), copies - 1)
        return None
