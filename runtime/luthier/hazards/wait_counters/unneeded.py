"""Waits that no path needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np

from luthier.hazards.paths import Onward
from luthier.hazards.wait_counters.dataflow import WaitPaths, WaitsOnPaths
from luthier.hazards.wait_counters.model import Limit
from luthier.hazards.wait_counters.state import OutstandingState, OutstandingUse, merge
from luthier.hazards.wait_counters.steps import WaitStep
from luthier.isa import InstructionFlag
from luthier.lifting.paths import successors

_F = InstructionFlag
_MEMORY = int(_F.SMEM | _F.VMEM | _F.FLAT | _F.DS | _F.EXPORT | _F.GWS | _F.SIDE_EFFECTS)
"""Instructions before which a wait may serve the order of memory accesses."""

_KNOWN_EXITS = ("fallthrough", "branch", "conditional", "end")
_STORES = frozenset({"vector", "flat", "flat lds", "store", "lds", "gds"})
"""Streams of stores to memory or LDS; some count loads, too."""

Reason = Literal["nothing can be outstanding", "nothing that it waits for is used before a later wait"]


def unneeded_waits(model: WaitPaths, paths: WaitsOnPaths) -> Iterator[tuple[int, Reason]]:
    """Yield instructions that wait for nothing, or only for unused results."""
    search = _WaitSearch(model)
    verdicts: dict[int, Reason | None] = {}
    for block, entry in model.states(paths):
        called = model.calls.get(block)
        state = entry if called is None else merge(entry, called)
        row = model.steps.of(block)

        def judge(number: int, before: OutstandingState, block: int = block, row: list[WaitStep] = row) -> None:
            step = row[number]
            if verdicts.get(step.first, "") is not None:
                reason = search.reason(block, number, before, step)
                known = verdicts.get(step.first, reason)
                verdicts[step.first] = reason if reason is None or known == reason else _USED

        waits = [number for number, step in enumerate(row) if step.is_wait]
        if waits:
            model.machine.run(state, row[: waits[-1] + 1], before_waits=judge)
    return iter(sorted((index, reason) for index, reason in verdicts.items() if reason is not None))


_NOTHING: Reason = "nothing can be outstanding"
_USED: Reason = "nothing that it waits for is used before a later wait"


class _Left(NamedTuple):
    """Operations whose completion only the examined wait has ensured so far."""

    state: OutstandingState
    """Their registers."""
    limits: frozenset[Limit]
    """Counters of stores, which have no result registers: the wait matters until a later wait for them."""


class _WaitSearch:
    def __init__(self, model: WaitPaths) -> None:
        lifted = self._lifted = model.lifted
        self._steps, self._machine = model.steps, model.machine
        self._memory: list[int] = [0, *np.cumsum(lifted.code.flags & _MEMORY != 0).tolist()]
        """[n + 1] number of memory instructions before each instruction."""
        waits = self._machine.model
        named = _STORES - {"vector"} if "store" in waits.stream_index else _STORES
        self._of_stores = {stream.counter for stream in waits.streams if stream.name in named}

    @cached_property
    def _next(self) -> list[list[int]]:
        return successors(self._lifted)

    def reason(self, block: int, number: int, before: OutstandingState, step: WaitStep) -> Reason | None:
        """Return why the wait is not needed; None if it may be needed."""
        if all(before.most[counter] <= value for counter, value in step.limits):
            return _NOTHING
        # The operations for which it waits, at their queue positions without the wait.
        queues = [(0,) * len(queue) for queue in before.queues]
        for counter, value in step.limits:
            for stream in self._machine.model.streams_of[counter]:
                queues[stream] = (*queues[stream][:value], *before.queues[stream][value:])
        if step.released is not None:
            queues[step.released] = before.queues[step.released]
        state = self._machine.empty._replace(queues=tuple(queues))
        limits = frozenset(
            limit
            for limit in step.limits
            if limit.counter in self._of_stores and before.most[limit.counter] > limit.value
        )
        return None if self._used(block, number, _Left(state, limits)) else _USED

    def _used(self, block: int, number: int, left: _Left) -> bool:
        """Return whether a register is used after a step of a block, or the order of memory accesses may matter."""
        onward: Onward[_Left] = Onward(self._next)
        rest = self._steps.of(block)[number + 1 :]
        for index, begins, steps in chain([(block, left, rest)], ((*one, self._steps.of(one[0])) for one in onward)):
            used, ends = self._through(steps, begins)
            if used or (ends is not None and self._lifted.blocks[index].exit not in _KNOWN_EXITS):
                return True
            if ends is not None:
                onward.leave(index, ends)
        return onward.gave_up

    def _through(self, steps: list[WaitStep], left: _Left) -> tuple[bool, _Left | None]:
        """Return whether steps use a register, and the operations left after them, if any."""
        uses: list[OutstandingUse] = []
        now, limits = left
        held, any_left = self._machine.outstanding(now), any(now.queues)
        for step in steps:
            if not step.limits and self._memory[step.last + 1] > self._memory[step.first]:
                return True, None
            if step.is_plain and (any_left or limits) and not step.touches & held:
                continue
            limits = frozenset(
                limit
                for limit in limits
                if not any(limit.counter == counter and value <= limit.value for counter, value in step.limits)
            )
            now = self._machine.run(now, [step], uses.append, only=True)
            held, any_left = self._machine.outstanding(now), any(now.queues)
            if uses or (not any_left and not limits):
                return bool(uses), None
        return False, _Left(now, limits)
