"""The paths of lanes when EXEC changes, for `luthier.patch.counters.counted_edges`.

Knowledge of lane masks (`luthier._mc.Flow.lanes`) divides the lanes of a wave into groups, each active or inactive as a
whole. Lanes that become inactive after a branch join a waiting group, and the instruction that makes them active again
takes them from it: the flow into a group equals the flow out of it. Groups between which lanes move while they are
inactive form one *pool*, which is a node of the graph. Therefore lanes after a branch or a loop need not be counted
again.
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
"""Maximum number of pools of a function; if there are more, lanes that change are assumed to come from outside."""


class LaneEdge(NamedTuple):
    """An edge of lanes that follows from EXEC, and is not counted."""

    source: int | Group
    """First instruction of the stretch at whose end the edge begins, or a group."""
    to: int | Group
    """First instruction of a stretch, or a group."""
    between: tuple[int, int] | None
    """Its blocks, if it leads from block to block without a change of EXEC."""


class _Moment(NamedTuple):
    groups: int
    on: int


def lane_edges(
    flow: _mc.Flow, blocks: Sequence[BasicBlock], stretches: Mapping[int, Sequence[tuple[int, int]]]
) -> Iterator[LaneEdge]:
    """Yield the edges of lanes within a function.

    Args:
        blocks: the blocks of the function.
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
        moments = [_Moment(segment[0], segment[1]) for segment in segments]
        for number in range(len(pieces) - 1):
            before, after = moments[number], moments[number + 1]
            for group, targets in enumerate(_spread(segments[number][4], before.groups)):
                for target in bits_of(targets):
                    source = _node(before, pieces[number][0], group)
                    distinct[LaneEdge(source, _node(after, pieces[number + 1][0], target), None)] = None
        last, first = moments[-1], pieces[-1][0]
        changes = bool(segments[-1][4]) or bool(call)
        after_call = _spread(call, None)
        for edge, onward in zip(block.successors, edges, strict=True):
            if edge.to not in own:
                raise LookupError(edge.to)
            beyond = flow.lanes(edge.to)[0][0]
            after, start = _Moment(beyond[0], beyond[1]), stretches[edge.to][0][0]
            for group, targets in enumerate(_spread(segments[-1][4], last.groups)):
                for target in bits_of(targets):
                    for final in bits_of(after_call[target]) if call else [target]:
                        if final < len(onward) and onward[final] >= 0:
                            source, to = _node(last, first, group), _node(after, start, onward[final])
                            if not changes and isinstance(source, int) != isinstance(to, int):
                                raise LookupError(edge.to)
                            distinct[LaneEdge(source, to, None if changes else (block.index, edge.to))] = None
    yield from distinct


def inactive_at(flow: _mc.Flow, block: int, first: int) -> list[Group]:
    """Return the groups that are inactive at the beginning of a block."""
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
    """Inactive groups of lanes, merged if lanes move between them while they are inactive.

    Args:
        edges: the edges of lanes.
        groups: further groups; stretches among them are left out.

    Attributes:
        kept: the pools that are nodes of the graph, each by its representative group. Other pools are part of the
            outside.
    """

    def __init__(self, edges: Sequence[LaneEdge], groups: Iterable[int | Group]) -> None:
        self._leader: dict[Group, Group] = {}
        for group in groups:
            if not isinstance(group, int):
                self.of(group)
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
        """Return the representative group of its pool."""
        leader = group
        while (beyond := self._leader.setdefault(leader, leader)) != leader:
            self._leader[leader] = self._leader[beyond]
            leader = beyond
        return leader

    def merge_at(self, circle: tuple[int, int], edges: Sequence[tuple[int, int]], pools: Mapping[int, Group]) -> bool:
        """Merge a pool into another one, or into the outside, to break a cycle of edges that cannot be counted.

        The other pool is one that the same lanes enter or leave.

        Args:
            circle: the edge that closes the cycle, by nodes.
            edges: all edges that are not counted.
            pools: node -> pool.

        Returns:
            Whether the cycle contains a pool, and there are few enough pools to continue.
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
    """Return the first edge that closes an undirected cycle with those before it, if any."""
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
