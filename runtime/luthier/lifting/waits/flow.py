"""The states at the beginnings of all blocks, through calls and returns.

Each function is followed once for every state that it is called in, so what is outstanding at one call does not come
back from another. What its first instructions wait for is waited for before states are compared: functions of compilers
begin with a wait for everything, and so are followed once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from luthier.lifting.model import CallSite, LiftedKernel
from luthier.lifting.waits.state import Machine, Queue, State, merge
from luthier.lifting.waits.steps import Step, Steps

MOST_CONTEXTS = 64
"""States in which a function is followed apart; further ones are joined."""
WIDEN_AFTER = 4
"""Visits of a block after which counts of operations that grow are taken to be as large as can be."""


@dataclass(eq=False)
class _Context:
    """A function in one of the states that it is called in."""

    number: int
    function: int
    exit: State | None = None
    """Behind its returns; None: none is known yet."""
    returns: list[tuple[_Context, int | None]] = field(default_factory=list)
    """Where control comes back to: the caller and its block, or None behind a tail call."""


class Flow:
    """The states of one kernel.

    Args:
        forgets: as of `Machine`.
    """

    def __init__(self, lifted: LiftedKernel, steps: Steps, *, forgets: bool = True) -> None:
        self._lifted = lifted
        self._steps = steps
        self.machine = Machine(steps.model, forgets=forgets)
        self._calls: dict[int, CallSite] = {call.index: call for one in lifted.functions for call in one.calls}
        self._contexts: list[_Context] = []
        self._by_state: dict[tuple[int, tuple[Queue, ...] | None], _Context] = {}
        self._of_function: dict[int, int] = {}
        self.entry: dict[tuple[int, int], State] = {}
        """(context, block) -> the state before its first step."""
        self._visits: dict[tuple[int, int], int] = {}
        self._heap: list[tuple[int, int]] = []
        self._waiting: set[tuple[int, int]] = set()
        kernel = self._context(0, None)
        for address in lifted.hardware_entries:
            index = lifted.index_at(address)
            if index is not None:
                self._reach(kernel, lifted.block_of[index], self.machine.empty)
        while self._heap:
            place = heapq.heappop(self._heap)
            self._waiting.discard(place)
            self._visit(*place)

    def states(self) -> Iterator[tuple[int, State]]:
        """Blocks that are reached, with a state before each; several of a block in several contexts."""
        for (_, block), state in self.entry.items():
            yield block, state

    def _context(self, function: int, key: tuple[Queue, ...] | None) -> _Context:
        found = self._by_state.get((function, key))
        if found is None:
            if self._of_function.get(function, 0) >= MOST_CONTEXTS and key is not None:
                return self._context(function, None)
            found = self._by_state[function, key] = _Context(len(self._contexts), function)
            self._contexts.append(found)
            self._of_function[function] = self._of_function.get(function, 0) + 1
        return found

    def _reach(self, context: _Context, block: int, state: State) -> None:
        place = context.number, block
        known = self.entry.get(place)
        if known is not None:
            joined = merge(known, state)
            if joined is known:
                return
            visits = self._visits[place] = self._visits.get(place, 0) + 1
            if visits > WIDEN_AFTER:
                counts = zip(known.most, joined.most, self.machine.unknown().most, strict=True)
                joined = joined._replace(most=tuple(widest if now > was else now for was, now, widest in counts))
            state = joined
        self.entry[place] = state
        if place not in self._waiting:
            self._waiting.add(place)
            heapq.heappush(self._heap, place)

    def _visit(self, number: int, index: int) -> None:
        context, block = self._contexts[number], self._lifted.blocks[index]
        state = self.machine.run(self.entry[number, index], self._steps.of(index))
        call = self._calls.get(block.last)
        if call is not None:
            self._call(context, call, state)
            return
        if block.exit == "return":
            self._leave(context, state)
            return
        for edge in block.successors:
            self._reach(context, edge.to, state)

    def _call(self, context: _Context, call: CallSite, state: State) -> None:
        back = None if call.kind == "tail" else call.return_block
        if not call.known:
            self._come_back(context, back, self.machine.unknown())
        for function in call.callees:
            entry = self._lifted.functions[function].entry_block
            ready = self.machine.run(state, _leading_waits(self._steps.of(entry)))
            callee = self._context(function, ready.queues)
            place = context, back
            if place not in callee.returns:
                callee.returns.append(place)
            if callee.exit is not None:
                self._come_back(context, back, callee.exit)
            self._reach(callee, entry, ready)

    def _leave(self, context: _Context, state: State) -> None:
        joined = state if context.exit is None else merge(context.exit, state)
        if joined is context.exit:
            return
        context.exit = joined
        for caller, block in context.returns:
            self._come_back(caller, block, joined)

    def _come_back(self, context: _Context, block: int | None, state: State) -> None:
        if block is None:
            self._leave(context, state)
        else:
            self._reach(context, block, state)


def _leading_waits(steps: list[Step]) -> list[Step]:
    """The waits that a block begins with."""
    number = 0
    while number < len(steps) and steps[number].limits and not steps[number].issues:
        number += 1
    return steps[:number]
