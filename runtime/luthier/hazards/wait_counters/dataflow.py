"""Model of outstanding registers along all paths, for `luthier.hazards.paths`.

A fact is a register that is outstanding in a stream with a number of younger operations. A part is this number, since
the effect of a function on such a register depends on nothing else.

Leading waits of a function are applied before states are compared: compiled functions begin with a wait for everything,
and are therefore followed only once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from luthier.hazards.paths import CheckedModel
from luthier.hazards.wait_counters.state import Behind, OutstandingState, OutstandingUse, WaitMachine, merge, trim
from luthier.hazards.wait_counters.steps import HALVES, WaitStep, WaitSteps
from luthier.lifting.model import LiftedKernel

_ALL = (1 << 2 * HALVES) - 1
"""Both halves of all units."""


class WaitPaths(CheckedModel[OutstandingState, int, OutstandingUse]):
    """Outstanding registers of one kernel.

    Args:
        forgets: see `WaitMachine`.
        keeps: whether to keep results for `walk` as blocks are followed.
    """

    def __init__(self, lifted: LiftedKernel, steps: WaitSteps, *, forgets: bool = True, keeps: bool = False) -> None:
        self.lifted, self.steps = lifted, steps
        self.machine = WaitMachine(steps.model, forgets=forgets)
        self.empty = self.machine.empty
        self.calls: dict[int, OutstandingState] = {}
        """First block of a function -> the state of all its calls, before its leading waits."""
        self._walks: dict[int, tuple[OutstandingState, list[Behind]]] | None = {} if keeps else None

    def follow(
        self,
        block: int,
        state: OutstandingState,
        report: Callable[[OutstandingUse], object] | None = None,
        *,
        behind: int = -1,
        only: bool = False,
        singly: bool = False,
    ) -> OutstandingState:
        """Follow a block (`PathModel.follow`)."""
        steps = self.steps.of(block)
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
        for block in self.lifted.blocks:
            for step in self.steps.of(block.index):
                for stream, registers in step.issues:
                    if stream == meeting.stream and registers & meeting.units:
                        queues = [*self.empty.queues]
                        queues[stream] = (registers & meeting.units,)
                        yield step.first, self.empty._replace(queues=tuple(queues))

    def unknown(self) -> OutstandingState:
        """Return the state after unknown code."""
        return self.machine.unknown()

    def called(self, block: int, state: OutstandingState, *, real: bool) -> OutstandingState:
        """Return the state after the leading waits of a function."""
        if real:
            known = self.calls.get(block)
            self.calls[block] = state if known is None else merge(known, state)
        return self.machine.run(state, leading_waits(self.steps, block))

    def has_facts(self, state: OutstandingState) -> bool:
        """Return whether any register is outstanding."""
        return any(state.queues)

    def without_facts(self, state: OutstandingState) -> OutstandingState:
        """Return the state without outstanding registers."""
        return state._replace(queues=self.empty.queues)

    def parts(self, state: OutstandingState) -> Iterator[int]:
        """Yield the queue positions with outstanding registers."""
        for position in range(max(map(len, state.queues))):
            if any(len(queue) > position and queue[position] for queue in state.queues):
                yield position

    def whole(self, part: int) -> OutstandingState:
        """Return the state in which all registers are outstanding at a position."""
        return self.empty._replace(queues=self.machine.all_at(part, _ALL))

    def back(self, state: OutstandingState, part: int, behind: OutstandingState) -> OutstandingState:
        """Return the registers at a position after a function."""
        registers = [queue[part] if len(queue) > part else 0 for queue in state.queues]
        queues = zip(behind.queues, registers, strict=True)
        return self.empty._replace(
            queues=tuple(trim(tuple([entry & units for entry in queue])) for queue, units in queues)
        )

    def merge(self, first: OutstandingState, second: OutstandingState) -> OutstandingState:
        """Return the union of two states."""
        return merge(first, second)

    def widen(self, was: OutstandingState, now: OutstandingState) -> OutstandingState:
        """Return a state in which growing counts of operations have their maximum."""
        counts = zip(was.most, now.most, self.machine.unknown().most, strict=True)
        return now._replace(most=tuple(widest if later > before else before for before, later, widest in counts))


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
