"""What may still matter to instructions, at the start of every block."""

from __future__ import annotations

from luthier.lifting.hazards.state import EMPTY, Machine, State
from luthier.lifting.hazards.steps import Steps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths


class Flow(Paths[State]):
    """The states of one kernel. A function is followed once for all its calls."""

    def __init__(self, lifted: LiftedKernel, steps: Steps) -> None:
        self.machine = Machine(steps.model)
        super().__init__(lifted, _Follower(self.machine, steps))


class _Follower:
    empty = EMPTY

    def __init__(self, machine: Machine, steps: Steps) -> None:
        self._machine, self._steps = machine, steps
        self.merge = machine.merge

    def unknown(self) -> State:
        return EMPTY

    def behind(self, block: int, state: State) -> State:
        return self._machine.run(state, self._steps.of(block), self._steps.length(block))

    def enter(self, block: int, state: State) -> tuple[State, None]:
        return state, None

    def widen(self, was: State, now: State) -> State:
        return now
