"""Follows registers that are outstanding before some code, at any queue position.

Code moves a register from position `p` to `p` plus a number of younger operations, its *shift*, unless it waits for the
register on the way. It waits if `p` is not below a *limit*. So one pass over a function gives its effect for all
positions: registers with the shift and limit of each path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from luthier.hazards.wait_counters.model import WaitModel
from luthier.hazards.wait_counters.state import OutstandingState, Queue, trim
from luthier.hazards.wait_counters.steps import WaitStep


class CarriedUnits(NamedTuple):
    """Registers that stay outstanding on some paths."""

    shift: int
    """Minimum number of operations issued to their stream."""
    limit: int
    """Registers at this position and above are waited for."""
    units: int


class Carried(NamedTuple):
    """The effect of the code on all paths from the beginning of a function to a point."""

    streams: tuple[tuple[CarriedUnits, ...], ...]
    """For each stream, by ascending shift. A unit that occurs twice has the higher limit with the higher shift."""


class CarryMachine:
    """Follows outstanding registers at unknown positions through the steps of one generation.

    Args:
        forgets: see `WaitMachine`.
    """

    def __init__(self, model: WaitModel, *, forgets: bool) -> None:
        self._model, self._forgets = model, forgets
        self._most = [model.counters[stream.counter].most for stream in model.streams]

    def everything(self, units: int) -> Carried:
        """Return the effect of no code on the same units in every stream."""
        ordered = zip(self._most, self._model.streams, strict=True)
        return Carried(tuple((CarriedUnits(0, most if stream.ordered else 1, units),) for most, stream in ordered))

    def run(self, carried: Carried, steps: Iterable[WaitStep]) -> Carried:
        """Return the effect of the code up to a point and further steps."""
        streams = list(carried.streams)
        for step in steps:
            for counter, value in step.limits:
                for stream in self._model.streams_of[counter]:
                    streams[stream] = _waited(streams[stream], value)
            if step.released is not None:
                streams[step.released] = ()
            if self._forgets:
                for stream, carries in enumerate(streams):
                    if carries:
                        streams[stream] = _without(carries, self._accessed(stream, step))
            if step.issues:
                for stream in step.replaced:
                    streams[stream] = _without(streams[stream], step.writes)
                for stream, _ in step.issues:
                    most = self._most[stream]
                    if self._model.streams[stream].ordered:
                        streams[stream] = _issued(streams[stream], most)
                    for other in self._model.beside[stream]:
                        streams[other] = _issued(streams[other], most)
        return Carried(tuple(streams))

    def _accessed(self, stream: int, step: WaitStep) -> int:
        """Return the units that a step would find outstanding in a stream, and that are forgotten then."""
        units = step.writes if self._model.streams[stream].locks else step.touches
        return units & ~(step.writes & ~step.both) if stream in step.replaced else units


def joined(first: Carried, second: Carried) -> Carried:
    """Return the effect of two ways to a point: `first` itself if `second` adds nothing."""
    streams = tuple(
        one if one == two else _reduced([*one, *two]) for one, two in zip(first.streams, second.streams, strict=True)
    )
    return first if streams == first.streams else Carried(streams)


def followed_by(first: Carried, second: Carried) -> Carried:
    """Return the effect of code, and of a function that it calls then."""
    return Carried(
        tuple(
            _reduced(
                [
                    CarriedUnits(one.shift + two.shift, min(one.limit, two.limit - one.shift), one.units & two.units)
                    for one in ones
                    for two in twos
                ]
            )
            for ones, twos in zip(first.streams, second.streams, strict=True)
        )
    )


def applied(state: OutstandingState, carried: Carried) -> tuple[Queue, ...]:
    """Return the queues after code that is entered in a state, without the operations that it issues."""
    return tuple(_applied(queue, carries) for queue, carries in zip(state.queues, carried.streams, strict=True))


def _applied(queue: Queue, carries: Sequence[CarriedUnits]) -> Queue:
    if not queue or not carries:
        return ()
    units = [0] * (len(queue) + carries[-1].shift)
    for shift, limit, kept in carries:
        for position, entry in enumerate(queue[:limit]):
            units[position + shift] |= entry & kept
    seen = 0
    for position, entry in enumerate(units):
        units[position] = entry & ~seen
        seen |= entry
    return trim(tuple(units))


def _waited(carries: tuple[CarriedUnits, ...], value: int) -> tuple[CarriedUnits, ...]:
    if all(carry.limit + carry.shift <= value for carry in carries):
        return carries
    return _reduced([CarriedUnits(shift, min(limit, value - shift), units) for shift, limit, units in carries])


def _issued(carries: tuple[CarriedUnits, ...], most: int) -> tuple[CarriedUnits, ...]:
    """Return the effect with one more operation in a stream of at most `most`."""
    if not carries:
        return carries
    return _reduced([CarriedUnits(shift + 1, min(limit, most - shift - 1), units) for shift, limit, units in carries])


def _without(carries: tuple[CarriedUnits, ...], units: int) -> tuple[CarriedUnits, ...]:
    if not any(carry.units & units for carry in carries):
        return carries
    return tuple([CarriedUnits(shift, limit, rest) for shift, limit, kept in carries if (rest := kept & ~units)])


def _reduced(carries: list[CarriedUnits]) -> tuple[CarriedUnits, ...]:
    """Return the carries without those that others include, by having no higher shift and no lower limit."""
    units_by_way: dict[tuple[int, int], int] = {}
    for shift, limit, units in carries:
        if limit > 0:
            way = shift, -limit
            units_by_way[way] = units_by_way.get(way, 0) | units
    reduced: list[CarriedUnits] = []
    for (shift, limit), units in sorted(units_by_way.items()):
        for known in reduced:
            if known.limit >= -limit:
                units &= ~known.units
        if units:
            reduced.append(CarriedUnits(shift, -limit, units))
    return tuple(reduced)
