"""Model of outstanding registers along all paths, for `luthier.hazards.paths`.

A fact is a register that is outstanding in a stream with a number of younger operations. All facts are one part: a
function is followed once for any number (`luthier.hazards.wait_counters.carried`).

Leading waits of a function are applied before states are compared: compiled functions begin with a wait for everything,
and are therefore followed only once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Literal

from luthier.hazards.paths import CheckedModel
from luthier.hazards.wait_counters.carried import Carried, CarryMachine, applied, followed_by, joined
from luthier.hazards.wait_counters.model import WaitModel
from luthier.hazards.wait_counters.state import Behind, OutstandingState, OutstandingUse, WaitMachine, merge
from luthier.hazards.wait_counters.steps import HALVES, WaitStep, WaitSteps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths

PathState = OutstandingState | Carried
"""The second for a function that is followed for what is outstanding at its calls."""
WaitPart = Literal["outstanding"]
_ALL = (1 << 2 * HALVES) - 1
"""Both halves of all units."""


@functools.cache
def _machines(model: WaitModel, forgets: bool) -> tuple[WaitMachine, CarryMachine, Carried]:
    """Return the machines of a generation, which keep no state, and the effect of no code on all units."""
    carrying = CarryMachine(model, forgets=forgets)
    return WaitMachine(model, forgets=forgets), carrying, carrying.everything(_ALL)


class WaitPaths(CheckedModel[PathState, WaitPart, OutstandingUse]):
    """Outstanding registers of one kernel.

    Args:
        forgets: see `WaitMachine`.
        keeps: whether to keep results for `walk` as blocks are followed.
    """

    def __init__(self, lifted: LiftedKernel, steps: WaitSteps, *, forgets: bool = True, keeps: bool = False) -> None:
        self.lifted, self.steps = lifted, steps
        self.machine, self._carry, self._every = _machines(steps.model, forgets)
        self.empty: OutstandingState = self.machine.empty
        self.calls: dict[int, OutstandingState] = {}
        """First block of a function -> the state of all its calls, before its leading waits."""
        self._walks: dict[int, tuple[OutstandingState, list[Behind]]] | None = {} if keeps else None

    def states(self, paths: WaitsOnPaths) -> Iterator[tuple[int, OutstandingState]]:
        """Yield reachable blocks with the state before each (`Paths.states`)."""
        for block, state in paths.states():
            if isinstance(state, OutstandingState):
                yield block, state

    def follow(
        self,
        block: int,
        state: PathState,
        report: Callable[[OutstandingUse], object] | None = None,
        *,
        behind: int = -1,
        only: bool = False,
        singly: bool = False,
    ) -> PathState:
        """Follow a block (`PathModel.follow`)."""
        steps = self.steps.of(block)
        if isinstance(state, Carried):
            return self._carry.run(state, steps)
        if behind >= 0:
            steps = [step for step in steps if step.first > behind]
        if singly:
            steps = [single for step in steps for single in self.steps.split(step)]
        walked: list[Behind] | None = None
        if self._walks is not None and report is not None:
            walked = []
            self._walks[block] = state, walked
        after = self.machine.run(state, steps, report, only=only, behind=walked)
        return after._replace(most=self.empty.most) if only else after

    def walk(self, block: int, state: OutstandingState) -> list[Behind]:
        """Return the outstanding registers after each step of a block that is entered in a state.

        A kept result is returned only once.
        """
        known = None if self._walks is None else self._walks.pop(block, None)
        if known is not None and known[0] == state:
            return known[1]
        walked: list[Behind] = []
        self.machine.run(state, self.steps.of(block), behind=walked)
        return walked

    def producers(self, meeting: OutstandingUse) -> Iterator[tuple[int, OutstandingState]]:
        """Yield the operations whose registers may be outstanding at an instruction."""
        for index, registers in self._issues[meeting.stream]:
            if registers & meeting.units:
                queues = [*self.empty.queues]
                queues[meeting.stream] = (registers & meeting.units,)
                yield index, self.empty._replace(queues=tuple(queues))

    def alike(self, meeting: OutstandingUse) -> tuple[int, int]:
        """Return what the producers depend on: stream and registers."""
        return meeting.stream, meeting.units

    @functools.cached_property
    def _issues(self) -> list[list[tuple[int, int]]]:
        """Return for each stream its operations: the instruction, and the units that are outstanding after it."""
        issues: list[list[tuple[int, int]]] = [[] for _ in self.empty.queues]
        for block in self.lifted.blocks:
            for step in self.steps.of(block.index):
                for stream, registers in step.issues:
                    if registers:
                        issues[stream].append((step.first, registers))
        return issues

    def unknown(self) -> OutstandingState:
        """Return the state after unknown code."""
        return self.machine.unknown()

    def called(self, block: int, state: PathState, *, real: bool) -> PathState:
        """Return the state after the leading waits of a function."""
        waits = leading_waits(self.steps, block)
        if isinstance(state, Carried):
            return self._carry.run(state, waits)
        if real:
            known = self.calls.get(block)
            self.calls[block] = state if known is None else merge(known, state)
        return self.machine.run(state, waits)

    def has_facts(self, state: PathState) -> bool:
        """Return whether any register is outstanding."""
        return any(state.streams if isinstance(state, Carried) else state.queues)

    def without_facts(self, state: PathState) -> PathState:
        """Return the state without outstanding registers."""
        return state if isinstance(state, Carried) else state._replace(queues=self.empty.queues)

    def parts(self, state: PathState) -> tuple[WaitPart, ...]:
        """Return the part, if any register is outstanding."""
        return ("outstanding",) if self.has_facts(state) else ()

    def whole(self, part: WaitPart) -> PathState:
        """Return the effect of no code."""
        return self._every

    def back(self, state: PathState, part: WaitPart, behind: PathState) -> PathState:
        """Return the outstanding registers after a function."""
        assert isinstance(behind, Carried)
        if isinstance(state, Carried):
            return followed_by(state, behind)
        return self.empty._replace(queues=applied(state, behind))

    def merge(self, first: PathState, second: PathState) -> PathState:
        """Return the union of two states."""
        if isinstance(first, Carried) or isinstance(second, Carried):
            assert isinstance(first, Carried)
            assert isinstance(second, Carried)
            return joined(first, second)
        return merge(first, second)

    def widen(self, was: PathState, now: PathState) -> PathState:
        """Return a state in which growing counts of operations have their maximum."""
        if isinstance(was, Carried) or isinstance(now, Carried):
            return now
        counts = zip(was.most, now.most, self.machine.unknown().most, strict=True)
        return now._replace(most=tuple(widest if later > before else before for before, later, widest in counts))


WaitsOnPaths = Paths[PathState, WaitPart, OutstandingUse]


def leading_waits(steps: WaitSteps, block: int) -> list[WaitStep]:
    """Return the waits at the beginning of a block."""
    leading: list[WaitStep] = []
    index = steps.lifted.blocks[block].first
    for step in steps.of(block):
        if step.first != index or not step.limits or step.issues:
            break
        leading.append(step)
        index = step.last + 1
    return leading
