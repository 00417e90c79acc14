"""What is outstanding at a point: for each stream, registers by how many younger operations there are at least."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from luthier.isa.waits import WaitModel
from luthier.lifting.waits.steps import Step

Queue = tuple[int, ...]


class State(NamedTuple):
    """The same on all ways to a point; compared by value."""

    queues: tuple[Queue, ...]
    """For each stream, at position k the units that an operation with k younger ones of its stream (on the way that has
    fewest) still writes, or for a stream that locks still reads. The last is not empty."""
    most: tuple[int, ...]
    """For each counter the most operations that may not be done."""


Report = Callable[[Step, int, int, int, bool], None]
"""Called for an access to outstanding registers: the step, the stream, the position, the units, whether it writes
them."""


class Machine:
    """Applies steps to states of one generation.

    Args:
        forgets: whether registers that are used while they are outstanding are so no more: then one mistake is found
            once. What comes meanwhile overwrites them all the same.
    """

    def __init__(self, model: WaitModel, *, forgets: bool = True) -> None:
        self.model = model
        self._forgets = forgets
        self.empty = State(((),) * len(model.streams), (0,) * len(model.counters))
        self._locks = tuple(stream.locks for stream in model.streams)
        self._ordered = tuple(stream.ordered for stream in model.streams)
        self._counter = tuple(stream.counter for stream in model.streams)
        self._limit = tuple(model.counters[stream.counter].most for stream in model.streams)

    def unknown(self) -> State:
        """Behind code that is not known and waits for all that gives registers, as functions do."""
        return self.empty._replace(most=tuple(counter.most for counter in self.model.counters))

    def run(self, state: State, steps: Iterable[Step], report: Report | None = None, *, only: bool = False) -> State:
        """The state behind the steps.

        Args:
            report: called for accesses.
            only: follow what is outstanding in `state` alone; further operations only count.
        """
        queues = [list(queue) for queue in state.queues]
        most = list(state.most)
        held = [_union(queue) for queue in queues]
        results, locked = self._held(held)
        for step in steps:
            if step.limits or step.released is not None:
                for counter, value in step.limits:
                    most[counter] = min(most[counter], value)
                    for stream in self.model.streams_of[counter]:
                        if len(queues[stream]) > value:
                            del queues[stream][value:]
                            held[stream] = _union(_trim(queues[stream]))
                if step.released is not None:
                    queues[step.released], held[step.released] = [], 0
                results, locked = self._held(held)
            if self._forgets and (step.touches & results or step.writes & locked):
                self._access(step, queues, held, report)
                results, locked = self._held(held)
            if step.issues:
                for stream in step.replaced:
                    if held[stream] & step.writes:
                        queues[stream][:] = [here & ~step.writes for here in queues[stream]]
                        held[stream] = _union(_trim(queues[stream]))
                for stream, units in step.issues:
                    self._issue(stream, units, queues, most, held, only)
                results, locked = self._held(held)
        return State(tuple(map(tuple, queues)), tuple(most))

    def _held(self, held: list[int]) -> tuple[int, int]:
        results = locked = 0
        for units, locks in zip(held, self._locks, strict=True):
            if locks:
                locked |= units
            else:
                results |= units
        return results, locked

    def _access(self, step: Step, queues: list[list[int]], held: list[int], report: Report | None) -> None:
        """Report registers that are used, and forget them."""
        for stream, queue in enumerate(queues):
            units = held[stream] & (step.writes if self._locks[stream] else step.touches)
            writes = step.writes
            if stream in step.replaced:
                writes &= ~step.both
                units &= ~writes
            if not units:
                continue
            for position, here in enumerate(queue):
                bad = here & units
                if not bad:
                    continue
                if report is not None:
                    for is_write, some in ((False, bad & ~writes), (True, bad & writes)):
                        if some:
                            report(step, stream, position, some, is_write)
                queue[position] = here & ~bad
            held[stream] = _union(_trim(queue))

    def _issue(
        self, stream: int, units: int, queues: list[list[int]], most: list[int], held: list[int], only: bool
    ) -> None:
        queue, limit, counter = queues[stream], self._limit[stream], self._counter[stream]
        most[counter] = min(limit, most[counter] + 1)
        if not self._ordered[stream]:
            if units and not only:
                queue[:] = [units | held[stream]]
        elif queue or (units and not only):
            queue.insert(0, 0 if only else units)
            del queue[limit:]
            _trim(queue)
        held[stream] = _union(queue)


def merge(first: State, second: State) -> State:
    """What holds on either way: `first` itself if `second` adds nothing."""
    queues = tuple(
        one if one == two else _merge_queues(one, two) for one, two in zip(first.queues, second.queues, strict=True)
    )
    most = tuple(map(max, first.most, second.most))
    return first if queues == first.queues and most == first.most else State(queues, most)


def _merge_queues(one: Queue, two: Queue) -> Queue:
    seen = 0
    queue = []
    for position in range(max(len(one), len(two))):
        units = one[position] if position < len(one) else 0
        if position < len(two):
            units |= two[position]
        queue.append(units & ~seen)
        seen |= units
    return tuple(_trim(queue))


def _trim(queue: list[int]) -> list[int]:
    while queue and not queue[-1]:
        queue.pop()
    return queue


def _union(queue: Iterable[int]) -> int:
    units = 0
    for here in queue:
        units |= here
    return units
