"""Guard loads of LDS: loads that only decide whether an atomic at the same address is tried, or with which operand.

``if (*most < value) atomicMax(most, value)`` and the load before a compare-and-swap loop are correct for any loaded
value. A load is a guard if nothing else depends on it: values that depend on it, by data or because only some lanes
compute them, are neither stored nor used as an address, and are dead afterwards.
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
"""Instructions before and after the load that are examined."""
STATES = 2048
"""The most states that are explored: a load that needs more is not a guard."""
_MOVE = re.compile(r"v_(?:dual_)?mov_b32\w* v(\d+), (\S+)")
_VGPR = re.compile(r"v(\d+)")
_ELSEWHERE = ("s_barrier", "s_setreg", "s_sendmsg", "s_trap", "s_rfe", "s_wakeup", "s_set_gpr", "s_setvskip")
"""Prefixes of mnemonics by which the loaded value could become visible outside the wave."""


def guards(isa: Isa, part: InstructionArray, position: int) -> bool:
    """Return whether an instruction is a guard load."""
    mnemonic = mnemonic_at(isa, part, position)
    following = {int(number) for number in np.unique(part.opcode[position + 1 : position + 1 + NEAR]) if number >= 0}
    if not mnemonic.startswith(("ds_read", "ds_load")) or not any(_is_atomic(isa, number) for number in following):
        return False
    first = max(0, position - NEAR)
    walk = _Walk(isa, part.part(first, min(len(part), position + 1 + NEAR)), position - first)
    return walk.has_one_place and walk.is_made_good(_constant(isa, part, position))


def _constant(isa: Isa, part: InstructionArray, load: int) -> str | None:
    """Return the address of a load, if the straight-line code before it moves a constant to the address register."""
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
    """Conditional code, which some or all lanes skip."""

    begin: int
    depends: bool
    """The condition depends on the load."""
    end: int
    """-1: it ends where lanes become active again."""


class _State(Struct, frozen=True):
    """State before an instruction on a path from the load; numbers without other meaning are bit sets of units."""

    at: int
    active: int = 0
    """Units that depend on the load, in active lanes."""
    anywhere: int = 0
    """Units that depend on the load, in any lane."""
    hidden: int = 0
    """Units written in regions that depend on the load: after the region, their values tell whether it ran."""
    address: int = 0
    """Units that have held the load's address since the load."""
    same: int = 0
    """Units that hold it in active lanes."""
    answers: int = 0
    """Units with the result of a compare-and-swap: a comparison with it does not depend on the loaded value."""
    regions: tuple[_Region, ...] = ()
    saved: tuple[tuple[int, int], ...] = ()
    """Units with a saved EXEC, or its lanes that are inactive now, and the number of regions around the save."""
    written: int = 0
    """Scalar units written since the load."""
    tried: bool = False
    """The path contains the atomic."""

    @property
    def depends(self) -> bool:
        """Return whether the loaded value decides whether the instruction is executed."""
        return any(region.depends for region in self.regions)


