"""Waits that no path needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import numpy as np

from luthier.hazards.wait_counters.dataflow import Flow
from luthier.hazards.wait_counters.model import Limit
from luthier.hazards.wait_counters.state import State, merge
from luthier.hazards.wait_counters.steps import Step, Steps
from luthier.isa import InstructionFlag
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import successors

MOST_BLOCKS = 64
"""Blocks that are looked at behind a wait; if that does not settle it, the wait counts as needed."""

_F = InstructionFlag
_MEMORY = int(_F.SMEM | _F.VMEM | _F.FLAT | _F.DS | _F.EXPORT | _F.GWS | _F.SIDE_EFFECTS)
"""Instructions before which a wait may be there for the order of memory accesses."""

_STORES = frozenset({"vector", "flat", "flat lds", "store", "lds", "gds"})
"""Streams of stores, to memory or to LDS; with loads, where these are not counted apart."""

Reason = Literal["nothing can be outstanding", "nothing that it waits for is used before a later wait"]


def unneeded_waits(lifted: LiftedKernel, steps: Steps, flow: Flow) -> Iterator[tuple[int, Reason]]:
    """Yield instructions that wait for nothing, or for nothing that is used."""
    search = _Search(lifted, steps, flow)
    verdicts: dict[int, Reason | None] = {}
    for block, entry in flow.states():
        called = flow.called.get(block)
        state = entry if called is None else merge(entry, called)
        row = steps.of(block)

        def judge(number: int, before: State, block: int = block, row: list[Step] = row) -> None:
            step = row[number]
            if verdicts.get(step.first, "") is not None:
                reason = search.reason(block, number, step, before)
                known = verdicts.get(step.first, reason)
                verdicts[step.first] = reason if reason is None or known == reason else _USED

        waits = [number for number, step in enumerate(row) if step.is_wait]
        if waits:
            flow.machine.run(state, row[: waits[-1] + 1], before_waits=judge)
    return iter(sorted((index, reason) for index, reason in verdicts.items() if reason is not None))


_NOTHING: Reason = "nothing can be outstanding"
_USED: Reason = "nothing that it waits for is used before a later wait"


class _Search:
    def __init__(self, lifted: LiftedKernel, steps: Steps, flow: Flow) -> None:
        self._lifted = lifted
        self._steps = steps
        self._machine = flow.machine
        self._memory: list[int] = [0, *np.cumsum(lifted.code.flags & _MEMORY != 0).tolist()]
        """[n + 1] instructions of these before each."""
        model = self._machine.model
        named = _STORES - {"vector"} if "store" in model.stream_index else _STORES
        self._of_stores = {stream.counter for stream in model.streams if stream.name in named}

    @cached_property
    def _next(self) -> list[list[int]]:
        return successors(self._lifted)

    def reason(self, block: int, number: int, step: Step, before: State) -> Reason | None:
        """Return why the wait is not needed; None if it may be."""
        if all(before.most[counter] <= value for counter, value in step.limits):
            return _NOTHING
        # The operations that it waits for, at the queue positions that they would have without the wait.
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
        return None if self._used(block, number + 1, state, limits) else _USED

    def _used(self, block: int, first: int, state: State, limits: frozenset[Limit]) -> bool:
        """Return whether some of these outstanding registers are used, or the order of memory accesses may matter.

        Args:
            limits: what is waited for that stores count, which give no registers: it matters up to a later wait for it.
        """
        waiting = [(block, first, state, limits)]
        seen: set[tuple[int, State, frozenset[Limit]]] = set()
        while waiting:
            index, begin, now, left = waiting.pop()
            touched: list[int] = []
            held, there = self._machine.outstanding(now), any(now.queues)
            for step in self._steps.of(index)[begin:]:
                if not step.limits and self._memory[step.last + 1] > self._memory[step.first]:
                    return True
                if step.is_plain and (there or left) and not step.touches & held:
                    continue
                left = frozenset(
                    one
                    for one in left
                    if not any(one.counter == at and value <= one.value for at, value in step.limits)
                )
                now = self._machine.run(now, [step], lambda *_, touched=touched: touched.append(1), only=True)
                if touched:
                    return True
                held, there = self._machine.outstanding(now), any(now.queues)
                if not there and not left:
                    break
            else:
                if self._lifted.blocks[index].exit not in ("fallthrough", "branch", "conditional", "end"):
                    return True
                for following in self._next[index]:
                    if (following, now, left) not in seen:
                        seen.add((following, now, left))
                        waiting.append((following, 0, now, left))
                if len(seen) > MOST_BLOCKS:
                    return True
        return False
