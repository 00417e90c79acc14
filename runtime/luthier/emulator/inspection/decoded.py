"""Decoded instructions of a loaded code for the checks of launches (`luthier.lifting.instructions.effects`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from luthier import _mc
from luthier.arch.parties import DS_NOPS
from luthier.emulator.binding.program import DecodedCode
from luthier.lifting.instructions.effects import Columns, effect_table

CONTEXT = max(DS_NOPS.values())
"""Instructions before one that may affect its meaning."""


class InstructionPlace(NamedTuple):
    """Place of an instruction."""

    columns: Columns
    native: _mc.Code
    """Code for the native analyses."""
    at: int


class Decoded:
    """The instructions of one code."""

    def __init__(self, code: DecodedCode) -> None:
        self._code = code
        self.table = effect_table(code.isa)
        self._columns = [Columns(part) for part in code.parts]
        self._rewritten: dict[int, tuple[Columns, int]] = {}

    def place(self, record: int) -> InstructionPlace | None:
        """Return the place of a record; None if it has no instruction."""
        position = self._rewritten.get(record)
        if position is None:
            place = self._code.place_of(record)
            if place is None:
                return None
            self._columns += [Columns(part) for part in self._code.parts[len(self._columns) :]]  # other objects' code
            position = self._columns[place[0]], place[1]
        columns, index = position
        return None if columns.opcode[index] < 0 else InstructionPlace(columns, self.table.code(columns), index)

    def forget(self, records: Iterable[int]) -> None:
        """Decode consecutive records again after their instructions were replaced."""
        first, *_, last = *(every := sorted(records)), every[-1]
        place = self._code.place_of(first)
        if place is None:
            return
        number, index = place
        part = self._code.parts[number]
        begin, end = max(0, index - CONTEXT), min(len(part), index + last - first + 1 + CONTEXT)
        columns = Columns(part.part(begin, end))
        for at in range(index, end):
            self._rewritten[first - index + at] = columns, at - begin


def decoded(code: DecodedCode) -> Decoded:
    """Return the decoded form of a code, which is made once."""
    known = code.decoded
    if not isinstance(known, Decoded):
        known = code.decoded = Decoded(code)
    return known
