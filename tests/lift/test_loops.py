"""Loops, dominators and conserved flow of random graphs, against their definitions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from effort import FUZZ
from luthier.lifting.flow import FlowEdge, FlowGraph
from luthier.lifting.loops import LoopNest, dominates, immediate_dominators
from luthier.lifting.model import BasicBlock, Function
from luthier.lifting.model import Edge as BlockEdge

GRAPHS = 300 * FUZZ


def function_of(successors: Mapping[int, Sequence[int]]) -> Function:
    """A function with these edges, entered at block 0."""
    blocks = tuple(
        BasicBlock(block, 0, block, block, "branch", tuple(BlockEdge("indirect", to) for to in targets), ())
        for block, targets in successors.items()
    )
    return Function(0, "f", 0, blocks, 0, (), False)


def reached(successors: Mapping[int, Sequence[int]], start: int, without: int | None = None) -> set[int]:
    """Blocks on ways from `start` that avoid one."""
    seen, work = set(), [start]
    while work:
        block = work.pop()
        if block != without and block not in seen:
            seen.add(block)
            work += successors[block]
    return seen


def random_graph(rng: random.Random) -> dict[int, list[int]]:
    """Blocks that are all reached from block 0."""
    count = rng.randrange(1, 12)
    edges = {block: [rng.randrange(count) for _ in range(rng.choice((0, 1, 1, 2, 2, 3)))] for block in range(count)}
    inside = reached(edges, 0)
    return {block: targets for block, targets in edges.items() if block in inside}


def test_dominators() -> None:
    rng = random.Random(1)
    for _ in range(GRAPHS):
        successors = random_graph(rng)
        dominators = immediate_dominators(function_of(successors))
        for node in successors:
            without = reached(successors, 0, node)
            for other in successors:
                assert dominates(dominators, node, other) == (other not in without), successors


def test_loops() -> None:
    rng = random.Random(2)
    irreducible = 0
    for _ in range(GRAPHS):
        successors = random_graph(rng)
        nest = LoopNest(function_of(successors))
        leaving = ((loop, block, to) for loop in nest.loops for block in loop.blocks for to in successors[block])
        back = {(block, to) for loop, block, to in leaving if to in loop.headers}
        forward = {block: [to for to in targets if (block, to) not in back] for block, targets in successors.items()}
        for block in successors:  # without the edges back nothing runs twice
            assert block not in {to for start in forward[block] for to in reached(forward, start)}, successors
        for number, loop in enumerate(nest.loops):
            irreducible += len(loop.headers) > 1
            for block in loop.blocks:  # every block of a loop reaches every other one inside
                inside = {one: [to for to in successors[one] if to in loop.blocks] for one in loop.blocks}
                assert set().union(*(reached(inside, to) for to in inside[block])) == loop.blocks
            if loop.parent is None:
                outside = {to for block in successors if block not in loop.blocks for to in successors[block]}
                assert set(loop.headers) == (outside | {0}) & loop.blocks
                assert loop.depth == 1
            else:
                parent = nest.loops[loop.parent]
                assert loop.parent < number
                assert loop.blocks < parent.blocks
                assert loop.depth == parent.depth + 1
                assert not loop.blocks & set(parent.headers)
        for block in successors:
            holding = [loop for loop in nest.loops if block in loop.blocks]
            assert nest.depth(block) == len(holding)
            assert nest.innermost(block) is (max(holding, key=lambda loop: loop.depth) if holding else None)
            for to in successors[block]:
                assert nest.edge_depth(block, to) == sum(to in loop.blocks for loop in holding)
    assert irreducible > 10


def random_flow(rng: random.Random) -> tuple[FlowGraph, list[int]]:
    """A graph, and how often each edge was gone on a few walks from the outside back to it."""
    count = rng.randrange(1, 10)
    edges = [(rng.randrange(count + 1), rng.randrange(count + 1)) for _ in range(rng.randrange(count, 4 * count + 2))]
    edges += [(count, node) for node in range(count)] + [(node, count) for node in range(count)]
    rng.shuffle(edges)
    times = [0] * len(edges)
    for _ in range(rng.randrange(5)):
        at = count
        while True:
            number = rng.choice([number for number, (source, _) in enumerate(edges) if source == at])
            times[number] += 1
            at = edges[number][1]
            if at == count and rng.random() < 0.5:
                break
    costs = [rng.choice((0.0, 1.0, 8.0, 64.0)) for _ in edges]
    return FlowGraph(count, tuple(FlowEdge(*edge, cost) for edge, cost in zip(edges, costs, strict=True))), times


def test_flow_is_solved_from_its_chords() -> None:
    rng = random.Random(3)
    for _ in range(GRAPHS):
        graph, times = random_flow(rng)
        chords = graph.chords()
        assert chords is not None
        assert len(chords) == len(graph.edges) - graph.nodes  # as many as there are circles
        solved = graph.solve({number: times[number] for number in chords})
        assert solved.tolist() == times
        counts = graph.node_counts(solved)
        into = [
            sum(n for edge, n in zip(graph.edges, times, strict=True) if edge.to == node) for node in range(graph.nodes)
        ]
        assert counts.tolist() == into
        weights = {node: rng.randrange(-5, 100) for node in range(graph.nodes) if rng.random() < 0.7}
        amounts = graph.amounts(chords, weights)
        assert set(amounts) <= set(chords)
        total = sum(amount * times[number] for number, amount in amounts.items())
        assert total == sum(weight * int(counts[node]) for node, weight in weights.items())


def test_the_dearest_edges_are_not_counted() -> None:
    loop = FlowGraph(2, (FlowEdge(2, 0, 0.0), FlowEdge(0, 1, 8.0), FlowEdge(1, 0, 16.0), FlowEdge(1, 2, 1.0)))
    assert loop.chords() == [0, 1]
    np.testing.assert_array_equal(loop.solve({0: 3, 1: 10}), [3, 10, 7, 3])
    endless = float("inf")
    assert FlowGraph(1, (FlowEdge(1, 0, endless), FlowEdge(0, 1, endless))).chords() is None


@pytest.mark.parametrize("count", [1, 3000])
def test_long_chains_are_no_recursion(count: int) -> None:
    successors = {block: [block + 1] if block + 1 < count else [0] for block in range(count)}
    nest = LoopNest(function_of(successors))
    assert [loop.headers for loop in nest.loops] == [(0,)]
    assert len(immediate_dominators(function_of(successors))) == count
