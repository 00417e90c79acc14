"""Register groups of a payload, which must stay together when they are renamed, and the registers that it writes."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence

import numpy as np

from luthier.errors import HookError
from luthier.isa import InstructionFlag, Isa, Opcode
from luthier.isa.registers import EXEC, M0, SCC, SGPRS, UNTRACKED, VCC, VGPRS
from luthier.lifting.instructions.effects import Columns, register_lists
from luthier.payload.kept import kept_numbers
from luthier.payload.template import Group

_INDEXED = re.compile("movrel|gpr_idx")
"""Instructions that select registers by a number at run time."""


def named_by(columns: Columns, isa: Isa, index: int) -> set[int]:
    """Return the units of one instruction's operands."""
    return _units(isa, filter(None, columns.registers(index)))


def written_by(columns: Columns, isa: Isa, index: int) -> set[int]:
    """Return the units that one instruction writes."""
    opcode = isa.opcode(columns.opcode[index])
    operands = zip(opcode.operands, columns.registers(index), strict=False)
    return _units(
        isa, [*(register for operand, register in operands if operand.is_def and register), *opcode.implicit_defs]
    )


def _units(isa: Isa, registers: Iterable[int]) -> set[int]:
    """Return the units of some LLVM registers."""
    firsts, counts = register_lists(isa)
    named = [(firsts[register], counts[register]) for register in registers]
    return {unit for first, count in named if first >= 0 for unit in range(first, first + count)}


@functools.lru_cache(maxsize=64)
def _ends_of_classes(isa: Isa) -> dict[str, int]:
    """Return LLVM's register class -> one more than the highest VGPR unit of its registers."""
    first, count = isa.register_first_unit, isa.register_unit_count
    limit = VGPRS.start + isa.target.target.named_vgprs

    def make() -> dict[str, int]:
        by_class = {}
        for name, members in isa.register_classes().items():
            registers = np.array(members, np.int64)
            ends = first[registers] + count[registers]
            ends = ends[(ends >= VGPRS.start) & (ends <= limit)]
            by_class[name] = int(ends.max()) if len(ends) else limit
        return by_class

    return kept_numbers(("ends of register classes", limit), make)


def registers_of(
    columns: Columns, isa: Isa, hook: str, marked: Sequence[int], *, calls: bool
) -> tuple[tuple[Group, ...], frozenset[int]]:
    """Return the register groups and the written units.

    Args:
        marked: units that have a value at the beginning, or are outputs.
        calls: whether the payload may call functions of its own.

    Raises:
        HookError: a payload cannot contain an instruction or register.
    """
    grouping = _Grouping(isa, hook, marked)
    written: set[int] = set()
    for index, number in enumerate(columns.opcode):
        opcode = isa.opcode(number)
        if not calls and opcode.flags & (InstructionFlag.CALL | InstructionFlag.INDIRECT):
            raise HookError(f"hook {hook}: a payload may not contain {isa.text(columns.code, index)!r}")
        _check_opcode(opcode, hook)
        for operand, register in enumerate(columns.registers(index)):
            grouping.add(opcode, operand, register)
        written |= written_by(columns, isa, index)
    return grouping.groups(), frozenset(written)


def _check_opcode(opcode: Opcode, hook: str) -> None:
    """Raise an error for operations that change the application's state, or use registers that cannot be renamed."""
    if opcode.mnemonic.startswith(("s_endpgm", "s_setreg", "s_round_mode", "s_denorm_mode", "s_trap", "s_barrier")):
        raise HookError(f"hook {hook}: a payload may not contain {opcode.mnemonic}")
    if _INDEXED.search(opcode.mnemonic):
        raise HookError(
            f"hook {hook} indexes a vector or array by a number that is known only when it runs, for "
            f"which LLVM uses {opcode.mnemonic}: the registers that it may access cannot be renamed"
        )


class _Grouping:
    """Groups registers that an instruction names as one tuple (union-find)."""

    def __init__(self, isa: Isa, hook: str, marked: Sequence[int]) -> None:
        self._isa, self._hook = isa, hook
        self._leader: dict[int, int] = {unit: unit for unit in marked if unit in SGPRS or unit in VGPRS}
        self._alignment: dict[int, int] = dict.fromkeys(self._leader, 1)
        self._below: dict[int, int] = {}
        self._vector_alignment, self._ends = isa.target.target.tied_vector_alignment, _ends_of_classes(isa)
        self._firsts, self._counts = register_lists(isa)

    def add(self, opcode: Opcode, operand: int, register: int) -> None:
        """Add an operand of an instruction, with the constraints of its encoding."""
        first, count = self._firsts[register], self._counts[register]
        if not register or first < 0:
            return
        if first not in SGPRS and first not in VGPRS:
            if first not in (*VCC, *EXEC, M0, SCC, UNTRACKED):
                raise HookError(f"hook {self._hook}: a payload may not use {self._isa.register(register).text}")
            return
        units = range(first, first + count)
        for unit in units:
            self._leader.setdefault(unit, unit)
            self._alignment.setdefault(unit, 1)
        for unit in units[1:]:
            self._leader[self._find(unit)] = self._find(first)
        kind = opcode.operands[operand].register_class if operand < len(opcode.operands) else None
        if kind is not None and first in VGPRS:
            self._below[first] = min(self._below.get(first, VGPRS.stop), self._ends[kind] - count + 1)
        self._alignment[first] = max(self._alignment[first], self._need(opcode, first, count))

    def groups(self) -> tuple[Group, ...]:
        """Return all groups, the largest first, which are the hardest to place."""
        members: dict[int, list[int]] = {}
        for unit in self._leader:
            members.setdefault(self._find(unit), []).append(unit)
        return tuple(sorted(map(self._group, members.values()), key=lambda group: (-group.count, group.first)))

    def _need(self, opcode: Opcode, first: int, count: int) -> int:
        """Return the alignment of an operand."""
        if opcode.mnemonic.startswith("v_dual_") and first in VGPRS:
            return 4  # VOPD pairs registers by bank (number modulo 4) and parity
        if count == 1:
            return 1
        return min(4, 1 << (count - 1).bit_length()) if first in SGPRS else self._vector_alignment

    def _group(self, units: Sequence[int]) -> Group:
        first, last = min(units), max(units)
        limit = VGPRS.start + self._isa.target.target.named_vgprs
        ends = (self._below[unit] - (unit - first) for unit in units if unit in self._below)
        need = max(self._alignment[unit] for unit in units)
        return Group(first, last - first + 1, need, min(ends, default=limit - (last - first)))

    def _find(self, unit: int) -> int:
        while self._leader[unit] != unit:
            unit = self._leader[unit]
        return unit
