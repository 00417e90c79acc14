"""Requirements of the application on the state after code inserted at a point.

Some hazards have three operands: SGPRs are read, overwritten, and read again (GFX12). The compiler has handled those
inside the application. Inserted code may contain the first or the second operand. A backward pass over all paths finds
the registers for which this would be a hazard.

The backward transfer function of an instruction, and of a block, consists of sets of units.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from luthier import _mc
from luthier.cache.memory import BoundedCache
from luthier.hazards.wait_states.kinds import Instance, UnitsOf
from luthier.hazards.wait_states.model import HazardModel, hazard_model
from luthier.hazards.wait_states.operands import MOST_KNOWN, opcodes_of
from luthier.hazards.wait_states.steps import instance_of
from luthier.isa import Isa
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import successors
from luthier.support.named_tuples import new_tuple


class Exposed(NamedTuple):
    """Bit sets of units at a point."""

    first: int
    """Units with which an instruction before the point would be the producer of a hazard."""
    middle: int
    """Units whose writes would be the middle of a hazard if there were a producer."""


class _Change(NamedTuple):
    """Backward transfer function of both sets of a rule.

    ``middle`` is ``set_middle | middle & keep_middle``, ``first`` is ``set_first | middle & moved | first &
    keep_first``.
    """

    set_first: int = 0
    set_middle: int = 0
    keep_first: int = -1
    keep_middle: int = -1
    moved: int = 0

    def before(self, behind: Exposed) -> Exposed:
        first, middle = behind
        set_first, set_middle, keep_first, keep_middle, moved = self
        now = set_first | middle & moved | first & keep_first, set_middle | middle & keep_middle
        return new_tuple(Exposed, now)

    @classmethod
    def together(cls, changes: Iterable[_Change]) -> _Change:
        """Return the combined change of several instructions, given last first."""
        set_first, set_middle, keep_first, keep_middle, moved = _NO_CHANGE
        for earlier_first, earlier_middle, keeps_first, keeps_middle, moves in changes:
            set_first = earlier_first | set_middle & moves | set_first & keeps_first
            set_middle = earlier_middle | set_middle & keeps_middle
            moved = keep_middle & moves | moved & keeps_first
            keep_first &= keeps_first
            keep_middle &= keeps_middle
        return cls(set_first, set_middle, keep_first, keep_middle, moved)


NOTHING = Exposed(0, 0)
EVERYTHING = Exposed(-1, -1)
_UNKNOWN = Exposed(0, -1)
"""Exposure before unknown code: like LLVM's functions, it assumes that all registers have been read, and none is
outstanding."""


class Exposure:
    """States that inserted code must not leave, at all points of a kernel."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        model = hazard_model(lifted.target, lifted.wave_size, lifted.isa.target.xnack is not False)
        opcodes_of(model, lifted.isa).of(lifted.code.opcode)
        self._instructions = _instructions_of(model, lifted.isa)
        self._rules = range(self._instructions.rules)
        self._native = lifted.effect_table.code(lifted.columns)
        taking_part = {number for number in set(lifted.columns.opcode) if self._instructions.may_change(number)}
        self._taking_part = [at for at, number in enumerate(lifted.columns.opcode) if number in taking_part]
        self._changes: list[list[tuple[int, _Changes]] | None] = [None] * len(lifted.blocks)
        self._known: dict[int, list[Exposed]] = {}
        self._behind = self._solve()

    def before(self, point: int) -> Exposed:
        """Return the exposure before an instruction."""
        block = self._lifted.blocks[self._lifted.block_of[point]]
        points = self._known.get(block.index)
        if points is None:
            points = self._known[block.index] = self._points(block.index)
        return points[point - block.first]

    def _solve(self) -> list[list[Exposed]]:
        """Return [blocks][rules] the exposure after each block."""
        lifted = self._lifted
        following = successors(lifted)
        changes = [self._of_block(block.index) for block in lifted.blocks]
        calls = (call for function in lifted.functions for call in function.calls)
        unknown = {lifted.block_of[call.index] for call in calls if not call.known}
        before = [[NOTHING] * len(self._rules) for _ in lifted.blocks]
        behind = [[_UNKNOWN if each.index in unknown else NOTHING] * len(self._rules) for each in lifted.blocks]
        leading: list[list[int]] = [[] for _ in lifted.blocks]
        for block, successor in enumerate(following):
            for neighbour in successor:
                leading[neighbour].append(block)
        waiting = list(range(len(lifted.blocks)))
        queued = set(waiting)
        while waiting:
            block = waiting.pop()
            queued.discard(block)
            now = [change.before(after) for change, after in zip(changes[block], behind[block], strict=True)]
            if now == before[block]:
                continue
            before[block] = now
            for neighbour in leading[block]:
                joined = [
                    Exposed(was.first | new.first, was.middle | new.middle)
                    for was, new in zip(behind[neighbour], now, strict=True)
                ]
                if joined != behind[neighbour]:
                    behind[neighbour] = joined
                    if neighbour not in queued:
                        queued.add(neighbour)
                        waiting.append(neighbour)
        return behind

    def _of_block(self, block: int) -> list[_Change]:
        """Return the change of a whole block, for each rule."""
        by_rule: list[list[_Change]] = [[] for _ in self._rules]
        for _, changes in self._backwards(block):
            for position, change in changes:
                by_rule[position].append(change)
        return [_Change.together(changes) for changes in by_rule]

    def _points(self, block: int) -> list[Exposed]:
        """Return the exposure before each instruction of a block, for all rules together."""
        state = list(self._behind[block])
        first, at = self._lifted.blocks[block].first, self._lifted.blocks[block].last
        points: list[Exposed] = []
        for index, changes in self._backwards(block):
            points += [_union(state)] * (at - index)
            at = index
            for position, change in changes:
                state[position] = change.before(state[position])
        points += [_union(state)] * (at + 1 - first)
        return points[::-1]

    def _backwards(self, block: int) -> list[tuple[int, _Changes]]:
        """Return the instructions of a block with changes, the last one first."""
        known = self._changes[block]
        if known is None:
            bounds, taking = self._lifted.blocks[block], self._taking_part
            known = self._changes[block] = []
            for index in reversed(
                taking[bisect.bisect_left(taking, bounds.first) : bisect.bisect_right(taking, bounds.last)]
            ):
                changes = self._instructions.changes(self._lifted, self._native, index, bounds.first)
                if changes:
                    known.append((index, changes))
        return known


