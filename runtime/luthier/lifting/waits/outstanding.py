"""What may be outstanding at each point of a kernel, and what code that is put there waits for.

Operations that are added to a kernel make its own waits no weaker: a wait for a counter lets through so many youngest
operations, and older ones of the application's only get more of those behind them. So what is known of the original
holds in the patched kernel, as long as added code has waited for the registers that it gave its own operations.
"""

from __future__ import annotations

import bisect
from typing import NamedTuple

from luthier.isa.waits import Limit, WaitModel
from luthier.lifting.model import LiftedKernel
from luthier.lifting.waits.flow import Flow, leading_waits
from luthier.lifting.waits.state import State, merge
from luthier.lifting.waits.steps import Steps, widened


class _Point(NamedTuple):
    """What is outstanding before some instructions."""

    results: int
    """Units that operations will write."""
    locked: int
    """Units that operations will read."""
    state: State


class Outstanding:
    """The outstanding operations of one kernel, as they are before patching."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        self._steps = Steps(lifted)
        self.model: WaitModel = self._steps.model
        flow = Flow(lifted, self._steps, forgets=False)
        self._machine = flow.machine
        self._entry: dict[int, State] = {}
        for block, state in flow.states():
            known = self._entry.get(block)
            self._entry[block] = state if known is None else merge(known, state)
        self._blocks: dict[int, tuple[list[int], list[_Point]]] = {}
        # Functions are followed as if these had been waited for already.
        self._taken_for_done: dict[int, int] = {}
        for function in lifted.functions:
            if waits := leading_waits(self._steps.of(function.entry_block)):
                self._taken_for_done[function.entry_block] = waits[-1].last

    def needed(self, index: int, touched: int, written: int) -> tuple[Limit, ...] | None:
        """The least to wait for before instruction `index` so that registers can be used there.

        Args:
            touched: bit set of the units that are read or written.
            written: those of them that are written.

        Returns:
            None where it is not known what is outstanding.
        """
        point = self._before(index)
        if point is None:
            return None
        if self.model.halves:
            touched, written = widened(touched), widened(written)
        if not (touched & point.results or written & point.locked):
            return ()
        values: dict[int, int] = {}
        for stream, queue in zip(self.model.streams, point.state.queues, strict=True):
            mine = written if stream.locks else touched
            position = next((position for position, units in enumerate(queue) if units & mine), None)
            if position is not None:
                values[stream.counter] = min(position, values.get(stream.counter, position))
        return tuple(Limit(counter, value) for counter, value in sorted(values.items()))

    def _before(self, index: int) -> _Point | None:
        number = self._lifted.block_of[index]
        if index <= self._taken_for_done.get(number, -1):
            return None
        block = self._blocks.get(number)
        if block is None:
            state = self._entry.get(number)
            if state is None:
                return None
            block = self._blocks[number] = self._walk(number, state)
        firsts, points = block
        return points[bisect.bisect_right(firsts, index) - 1]

    def _walk(self, number: int, state: State) -> tuple[list[int], list[_Point]]:
        """First instructions of runs before which the same is outstanding, and what that is."""
        firsts, points = [self._lifted.blocks[number].first], [self._point(state)]
        for step in self._steps.of(number):
            if step.issues or step.limits or step.released is not None:
                after = self._machine.run(state, (step,))
                if after.queues != state.queues:
                    firsts.append(step.last + 1)
                    points.append(self._point(after))
                state = after
        return firsts, points

    def _point(self, state: State) -> _Point:
        results = locked = 0
        for stream, queue in zip(self.model.streams, state.queues, strict=True):
            for units in queue:
                if stream.locks:
                    locked |= units
                else:
                    results |= units
        return _Point(results, locked, state)
