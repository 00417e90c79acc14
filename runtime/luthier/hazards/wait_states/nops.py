"""Search for ``s_nop`` that are longer than any path needs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from luthier.hazards.paths import Onward
from luthier.hazards.wait_states.dataflow import HazardPaths
from luthier.hazards.wait_states.state import Lacking, ProducerEntry, State, TooNear
from luthier.lifting.model import LiftedKernel
from luthier.lifting.paths import Paths, successors


def unneeded_nops(model: HazardPaths, paths: Paths[State, ProducerEntry, TooNear]) -> Iterator[tuple[int, int, int]]:
    """Yield instructions that wait longer than any path needs, their wait states, and the needed wait states."""
    lifted, nops = model.lifted, model.steps.nops()
    if not nops:
        return
    states: dict[int, list[State]] = {}
    for block, state in paths.states():
        states.setdefault(block, []).append(state)
    following = successors(lifted)
    for block, group in itertools.groupby(nops, lifted.block_of.__getitem__):
        own = list(group)
        needed = dict.fromkeys(own, 0)
        for state in states.get(block, ()):
            for index, before in zip(own, model.before(block, own, state), strict=True):
                if before:
                    needed[index] = max(needed[index], _needed(model, following, index, before))
        for index in own:
            takes = _takes(model, index)
            if needed[index] < takes and not _before_release(lifted, index):
                yield index, takes, needed[index]


def _takes(model: HazardPaths, index: int) -> int:
    """Return the wait states of an instruction."""
    total = model.steps.total
    return int(total[index + 1, 0] - total[index, 0])


def _needed(model: HazardPaths, following: list[list[int]], index: int, before: State) -> int:
    """Return the wait states that a nop needs in a state.

    This is the maximum that a consumer after it would lack without it, since producers before it would keep their age.
    """
    block, takes = model.lifted.block_of[index], _takes(model, index)
    lacking = Lacking(model.machine.model.rules, forever=True)
    onward: Onward[State] = Onward(following)
    onward.leave(block, model.follow(block, before, lacking, behind=index, only=True))
    for at, now in onward:
        onward.leave(at, model.follow(at, now, lacking, only=True))
    return takes if onward.gave_up else min(lacking.states, takes)


def _before_release(lifted: LiftedKernel, index: int) -> bool:
    """Return whether an s_nop precedes a deallocation of vector registers, as GFX11 requires."""
    message = lifted.target.dealloc_vgprs_message
    if message is None or index + 1 >= len(lifted.code):
        return False
    number = lifted.columns.opcode[index + 1]
    return number >= 0 and lifted.isa.opcode(number).pseudo == "S_SENDMSG"
