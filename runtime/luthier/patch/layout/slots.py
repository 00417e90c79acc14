"""Layout of an instrumented kernel: where each instruction goes, and what its branches need to reach that far.

Code keeps its order. A branch whose target moved out of reach of a 16-bit word offset hops over *islands*:
unconditional branches placed at intervals between instructions, with a jump over them for code that falls through.
Islands need no register and no SCC.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.errors import PatchError

BRANCH_REACH = 4 * 32767
"""Bytes a branch reaches, forwards, from its end; one word more backwards."""
ISLAND_SPACING = 96 * 1024
"""Bytes between island pools where there is a branch that needs them. Less than the reach, to leave room for the
pools themselves."""
MAX_ROUNDS = 50


class Branch(NamedTuple):
    """A branch or call with a 16-bit word offset, by slot."""

    slot: int
    target: int
    """Slot it goes to."""
    place: int = 0
    """Bytes from the slot's instruction to it: 0 if it is that, else it is in a payload of the slot."""


@dataclass(frozen=True)
class SlotLayout:
    """Byte offsets of `n` slots, a slot being an instruction with what is spliced in before and after it."""

    entry: NDArray[np.int64]
    """[n] where branches to the slot go: after its island pool, at the first payload before the instruction."""
    instruction: NDArray[np.int64]
    """[n] the instruction itself."""
    pools: Mapping[int, tuple[int, tuple[int, ...]]]
    """Slot -> (offset of the pool before it, final target slot of each hop)."""
    hops: Mapping[int, tuple[int, int]]
    """Branch (its number) -> island it goes to (slot of the pool, position), for those that cannot reach their
    target."""
    size: int
    _onward: dict[tuple[int, int], tuple[int, int] | None] = field(default_factory=dict, compare=False)
    """Cache of `next_hop`."""

    @cached_property
    def islands(self) -> Mapping[int, Mapping[int, int]]:
        """Return for each target slot the pools that have an island for it.

        Target slot -> slots of the pools, in the order of the code -> the island's position there.
        """
        found: dict[int, dict[int, int]] = {}
        for slot, (_, targets) in sorted(self.pools.items()):
            for position, target in enumerate(targets):
                found.setdefault(target, {})[slot] = position
        return found

    def island_offset(self, slot: int, position: int) -> int:
        """Return the byte offset of one hop; the first word of a pool is the jump over it."""
        return self.pools[slot][0] + 4 + 4 * position


def lay_out(
    sizes: NDArray[np.int64],
    before: NDArray[np.int64],
    alignment: Mapping[int, int],
    branches: Sequence[Branch] | NDArray[np.int64],
    no_pool: NDArray[np.bool_],
    lead: Mapping[int, int] | None = None,
) -> SlotLayout:
    """Place the slots.

    Args:
        sizes: [n] bytes of each slot, all that is spliced in included.
        before: [n] bytes of a slot that come before its instruction.
        alignment: slot -> bytes its start must be aligned to (function entries).
        branches: what must reach its target; in an array a row is one.
        no_pool: [n] slots that must directly follow the one before.
        lead: slot -> bytes to leave free before it.

    Raises:
        PatchError: no placement found.
    """
    pool_targets: dict[int, list[int]] = {}
    slots, targets, places = columns = np.asarray(branches, np.int64).reshape(-1, 3).T
    for _ in range(MAX_ROUNDS):
        start, pool_at, end = _place(sizes, alignment, pool_targets, lead or {})
        instruction = start + before
        here = instruction[slots] + places
        distance = start[targets] - (here + 4)
        beyond = (distance < -BRANCH_REACH - 4) | (distance > BRANCH_REACH)
        too_far = np.flatnonzero(beyond).tolist()
        if not too_far:
            return SlotLayout(start, instruction, {}, {}, end)
        if not pool_targets:
            pool_targets = {slot: [] for slot in _pool_slots(start, no_pool)}
            continue
        hops: dict[int, tuple[int, int]] = {}
        chains = _Chains(start, pool_at)
        position_of = {slot: {target: at for at, target in enumerate(known)} for slot, known in pool_targets.items()}
        grew = False
        walked: set[tuple[int, int]] = set()
        for number, place, target in zip(too_far, here[beyond].tolist(), targets[beyond].tolist(), strict=True):
            first = chains.first(place, target)
            slot: int | None = first
            while slot is not None and (slot, target) not in walked:
                walked.add((slot, target))
                if target not in position_of[slot]:
                    position_of[slot][target] = len(pool_targets[slot])
                    pool_targets[slot].append(target)
                    grew = True
                slot = chains.next(slot, target)
            hops[number] = first, position_of[first][target]
        if grew:
            continue
        pools = {slot: (pool_at[slot], tuple(known)) for slot, known in pool_targets.items() if known}
        layout = SlotLayout(start, instruction, pools, hops, end)
        hopping = list(hops)
        _check(layout, [Branch(*one) for one in columns[:, hopping].T.tolist()])
        return layout
    raise PatchError(f"no placement of branch islands found in {MAX_ROUNDS} rounds")


