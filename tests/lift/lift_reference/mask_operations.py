"""What single instructions do to `LaneMasks`.

Sources: the "CDNA3" and "RDNA3" instruction set architecture documents, "SOP1", "SOP2", "VOPC" (a compare clears the
bits of inactive lanes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from luthier.isa import registers as r
from luthier.lifting.instructions.effects import Effects, OpcodeEffects
from luthier.lifting.instructions.forms import MOVE, TABLES, mask_form
from luthier.lifting.instructions.semantics import Lanes

from lift_reference.lane_masks import (
    EXEC_SOURCE,
    MOST_GROUPS,
    ONES,
    UNKNOWN,
    ZERO,
    Held,
    LaneMasks,
    evaluate,
    renumber,
)

Spread: TypeAlias = "list[int] | None"
"""For each group before an instruction the bit set of groups its lanes are in afterwards; None: the same groups."""


def is_mask_operation(entry: OpcodeEffects) -> bool:
    """Whether more can be told of what an operation writes than that it is something else now."""
    return mask_form(entry.opcode.pseudo, entry.special).kind != "other"


class MaskOperation(NamedTuple):
    """One instruction that changes masks, or several that do no more than overwrite some."""

    action: Callable[[MaskOperation, LaneMasks], Spread]
    writes: int
    """Scalar units that change, and VGPRs in whose lanes scalars are kept."""
    lanes: Lanes
    sets_exec: bool
    target: int = -1
    """First unit written, besides EXEC in operations that write both; -1 if none."""
    sources: tuple[int, ...] = ()
    """First units, or ZERO, ONES, UNKNOWN."""
    table: int = 0
    units: int = 1
    lane: int = -1
    """For scalars in lanes; -1 if it is not constant."""

    def run(self, state: LaneMasks) -> Spread:
        """Change the state; for writes of EXEC, tell where lanes go."""
        spread = self.action(self, state)
        if spread is not None and state.count > MOST_GROUPS:
            new = state.compact(MOST_GROUPS)
            return [renumber(groups, new) for groups in spread]
        return spread

    # Actions

    def _forget(self, state: LaneMasks) -> Spread:
        state.forget(self.writes)
        return None

    def _exec_unknown(self, state: LaneMasks) -> Spread:
        on, off, lanes = state.on, state.everything & ~state.on, self.lanes
        certain = (0 if lanes & Lanes.BECOMES_INACTIVE else on) | (0 if lanes & Lanes.STAYS_INACTIVE else off)
        possible = (on if lanes & Lanes.STAYS_ACTIVE else 0) | (off if lanes & Lanes.BECOMES_ACTIVE else 0)
        spread = state.change_exec(certain, possible, ())
        state.forget(self.writes)
        return spread

    def _logic(self, state: LaneMasks) -> Spread:
        one, other = self.sources
        mask, _, _ = evaluate(self.table, state.mask(one), state.mask(other), state.everything)
        state.forget(self.writes)
        state.put(self.target, mask)
        return None

    def _logic_exec(self, state: LaneMasks) -> Spread:
        spread = self._new_exec(state)
        state.forget(self.writes)
        return spread

    def _new_exec(self, state: LaneMasks) -> list[int]:
        one, other = self.sources
        mask, *about = evaluate(self.table, state.mask(one), state.mask(other), state.everything)
        learnt = [
            (source, told)
            for source, told in zip(self.sources, about, strict=True)
            if source >= 0 and source != EXEC_SOURCE
        ]
        return state.change_exec(*mask, learnt)

    def _save(self, state: LaneMasks) -> Spread:
        before = state.on
        spread = self._new_exec(state)
        state.forget(self.writes)
        old = 0
        for group, groups in enumerate(spread):
            if before >> group & 1:
                old |= groups
        if self.target >= 0:
            state.put(self.target, (old, old))
        return spread

    def _write(self, state: LaneMasks) -> Spread:
        spread = self._new_exec(state)
        state.forget(self.writes)
        if self.target >= 0:
            state.put(self.target, (state.on, state.on))
        return spread

    def _compare(self, state: LaneMasks) -> Spread:
        state.forget(self.writes)
        state.put(self.target, (0, state.on))
        return None

    def _compare_exec(self, state: LaneMasks) -> Spread:
        spread = state.change_exec(0, state.on, ())
        state.forget(self.writes)
        if self.target >= 0:
            state.put(self.target, (state.on, state.on))
        return spread

    def _copy(self, state: LaneMasks) -> Spread:
        first = self.sources[0]
        found = [(state.half(one), state.origin(one) if one >= 0 else -1) for one in self._halves(first)]
        state.forget(self.writes)
        for unit, (held, origin) in enumerate(found, self.target):
            state.set(unit, held, origin)
        return None

    def _halves(self, first: int) -> list[int]:
        return [first if first < 0 else first + half for half in range(self.units)]

    def _select(self, state: LaneMasks) -> Spread:
        one, other = self.sources
        found = [
            _either(state.half(a), state.half(b)) for a, b in zip(self._halves(one), self._halves(other), strict=True)
        ]
        state.forget(self.writes)
        for unit, held in enumerate(found, self.target):
            state.set(unit, held, -1)
        return None

    def _put_lane(self, state: LaneMasks) -> Spread:
        if self.lane < 0:
            state.forget(self.writes)
        else:
            source = self.sources[0]
            state.set((self.target, self.lane), state.half(source), state.origin(source) if source >= 0 else -1)
        return None

    def _get_lane(self, state: LaneMasks) -> Spread:
        key = self.sources[0], self.lane
        held, origin = state.held.get(key), state.origin(key)
        state.forget(self.writes)
        state.set(self.target, held, origin)
        return None


def _either(one: Held | None, other: Held | None) -> Held | None:
    if one is None or other is None or {one[0], other[0]} == {0, 1}:
        return None
    return min(one[0], other[0]), one[1] & other[1], one[2] | other[2]


def followed(lanes_kept: int) -> int:
    """Bit set of the units whose writes change what is known of masks.

    Args:
        lanes_kept: VGPRs in whose lanes scalars are put.
    """
    return r.SCALAR_MASK & ~(1 << r.SCC | 1 << r.MODE) | lanes_kept


class MaskOperations:
    """Makes the operations of one kernel.

    Args:
        first_unit: by LLVM register number.
        wave_size: 32 or 64.
        lanes_kept: VGPRs in whose lanes scalars are put.
    """

    def __init__(self, first_unit: list[int], wave_size: int, lanes_kept: int) -> None:
        self.first_unit = first_unit
        self.wide = wave_size == 64
        self.last_lane = wave_size - 1
        self.exec_mask = r.EXEC_MASK if self.wide else 1 << r.EXEC_LO
        """The units of EXEC that have lanes."""
        self.interesting = followed(lanes_kept)
        """Units whose writes change what is known of masks."""

    def unknown(self, effects: Effects) -> MaskOperation:
        """The operation of an instruction of which only its effects are known."""
        writes = effects.writes & self.interesting
        sets_exec = bool(writes & self.exec_mask)
        action = MaskOperation._exec_unknown if sets_exec else MaskOperation._forget
        return MaskOperation(action, writes & ~r.EXEC_MASK, effects.lanes, sets_exec)

    @staticmethod
    def forget(writes: int) -> MaskOperation:
        """The operation that changes these units to nothing known."""
        return MaskOperation(MaskOperation._forget, writes & ~r.EXEC_MASK, Lanes.UNCHANGED, False)

    def make(self, entry: OpcodeEffects, effects: Effects, registers: list[int], values: list[int]) -> MaskOperation:
        """The operation of one instruction that writes something `interesting`.

        Args:
            registers: LLVM register number of each operand, 0 for immediates.
            values: their values.
        """
        writes = effects.writes & self.interesting
        sets_exec = bool(writes & self.exec_mask)
        writes &= ~r.EXEC_MASK
        form = mask_form(entry.opcode.pseudo, entry.special)
        whole = not self.wide or form.units == 2
        lanes = effects.lanes

        def source(position: int) -> int:
            if position >= len(registers):
                return ZERO
            if registers[position]:
                unit = self.first_unit[registers[position]]
                return unit if unit >= 0 else UNKNOWN
            return {0: ZERO, -1: ONES}.get(values[position], UNKNOWN)

        def unit(position: int) -> int:
            return self.first_unit[registers[position]] if registers[position] else -1

        def made(action: Callable[[MaskOperation, LaneMasks], Spread], **rest: object) -> MaskOperation:
            return MaskOperation(action, writes, lanes, sets_exec, units=form.units, table=form.table, **rest)  # type: ignore[arg-type]

        if form.kind in ("compare", "compare_exec"):
            target = (writes & -writes).bit_length() - 1
            if form.kind == "compare_exec":
                return made(MaskOperation._compare_exec, target=target)
            return made(MaskOperation._compare, target=target) if not sets_exec else self._unknown(made, sets_exec)
        if form.kind in ("save", "write") and whole:
            action = MaskOperation._save if form.kind == "save" else MaskOperation._write
            return made(action, target=self._real(unit(0)), sources=(source(1), EXEC_SOURCE))
        if form.kind == "logic":
            one = form.table in (TABLES["MOV"], TABLES["NOT"])
            sources = source(1), ZERO if one else source(2)
            if sets_exec and whole:
                return made(MaskOperation._logic_exec, sources=sources)
            if not sets_exec and form.table == MOVE and self._real(unit(0)) >= 0:
                return made(MaskOperation._copy, target=unit(0), sources=sources[:1])
            if not sets_exec and whole and self._real(unit(0)) >= 0:
                return made(MaskOperation._logic, target=unit(0), sources=sources)
        if form.kind in ("select", "keep") and not sets_exec and self._real(unit(0)) >= 0:
            sources = (source(1), source(2)) if form.kind == "select" else (source(1), unit(0))
            return made(MaskOperation._select, target=unit(0), sources=sources)
        if form.kind == "put_lane" and not sets_exec:
            lane = values[2] & self.last_lane if not registers[2] else -1
            return made(MaskOperation._put_lane, target=unit(0), sources=(source(1),), lane=lane)
        if form.kind == "get_lane" and not sets_exec and not registers[2] and self._real(unit(0)) >= 0:
            return made(MaskOperation._get_lane, target=unit(0), sources=(unit(1),), lane=values[2] & self.last_lane)
        return self._unknown(made, sets_exec)

    @staticmethod
    def _unknown(made: Callable[..., MaskOperation], sets_exec: bool) -> MaskOperation:
        return made(MaskOperation._exec_unknown if sets_exec else MaskOperation._forget)

    @staticmethod
    def _real(unit: int) -> int:
        """The unit of a target that can be followed, else -1."""
        return unit if 0 <= unit < r.M0 else -1