class _PossibleRoles(NamedTuple):
    """Roles that an instruction may have in a rule."""

    position: int
    """Position of the rule in the lists of this module."""
    clears_all: bool
    consumer: UnitsOf | None
    cleared_by: UnitsOf | None
    disarmed_by: UnitsOf | None
    middle: UnitsOf | None
    forgotten_by: UnitsOf | None

    def change(self, instance: Instance) -> _Change:
        """Return the change of an instruction."""
        _, clears_all, consumer, cleared_by, disarmed_by, middle, forgotten_by = self
        clears = cleared_by is not None and cleared_by(instance) != 0
        forgotten = clears and clears_all
        return _Change(
            0,
            0 if consumer is None else consumer(instance),
            0 if forgotten else -1 if forgotten_by is None else ~forgotten_by(instance),
            0 if clears else -1 if disarmed_by is None else ~disarmed_by(instance),
            0 if forgotten or middle is None else middle(instance),
        )


_FIELDS = ("consumer", "cleared_by", "disarmed_by", "middle", "forgotten_by")
"""Fields of `Hazard`, as in `_PossibleRoles`."""
_Changes = list[tuple[int, _Change]]
"""Changes by an instruction, each with the position of its rule."""
_NO_CHANGE = _Change()
_UNKNOWN_CHANGE = _Change(*_UNKNOWN, keep_first=0)


class _Instructions:
    """Changes of the instructions of a processor, cached by opcode and operands.

    Attributes:
        rules: number of hazards with three operands.
    """

    def __init__(self, model: HazardModel, isa: Isa) -> None:
        self._model, self._isa = model, isa
        self._rules = [
            rule for rule in model.rules if rule.hazard.middle is not None and not rule.hazard.middle_is_event
        ]
        self.rules = len(self._rules)
        self._single = opcodes_of(model, isa).single
        self._parts: dict[int, list[_PossibleRoles]] = {}
        """Opcode number -> possible roles of its instructions."""
        self._known: BoundedCache[tuple[int, ...], _Changes] = BoundedCache(MOST_KNOWN)

    def changes(self, lifted: LiftedKernel, native: _mc.Code, index: int, first: int) -> _Changes:
        """Return the changes of an instruction.

        Args:
            first: first instruction that may count as in a row with it.
        """
        number = lifted.columns.opcode[index]
        if number < 0:
            return [(position, _UNKNOWN_CHANGE) for position in range(self.rules)]
        alike = lifted.columns.alike(index)
        known = self._known.get(alike)
        if known is None:
            instance = instance_of(lifted.effect_table, native, lifted.columns, index, first)
            changes = ((roles.position, roles.change(instance)) for roles in self._parts_of(number))
            known = [change for change in changes if change[1] != _NO_CHANGE]
            if number not in self._single:
                self._known.put(alike, known)
        return known

    def may_change(self, number: int) -> bool:
        """Return whether instructions of an opcode may have changes."""
        return number < 0 or bool(self._parts_of(number))

    def _parts_of(self, number: int) -> list[_PossibleRoles]:
        """Return the possible roles of instructions of an opcode, for each of their rules."""
        known = self._parts.get(number)
        if known is None:
            known = self._parts[number] = self._find_parts(number)
        return known

    def _find_parts(self, number: int) -> list[_PossibleRoles]:
        roles = self._model.parts(self._isa.opcode(number))
        every = [
            _PossibleRoles(position, rule.hazard.clears_all, *(roles.get((rule.number, field)) for field in _FIELDS))
            for position, rule in enumerate(self._rules)
        ]
        return [one for one in every if any(role is not None for role in one[2:])]


@functools.lru_cache(maxsize=64)
def _instructions_of(model: HazardModel, isa: Isa) -> _Instructions:
    """Return the cached changes of a processor's instructions."""
    return _Instructions(model, isa)


def _union(rules: Sequence[Exposed]) -> Exposed:
    """Return the union of the exposures of several rules."""
    first = middle = 0
    for exposed in rules:
        first, middle = first | exposed.first, middle | exposed.middle
    return Exposed(first, middle)
