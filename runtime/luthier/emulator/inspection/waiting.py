"""Loads by which a wave waits for others: those in a loop that only repeats the load.

Atomic and volatile loads are plain instructions where scope and target allow it. But a compiler moves a plain load out
of a loop that stores nothing, does not synchronise, and does not change the address.
"""

from __future__ import annotations

import numpy as np

from luthier.isa import NO_TARGET, InstructionArray, Isa
from luthier.isa import registers as r
from luthier.isa.access_kinds import AccessKind, is_memory, kind_of, mnemonic_at
from luthier.lifting.instructions.effects import Columns, EffectTable, effect_table

LOOP = 24
"""Instructions of the longest loop that is examined."""
_MEETS = ("s_barrier", "s_atomic", "s_endpgm", "s_swappc", "s_setpc", "s_call")


def waits(isa: Isa, part: InstructionArray, position: int) -> bool:
    """Return whether an instruction is a load by which a wave waits, or its copy before the loop."""
    targets = part.target[position + 1 : position + 1 + LOOP]
    addresses = part.addresses[position + 1 : position + 1 + LOOP]
    if (
        not ((targets != NO_TARGET) & (targets <= addresses)).any()
        or kind_of(mnemonic_at(isa, part, position)) != AccessKind.READ
    ):
        return False
    first = max(0, position - LOOP)
    code = _LoadSurroundings(isa, part.part(first, min(len(part), position + 2 * LOOP)))
    return code.is_in_loop(position - first) or code.is_before_loop(position - first)


class _LoadSurroundings:
    """The instructions around a load."""

    def __init__(self, isa: Isa, code: InstructionArray) -> None:
        self._isa, self._code = isa, code
        self._columns = Columns(code)
        self._table: EffectTable = effect_table(isa)

    def is_in_loop(self, load: int) -> bool:
        """Return whether the load is in a loop in which a wave waits."""
        for branch in range(load + 1, min(load + 1 + LOOP, len(self._code))):
            target = self._columns.target[branch]
            if target == NO_TARGET:
                continue
            head = int(np.searchsorted(self._code.addresses, target))
            if head > load or self._code.addresses[head] != target:
                return False
            body = range(head, branch + 1)
            return all(self._is_idle(each) for each in body) and not self._address(load) & self._written(body)
        return False

    def is_before_loop(self, load: int) -> bool:
        """Return whether the load is in the first iteration, which compilers peel off where the loop may be skipped."""
        alike = self._columns.alike(load)
        for other in range(load + 1, min(load + 1 + LOOP, len(self._code))):
            if self._columns.alike(other) == alike:
                between = range(load, other)
                return not self._address(load) & self._written(between) and self.is_in_loop(other)
            if not self._is_idle(other) or is_memory(self._mnemonic(other)):
                return False
        return False

    def _mnemonic(self, index: int) -> str:
        return mnemonic_at(self._isa, self._code, index)

    def _is_idle(self, index: int) -> bool:
        """Return whether an instruction neither changes memory nor synchronises."""
        mnemonic = self._mnemonic(index)
        if is_memory(mnemonic):
            return kind_of(mnemonic) == AccessKind.READ
        return bool(mnemonic) and not mnemonic.startswith(_MEETS)

    def _address(self, load: int) -> int:
        """Return the units that hold the address of a load."""
        return self._table.of(self._columns, load).reads & ~r.EXEC_MASK

    def _written(self, indices: range) -> int:
        written = 0
        for index in indices:
            written |= self._table.of(self._columns, index).writes
        return written
