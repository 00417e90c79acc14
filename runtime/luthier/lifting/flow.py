"""Execution counts of blocks from few counters.

Flow through a graph is conserved at every node (Kirchhoff's law), so the edges outside a spanning tree determine those
in it (Knuth and Stevenson, "Optimal measurement points for program frequency counts", 1973; Ball and Larus, "Optimally
profiling and tracing programs", 1994).

A node is a stretch of code. One further node stands for everything outside, and closes the cycle from ends to
beginnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class FlowEdge(NamedTuple):
    """An edge from one node to another."""

    source: int
    to: int
    cost: float
    """Cost of counting it: its estimated executions; infinite if it cannot be counted."""


class FlowGraph(Struct, frozen=True, eq=False):
    """Nodes 0 to `nodes` - 1, and node `nodes` for everything outside."""

    nodes: int
    edges: tuple[FlowEdge, ...]

    def chords(self) -> list[int] | None:
        """Return the edges to count at minimum cost: those outside a maximum spanning tree.

        None if one of them cannot be counted.
        """
        leader = list(range(self.nodes + 1))

        def find(node: int) -> int:
            while leader[node] != node:
                leader[node] = leader[leader[node]]
                node = leader[node]
            return node

        chords = []
        for number in sorted(range(len(self.edges)), key=lambda number: -self.edges[number].cost):
            source, to = find(self.edges[number].source), find(self.edges[number].to)
            if source == to:
                if self.edges[number].cost == float("inf"):
                    return None
                chords.append(number)
            else:
                leader[source] = to
        return sorted(chords)

    def amounts(self, chords: Sequence[int], weights: Mapping[int, int]) -> dict[int, int]:
        """Return the increments of chords that add up to the sum of weights times executions of nodes.

        Args:
            chords: from `chords`.
            weights: by node.

        Returns:
            Chord -> its increment, which may be negative. Chords with increment 0 are left out.
        """
        tree = set(range(len(self.edges))).difference(chords)
        beside: list[list[int]] = [[] for _ in range(self.nodes + 1)]
        for number in tree:
            beside[self.edges[number].source].append(number)
            beside[self.edges[number].to].append(number)
        # The sum of weights on the tree path to each node.
        before: list[int | None] = [None] * (self.nodes + 1)
        for root in range(self.nodes, -1, -1):
            if before[root] is not None:
                continue
            before[root] = 0
            work = [root]
            while work:
                node = work.pop()
                total = before[node] or 0
                for number in beside[node]:
                    source, to, _ = self.edges[number]
                    weight = weights.get(source, 0)
                    if source == node and before[to] is None:
                        before[to] = total + weight
                        work.append(to)
                    elif to == node and before[source] is None:
                        before[source] = total - weight
                        work.append(source)
        amounts = {}
        for number in chords:
            source, to, _ = self.edges[number]
            amount = (before[source] or 0) + weights.get(source, 0) - (before[to] or 0)
            if amount:
                amounts[number] = amount
        return amounts

    def solve(self, counted: Mapping[int, Any]) -> NDArray[np.int64]:
        """Return how often each edge was taken.

        Args:
            counted: chord -> how often it was taken, for all chords: a number, or [waves] numbers.

        Returns:
            [edges] or [edges, waves] counts.
        """
        shape = np.broadcast_shapes(*map(np.shape, counted.values()))
        known = np.zeros((len(self.edges), *shape), np.int64)
        unknown: list[set[int]] = [set() for _ in range(self.nodes + 1)]
        surplus: list[Any] = [0] * (self.nodes + 1)  # known flow into a node minus known flow out of it
        for number, (source, to, _) in enumerate(self.edges):
            if number in counted:
                known[number] = counted[number]
                surplus[to] += counted[number]
                surplus[source] -= counted[number]
            elif source != to:
                unknown[source].add(number)
                unknown[to].add(number)
        leaves = [node for node in range(self.nodes + 1) if len(unknown[node]) == 1]
        while leaves:
            node = leaves.pop()
            if not unknown[node]:
                continue
            number = unknown[node].pop()
            source, to, _ = self.edges[number]
            count = +surplus[node] if source == node else -surplus[node]
            other = to if source == node else source
            known[number] = count
            surplus[to] += count
            surplus[source] -= count
            unknown[other].discard(number)
            if len(unknown[other]) == 1:
                leaves.append(other)
        return known

    def node_counts(self, edges: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return [nodes] or [nodes, waves] executions of each node, given how often each edge was taken."""
        counts = np.zeros((self.nodes + 1, *edges.shape[1:]), np.int64)
        np.add.at(counts, [edge.to for edge in self.edges], edges)
        return counts[: self.nodes]
