"""Layout of an instrumented kernel: offsets of instructions, and islands for branches.

Code keeps its order. A branch whose target is out of reach of a 16-bit word offset goes through *islands*:
unconditional branches placed at intervals between instructions, with a jump around them for code that falls through.
Islands need neither a register nor SCC.
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
"""Forward reach of a branch in bytes from its end; backward it is one word more."""
ISLAND_SPACING = 96 * 1024
"""Bytes between island pools, if a branch needs them. This is less than the reach, to leave room for the pools."""
MAX_ROUNDS = 50


class Branch(NamedTuple):
    """A branch or call with a 16-bit word offset, by slot."""

    slot: int
    target: int
    """Target slot."""
    place: int = 0
    """Bytes from the slot's instruction to the branch: 0 for the instruction itself, otherwise it is in a payload."""


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
        """Return target slot -> slots of the pools with an island for it, in code order -> the island's position."""
        positions: dict[int, dict[int, int]] = {}
        for slot, (_, targets) in sorted(self.pools.items()):
            for position, target in enumerate(targets):
                positions.setdefault(target, {})[slot] = position
        return positions

    def island_offset(self, slot: int, position: int) -> int:
        """Return the byte offset of an island; the first word of a pool is the jump around it."""
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
        sizes: [n] bytes of each slot, including spliced code.
        before: [n] bytes of a slot before its instruction.
        alignment: slot -> alignment of its start in bytes (function entries).
        branches: branches that must reach their targets; each row of an array is one.
        no_pool: [n] whether a slot must directly follow the previous one.
        lead: slot -> bytes to leave free before it.

    Raises:
        PatchError: no placement was found.
    """
    pool_targets: dict[int, list[int]] = {}
    slots, targets, places = columns = np.asarray(branches, np.int64).reshape(-1, 3).T
    for _ in range(MAX_ROUNDS):
        start, pool_at, end = _place(sizes, alignment, pool_targets, lead or {})
        instruction = start + before
        sources = instruction[slots] + places
        distance = start[targets] - (sources + 4)
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
        for number, place, target in zip(too_far, sources[beyond].tolist(), targets[beyond].tolist(), strict=True):
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
    """Return the start of every slot, the start of every pool, and the end."""
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
        raise PatchError("a branch cannot reach its target, and there is no place for islands")
    return slots


class _Chains:
    """Chains of pools to a target: always the furthest pool in reach, with room for the growth of pools.

    Args:
        start: [n] start of every slot.
        pool_at: slot -> offset of the pool before it.
    """

    _SLACK = 4096

    def __init__(self, start: NDArray[np.int64], pool_at: Mapping[int, int]) -> None:
        self._start, self._pool_at = start, pool_at
        self._pools = sorted((at, slot) for slot, at in pool_at.items())
        self._places = [at for at, _ in self._pools]
        self._next: dict[tuple[int, int], int | None] = {}

    def first(self, origin: int, target: int) -> int:
        """Return the slot of the first pool for a branch at byte `origin`.

        Raises:
            PatchError: there is none in reach.
        """
        destination, reach = int(self._start[target]), BRANCH_REACH - self._SLACK
        if destination > origin:
            number = bisect_right(self._places, origin + reach) - 1
            in_reach = number >= 0 and self._places[number] > origin
        else:
            number = bisect_left(self._places, origin - reach)
            in_reach = number < len(self._places) and self._places[number] < origin
        if not in_reach:
            raise PatchError(f"no branch island within reach of byte {origin} of the new code")
        return self._pools[number][1]

    def next(self, slot: int, target: int) -> int | None:
        """Return the next pool after the one before `slot`; None if that one's island reaches the target."""
        key = slot, target
        if key not in self._next:
            origin, destination = self._pool_at[slot], int(self._start[target])
            near = _reaches(origin, destination) and abs(destination - origin) <= BRANCH_REACH - self._SLACK
            self._next[key] = None if near else self.first(origin, target)
        return self._next[key]


def _check(layout: SlotLayout, branches: Sequence[Branch]) -> None:
    """Follow every chain to its end: each hop must reach the next.

    Args:
        branches: branches with `SlotLayout.hops`, in that order.
    """
    sound: set[tuple[int, int]] = set()  # islands that reach their target
    for branch, first in zip(branches, layout.hops.values(), strict=True):
        origin, hop = int(layout.instruction[branch.slot]) + branch.place, first
        destination = int(layout.entry[branch.target])
        while True:
            island = layout.island_offset(*hop)
            if not _reaches(origin, island):
                raise PatchError(f"branch at byte {origin} of the new code cannot reach its island")
            if hop in sound:
                break
            sound.add(hop)
            onward = next_hop(layout, hop[0], branch.target, destination)
            if onward is None:
                if not _reaches(island, destination):
                    raise PatchError(f"branch at byte {island} of the new code cannot reach its target")
                break
            origin, hop = island, onward


def next_hop(layout: SlotLayout, slot: int, target: int, destination: int) -> tuple[int, int] | None:
    """Return the island after the one for `target` in the pool before `slot`.

    None if that one reaches the target itself, which is at byte `destination`.
    """
    key = slot, target
    if key not in layout._onward:
        layout._onward[key] = _find_next_hop(layout, slot, target, destination)
    return layout._onward[key]


def _find_next_hop(layout: SlotLayout, slot: int, target: int, destination: int) -> tuple[int, int] | None:
    islands = layout.islands[target]
    origin = layout.island_offset(slot, islands[slot])
    if _reaches(origin, destination):
        return None
    slots = list(islands)
    number = slots.index(slot)
    furthest = None
    for other in slots[number + 1 :] if destination > origin else reversed(slots[:number]):
        offset, targets = layout.pools[other]
        if not (_reaches(origin, offset) and _reaches(origin, offset + 4 * len(targets))):
            break
        furthest = other
    if furthest is None:
        raise PatchError(f"no island after byte {origin} of the new code on the way to slot {target}")
    return furthest, islands[furthest]
