"""Data flow of the check of waits along all paths (`luthier.lifting.paths`).

A fact is a register that is outstanding in a stream, with so many younger operations; a part is that number of them:
what a function does to such a register depends on nothing else.

What a function's first instructions wait for is waited for before states are compared: functions of compilers begin
with a wait for everything, and so are followed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from luthier.hazards.wait_counters.state import Behind, Machine, State, merge, trim
from luthier.hazards.wait_counters.steps import HALVES, Step, Steps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths


class Flow(Paths[State, int]):
    """The states of one kernel.

    Args:
        forgets: as of `Machine`.
        keeps: whether `walk` will be asked for blocks as they were followed.
    """

    def __init__(self, lifted: LiftedKernel, steps: Steps, *, forgets: bool = True, keeps: bool = False) -> None:
        self.machine = Machine(steps.model, forgets=forgets)
        self._steps = steps
        self._walks: dict[int, tuple[State, list[Behind]]] = {}
        follower = _Follower(self.machine, steps, self._walks if keeps else None)
        self.called: Mapping[int, State] = follower.calls
        """First block of a function -> the state of all its calls, in which nothing was waited for there."""
        self.suspicious: Collection[int] = follower.suspicious
        """Blocks in which outstanding registers may be used."""
        super().__init__(lifted, follower)

    def walk(self, block: int, state: State) -> list[Behind]:
        """Return what is outstanding after each step of a block that is entered in a state.

        A kept result is given once.
        """
        known = self._walks.pop(block, None)
        if known is not None and known[0] == state:
            return known[1]
        found: list[Behind] = []
        self.machine.run(state, self._steps.of(block), behind=found)
        return found


_ALL = (1 << 2 * HALVES) - 1
"""Both halves of all units."""


class _Follower:
    def __init__(self, machine: Machine, steps: Steps, walks: dict[int, tuple[State, list[Behind]]] | None) -> None:
        self._machine, self._steps, self._walks = machine, steps, walks
        self.empty = machine.empty
        self.calls: dict[int, State] = {}
        self.suspicious: set[int] = set()

    def unknown(self) -> State:
        return self._machine.unknown()

    def behind(self, block: int, state: State) -> State:
        walked: list[Behind] | None = None
        if self._walks is not None:
            walked = []
            self._walks[block] = state, walked
        return self._machine.run(state, self._steps.of(block), lambda *_: self.suspicious.add(block), behind=walked)

    def through(self, block: int, state: State, *, only: bool) -> State:
        behind = self._machine.run(state, self._steps.of(block), only=only)
        return behind._replace(most=self.empty.most) if only else behind

    def called(self, block: int, state: State) -> None:
        known = self.calls.get(block)
        self.calls[block] = state if known is None else merge(known, state)

    def enter(self, block: int, state: State) -> State:
        return self._machine.run(state, leading_waits(self._steps, block))

    def without_facts(self, state: State) -> State:
        return state._replace(queues=self.empty.queues)

    def parts(self, state: State) -> Iterator[int]:
        for position in range(max(map(len, state.queues))):
            if any(len(queue) > position and queue[position] for queue in state.queues):
                yield position

    def whole(self, part: int) -> State:
        return self.empty._replace(queues=self._machine.all_at(part, _ALL))

    def back(self, state: State, part: int, behind: State) -> State:
        mine = [queue[part] if len(queue) > part else 0 for queue in state.queues]
        queues = zip(behind.queues, mine, strict=True)
        return self.empty._replace(
            queues=tuple(trim(tuple([here & units for here in queue])) for queue, units in queues)
        )

    def merge(self, first: State, second: State) -> State:
        return merge(first, second)

    def widen(self, was: State, now: State) -> State:
        """Return a state in which counts of operations that grow are as large as possible."""
        counts = zip(was.most, now.most, self._machine.unknown().most, strict=True)
        return now._replace(most=tuple(widest if later > before else before for before, later, widest in counts))


def leading_waits(steps: Steps, block: int) -> list[Step]:
    """Return the waits that a block begins with."""
    found: list[Step] = []
    index = steps.lifted.blocks[block].first
    for step in steps.of(block):
        if step.first != index or not step.limits or step.issues:
            break
        found.append(step)
        index = step.last + 1
    return found
