"""Loads of LDS that an atomic at the same place makes good: they only decide whether it is tried, or with what.

``if (*most < value) atomicMax(most, value)`` and the load before a loop of compare-and-swap are right whatever the
load sees. A load is taken for one of these if nothing else comes of it: what depends on it, by data or since it is
done in some lanes only, is neither stored nor used as an address, and dead behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from luthier.isa import NO_TARGET, InstructionArray, Isa
from luthier.isa import registers as r
from luthier.isa.access_kinds import AccessKind, is_memory, kind_in_lds, kind_of, mnemonic_at
from luthier.lifting.instructions.effects import Columns, Effects, effect_table
from luthier.lifting.instructions.semantics import Control, LaneChange

NEAR = 512
"""Instructions before and behind the load that are looked at."""
STATES = 2048
"""The most states that are followed: a kernel where it takes more has no such load."""
_MOVE = re.compile(r"v_(?:dual_)?mov_b32\w* v(\d+), (\S+)")
_VGPR = re.compile(r"v(\d+)")
_ELSEWHERE = ("s_barrier", "s_setreg", "s_sendmsg", "s_trap", "s_rfe", "s_wakeup", "s_set_gpr", "s_setvskip")
"""Beginnings of the names of instructions by which others could learn of the load."""


def guards(isa: Isa, part: InstructionArray, position: int) -> bool:
    """Return whether an instruction is such a load."""
    mnemonic = mnemonic_at(isa, part, position)
    behind = {int(number) for number in np.unique(part.opcode[position + 1 : position + 1 + NEAR]) if number >= 0}
    if not mnemonic.startswith(("ds_read", "ds_load")) or not any(_is_atomic(isa, number) for number in behind):
        return False
    first = max(0, position - NEAR)
    walk = _Walk(isa, part.part(first, min(len(part), position + 1 + NEAR)), position - first)
    return walk.has_one_place and walk.is_made_good(_constant(isa, part, position))


def _constant(isa: Isa, part: InstructionArray, load: int) -> str | None:
    """Return the address of a load if the instructions before it, which nobody jumps between, say that."""
    first = max(0, load - NEAR)
    near = Columns(part.part(first, load + 1))
    address = _units(isa, near, load - first, "addr")
    for index in range(load - first - 1, -1, -1):
        number = near.opcode[index]
        if number < 0 or effect_table(isa).opcode(number).control is not Control.NEXT:
            return None
        if effect_table(isa).of(near, index).writes & address:
            begin, end = part.addresses[first + index], part.addresses[load]
            jumps = (part.target > begin) & (part.target <= end)
            moved = [source for unit, source in _moves(isa.text(part, first + index)) if 1 << unit == address]
            return moved[0] if moved and not jumps.any() and not _VGPR.fullmatch(moved[0]) else None
    return None


class _Region(NamedTuple):
    """Code that some lanes do not run, or no lane, since a condition does not hold."""

    begin: int
    depends: bool
    """The condition depends on the load."""
    end: int
    """-1: it ends where lanes become active again."""


class _State(Struct, frozen=True):
    """State before an instruction on some way from the load; numbers are bit sets of units."""

    at: int
    active: int = 0
    """Depend on the load, in active lanes."""
    anywhere: int = 0
    """Depend on it, in some lane."""
    hidden: int = 0
    """Were written in regions that depend on it: behind them it can be seen whether that was done."""
    address: int = 0
    """Hold the load's address ever since."""
    same: int = 0
    """Hold it in active lanes."""
    answers: int = 0
    """Hold what a compare-and-swap has found: a comparison with it does not depend on what was loaded."""
    regions: tuple[_Region, ...] = ()
    saved: tuple[tuple[int, int], ...] = ()
    """Units that hold lanes that were active, or those of them that are not now, and how many regions they were in."""
    written: int = 0
    """Scalars that were written since the load."""
    tried: bool = False
    """The atomic was on the way."""

    @property
    def depends(self) -> bool:
        """Return whether the instruction is only done because of what was loaded."""
        return any(region.depends for region in self.regions)


