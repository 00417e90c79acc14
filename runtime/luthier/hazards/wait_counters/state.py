"""State of the check of waits: for each stream, registers by the minimum number of younger operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from luthier.hazards.wait_counters.model import WaitModel
from luthier.hazards.wait_counters.steps import WaitStep

Queue = tuple[int, ...]


class OutstandingState(NamedTuple):
    """Outstanding registers on all paths to a point."""

    queues: tuple[Queue, ...]
    """For each stream, at position k the units that an operation with k younger ones of its stream (on the path with
    the fewest) still writes, or in a stream that locks, still reads. The last entry is not empty."""
    most: tuple[int, ...]
    """For each counter the maximum number of incomplete operations."""


class Behind(NamedTuple):
    """Outstanding registers after a step."""

    queues: tuple[Queue, ...]
    """Queues as in `OutstandingState`."""
    units: tuple[int, ...]
    """Units in each of the queues."""


class OutstandingUse(NamedTuple):
    """A use of outstanding registers."""

    at: int
    """First instruction of the step."""
    stream: int
    writes: bool
    """Whether the step writes them."""
    position: int
    """Number of operations younger than the one that accesses them."""
    units: int

    @property
    def key(self) -> tuple[int, int, bool]:
        """Return the key of a finding."""
        return self[:3]

    def joined(self, other: OutstandingUse) -> OutstandingUse:
        """Return the union of two uses, with the lowest position."""
        return self._replace(position=min(self.position, other.position), units=self.units | other.units)


Report = Callable[[OutstandingUse], object]
"""Called for uses of outstanding registers."""


class WaitMachine:
    """Applies steps to states of one generation.

    Args:
        forgets: whether registers stop being outstanding when they are used, so that one defect is reported once. Their
            operations still overwrite them.
    """

    def __init__(self, model: WaitModel, *, forgets: bool = True) -> None:
        self.model = model
        self._forgets = forgets
        self.empty = OutstandingState(((),) * len(model.streams), (0,) * len(model.counters))
        self._locks = tuple(stream.locks for stream in model.streams)
        self._locked = [number for number, locks in enumerate(self._locks) if locks]
        self._results = [number for number, locks in enumerate(self._locks) if not locks]
        self._ordered = tuple(stream.ordered for stream in model.streams)
        self._counter = tuple(stream.counter for stream in model.streams)
        self._limit = tuple(model.counters[stream.counter].most for stream in model.streams)
        self._beside = model.beside

    def unknown(self) -> OutstandingState:
        """Return the state after unknown code, which like functions waits for all operations that write registers."""
        return self.empty._replace(most=tuple(counter.most for counter in self.model.counters))

    @staticmethod
    def outstanding(state: OutstandingState) -> int:
        """Return the units of all operations."""
        return _union(WaitMachine.units(state.queues))

    @staticmethod
    def units(queues: tuple[Queue, ...]) -> list[int]:
        """Return the units in each queue."""
        return [_union(queue) if queue else 0 for queue in queues]

    def run(
        self,
        state: OutstandingState,
        steps: Sequence[WaitStep],
        report: Report | None = None,
        *,
        only: bool = False,
        before_waits: Callable[[int, OutstandingState], None] | None = None,
        behind: list[Behind] | None = None,
    ) -> OutstandingState:
        """Return the state after the steps.

        Args:
            report: called for accesses.
            only: follow only the outstanding registers of `state`; further operations are just counted.
            before_waits: called with the number and the state before each step that only waits.
            behind: receives the outstanding registers after each step.
        """
        if not steps:  # a frequent case
            return state
        queues, most = list(state.queues), list(state.most)
        held = self.units(state.queues)
        forgets = self._forgets
        results, locked = self.together(held) if forgets else (0, 0)
        for number, step in enumerate(steps):
            if step.limits or step.released is not None:
                if before_waits is not None and step.is_wait:
                    before_waits(number, OutstandingState(tuple(queues), tuple(most)))
                self._wait(step, queues, most, held)
                if forgets:
                    results, locked = self.together(held)
            if forgets and (step.touches & results or step.writes & locked):
                self._access(step, queues, held, report)
                results, locked = self.together(held)
            if step.issues:
                for stream in step.replaced:
                    if held[stream] & step.writes:
                        queues[stream] = trim(tuple([here & ~step.writes for here in queues[stream]]))
                        held[stream] = _union(queues[stream])
                for stream, units in step.issues:
                    self._issue(stream, units, queues, most, held, only)
                if forgets:
                    results, locked = self.together(held)
            if behind is not None:
                behind.append(Behind(tuple(queues), tuple(held)))
        return OutstandingState(tuple(queues), tuple(most))

    def together(self, units: Sequence[int]) -> tuple[int, int]:
        """Return the units of the queues that operations will write, and those that they will read."""
        results = locked = 0
        for stream in self._results:
            results |= units[stream]
        for stream in self._locked:
            locked |= units[stream]
        return results, locked

    def _wait(self, step: WaitStep, queues: list[Queue], most: list[int], held: list[int]) -> None:
        for counter, value in step.limits:
            if most[counter] > value:
                most[counter] = value
            for stream in self.model.streams_of[counter]:
                if len(queues[stream]) > value:
                    queues[stream] = trim(queues[stream][:value])
                    held[stream] = _union(queues[stream])
        if step.released is not None:
            queues[step.released], held[step.released] = (), 0

    def _access(self, step: WaitStep, queues: list[Queue], held: list[int], report: Report | None) -> None:
        """Report registers that are used, and forget them."""
        for stream, queue in enumerate(queues):
            units = held[stream] & (step.writes if self._locks[stream] else step.touches)
            writes = step.writes
            if stream in step.replaced:
                writes &= ~step.both
                units &= ~writes
            if not units:
                continue
            for position, entry in enumerate(queue):
                bad = entry & units
                if bad and report is not None:
                    for is_write, some in ((False, bad & ~writes), (True, bad & writes)):
                        if some:
                            report(OutstandingUse(step.first, stream, is_write, position, some))
            queues[stream] = trim(tuple([entry & ~units for entry in queue]))
            held[stream] &= ~units

    def _issue(
        self, stream: int, units: int, queues: list[Queue], most: list[int], held: list[int], only: bool
    ) -> None:
        queue, limit, counter = queues[stream], self._limit[stream], self._counter[stream]
        if most[counter] < limit:
            most[counter] += 1
        if only:
            units = 0
        if not self._ordered[stream]:
            if units:
                held[stream] |= units
                queues[stream] = (held[stream],)
        elif queue or units:
            queues[stream] = trim((units, *queue[: limit - 1]))
            held[stream] = held[stream] | units if len(queue) < limit else _union(queues[stream])
        for other in self._beside[stream]:
            if queues[other]:
                queues[other] = trim((0, *queues[other][: limit - 1]))
                held[other] = _union(queues[other])


def merge(first: OutstandingState, second: OutstandingState) -> OutstandingState:
    """Return the union of two states: `first` itself if `second` adds nothing."""
    queues = tuple(
        one if one == two else _merge_queues(one, two) for one, two in zip(first.queues, second.queues, strict=True)
    )
    most = tuple(map(max, first.most, second.most))
    return first if queues == first.queues and most == first.most else OutstandingState(queues, most)


def _merge_queues(left: Queue, right: Queue) -> Queue:
    seen = 0
    queue = []
    for position in range(max(len(left), len(right))):
        units = left[position] if position < len(left) else 0
        if position < len(right):
            units |= right[position]
        queue.append(units & ~seen)
        seen |= units
    return trim(tuple(queue))


def trim(queue: Queue) -> Queue:
    """Return a queue without empty entries at its end."""
    if not queue or queue[-1]:
        return queue
    count = len(queue) - 1
    while count and not queue[count - 1]:
        count -= 1
    return queue[:count]


def _union(queue: Iterable[int]) -> int:
    units = 0
    for entry in queue:
        units |= entry
    return units
