"""Data flow of the facts that may still matter to instructions, at the start of every block.

A fact is an entry of a state, or one of its registers where each is independent. What a function does to a fact is
found once for all its calls (`luthier.lifting.paths`), for independent registers all together.
"""

from __future__ import annotations

from collections.abc import Collection

from luthier.hazards.wait_states.model import Rule
from luthier.hazards.wait_states.state import EMPTY, Entry, Machine, State
from luthier.hazards.wait_states.steps import Steps
from luthier.isa.registers import UNIT_LIMIT
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths


class Flow(Paths[State, Entry]):
    """The states of one kernel."""

    def __init__(self, lifted: LiftedKernel, steps: Steps) -> None:
        self.machine = Machine(steps.model)
        follower = _Follower(self.machine, steps)
        self.suspicious: Collection[int] = follower.suspicious
        """Blocks in which there may be consumers that are too near."""
        super().__init__(lifted, follower)


_ALL = (1 << UNIT_LIMIT) - 1


class _Follower:
    empty = EMPTY

    def __init__(self, machine: Machine, steps: Steps) -> None:
        self._machine, self._steps = machine, steps
        self._by_unit = [_fares_by_unit(rule) for rule in machine.model.rules]
        self.suspicious: set[int] = set()
        self.merge = machine.merge

    def unknown(self) -> State:
        return EMPTY

    def behind(self, block: int, state: State) -> State:
        steps, length = self._steps.of(block), self._steps.length(block)
        return self._machine.run(state, steps, length, lambda *_: self.suspicious.add(block))

    def through(self, block: int, state: State, *, only: bool) -> State:
        return self._machine.run(state, self._steps.of(block), self._steps.length(block), only=only)

    def called(self, block: int, state: State) -> None:
        pass

    def enter(self, block: int, state: State) -> State:
        return state

    def without_facts(self, state: State) -> State:
        return EMPTY

    def parts(self, state: State) -> Collection[Entry]:
        return {self._part(entry) for entry in state}

    def whole(self, part: Entry) -> State:
        return frozenset({part})

    def back(self, state: State, part: Entry, behind: State) -> State:
        if not self._by_unit[part.rule]:
            return behind
        units = 0
        for entry in state:
            if self._part(entry) == part:
                units |= entry.units
        return frozenset([entry._replace(units=entry.units & units) for entry in behind if entry.units & units])

    def _part(self, entry: Entry) -> Entry:
        """Return the entry with all registers that there are, where each is independent."""
        return entry._replace(units=_ALL) if self._by_unit[entry.rule] else entry

    def widen(self, was: State, now: State) -> State:
        return now


def _fares_by_unit(rule: Rule) -> bool:
    """Return whether the registers of a rule's entry are independent of each other."""
    hazard = rule.hazard
    alone = hazard.in_registers and hazard.relation == "overlap" and hazard.second is None
    return alone and (hazard.middle is None or not rule.window)