def _reaches(branch: int, target: int) -> bool:
    return -BRANCH_REACH - 4 <= target - (branch + 4) <= BRANCH_REACH


def _place(
    sizes: NDArray[np.int64],
    alignment: Mapping[int, int],
    pool_targets: Mapping[int, Sequence[int]],
    lead: Mapping[int, int],
) -> tuple[NDArray[np.int64], dict[int, int], int]:
    """Start of every slot, start of every pool, and the end."""
    extra = np.zeros(len(sizes), np.int64)
    for slot, size in lead.items():
        extra[slot] = size
    for slot, targets in pool_targets.items():
        # A pool without users keeps its jump: its size never shrinks, so the rounds converge.
        extra[slot] = 4 + 4 * len(targets)
    ends = np.cumsum(sizes + extra)
    start = ends - sizes
    for slot in sorted(alignment):
        shift = -int(start[slot] - extra[slot]) % alignment[slot]
        start[slot:] += shift
    pool_at = {slot: int(start[slot] - extra[slot]) for slot in pool_targets}
    return start, pool_at, int(start[-1] + sizes[-1]) if len(sizes) else 0


def _pool_slots(start: NDArray[np.int64], no_pool: NDArray[np.bool_]) -> list[int]:
    slots, last = [], 0
    for slot in np.flatnonzero(~no_pool):
        if start[slot] - last >= ISLAND_SPACING and slot > 0:
            slots.append(int(slot))
            last = int(start[slot])
    if not slots:
        raise PatchError("a branch is out of reach and there is no place for islands")
    return slots


class _Chains:
    """Pools to hop over on the way to a target: always the furthest one in reach, with room for the pools to grow.

    Args:
        start: [n] of every slot.
        pool_at: slot -> offset of the pool before it.
    """

    _SLACK = 4096

    def __init__(self, start: NDArray[np.int64], pool_at: Mapping[int, int]) -> None:
        self._start, self._pool_at = start, pool_at
        self._pools = sorted((at, slot) for slot, at in pool_at.items())
        self._places = [at for at, _ in self._pools]
        self._next: dict[tuple[int, int], int | None] = {}

    def first(self, here: int, target: int) -> int:
        """Return the pool to which a branch at byte `here` goes, by slot.

        Raises:
            PatchError: there is none in reach.
        """
        there, reach = int(self._start[target]), BRANCH_REACH - self._SLACK
        if there > here:
            number = bisect_right(self._places, here + reach) - 1
            found = number >= 0 and self._places[number] > here
        else:
            number = bisect_left(self._places, here - reach)
            found = number < len(self._places) and self._places[number] < here
        if not found:
            raise PatchError(f"no branch island within reach of byte {here} of the new code")
        return self._pools[number][1]

    def next(self, slot: int, target: int) -> int | None:
        """Return the pool after the one before `slot`; None where that one's island reaches the target itself."""
        key = slot, target
        if key not in self._next:
            here, there = self._pool_at[slot], int(self._start[target])
            near = _reaches(here, there) and abs(there - here) <= BRANCH_REACH - self._SLACK
            self._next[key] = None if near else self.first(here, target)
        return self._next[key]


def _check(layout: SlotLayout, branches: Sequence[Branch]) -> None:
    """Follow every chain to its end: each hop must reach the next.

    Args:
        branches: those that have `SlotLayout.hops`, in that order.
    """
    sound: set[tuple[int, int]] = set()  # islands from which the target is reached
    for branch, first in zip(branches, layout.hops.values(), strict=True):
        here, hop = int(layout.instruction[branch.slot]) + branch.place, first
        there = int(layout.entry[branch.target])
        while True:
            island = layout.island_offset(*hop)
            if not _reaches(here, island):
                raise PatchError(f"branch at byte {here} of the new code cannot reach its island")
            if hop in sound:
                break
            sound.add(hop)
            onward = next_hop(layout, hop[0], branch.target, there)
            if onward is None:
                if not _reaches(island, there):
                    raise PatchError(f"branch at byte {island} of the new code cannot reach its target")
                break
            here, hop = island, onward


def next_hop(layout: SlotLayout, slot: int, target: int, there: int) -> tuple[int, int] | None:
    """Return the island after the one for `target` in the pool before `slot`.

    None when that one reaches the target itself, which is at byte `there`.
    """
    key = slot, target
    if key not in layout._onward:
        layout._onward[key] = _find_next_hop(layout, slot, target, there)
    return layout._onward[key]


def _find_next_hop(layout: SlotLayout, slot: int, target: int, there: int) -> tuple[int, int] | None:
    islands = layout.islands[target]
    here = layout.island_offset(slot, islands[slot])
    if _reaches(here, there):
        return None
    slots = list(islands)
    number = slots.index(slot)
    furthest = None
    for other in slots[number + 1 :] if there > here else reversed(slots[:number]):
        offset, targets = layout.pools[other]
        if not (_reaches(here, offset) and _reaches(here, offset + 4 * len(targets))):
            break
        furthest = other
    if furthest is None:
        raise PatchError(f"no island after byte {here} of the new code on the way to slot {target}")
    return furthest, islands[furthest]
