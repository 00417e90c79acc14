"""Operations that may be outstanding at each point of a kernel, and the waits of code inserted there.

Operations that are added to a kernel do not weaken its own waits: a wait for a counter allows only the youngest
operations to be incomplete, and added operations are younger than earlier ones of the application. Facts about the
original kernel therefore hold in the patched kernel, provided that added code waits for registers of its operations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from luthier.hazards.wait_counters.dataflow import WaitPaths, leading_waits
from luthier.hazards.wait_counters.model import Limit, WaitModel
from luthier.hazards.wait_counters.state import Behind, OutstandingState, Queue, WaitMachine, merge
from luthier.hazards.wait_counters.steps import WaitSteps, widened
from luthier.lifting.model import BasicBlock, LiftedKernel
from luthier.lifting.paths import Paths


class _Stretch(NamedTuple):
    """Adjacent instructions before which the same operations are outstanding."""

    results: int
    """Units that operations will write."""
    locked: int
    """Units that operations will read."""
    queues: tuple[Queue, ...]
    """Queues as in `OutstandingState`."""


class Outstanding:
    """The outstanding operations of one kernel before patching."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        self._steps = WaitSteps(lifted, plain=False)
        self.model: WaitModel = self._steps.model
        paths = self._paths = WaitPaths(lifted, self._steps, forgets=False, keeps=True)
        self._entry: dict[int, OutstandingState] = {}
        for block, state in paths.states(Paths(paths)):
            known = self._entry.get(block)
            self._entry[block] = state if known is None else merge(known, state)
        self._stretches: list[_Stretch] = []
        # The states at function entries are those after the leading waits.
        self._taken_for_done: dict[int, int] = {}
        for function in lifted.functions:
            if waits := leading_waits(self._steps, function.entry_block):
                self._taken_for_done[function.entry_block] = waits[-1].last

    @functools.cached_property
    def stretches(self) -> list[int]:
        """Return [n] the stretch of each instruction, -1 if the outstanding operations are unknown.

        The same operations are outstanding before all instructions of a stretch.
        """
        stretches = [-1] * len(self._lifted.block_of)
        for number, state in self._entry.items():
            block = self._lifted.blocks[number]
            begin = max(block.first, self._taken_for_done.get(number, -1) + 1)
            for last, outstanding in self._walk(block, state):
                if last >= begin:
                    stretches[begin : last + 1] = [len(self._stretches)] * (last + 1 - begin)
                    self._stretches.append(outstanding)
                    begin = last + 1
        return stretches

    def needed(self, index: int, touched: int, written: int) -> tuple[Limit, ...] | None:
        """Return the weakest waits before instruction `index` that allow the use of registers there.

        Args:
            touched: bit set of the units that are read or written.
            written: bit set of the units that are written.

        Returns:
            None if the outstanding operations are unknown.
        """
        return self.needed_in(self.stretches[index], touched, written)

    def needed_in(self, stretch: int, touched: int, written: int) -> tuple[Limit, ...] | None:
        """Return the result of `needed` for the instructions of a stretch."""
        if stretch < 0:
            return None
        outstanding = self._stretches[stretch]
        if self.model.halves:
            touched, written = widened(touched), widened(written)
        if not (touched & outstanding.results or written & outstanding.locked):
            return ()
        values: dict[int, int] = {}
        for stream, queue in zip(self.model.streams, outstanding.queues, strict=True):
            used = written if stream.locks else touched
            position = next((position for position, units in enumerate(queue) if units & used), None)
            if position is not None:
                values[stream.counter] = min(position, values.get(stream.counter, position))
        return tuple(Limit(counter, value) for counter, value in sorted(values.items()))

    def _walk(self, block: BasicBlock, state: OutstandingState) -> Iterator[tuple[int, _Stretch]]:
        """Yield the last instruction of each stretch of a block, and its outstanding operations."""
        queues, units = Behind(state.queues, tuple(WaitMachine.units(state.queues)))
        for step, after in zip(self._steps.of(block.index), self._paths.walk(block.index, state), strict=True):
            if after.queues != queues:
                yield step.last, self._stretch(queues, units)
                queues, units = after
        yield block.last, self._stretch(queues, units)

    def _stretch(self, queues: tuple[Queue, ...], units: tuple[int, ...]) -> _Stretch:
        results, locked = self._paths.machine.together(units)
        return _Stretch(results, locked, queues)