class _Walk:
    """The paths from a load."""

    def __init__(self, isa: Isa, code: InstructionArray, load: int) -> None:
        self._isa, self._code, self._load = isa, code, load
        self._columns = Columns(code)
        self._table = effect_table(isa)
        self._place: str | None = None

    @property
    def has_one_place(self) -> bool:
        """Return whether each lane loads from one address."""
        return self._number(self._load, "offset") is not None and self._number(self._load, "gds") == 0

    def is_made_good(self, constant: str | None) -> bool:
        """Return whether nothing but the attempt of an atomic depends on the load.

        Args:
            constant: its address in assembly syntax, if known.
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
        """Return the states after an instruction; None if something else depends, or may depend, on the load."""
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
            return [self._after(state, effects, depends=False, swaps="cmp" in self._mnemonic(index), tries=True)]
        if self._tells(index, state, depends=depends):
            return None
        if effects.reads & state.answers and self._mnemonic(index).startswith("v_cmp"):
            depends = False
        return [self._after(state, effects, depends=depends)]

    def _tells(self, index: int, state: _State, *, depends: bool) -> bool:
        """Return whether an instruction may make the loaded value visible outside the wave."""
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
        # The taken path is a region, too, if the other one jumps over it.
        around = self._columns.target[to - 1] if self._is_jump(to - 1) else NO_TARGET
        join = int(np.searchsorted(self._code.addresses, around)) if around != NO_TARGET else to
        if join > to:
            taken = replace(taken, regions=(*state.regions, _Region(state.at, True, join)))
        return [taken, if_not]

    def _is_jump(self, index: int) -> bool:
        number = self._columns.opcode[index]
        return number >= 0 and self._table.opcode(number).control is Control.BRANCH

    def _after(
        self, state: _State, effects: Effects, *, depends: bool, swaps: bool = False, tries: bool = False
    ) -> _State:
        """Return the state after an instruction that does not branch."""
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
        """Return the state after an instruction that activates lanes, and may deactivate others."""
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
        """Return the regions that end where an instruction activates lanes: those since the save of its mask."""
        mask = self._table.of(self._columns, index).reads & _SGPRS
        of_lanes = [region for region in state.regions if region.end < 0]
        outer = [within for units, within in state.saved if mask & units]
        if not outer and mask and not mask & state.written:
            outer = [0]  # saved before the load
        return of_lanes[outer[0] :] if outer else of_lanes[-1:]

    def _saved(self, state: _State, effects: Effects) -> tuple[tuple[int, int], ...]:
        """Return the saved masks after an instruction."""
        mnemonic, written = self._mnemonic(state.at), effects.writes & _SGPRS
        if not written:
            return state.saved
        if mnemonic.startswith("s_xor") and any(units == written and effects.reads & units for units, _ in state.saved):
            return state.saved  # its inactive lanes
        kept = tuple(entry for entry in state.saved if not entry[0] & written)
        saves = "_saveexec" in mnemonic or (mnemonic.startswith("s_mov_b") and effects.reads & r.EXEC_MASK)
        return (*kept, (written, sum(region.end < 0 for region in state.regions))) if saves else kept

    def _copies(self, index: int, state: _State) -> int:
        """Return the units to which an instruction copies the load's address."""
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
        """Return the units of an atomic's operands without the address."""
        names = "data0", "data1"
        return sum(_units(self._isa, self._columns, index, name) for name in names)

    def _mnemonic(self, index: int) -> str:
        return mnemonic_at(self._isa, self._code, index)

    def _number(self, index: int, name: str) -> int | None:
        """Return the value of an operand; None if the instruction has no such operand."""
        position = self._table.opcode(self._columns.opcode[index]).position(name)
        return None if position < 0 else self._columns.values(index)[position]


_DATA = (r.TRACKED_SCALARS | r.VECTOR_MASK) & ~(r.EXEC_MASK | 1 << r.M0)
"""Units whose values are tracked."""
_SGPRS = r.TRACKED_SCALARS & ~(r.EXEC_MASK | 1 << r.M0 | 1 << r.SCC)
"""Units in which masks are saved."""


def _left(state: _State) -> _State:
    """Return the state without the regions that end at its instruction."""
    for region in state.regions:
        if region.end == state.at:
            state = _without(state, region)
    return state


def _without(state: _State, region: _Region) -> _State:
    """Return the state after a region."""
    state = replace(state, regions=tuple(other for other in state.regions if other is not region))
    if not region.depends or state.depends:
        return state
    return replace(state, active=state.active | state.hidden, anywhere=state.anywhere | state.hidden, hidden=0)


def _units(isa: Isa, columns: Columns, index: int, name: str) -> int:
    """Return the units of an operand; none if it is absent or not a register."""
    table = effect_table(isa)
    position = table.opcode(columns.opcode[index]).position(name)
    register = 0 if position < 0 else columns.registers(index)[position]
    return table.masks[register] if register else 0


def _moves(text: str) -> Iterator[tuple[int, str]]:
    """Yield the destination unit and the source, in assembly syntax, of each move in an instruction."""
    for part in text.split(" :: "):
        if match := _MOVE.fullmatch(part.strip()):
            yield r.VGPR_FIRST + int(match[1]), match[2]


def _is_atomic(isa: Isa, number: int) -> bool:
    """Return whether an opcode is an LDS atomic."""
    mnemonic = isa.opcode(number).mnemonic if number >= 0 else ""
    return mnemonic.startswith("ds_") and kind_in_lds(mnemonic) == AccessKind.ATOMIC