class _Walk:
    """The ways from a load on."""

    def __init__(self, isa: Isa, code: InstructionArray, load: int) -> None:
        self._isa, self._code, self._load = isa, code, load
        self._columns = Columns(code)
        self._table = effect_table(isa)
        self._place: str | None = None

    @property
    def has_one_place(self) -> bool:
        """Return whether each lane loads from one place."""
        return self._number(self._load, "offset") is not None and self._number(self._load, "gds") == 0

    def is_made_good(self, constant: str | None) -> bool:
        """Return whether nothing else comes of the load than an atomic's try.

        Args:
            constant: its address, if that is known, as assembly has it.
        """
        self._place = constant
        todo, known, tried = [_State(self._load)], set[_State](), False
        while todo:
            state = todo.pop()
            if state in known:
                continue
            known.add(state)
            tried |= state.tried
            after = self._step(state) if len(known) <= STATES else None
            if after is None:
                return False
            todo += after
        return tried

    def _step(self, state: _State) -> list[_State] | None:
        """Return the states behind an instruction; None if something else comes of the load there, or may."""
        state = _left(state)
        index = state.at
        if index != self._load and not (state.anywhere | state.hidden) and not state.depends:
            return []
        if index >= len(self._code) or self._columns.opcode[index] < 0:
            return None
        if index == self._load:
            address = _units(self._isa, self._columns, index, "addr")
            state = replace(state, address=address, same=address)
        control = self._table.opcode(self._columns.opcode[index]).control
        effects = self._table.of(self._columns, index)
        depends = bool(effects.reads & _DATA & state.active or effects.cross_reads & _DATA & state.anywhere)
        if control is Control.END:
            return []
        if control in (Control.BRANCH, Control.CONDITIONAL):
            return self._branch(state, conditional=control is Control.CONDITIONAL, depends=depends)
        if control is not Control.NEXT:
            return None
        tries = self._tries(index, state)
        if tries:
            depends = depends and bool(self._data(index) & state.active)
            if depends and "cmp" not in self._mnemonic(index):
                return None
            return [self._behind(state, effects, depends=False, swaps="cmp" in self._mnemonic(index), tries=True)]
        if self._tells(index, state, depends=depends):
            return None
        if effects.reads & state.answers and self._mnemonic(index).startswith("v_cmp"):
            depends = False
        return [self._behind(state, effects, depends=depends)]

    def _tells(self, index: int, state: _State, *, depends: bool) -> bool:
        """Return whether others may see by an instruction what was loaded."""
        mnemonic = self._mnemonic(index)
        if index == self._load:
            return False
        if is_memory(mnemonic):
            changes = kind_of(mnemonic) != AccessKind.READ or kind_in_lds(mnemonic) != AccessKind.READ
            return depends or (changes and state.depends)
        return mnemonic.startswith(_ELSEWHERE) and (depends or state.depends)

    def _branch(self, state: _State, *, conditional: bool, depends: bool) -> list[_State] | None:
        target = self._columns.target[state.at]
        to = int(np.searchsorted(self._code.addresses, target)) if target != NO_TARGET else len(self._code)
        if to >= len(self._code) or self._code.addresses[to] != target:
            return None
        taken, falls = replace(state, at=to), replace(state, at=state.at + 1)
        if not depends:
            return [taken, falls] if conditional else [taken]
        if to <= state.at:
            return [taken, falls] if state.tried else None
        if_not = replace(falls, regions=(*state.regions, _Region(state.at, True, to)))
        # The other way is a region, too, if the first one goes around it.
        around = self._columns.target[to - 1] if self._is_jump(to - 1) else NO_TARGET
        join = int(np.searchsorted(self._code.addresses, around)) if around != NO_TARGET else to
        if join > to:
            taken = replace(taken, regions=(*state.regions, _Region(state.at, True, join)))
        return [taken, if_not]

    def _is_jump(self, index: int) -> bool:
        number = self._columns.opcode[index]
        return number >= 0 and self._table.opcode(number).control is Control.BRANCH

    def _behind(
        self, state: _State, effects: Effects, *, depends: bool, swaps: bool = False, tries: bool = False
    ) -> _State:
        """Return the state behind an instruction that does not branch."""
        index = state.at
        made = effects.writes & _DATA if depends or index == self._load else 0
        lasting = any(region.end < 0 for region in state.regions)
        gone = effects.hard_kills if lasting else effects.kills
        state = replace(
            state,
            at=index + 1,
            active=state.active & ~effects.kills | made,
            anywhere=state.anywhere & ~gone | made,
            hidden=state.hidden | effects.writes & _DATA if state.depends else 0,
            address=state.address & ~effects.writes,
            same=state.same & ~effects.writes | self._copies(index, state) & effects.writes,
            answers=state.answers & ~effects.writes | (effects.writes & r.VECTOR_MASK if swaps else 0),
            saved=self._saved(state, effects),
            written=state.written | effects.writes & _SGPRS,
            tried=state.tried or tries,
        )
        if effects.lanes & LaneChange.BECOMES_ACTIVE:
            return self._widened(state, index, depends=depends, flips=bool(effects.lanes & LaneChange.BECOMES_INACTIVE))
        if effects.lanes & LaneChange.BECOMES_INACTIVE and all(region.begin != index for region in state.regions):
            return replace(state, regions=(*state.regions, _Region(index, depends, -1)))
        return state

    def _widened(self, state: _State, index: int, *, depends: bool, flips: bool) -> _State:
        """Return the state where lanes have become active, by an instruction that may make others inactive, too."""
        state = replace(state, active=state.anywhere, same=state.address, answers=0)
        mnemonic = self._mnemonic(index)
        if mnemonic.startswith("s_or_saveexec"):  # a flip follows
            return state
        ends = self._ending(state, index)
        if flips and not mnemonic.startswith("s_mov"):
            kept = [region for region in state.regions if region not in ends]
            return replace(state, regions=(*kept, _Region(index, depends or any(one.depends for one in ends), -1)))
        for region in ends:
            state = _without(state, region)
        return state

    def _ending(self, state: _State, index: int) -> list[_Region]:
        """Return the regions that end where an instruction makes lanes active: those since their mask was saved."""
        mask = self._table.of(self._columns, index).reads & _SGPRS
        of_lanes = [region for region in state.regions if region.end < 0]
        outer = [within for units, within in state.saved if mask & units]
        if not outer and mask and not mask & state.written:
            outer = [0]  # saved before the load
        return of_lanes[outer[0] :] if outer else of_lanes[-1:]

    def _saved(self, state: _State, effects: Effects) -> tuple[tuple[int, int], ...]:
        """Return what masks are saved behind an instruction."""
        mnemonic, written = self._mnemonic(state.at), effects.writes & _SGPRS
        if not written:
            return state.saved
        if mnemonic.startswith("s_xor") and any(units == written and effects.reads & units for units, _ in state.saved):
            return state.saved  # the lanes that are not active of those
        kept = tuple(one for one in state.saved if not one[0] & written)
        saves = "_saveexec" in mnemonic or (mnemonic.startswith("s_mov_b") and effects.reads & r.EXEC_MASK)
        return (*kept, (written, sum(region.end < 0 for region in state.regions))) if saves else kept

    def _copies(self, index: int, state: _State) -> int:
        """Return the units that an instruction gives the load's address."""
        copies = 0
        for unit, source in _moves(self._isa.text(self._code, index)):
            register = _VGPR.fullmatch(source)
            if source == self._place or (register and state.same >> r.VGPR_FIRST + int(register[1]) & 1):
                copies |= 1 << unit
        return copies

    def _tries(self, index: int, state: _State) -> bool:
        """Return whether an instruction is an atomic at the load's address."""
        if not _is_atomic(self._isa, self._columns.opcode[index]):
            return False
        address = _units(self._isa, self._columns, index, "addr")
        at = self._number(index, "offset"), self._number(index, "gds")
        return bool(address) and not address & ~state.same and at == (self._number(self._load, "offset"), 0)

    def _data(self, index: int) -> int:
        """Return the units of an atomic's operands but the address."""
        names = "data0", "data1"
        return sum(_units(self._isa, self._columns, index, name) for name in names)

    def _mnemonic(self, index: int) -> str:
        return mnemonic_at(self._isa, self._code, index)

    def _number(self, index: int, name: str) -> int | None:
        """Return an operand's number; None if there is no such operand."""
        position = self._table.opcode(self._columns.opcode[index]).position(name)
        return None if position < 0 else self._columns.values(index)[position]


