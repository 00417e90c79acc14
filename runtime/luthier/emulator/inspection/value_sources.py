"""The loads whose results an instruction may use, by the code before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import numpy as np

from luthier.isa import NO_TARGET, InstructionArray, Isa
from luthier.isa import registers as r
from luthier.isa.access_kinds import is_memory, mnemonic_at
from luthier.lifting.instructions.effects import Columns, effect_table
from luthier.lifting.instructions.semantics import Control, LaneChange

_STEPS = 1 << 16
"""Maximum number of visits of instructions: of code that needs more, nothing is known."""
_FOLLOWED = (r.TRACKED_SCALARS | r.VECTOR_MASK) & ~r.EXEC_MASK
"""Units whose values are followed."""
_OF_LANES = ("ds_bpermute", "ds_permute", "ds_swizzle")
"""Prefixes of mnemonics of memory instructions that read registers of other lanes instead."""


def loads_before(
    isa: Isa, part: InstructionArray, position: int, loads: Collection[int], entries: Collection[int]
) -> frozenset[int] | None:
    """Return which loads may have written a value that an instruction uses, directly or through registers.

    What a load reads from memory counts, not its address. A lane that is activated again may have an older value than
    the last write of the register.

    Args:
        position: of the instruction, like the others.
        entries: positions at which waves begin.

    Returns:
        Those of `loads`; None if unknown: the value may come from a caller or a called function, or from before a jump
        by register.
    """
    columns, table = Columns(part), effect_table(isa)
    before = _Predecessors(isa, part, columns, entries)
    reached: set[int] = set()
    wanted: dict[int, tuple[int, int]] = {}
    todo = [(position, table.of(columns, position).reads & _FOLLOWED, 0)]
    for _ in range(_STEPS):
        if not todo:
            return frozenset(reached)
        index, active, anywhere = todo.pop()
        previous = before.of(index)
        if previous is None:
            return None
        for earlier in previous:
            known = wanted.get(earlier, (0, 0))
            after = known[0] | active, known[1] | anywhere
            if after == known:
                continue
            wanted[earlier] = after
            effects = table.of(columns, earlier)
            of_active, of_any = after[0] & ~effects.kills, after[1] & ~effects.hard_kills
            if effects.writes & (after[0] | after[1]):
                mnemonic = mnemonic_at(isa, part, earlier)
                if earlier in loads:
                    reached.add(earlier)
                elif not is_memory(mnemonic) or mnemonic.startswith(_OF_LANES):
                    of_active |= effects.reads & _FOLLOWED
                    of_any |= effects.cross_reads & _FOLLOWED
            if effects.lanes & LaneChange.BECOMES_ACTIVE:
                of_any |= of_active
            if of_active | of_any:
                todo.append((earlier, of_active, of_any))
    return None


class _Predecessors:
    """The instructions before each instruction."""

    def __init__(self, isa: Isa, part: InstructionArray, columns: Columns, entries: Collection[int]) -> None:
        self._part, self._columns, self._entries = part, columns, entries
        self._table = effect_table(isa)
        opcodes = {opcode for opcode in part.opcode.tolist() if opcode >= 0}
        self._all_known = all(self._table.opcode(opcode).control is not Control.JUMP_REGISTER for opcode in opcodes)
        self._jumps: defaultdict[int, list[int]] = defaultdict(list)
        for index in np.flatnonzero(part.target != NO_TARGET).tolist():
            self._jumps[int(part.target[index])].append(index)

    def of(self, index: int) -> list[int] | None:
        """Return the positions of instructions that control leaves for this one; None if some are unknown."""
        if not self._all_known:
            return None
        is_entry = index in self._entries
        previous = []
        if index and not is_entry and self._columns.opcode[index - 1] >= 0:
            control = self._control(index - 1)
            if control in (Control.CALL, Control.CALL_REGISTER):
                return None
            if control in (Control.NEXT, Control.CONDITIONAL):
                previous.append(index - 1)
        for jump in self._jumps.get(int(self._part.addresses[index]), ()):
            if self._control(jump) is Control.CALL:
                return None
            previous.append(jump)
        return previous if previous or is_entry else None

    def _control(self, index: int) -> Control:
        return self._table.opcode(self._columns.opcode[index]).control
