"""Masks of 64 lanes that code uses as 32 bits, such as the result of `__ballot` in an `unsigned`.

A mask is the result of a comparison of lanes, or EXEC. Its lower half alone is used, entirely: bits are counted,
searched, compared with 0 or all ones, or copied to a vector register. Nothing reads the upper half before it is
overwritten. Code that needs only some of the lower bits, or both halves, is not meant.
"""

from __future__ import annotations

import re

import numpy as np

from luthier.emulator.ir.variant import HALF_READERS
from luthier.isa import NO_TARGET, InstructionArray, Isa
from luthier.isa import registers as r
from luthier.isa.access_kinds import mnemonic_at
from luthier.lifting.instructions.effects import Columns, effect_table
from luthier.lifting.instructions.semantics import Control

NEAR = 512
"""Instructions before and after the mask that are examined."""
STATES = 2048
"""The most instructions that are followed."""
_REGISTER = re.compile(r"v\d+|s\d+|vcc_lo|exec_lo")
_WHOLE = re.compile(
    r"s_(bcnt1_i32_b32|ff1_i32_b32|ctz_i32_b32|flbit_i32_b32|clz_i32_u32|brev_b32|not_b32|cmp_(eq|lg)_[iu]32)|"
    r"v_(bcnt_u32_b32|ffbl_b32|ffbh_u32|ctz_i32_b32|clz_i32_u32|mov_b32|mbcnt_lo_u32_b32)"
)
"""Instructions that use all bits of a mask of 32 lanes."""


def loses_half(isa: Isa, part: InstructionArray, position: int) -> bool:
    """Return whether an instruction makes, or uses, a mask of 64 lanes of which the upper half is lost."""
    if isa.wave_size != 64:
        return False
    mnemonic = mnemonic_at(isa, part, position)
    if not (mnemonic.startswith("v_cmp_") or HALF_READERS.match(mnemonic)):
        return False
    first = max(0, position - NEAR)
    code = part.part(first, min(len(part), position + 1 + NEAR))
    return _LaneMasks(isa, code).loses_half(position - first, mnemonic)


class _LaneMasks:
    """Masks of lanes in a stretch of code."""

    def __init__(self, isa: Isa, code: InstructionArray) -> None:
        self._isa, self._code = isa, code
        self._columns, self._table = Columns(code), effect_table(isa)

    def loses_half(self, index: int, mnemonic: str) -> bool:
        """Return whether the instruction at an index makes or uses such a mask."""
        effects = self._table.of(self._columns, index)
        made = effects.writes & _SGPRS
        if mnemonic.startswith("s_cmp") and mnemonic.endswith("_u64"):
            return any(self._is_mask(index, units) for units in _pairs(effects.reads))
        if effects.reads & _EXECS and mnemonic.startswith("s_"):
            if mnemonic != "s_mov_b64":
                return not effects.reads & 1 << r.EXEC_HI and not self._has_other_half(index)
        elif not mnemonic.startswith("v_cmp"):
            return False
        pairs = _pairs(made)
        return len(pairs) == 1 and pairs[0] == made and self._is_half_used(index, made)

    def _is_half_used(self, index: int, units: int) -> bool:
        """Return whether all bits of the lower register are used, and no bit of the upper one."""
        low = units & -units
        high = units ^ low
        todo, known, used = [(at, True, True) for at in self._after(index)], set[tuple[int, bool, bool]](), False
        while todo:
            state = todo.pop()
            if state in known:
                continue
            known.add(state)
            at, has_low, has_high = state
            if len(known) > STATES or at >= len(self._code) or self._columns.opcode[at] < 0:
                return False
            effects = self._table.of(self._columns, at)
            if has_high and effects.reads & high:
                return False
            if has_low and effects.reads & low:
                if not self._uses_whole(at):
                    return False
                used = True
            control = self._table.opcode(self._columns.opcode[at]).control
            if control is Control.END:
                continue
            has_low, has_high = has_low and not effects.kills & low, has_high and not effects.kills & high
            if not (has_low or has_high):
                continue
            if control not in (Control.NEXT, Control.BRANCH, Control.CONDITIONAL):
                return False
            after = self._after(at)
            if not after:
                return False
            todo += [(following, has_low, has_high) for following in after]
        return used

    def _uses_whole(self, index: int) -> bool:
        text = self._isa.text(self._code, index)
        name, _, operands = text.partition(" ")
        words = [word.strip() for word in operands.split(",")]
        if re.match(r"[vs]_and_b32", name):  # with the mask of lower lanes, not with a constant
            return all(_REGISTER.fullmatch(word) for word in words[1:])
        if name.startswith("v_bfe_u32"):  # likewise
            return words[2] == "0" and bool(_REGISTER.fullmatch(words[3]))
        return bool(_WHOLE.match(name))

    def _has_other_half(self, index: int) -> bool:
        """Return whether code nearby reads EXEC_HI alone, too: it uses both halves."""
        near = range(max(0, index - 16), min(len(self._code), index + 17))
        return any(
            self._table.of(self._columns, at).reads & _EXECS == 1 << r.EXEC_HI
            for at in near
            if self._columns.opcode[at] >= 0 and "exec_hi" in self._isa.text(self._code, at)
        )

    def _is_mask(self, index: int, units: int) -> bool:
        """Return whether scalar registers hold a mask of lanes: the straight-line code before makes them by a
        comparison of lanes.
        """
        if units == _EXECS:
            return True
        for at in range(index - 1, -1, -1):
            if self._columns.opcode[at] < 0:
                return False
            if self._table.opcode(self._columns.opcode[at]).control is not Control.NEXT:
                return False
            effects = self._table.of(self._columns, at)
            if effects.writes & units:
                mnemonic = mnemonic_at(self._isa, self._code, at)
                copies = mnemonic == "s_mov_b64" and effects.reads & _EXECS == _EXECS
                return effects.writes & units == units and (mnemonic.startswith("v_cmp_") or copies)
        return False

    def _after(self, index: int) -> list[int]:
        """Return the indices of the instructions that may follow; the length of the code for any outside."""
        control = self._table.opcode(self._columns.opcode[index]).control
        if control is Control.NEXT:
            return [index + 1]
        target = self._columns.target[index]
        to = int(np.searchsorted(self._code.addresses, target)) if target != NO_TARGET else len(self._code)
        if to >= len(self._code) or self._code.addresses[to] != target:
            to = len(self._code)
        return [to] if control is Control.BRANCH else [to, index + 1]


_EXECS = r.EXEC_MASK
_SGPRS = r.TRACKED_SCALARS & ~(r.EXEC_MASK | 1 << r.M0 | 1 << r.SCC)


def _pairs(units: int) -> list[int]:
    """Return the aligned pairs of scalar registers in a set of units."""
    units &= r.TRACKED_SCALARS
    return [3 << at for at in range(0, r.EXEC_LO + 2, 2) if units >> at & 3 == 3]