_DATA = (r.TRACKED_SCALARS | r.VECTOR_MASK) & ~(r.EXEC_MASK | 1 << r.M0)
"""Units in which values are followed."""
_SGPRS = r.TRACKED_SCALARS & ~(r.EXEC_MASK | 1 << r.M0 | 1 << r.SCC)
"""Units in which masks are saved."""


def _left(state: _State) -> _State:
    """Return the state without the regions that end at its instruction."""
    for region in state.regions:
        if region.end == state.at:
            state = _without(state, region)
    return state


def _without(state: _State, region: _Region) -> _State:
    """Return the state behind a region."""
    state = replace(state, regions=tuple(one for one in state.regions if one is not region))
    if not region.depends or state.depends:
        return state
    return replace(state, active=state.active | state.hidden, anywhere=state.anywhere | state.hidden, hidden=0)


def _units(isa: Isa, columns: Columns, index: int, name: str) -> int:
    """Return the units of an operand; none if it is not there, or no register."""
    table = effect_table(isa)
    position = table.opcode(columns.opcode[index]).position(name)
    register = 0 if position < 0 else columns.registers(index)[position]
    return table.masks[register] if register else 0


def _moves(text: str) -> Iterator[tuple[int, str]]:
    """Yield the units that an instruction moves something to, and what, as assembly has it."""
    for part in text.split(" :: "):
        if found := _MOVE.fullmatch(part.strip()):
            yield r.VGPR_FIRST + int(found[1]), found[2]


def _is_atomic(isa: Isa, number: int) -> bool:
    """Return whether an opcode is of atomics of LDS."""
    mnemonic = isa.opcode(number).mnemonic if number >= 0 else ""
    return mnemonic.startswith("ds_") and kind_in_lds(mnemonic) == AccessKind.ATOMIC
