"""What may still matter to instructions, at the start of every block.

A function is followed once for all its calls, but what one of them comes with does not come back from another. What is
remembered for good (on GFX12: which SGPRs vector instructions have read) goes unit by unit, and most units a function
never speaks of. At a call these become one *rest*, that of the caller is put in its place where control comes back, and
calls that differ in other units are followed apart.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from luthier.isa.registers import UNIT_LIMIT
from luthier.lifting.hazards.state import EMPTY, Machine, State
from luthier.lifting.hazards.steps import Steps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths


class Flow(Paths[State]):
    """The states of one kernel."""

    def __init__(self, lifted: LiftedKernel, steps: Steps) -> None:
        self.machine = Machine(steps.model)
        follower = _Follower(lifted, self.machine, steps)
        self.suspicious: Collection[int] = follower.suspicious
        """Blocks in which there may be consumers that are too near."""
        super().__init__(lifted, follower)


_REST = {False: 1 << UNIT_LIMIT, True: 1 << UNIT_LIMIT + 1}
"""What stands for the rest, of entries that were armed at the call and of others."""
_RESTS = _REST[False] | _REST[True]


class _Follower:
    empty = EMPTY

    def __init__(self, lifted: LiftedKernel, machine: Machine, steps: Steps) -> None:
        self._lifted, self._machine, self._steps = lifted, machine, steps
        self._by_unit = [
            not rule.window and rule.hazard.in_registers and rule.hazard.relation == "overlap"
            for rule in machine.model.rules
        ]
        """[rules] whether each unit of an entry fares by itself, and for good."""
        self._spoken_of: dict[int, Mapping[int, int]] = {}
        self._own: dict[int, dict[int, int]] = {}
        self.suspicious: set[int] = set()
        self.merge = machine.merge

    def unknown(self) -> State:
        return EMPTY

    def behind(self, block: int, state: State) -> State:
        steps, length = self._steps.of(block), self._steps.length(block)
        return self._machine.run(state, steps, length, lambda *_: self.suspicious.add(block))

    def enter(self, block: int, state: State) -> tuple[State, Hashable]:
        if not any(self._by_unit[entry.rule] for entry in state):
            return state, EMPTY
        spoken_of = self._speaks_of(block)
        kept, other = [], []
        for entry in state:
            if not self._by_unit[entry.rule]:
                other.append(entry)
                continue
            mine = spoken_of.get(entry.rule, 0)
            rest = _REST[entry.armed] if entry.units & ~mine else 0
            kept.append(entry._replace(units=entry.units & mine | rest))
        key = frozenset(kept)
        return key.union(other), key

    def leave(self, block: int, called: State, state: State) -> State:
        if not any(self._by_unit[entry.rule] for entry in state):
            return state
        spoken_of = self._speaks_of(block)
        rests = {
            (entry.rule, entry.armed): entry.units & ~spoken_of.get(entry.rule, 0)
            for entry in called
            if self._by_unit[entry.rule]
        }
        behind = []
        for entry in state:
            if self._by_unit[entry.rule]:
                units = entry.units & ~_RESTS
                for armed, rest in _REST.items():
                    if entry.units & rest:
                        units |= rests.get((entry.rule, armed), 0)
                if not units:
                    continue
                entry = entry._replace(units=units)
            behind.append(entry)
        return frozenset(behind)

    def widen(self, was: State, now: State) -> State:
        return now

    def _speaks_of(self, block: int) -> Mapping[int, int]:
        """Units, by rule, to which a function that begins with a block, or one that it calls, does anything but make
        them."""
        known = self._spoken_of.get(block)
        if known is not None:
            return known
        lifted, found = self._lifted, dict[int, int]()
        done: set[int] = set()
        waiting = [lifted.blocks[block].function]
        while waiting:
            function = waiting.pop()
            if function in done:
                continue
            done.add(function)
            waiting += [callee for call in lifted.functions[function].calls for callee in call.callees]
            for rule, units in self._itself_speaks_of(function).items():
                found[rule] = found.get(rule, 0) | units
        self._spoken_of[block] = found
        return found

    def _itself_speaks_of(self, function: int) -> Mapping[int, int]:
        found = self._own.get(function)
        if found is None:
            found = self._own[function] = {}
            for block in self._lifted.functions[function].blocks:
                for step in self._steps.of(block.index):
                    spoken = *step.disarms, *step.arms, *step.forgets, *(check[:2] for check in step.checks)
                    for rule, units in spoken:
                        if self._by_unit[rule]:
                            found[rule] = found.get(rule, 0) | units
        return found
