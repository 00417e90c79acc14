"""The ends of waves, and the values of counters that are known there.

A wave usually ends in a block that does nothing else, which it reaches by one of few edges. If a counter is incremented
at most once, its value then follows from this edge: 0 if the wave cannot have passed the increment, the whole amount if
it must have passed it. A counter that is known on every edge needs no register and no addition, and zeros are not added
to memory. For example, waves without work are counted on their own path to the end, and others need no counter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from msgspec import Struct

from luthier.lifting import BasicBlock, Function, LiftedRepresentation
from luthier.patch.counters.storage import WaveCounter
from luthier.patch.payloads.zones import Zone


class WaveEnd(NamedTuple):
    """A point at which counters go to memory."""

    at: int
    """Instruction."""
    zone: Zone
    exit: int
    """The instruction after which the kernel needs no register: `at`, or the destination of the edge."""
    values: Mapping[WaveCounter, int]
    """Known values of counters."""


class _BlockEdge(NamedTuple):
    source: int
    to: int


class _Seen(Struct, frozen=True):
    """Bit sets of increments."""

    may: int
    """Increments that a wave may have passed."""
    must: int
    """Increments that every wave has passed."""

    def then(self, gone: int) -> _Seen:
        return _Seen(self.may | gone, self.must | gone)


def find_ends(
    lifted: LiftedRepresentation, exits: Mapping[int, int], counters: Sequence[WaveCounter], *, apart: bool
) -> list[WaveEnd]:
    """Return the points where counters go to memory.

    Args:
        exits: possible instruction -> its block.
        counters: counters with places.
        apart: whether each edge to an end may have its own code, since nothing else is spliced in.
    """
    return list(_Finder(lifted, exits, counters).find(apart=apart))


class _Finder:
    def __init__(self, lifted: LiftedRepresentation, exits: Mapping[int, int], counters: Sequence[WaveCounter]) -> None:
        self.lifted, self.exits, self.counters = lifted, exits, counters
        self.kernel = next((one for one in lifted.functions if one.is_kernel), None)
        self.own = {block.index: block for block in self.kernel.blocks} if self.kernel is not None else {}
        self.in_block: dict[int, int] = {}
        self.on_edge: dict[_BlockEdge, int] = {}
        self.at_entry: dict[int, int] = {}
        self.in_callees = 0
        self.bits: dict[WaveCounter, list[tuple[int, int | None]]] = {}
        """For each increment its bit, and its amount if it is passed at most once, otherwise None."""
        self._number_increments()

    def find(self, *, apart: bool) -> Iterator[WaveEnd]:
        seen = self._flow() if self.kernel is not None and self._is_plain(self.kernel) else {}
        for index, number in self.exits.items():
            block = self.own.get(number)
            if block is None or number not in seen:
                yield WaveEnd(index, Zone.BEFORE, index, {})
                continue
            edges = list(self._edges_apart(block, index)) if apart else []
            if not edges:
                yield WaveEnd(index, Zone.BEFORE, index, self._values(self._out(block, seen[number])))
            for at, zone, crossed in edges:
                source = self._out(self.own[crossed.source], seen[crossed.source])
                yield WaveEnd(at, zone, index, self._values(source.then(self.on_edge.get(crossed, 0))))

    # Increments

    def _number_increments(self) -> None:
        number = 0
        for counter in self.counters:
            bits = self.bits.setdefault(counter, [])
            for increment, point in zip(counter.increments, counter.places, strict=True):
                bit = 1 << number
                number += 1
                bits.append((bit, increment.amount if increment.once and not increment.lanes else None))
                if point is None:
                    entry = increment.place.first
                    self.at_entry[entry] = self.at_entry.get(entry, 0) | bit
                    continue
                index, zone, _ = point
                block = self.lifted.blocks[self.lifted.block_of[index]]
                if block.index not in self.own:
                    self.in_callees |= bit
                elif zone == Zone.BEFORE:
                    self.in_block[block.index] = self.in_block.get(block.index, 0) | bit
                else:
                    kind = "taken" if zone == Zone.TAKEN else "fallthrough"
                    for edge in block.successors:
                        if edge.kind == kind:
                            crossed = _BlockEdge(block.index, edge.to)
                            self.on_edge[crossed] = self.on_edge.get(crossed, 0) | bit

    def _values(self, seen: _Seen) -> dict[WaveCounter, int]:
        values = {}
        for counter, increments in self.bits.items():
            value = 0
            for bit, amount in increments:
                if not seen.may & bit:
                    continue
                if amount is None or not seen.must & bit:
                    break
                value += amount
            else:
                values[counter] = value
        return values

    # Control flow

    def _is_plain(self, kernel: Function) -> bool:
        """Return whether all paths through the kernel are known and stay in it."""
        shared: dict[int, int] = {}
        for function in self.lifted.functions:
            for block in function.blocks:
                shared[block.index] = shared.get(block.index, 0) + 1
        return not (
            any(block.exit == "unknown" or shared[block.index] > 1 for block in kernel.blocks)
            or any(kernel.index in call.callees for function in self.lifted.functions for call in function.calls)
            or any(edge.to not in self.own for block in kernel.blocks for edge in block.successors)
        )

    def _flow(self) -> dict[int, _Seen]:
        """Return reachable block -> increments passed at its beginning."""
        seen: dict[int, _Seen] = {}
        waiting: list[int] = []  # a heap: in the order of addresses, which few edges go against

        def come(number: int, more: _Seen) -> None:
            before = seen.get(number)
            merged = more if before is None else _Seen(before.may | more.may, before.must & more.must)
            if merged != before:
                seen[number] = merged
                heappush(waiting, number)

        for number, address in enumerate(self.lifted.hardware_entries):
            index = self.lifted.index_at(address)
            if index is None:
                return {}
            bits = self.at_entry.get(number, 0)
            come(self.lifted.block_of[index], _Seen(bits, bits))
        while waiting:
            number = heappop(waiting)
            while waiting and waiting[0] == number:
                heappop(waiting)
            behind = self._out(self.own[number], seen[number])
            for edge in self.own[number].successors:
                come(edge.to, behind.then(self.on_edge.get(_BlockEdge(number, edge.to), 0)))
        return seen

    def _out(self, block: BasicBlock, seen: _Seen) -> _Seen:
        """Return the increments passed at the end of a block, or before the program end in it."""
        behind = seen.then(self.in_block.get(block.index, 0))
        return _Seen(behind.may | self.in_callees, behind.must) if block.exit == "call" else behind

    def _edges_apart(self, block: BasicBlock, index: int) -> Iterable[tuple[int, Zone, _BlockEdge]]:
        """Return the edges to a block that only ends, each with an exclusive point; empty if some edge has none."""
        lifted = self.lifted
        entries = {lifted.index_at(address) for address in lifted.hardware_entries}
        if block.first in entries or self.in_block.get(block.index) or not self._does_nothing(block.first, index):
            return []
        apart = []
        direct = {jump.index for jump in lifted.direct_jumps}
        for number in block.predecessors:
            source = self.own[number]
            kinds = [edge.kind for edge in source.successors if edge.to == block.index]
            last = source.last
            if len(kinds) != 1 or source.exit not in ("fallthrough", "branch", "conditional"):
                return []
            around = {last, last + 1} if kinds[0] == "fallthrough" else {last}
            if not around.isdisjoint((*lifted.restrictions, *lifted.released, *lifted.index_mode, *lifted.skipped)):
                return []
            if source.exit == "branch":
                zone = Zone.BEFORE
            elif kinds[0] == "fallthrough":
                zone = Zone.BEHIND
            elif kinds[0] == "taken" and last not in direct:
                zone = Zone.TAKEN
            else:
                return []
            apart.append((last, zone, _BlockEdge(number, block.index)))
        return apart

    def _does_nothing(self, first: int, index: int) -> bool:
        return all(not (self.lifted.effects(at).reads | self.lifted.effects(at).writes) for at in range(first, index))
