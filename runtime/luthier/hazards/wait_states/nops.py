"""``s_nop`` of which no path needs all."""

from __future__ import annotations

import bisect
import itertools
import operator
from collections.abc import Iterator

from luthier.hazards.wait_states.dataflow import Flow
from luthier.hazards.wait_states.model import Ticks
from luthier.hazards.wait_states.state import Entry, State
from luthier.hazards.wait_states.steps import Step, Steps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import successors

MOST_BLOCKS = 64
"""Blocks that are looked at behind an ``s_nop``; if that does not settle it, all of it counts as needed."""


def unneeded_nops(lifted: LiftedKernel, steps: Steps, flow: Flow) -> Iterator[tuple[int, int, int]]:
    """Yield instructions that wait longer than any path needs, their wait states, and how many are needed."""
    nops = steps.nops()
    if not nops:
        return
    states: dict[int, list[State]] = {}
    for block, state in flow.states():
        states.setdefault(block, []).append(state)
    following = successors(lifted)
    for block, group in itertools.groupby(nops, lifted.block_of.__getitem__):
        own = list(group)
        needed = dict.fromkeys(own, 0)
        for state in states.get(block, ()):
            for index, before in _before(steps, flow, block, own, state):
                if before:
                    needed[index] = max(needed[index], _needed(steps, flow, following, index, before))
        for index in own:
            here = _takes(steps, index)
            if needed[index] < here and not _before_release(lifted, index):
                yield index, here, needed[index]


def _takes(steps: Steps, index: int) -> int:
    """Wait states of an instruction."""
    return int(steps.total[index + 1, 0] - steps.total[index, 0])


def _until(steps: Steps, block: int, index: int) -> Ticks:
    """Return the time from the beginning of a block to one of its instructions."""
    first = steps.lifted.blocks[block].first
    return Ticks._make((steps.total[index] - steps.total[first]).tolist())


def _before(steps: Steps, flow: Flow, block: int, nops: list[int], state: State) -> Iterator[tuple[int, State]]:
    """Yield the state before each of these instructions of a block that is entered in a state."""
    own, start, begin = steps.of(block), Ticks(0, 0, 0), 0
    for index in nops:
        until = _until(steps, block, index)
        end = bisect.bisect_left(own, index, begin, key=_AT)
        state = flow.machine.run(state, own[begin:end], until, start=start)
        yield index, state
        start, begin = until, end


_AT = operator.attrgetter("at")


def _needed(steps: Steps, flow: Flow, following: list[list[int]], index: int, before: State) -> int:
    """Return how many of its wait states a nop must have in a state.

    They are as many as the consumer after it that lacks most would lack without it.
    """
    block = steps.lifted.block_of[index]
    own, until, here = steps.of(block), _until(steps, block, index), _takes(steps, index)
    lacks = 0

    machine = flow.machine

    def report(step: Step, entry: Entry, units: int, needed: int) -> None:
        nonlocal lacks
        if machine.model.rules[entry.rule].hazard.clock == "states":
            lacks = max(lacks, needed - entry.age, 1)

    # Producers before the nop keep their age: the nop itself takes no time.
    after = Ticks(until.states + here, until.vector, until.transcendental)
    now = machine.run(
        before,
        own[bisect.bisect_right(own, index, key=_AT) :],
        steps.length(block),
        report,
        start=after,
        only=True,
    )
    waiting = [(one, now) for one in following[block]]
    seen: set[tuple[int, State]] = set()
    while waiting:
        at, now = waiting.pop()
        if not now or (at, now) in seen:
            continue
        seen.add((at, now))
        if len(seen) > MOST_BLOCKS:
            return here
        now = machine.run(now, steps.of(at), steps.length(at), report, only=True)
        waiting += [(one, now) for one in following[at]]
    return min(lacks, here)


def _before_release(lifted: LiftedKernel, index: int) -> bool:
    """Return whether an s_nop stands before a wave releases its vector registers, as GFX11 needs it."""
    message = lifted.target.dealloc_vgprs_message
    if message is None or index + 1 >= len(lifted.code):
        return False
    following = lifted.isa.opcode(lifted.columns.opcode[index + 1]) if lifted.columns.opcode[index + 1] >= 0 else None
    return following is not None and following.pseudo == "S_SENDMSG"
