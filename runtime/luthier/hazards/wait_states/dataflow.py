"""Model of the producers that may still matter along all paths, for `luthier.hazards.paths`.

A fact is an entry of a state, or one of its registers if these are independent. The effect of a function on a fact is
found once for all its calls (`luthier.lifting.paths`), for all independent registers together.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Callable, Collection, Iterator

from luthier.hazards.paths import CheckedModel
from luthier.hazards.wait_states.model import START, Rule
from luthier.hazards.wait_states.state import EMPTY, HazardMachine, ProducerEntry, State, TooNear
from luthier.hazards.wait_states.steps import HazardStep, HazardSteps
from luthier.isa.registers import UNIT_LIMIT
from luthier.lifting.model import LiftedKernel

_ALL = (1 << UNIT_LIMIT) - 1
_AT = operator.attrgetter("at")


class HazardPaths(CheckedModel[State, ProducerEntry, TooNear]):
    """Producers in one kernel that are not far enough away."""

    empty = EMPTY

    def __init__(self, lifted: LiftedKernel, steps: HazardSteps) -> None:
        self.lifted, self.steps = lifted, steps
        self.machine = HazardMachine(steps.model)
        self._by_unit = [_fares_by_unit(rule) for rule in steps.model.rules]

    def follow(
        self,
        block: int,
        state: State,
        report: Callable[[TooNear], object] | None = None,
        *,
        behind: int = -1,
        only: bool = False,
        singly: bool = False,
    ) -> State:
        """Follow a block (`PathModel.follow`)."""
        steps, length, start = self.steps.of(block), self.steps.length(block), START
        if behind >= 0:
            steps, start = self.steps_from(block, behind + 1), self.steps.until(block, behind + 1)
        return self.machine.run(state, steps, length, report, start=start, only=only)

    def steps_from(self, block: int, first: int) -> list[HazardStep]:
        """Return the steps of a block from an instruction on."""
        steps = self.steps.of(block)
        return steps[bisect.bisect_left(steps, first, key=_AT) :]

    def before(self, block: int, indices: list[int], state: State) -> Iterator[State]:
        """Yield the state before each of some instructions of a block that is entered in a state."""
        start, first = START, self.lifted.blocks[block].first
        for index in indices:
            steps = [step for step in self.steps_from(block, first) if step.at < index]
            until = self.steps.until(block, index)
            state = self.machine.run(state, steps, until, start=start)
            yield state
            start, first = until, index

    def producers(self, meeting: TooNear) -> Iterator[tuple[int, State]]:
        """Yield the producers to which a consumer may be too close."""
        hazard = self.machine.model.rules[meeting.rule].hazard
        for block in self.lifted.blocks:
            for step in self.steps.of(block.index):
                for number, units, tag in step.makes:
                    if number == meeting.rule and (not hazard.in_registers or units & meeting.units):
                        yield step.at, frozenset({ProducerEntry(number, hazard.middle is None, units, tag, 0, 0)})

    def alike(self, meeting: TooNear) -> tuple[int, int]:
        """Return what the producers depend on: rule and registers."""
        return meeting.rule, meeting.units

    def has_facts(self, state: State) -> bool:
        """Return whether there is any producer."""
        return bool(state)

    def parts(self, state: State) -> Collection[ProducerEntry]:
        """Return the entries, with all registers if these are independent."""
        return {self._part(entry) for entry in state}

    def whole(self, part: ProducerEntry) -> State:
        """Return the state with one entry."""
        return frozenset({part})

    def back(self, state: State, part: ProducerEntry, behind: State) -> State:
        """Return the registers of an entry after a function."""
        if not self._by_unit[part.rule]:
            return behind
        units = 0
        for entry in state:
            if self._part(entry) == part:
                units |= entry.units
        return frozenset([entry._replace(units=entry.units & units) for entry in behind if entry.units & units])

    def merge(self, first: State, second: State) -> State:
        """Return the union of two states."""
        return self.machine.merge(first, second)

    def _part(self, entry: ProducerEntry) -> ProducerEntry:
        return entry._replace(units=_ALL) if self._by_unit[entry.rule] else entry


def _fares_by_unit(rule: Rule) -> bool:
    """Return whether the registers of a rule's entry are independent of each other."""
    hazard = rule.hazard
    alone = hazard.in_registers and hazard.relation == "overlap" and hazard.second is None
    return alone and (hazard.middle is None or not rule.window)
