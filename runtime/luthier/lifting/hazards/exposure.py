"""What code that is inserted at a point must leave as the application takes it for granted.

Some hazards need three: SGPRs are read, overwritten, and read again (GFX12). The application's compiler has seen to
those whose three are all its own. Inserted code may be the first of them, or the second. Backwards over all paths this
finds by which registers that would be a hazard.

Each instruction turns what holds behind it into what holds before it, with sets of units alone; so does a whole block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from luthier.isa.hazard_model import Ticks, hazard_model
from luthier.lifting.hazards.steps import Step, instance_of, step_of
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import successors


class Exposed(NamedTuple):
    """Bit sets of units at a point."""

    first: int
    """There is a hazard if an instruction before the point makes one with them: the producer of a rule."""
    middle: int
    """The same of what stands between producer and consumer, if there was a producer."""


@dataclass(frozen=True)
class _Change:
    """What becomes of both sets of a rule, backwards: ``middle`` is ``set_middle | middle & keep_middle``, ``first`` is
    ``set_first | middle & moved | first & keep_first``."""

    set_first: int = 0
    set_middle: int = 0
    keep_first: int = -1
    keep_middle: int = -1
    moved: int = 0

    def before(self, behind: Exposed) -> Exposed:
        first, middle = behind
        return Exposed(
            self.set_first | middle & self.moved | first & self.keep_first, self.set_middle | middle & self.keep_middle
        )

    def behind(self, earlier: _Change) -> _Change:
        """Of an earlier instruction and then this."""
        return _Change(
            earlier.set_first | self.set_middle & earlier.moved | self.set_first & earlier.keep_first,
            earlier.set_middle | self.set_middle & earlier.keep_middle,
            self.keep_first & earlier.keep_first,
            self.keep_middle & earlier.keep_middle,
            self.keep_middle & earlier.moved | self.moved & earlier.keep_first,
        )


NOTHING = Exposed(0, 0)
EVERYTHING = Exposed(-1, -1)
_UNKNOWN = Exposed(0, -1)
"""Before code that is not known: like LLVM's functions it expects all registers to have been read, and none to be
on its way."""


class Exposure:
    """What inserted code must not leave behind, at all points of a kernel."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        model = hazard_model(lifted.target, lifted.wave_size, lifted.isa.target.xnack is not False)
        self._model = model
        rules = [rule for rule in model.rules if rule.hazard.middle is not None and rule.hazard.middle.role]
        self._rules = {rule.number: position for position, rule in enumerate(rules)}
        """Rule -> its position in lists here."""
        self._clears_all = [rule.hazard.clears_all for rule in rules]
        self._native = lifted.effect_table.code(lifted.columns)
        self._known: dict[int, list[Exposed]] = {}
        self._behind = self._solve()

    def before(self, point: int) -> Exposed:
        """What holds before an instruction."""
        block = self._lifted.blocks[self._lifted.block_of[point]]
        points = self._known.get(block.index)
        if points is None:
            points = self._known[block.index] = self._points(block.index)
        return points[point - block.first]

    def _solve(self) -> list[list[Exposed]]:
        """[blocks][rules] behind each block."""
        lifted = self._lifted
        following = successors(lifted)
        changes = [self._changes(block.index) for block in lifted.blocks]
        calls = (call for function in lifted.functions for call in function.calls)
        unknown = {lifted.block_of[call.index] for call in calls if not call.known}
        before = [[NOTHING] * len(self._rules) for _ in lifted.blocks]
        behind = [[_UNKNOWN if one.index in unknown else NOTHING] * len(self._rules) for one in lifted.blocks]
        leading: list[list[int]] = [[] for _ in lifted.blocks]
        for block, successor in enumerate(following):
            for one in successor:
                leading[one].append(block)
        waiting = list(range(len(lifted.blocks)))
        queued = set(waiting)
        while waiting:
            block = waiting.pop()
            queued.discard(block)
            now = [change.before(one) for change, one in zip(changes[block], behind[block], strict=True)]
            if now == before[block]:
                continue
            before[block] = now
            for one in leading[block]:
                joined = [
                    Exposed(was.first | new.first, was.middle | new.middle)
                    for was, new in zip(behind[one], now, strict=True)
                ]
                if joined != behind[one]:
                    behind[one] = joined
                    if one not in queued:
                        queued.add(one)
                        waiting.append(one)
        return behind

    def _changes(self, block: int) -> list[_Change]:
        """Of a whole block, for each rule."""
        changes = [_Change() for _ in self._rules]
        one = self._lifted.blocks[block]
        for index in range(one.last, one.first - 1, -1):
            for number, change in self._change(index, one.first).items():
                changes[number] = changes[number].behind(change)
        return changes

    def _points(self, block: int) -> list[Exposed]:
        """Before each instruction of a block, of all rules together."""
        one = self._lifted.blocks[block]
        state = list(self._behind[block])
        found = []
        for index in range(one.last, one.first - 1, -1):
            for number, change in self._change(index, one.first).items():
                state[number] = change.before(state[number])
            first = middle = 0
            for exposed in state:
                first, middle = first | exposed.first, middle | exposed.middle
            found.append(Exposed(first, middle))
        return found[::-1]

    def _change(self, index: int, first: int) -> dict[int, _Change]:
        """Of an instruction, by position of the rule."""
        lifted = self._lifted
        if lifted.columns.opcode[index] < 0:
            return dict.fromkeys(range(len(self._rules)), _Change(*_UNKNOWN, keep_first=0))
        parts = self._model.parts(lifted.isa.opcode(lifted.columns.opcode[index]))
        wanted = [place for place in parts if place[0] in self._rules and place[1] != "producer"]
        if not wanted:
            return {}
        instance = instance_of(lifted.effect_table, self._native, lifted.columns, index, first)
        return self._of_step(step_of(self._model, instance, index, _NO_TIME, _NO_TIME, wanted))

    def _of_step(self, step: Step) -> dict[int, _Change]:
        checks = {rule: units for rule, units, *_ in step.checks}
        arms, disarms, forgets = dict(step.arms), dict(step.disarms), dict(step.forgets)
        changes = {}
        for rule in {*checks, *arms, *disarms, *forgets, *step.clears}:
            position, clears = self._rules[rule], rule in step.clears
            forgotten = clears and self._clears_all[position]
            changes[position] = _Change(
                set_middle=checks.get(rule, 0),
                keep_middle=0 if clears else ~disarms.get(rule, 0),
                moved=0 if forgotten else arms.get(rule, 0),
                keep_first=0 if forgotten else ~forgets.get(rule, 0),
            )
        return changes


_NO_TIME = Ticks(0, 0, 0)
