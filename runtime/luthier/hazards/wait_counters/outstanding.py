"""Operations that may be outstanding at each point of a kernel, and the waits of code inserted there.

Operations that are added to a kernel make its own waits no weaker: a wait for a counter lets through so many youngest
operations, and older ones of the application's only get more of those behind them. So what is known of the original
holds in the patched kernel, as long as added code has waited for the registers that it gave its own operations.
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
    """Neighbouring instructions before which the same is outstanding."""

    results: int
    """Units that operations will write."""
    locked: int
    """Units that operations will read."""
    queues: tuple[Queue, ...]
    """Queues as in `OutstandingState`."""


class Outstanding:
    """The outstanding operations of one kernel, as they are before patching."""

    def __init__(self, lifted: LiftedKernel) -> None:
        self._lifted = lifted
        self._steps = WaitSteps(lifted, plain=False)
        self.model: WaitModel = self._steps.model
        paths = self._paths = WaitPaths(lifted, self._steps, forgets=False, keeps=True)
        self._entry: dict[int, OutstandingState] = {}
        for block, state in Paths(paths).states():
            known = self._entry.get(block)
            self._entry[block] = state if known is None else merge(known, state)
        self._stretches: list[_Stretch] = []
        # Functions are analysed as if their leading waits had already been done.
        self._taken_for_done: dict[int, int] = {}
        for function in lifted.functions:
            if waits := leading_waits(self._steps, function.entry_block):
                self._taken_for_done[function.entry_block] = waits[-1].last

    @functools.cached_property
    def stretches(self) -> list[int]:
        """Return [n] the stretch of each instruction: before those with the same number, the same is outstanding.

        It is -1 where it is not known what is.
        """
        found = [-1] * len(self._lifted.block_of)
        for number, state in self._entry.items():
            block = self._lifted.blocks[number]
            begin = max(block.first, self._taken_for_done.get(number, -1) + 1)
            for last, outstanding in self._walk(block, state):
                if last >= begin:
                    found[begin : last + 1] = [len(self._stretches)] * (last + 1 - begin)
                    self._stretches.append(outstanding)
                    begin = last + 1
        return found

    def needed(self, index: int, touched: int, written: int) -> tuple[Limit, ...] | None:
        """Return the least to wait for before instruction `index` so that registers can be used there.

        Args:
            touched: bit set of the units that are read or written.
            written: those of them that are written.

        Returns:
            None where it is not known what is outstanding.
        """
        return self.needed_in(self.stretches[index], touched, written)

    def needed_in(self, stretch: int, touched: int, written: int) -> tuple[Limit, ...] | None:
        """Return the result of `needed` by the number of the instruction's stretch."""
        if stretch < 0:
            return None
        here = self._stretches[stretch]
        if self.model.halves:
            touched, written = widened(touched), widened(written)
        if not (touched & here.results or written & here.locked):
            return ()
        values: dict[int, int] = {}
        for stream, queue in zip(self.model.streams, here.queues, strict=True):
            mine = written if stream.locks else touched
            position = next((position for position, units in enumerate(queue) if units & mine), None)
            if position is not None:
                values[stream.counter] = min(position, values.get(stream.counter, position))
        return tuple(Limit(counter, value) for counter, value in sorted(values.items()))

    def _walk(self, block: BasicBlock, state: OutstandingState) -> Iterator[tuple[int, _Stretch]]:
        """Yield the last instruction of each stretch of a block, and what is outstanding there."""
        queues, units = Behind(state.queues, tuple(WaitMachine.units(state.queues)))
        for step, after in zip(self._steps.of(block.index), self._paths.walk(block.index, state), strict=True):
            if after.queues != queues:
                yield step.last, self._stretch(queues, units)
                queues, units = after
        yield block.last, self._stretch(queues, units)

    def _stretch(self, queues: tuple[Queue, ...], units: tuple[int, ...]) -> _Stretch:
        results, locked = self._paths.machine.together(units)
        return _Stretch(results, locked, queues)
