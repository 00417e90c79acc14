"""The paths of lanes when EXEC changes, for `luthier.patch.counters.counted_edges`.

What is known of lane masks (`luthier._mc.Flow.lanes`) divides the lanes of a wave into groups, each active as a whole
or not at all. Lanes that become inactive behind a branch are in a group that waits, and the instruction that makes them
active again takes them from there: what goes into a group comes out of it. Groups that lanes change between while they
are inactive are taken together as one *pool*, which is a node of the graph; so lanes behind a branch, or behind a loop,
need not be counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from luthier import _mc
from luthier.isa.registers import bits_of
from luthier.lifting import BasicBlock

Group = tuple[int, int]
"""First instruction of a stretch, and the number of an inactive group there."""


_MOST_POOLS = 200
"""The most pools of a function; where there are more, lanes that change are taken to come from outside."""


class LaneEdge(NamedTuple):
    """An edge of lanes that follows from EXEC, and is not counted."""

    source: int | Group
    """The end of the stretch that begins there, or a group."""
    to: int | Group
    """The beginning of a stretch, or a group."""
    between: tuple[int, int] | None
    """Blocks, if it is one from block to block without a change of EXEC."""


class _Moment(NamedTuple):
    groups: int
    on: int


def lane_edges(
    flow: _mc.Flow, blocks: Sequence[BasicBlock], stretches: Mapping[int, Sequence[tuple[int, int]]]
) -> Iterator[LaneEdge]:
    """The edges of lanes within a function.

    Args:
        blocks: of the function.
        stretches: block -> first and last instruction of each of its stretches.

    Raises:
        LookupError: the masks are known for other stretches.
    """
    own = {block.index for block in blocks}
    distinct: dict[LaneEdge, None] = {}
    for block in blocks:
        segments, call, _, edges = flow.lanes(block.index)
        pieces = stretches[block.index]
        if len(segments) != len(pieces):
            raise LookupError(block.index)
        moments = [_Moment(one[0], one[1]) for one in segments]
        for number in range(len(pieces) - 1):
            here, there = moments[number], moments[number + 1]
            for group, targets in enumerate(_spread(segments[number][4], here.groups)):
                for target in bits_of(targets):
                    source = _node(here, pieces[number][0], group)
                    distinct[LaneEdge(source, _node(there, pieces[number + 1][0], target), None)] = None
        last, first = moments[-1], pieces[-1][0]
        changes = bool(segments[-1][4]) or bool(call)
        after_call = _spread(call, None)
        for edge, onward in zip(block.successors, edges, strict=True):
            if edge.to not in own:
                raise LookupError(edge.to)
            beyond = flow.lanes(edge.to)[0][0]
            there, start = _Moment(beyond[0], beyond[1]), stretches[edge.to][0][0]
            for group, targets in enumerate(_spread(segments[-1][4], last.groups)):
                for target in bits_of(targets):
                    for final in bits_of(after_call[target]) if call else [target]:
                        if final < len(onward) and onward[final] >= 0:
                            source, to = _node(last, first, group), _node(there, start, onward[final])
                            if not changes and isinstance(source, int) != isinstance(to, int):
                                raise LookupError(edge.to)
                            distinct[LaneEdge(source, to, None if changes else (block.index, edge.to))] = None
    yield from distinct


def inactive_at(flow: _mc.Flow, block: int, first: int) -> list[Group]:
    """Return the groups that are inactive where a block begins."""
    groups, on = flow.lanes(block)[0][0][:2]
    return [(first, group) for group in range(groups) if not on >> group & 1]


def inactive_behind(flow: _mc.Flow, block: int, first: int) -> list[Group]:
    """Return the groups that are inactive in the last stretch of a block.

    Args:
        first: its first instruction.
    """
    groups, on = flow.lanes(block)[0][-1][:2]
    return [(first, group) for group in range(groups) if not on >> group & 1]


def _node(moment: _Moment, first: int, group: int) -> int | Group:
    return first if moment.on >> group & 1 else (first, group)


def _spread(spread: Sequence[int], groups: int | None) -> list[int]:
    if spread or groups is None:
        return list(spread)
    return [1 << group for group in range(groups)]


class Pools:
    """Inactive groups of lanes, taken together where lanes go from one to the other while they are inactive.

    Args:
        edges: the edges of lanes.
        others: further groups; stretches among them are left out.

    Attributes:
        kept: the pools of which it matters what goes in and comes out, each by the group that stands for it. The others
            are part of what is outside.
    """

    def __init__(self, edges: Sequence[LaneEdge], others: Iterable[int | Group]) -> None:
        self._leader: dict[Group, Group] = {}
        for one in others:
            if not isinstance(one, int):
                self.of(one)
        for edge in edges:
            sides = [self.of(side) for side in (edge.source, edge.to) if not isinstance(side, int)]
            if len(sides) == 2:
                self._leader[sides[0]] = sides[1]
        self.kept = list(dict.fromkeys(map(self.of, self.all)))

    @property
    def all(self) -> list[Group]:
        """Return every inactive group."""
        return list(self._leader)

    def of(self, group: Group) -> Group:
        """Return the group that represents all of its pool."""
        leader = group
        while (beyond := self._leader.setdefault(leader, leader)) != leader:
            self._leader[leader] = self._leader[beyond]
            leader = beyond
        return leader

    def merge_at(self, circle: tuple[int, int], edges: Sequence[tuple[int, int]], pools: Mapping[int, Group]) -> bool:
        """Know less, where edges that cannot be counted close a circle: take a pool together with one that the same
        lanes go to, or come from; else it is part of what is outside.

        Args:
            circle: the edge that closes it, by nodes.
            edges: all that are not counted.
            pools: node -> pool.

        Returns:
            Whether there is a pool there, and few enough in all for one step after the other.
        """
        source, to = circle
        node = to if to in pools else source
        if node not in pools or len(self.kept) > _MOST_POOLS:
            return False
        if node == to:
            beside = (other for at, other in edges if at == source)
        else:
            beside = (other for other, at in edges if at == to)
        twin = next((pools[other] for other in beside if other in pools and other != node), None)
        if twin is not None:
            self._leader[pools[node]] = twin
        self.kept.remove(pools[node])
        return True


def closing(edges: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The first edge that closes a circle with those before it, whatever their directions; None if none does."""
    leader: dict[int, int] = {}

    def find(node: int) -> int:
        while (beyond := leader.setdefault(node, node)) != node:
            leader[node] = leader[beyond]
            node = beyond
        return node

    for edge in edges:
        source, to = map(find, edge)
        if source == to:
            return edge
        leader[source] = to
    return None
