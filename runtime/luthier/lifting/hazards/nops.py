"""``s_nop`` of which no path needs all."""

from __future__ import annotations

from collections.abc import Iterator

from luthier.isa.hazard_model import Ticks
from luthier.lifting.hazards.flow import Flow
from luthier.lifting.hazards.state import Entry, State
from luthier.lifting.hazards.steps import Step, Steps
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import successors

MOST_BLOCKS = 64
"""Blocks that are looked at behind an ``s_nop``; if that does not settle it, all of it counts as needed."""


def unneeded_nops(lifted: LiftedKernel, steps: Steps, flow: Flow) -> Iterator[tuple[int, int, int]]:
    """Instructions that wait longer than any path needs, how many wait states, and how many are needed."""
    nops = steps.nops()
    if not nops:
        return
    states: dict[int, list[State]] = {}
    for block, state in flow.states():
        states.setdefault(block, []).append(state)
    following = successors(lifted)
    for index in nops:
        block = lifted.block_of[index]
        here = int(steps.total[index + 1, 0] - steps.total[index, 0])
        needed = max((_needed(steps, flow, following, index, state) for state in states.get(block, ())), default=0)
        if needed < here and not _before_release(lifted, index):
            yield index, here, needed


def _needed(steps: Steps, flow: Flow, following: list[list[int]], index: int, state: State) -> int:
    """How many of its wait states a nop must have if its block is entered in a state: as many as the consumer behind
    it lacks most without it."""
    lifted = steps.lifted
    block = lifted.block_of[index]
    first = lifted.blocks[block].first
    own = steps.of(block)
    until = Ticks(*(steps.total[index] - steps.total[first]).tolist())
    here = int(steps.total[index + 1, 0] - steps.total[index, 0])
    before = flow.machine.run(state, [step for step in own if step.at < index], until)
    if not before:
        return 0
    lacks = 0

    machine = flow.machine

    def report(step: Step, entry: Entry, units: int, needed: int) -> None:
        nonlocal lacks
        if machine.model.rules[entry.rule].hazard.clock == "states":
            lacks = max(lacks, needed - entry.age, 1)

    # What is before it stays as old as it is: the nop takes no time.
    after = Ticks(until.states + here, until.vector, until.transcendental)
    now = machine.run(
        before,
        [step for step in own if step.at > index],
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
    """Whether it stands before a wave gives its vector registers back, as GFX11 needs it."""
    message = lifted.target.dealloc_vgprs_message
    if message is None or index + 1 >= len(lifted.code):
        return False
    following = lifted.isa.opcode(lifted.columns.opcode[index + 1]) if lifted.columns.opcode[index + 1] >= 0 else None
    return following is not None and following.pseudo == "S_SENDMSG"
