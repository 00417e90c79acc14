"""The edges of a function that can be counted, as a graph in which flow is conserved.

Nodes are the beginnings and ends of stretches of code that run as a whole: blocks for executions, and for active lanes,
parts of blocks between writes of EXEC. Each stretch is itself an edge, from its beginning to its end, so that the cost
of counting it can be compared with that of other edges. Where EXEC changes, lanes wait in pools
(`luthier.patch.counters.lane_edges`); if too little is known of masks, they come from and go to the outside.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

from msgspec import Struct

from luthier.isa import NO_TARGET
from luthier.lifting import BasicBlock, Function, LiftedRepresentation
from luthier.lifting.flow import FlowEdge, FlowGraph
from luthier.lifting.loops import LoopNest
from luthier.patch.counters.lane_edges import Group, LaneEdge, Pools, closing, inactive_at, inactive_behind, lane_edges

LOOP_FACTOR = 8.0
"""Assumed number of iterations of a loop."""
_STUB_COST = 2.0
"""Cost of a stub: an addition and a branch."""
_BEHIND_COST = 1.01
_UNCOUNTABLE = float("inf")


class CountingPoint(NamedTuple):
    """A point where an edge can be counted."""

    kind: Literal["within", "behind", "taken", "entry", "called"]
    """Before any instruction from `first` to `last`; after instruction `first`; on its taken branch; when the hardware
    starts the kernel at entry number `first`; or nowhere, since calls of function `first` are counted."""
    first: int
    last: int


class _CountedEdge(NamedTuple):
    source: int
    to: int
    place: CountingPoint | None
    heat: float
    once: bool


class FunctionEdges(Struct, frozen=True, eq=False, dict=True):
    """The edges of one function."""

    graph: FlowGraph
    places: tuple[CountingPoint | None, ...]
    """By edge of the graph."""
    heat: tuple[float, ...]
    """By edge: estimated executions in one run of the function."""
    once_a_wave: tuple[bool, ...]
    """By edge: whether each wave takes it at most once."""
    stretches: tuple[tuple[int, int, int], ...]
    """Node at the beginning of each stretch, and its first and last instruction; in the order of instructions."""
    chords: tuple[int, ...]
    function: int

    @cached_property
    def entered_by_calls(self) -> int | None:
        """Return the chord through which the function is entered, if its count follows from those of calls."""
        places = ((chord, self.places[chord]) for chord in self.chords)
        return next((chord for chord, place in places if place is not None and place.kind == "called"), None)

    @cached_property
    def _firsts(self) -> list[int]:
        return [first for _, first, _ in self.stretches]

    def node_of(self, index: int) -> int | None:
        """Return the node whose count is that of an instruction, if any."""
        at = bisect.bisect_right(self._firsts, index) - 1
        if at < 0 or index > self.stretches[at][2]:
            return None
        return self.stretches[at][0]


def find_edges(
    lifted: LiftedRepresentation,
    sites: Collection[int],
    *,
    lanes: bool,
    each: bool = False,
    called: Collection[int] = (),
) -> Iterator[FunctionEdges]:
    """Return the edges of each function that contains a site.

    Args:
        lanes: whether active lanes are counted, instead of executions.
        each: whether to count every stretch separately.
        called: functions whose entry count follows from calls (`known_callers`).
    """
    maker = _Maker(lifted, lanes, called)
    owners = _owners(lifted, sites)
    for number in sorted(owners):
        yield maker.make(lifted.functions[number], each=each)


def known_callers(lifted: LiftedRepresentation, sites: Collection[int]) -> dict[int, list[int]]:
    """Return the functions that are entered only by calls -> the instructions of these calls.

    Each call has no other target, and both the functions and their callers contain sites.
    """
    if lifted.unknown:
        return {}
    owners = _owners(lifted, sites)
    callers: dict[int, dict[int, None]] = {number: {} for number in owners if not lifted.functions[number].is_kernel}
    for function in lifted.functions:
        for call in function.calls:  # functions may share it
            owner = lifted.blocks[lifted.block_of[call.index]].function
            for callee in call.callees:
                if call.known and owner in owners and len(call.callees) == 1 and callee in callers:
                    callers[callee][call.index] = None
                else:
                    callers.pop(callee, None)
    return {number: [*calls] for number, calls in callers.items() if calls}


def _owners(lifted: LiftedRepresentation, sites: Collection[int]) -> set[int]:
    return {lifted.blocks[lifted.block_of[index]].function for index in sites}


class _Maker:
    def __init__(self, lifted: LiftedRepresentation, lanes: bool, entered_by_calls: Collection[int]) -> None:
        self.lifted, self.lanes, self.entered_by_calls = lifted, lanes, entered_by_calls
        self.exec = lifted.effect_table.exec
        self.members = Counter(block.index for function in lifted.functions for block in function.blocks)
        self.called = {callee for function in lifted.functions for call in function.calls for callee in call.callees}
        self.ending = self._ending()
        self.direct = {jump.index for jump in lifted.direct_jumps}

    def _ending(self) -> set[int]:
        """Return the functions in which a wave may end or control flow is unknown.

        Traps do not count as ends, since a wave that ends by a trap loses its counters.
        """
        functions = self.lifted.functions
        ending = {f.index for f in functions if any(block.exit in ("end", "unknown") for block in f.blocks)}
        while True:
            more = {
                f.index
                for f in functions
                if f.index not in ending
                and any(not call.known or not ending.isdisjoint(call.callees) for call in f.calls)
            }
            if not more:
                return ending
            ending |= more

    def make(self, function: Function, *, each: bool) -> FunctionEdges:
        owned = [block for block in function.blocks if block.function == function.index]
        regular = not each and self._is_regular(function)
        stretches = sorted(stretch for block in owned for stretch in self._stretches(block))
        outside = 2 * len(stretches)
        at = {first: 2 * number for number, (first, _) in enumerate(stretches)}
        nest = LoopNest(function, self._entries(function))
        heat = _heat(function, nest, self._skipping)
        edges = []
        for first, last in stretches:
            block = self.lifted.block_of[first]
            once = function.is_kernel and regular and not nest.depth(block)
            place = CountingPoint("within", first, last)
            edges.append(_CountedEdge(at[first], at[first] + 1, place, heat[block], once))
        followed = regular and self.lanes and not self.lifted.unknown  # unknown code may change EXEC
        pooled = self._from_pools(function, at, nest, heat) if followed else None
        if pooled is not None:
            outside, more = pooled
            edges += more
        elif regular:
            edges += self._between(function, at, outside, nest, heat)
        else:
            for node in range(0, outside, 2):
                edges += [_CountedEdge(outside, node, None, 1, False), _CountedEdge(node + 1, outside, None, 1, False)]
        graph = FlowGraph(outside, tuple(FlowEdge(edge.source, edge.to, _cost(edge)) for edge in edges))
        chords = graph.chords()
        if chords is None:
            return self.make(function, each=True)
        return FunctionEdges(
            graph,
            tuple(edge.place for edge in edges),
            tuple(edge.heat for edge in edges),
            tuple(edge.once for edge in edges),
            tuple((at[first], first, last) for first, last in stretches),
            tuple(chords),
            function.index,
        )

    def _is_regular(self, function: Function) -> bool:
        """Return whether flow is conserved between the blocks of a function."""
        if function.is_kernel and function.index in self.called:
            return False
        return not any(self.members[block.index] > 1 or block.exit == "unknown" for block in function.blocks)

    def _stretches(self, block: BasicBlock) -> Iterator[tuple[int, int]]:
        first = block.first
        if self.lanes:
            for index in range(block.first, block.last):
                if self.lifted.effects(index).writes & self.exec:
                    yield first, index
                    first = index + 1
        yield first, block.last

    def _entries(self, function: Function) -> list[int]:
        """Return the entry blocks of a function."""
        if not function.is_kernel:
            return [function.entry_block]
        indices = [self.lifted.index_at(address) for address in self.lifted.hardware_entries]
        return [self.lifted.block_of[index] for index in indices if index is not None]

    def _between(
        self, function: Function, at: dict[int, int], outside: int, nest: LoopNest, heat: dict[int, float]
    ) -> list[_CountedEdge]:
        """Return the edges between stretches, and from and to the outside."""
        between: list[_CountedEdge] = []
        leading: list[tuple[BasicBlock, int, int, Literal["fallthrough", "taken", "indirect"]]] = []
        entering: Counter[int] = Counter(self._entries(function))
        for block in function.blocks:
            *_, (last_first, _) = pieces = list(self._stretches(block))
            for (before, _), (after, _) in itertools.pairwise(pieces):
                between += [
                    _CountedEdge(at[before] + 1, outside, None, 1, False),
                    _CountedEdge(outside, at[after], None, 1, False),
                ]
            source = at[last_first] + 1
            successors = [e for e in block.successors if not (self.lanes and self._has_no_lanes(block, e.kind))]
            changes = self.lanes and (block.exit == "call" or bool(self.lifted.effects(block.last).writes & self.exec))
            ends = self._may_end(function, block)
            if changes or ends:
                between.append(_CountedEdge(source, outside, None, 1, False))
            if changes:
                source = outside
            for edge in successors:
                leading.append((block, source, edge.to, edge.kind))
                entering[edge.to] += 1
        leaving = Counter(source for _, source, _, _ in leading)
        leaving.update(edge.source for edge in between)
        for block, source, to, kind in leading:
            target = self.lifted.blocks[to]
            is_only_exit = source != outside and leaving[source] == 1
            place = self._place(block, target, kind, is_only_exit=is_only_exit, is_only_entry=entering[to] == 1)
            often, once = self._frequency(function, block, to, nest, heat)
            between.append(_CountedEdge(source, at[target.first], place, often, once))
        entries = [self.lifted.blocks[entry] for entry in self._entries(function)]
        places = [
            CountingPoint("within", *next(self._stretches(entry))) if entering[entry.index] == 1 else None
            for entry in entries
        ]
        between += self._entering(function, outside, [at[entry.first] for entry in entries], places)
        return between

    def _entering(
        self, function: Function, outside: int, nodes: Sequence[int], places: Sequence[CountingPoint | None]
    ) -> Iterator[_CountedEdge]:
        """Yield the edges to the entries of a function.

        Args:
            nodes: at the beginning of each entry.
            places: where each can be counted; not used for kernels, nor for functions whose calls are counted.
        """
        for number, (node, place) in enumerate(zip(nodes, places, strict=True)):
            if function.is_kernel:
                place = CountingPoint("entry", number, number)
            elif function.index in self.entered_by_calls:
                place = CountingPoint("called", function.index, function.index)
            yield _CountedEdge(outside, node, place, 1, function.is_kernel)

    def _place(
        self, block: BasicBlock, target: BasicBlock, kind: str, *, is_only_exit: bool, is_only_entry: bool
    ) -> CountingPoint | None:
        """Return where the edge from a block to another can be counted, if anywhere."""
        if is_only_exit:
            *_, last = self._stretches(block)
            return CountingPoint("within", *last)
        if is_only_entry:
            return CountingPoint("within", *next(self._stretches(target)))
        if kind == "fallthrough":
            return CountingPoint("behind", block.last, block.last)
        if kind == "taken" and self._encodes_target(block.last):
            return CountingPoint("taken", block.last, block.last)
        return None

    def _frequency(
        self, function: Function, block: BasicBlock, to: int, nest: LoopNest, heat: Mapping[int, float]
    ) -> tuple[float, bool]:
        """Return the estimated executions of an edge, and whether a wave takes it at most once."""
        share = _share(nest, block, to, self._skipping(block))
        return heat[block.index] * share, function.is_kernel and not nest.edge_depth(block.index, to)

    def _from_pools(
        self, function: Function, at: dict[int, int], nest: LoopNest, heat: dict[int, float]
    ) -> tuple[int, list[_CountedEdge]] | None:
        """Return the edges of lanes, including inactive ones, and the number of nodes; None if too little is known of
        masks."""
        flow = self.lifted.flow
        stretches = {block.index: list(self._stretches(block)) for block in function.blocks}
        try:
            edges = list(lane_edges(flow, function.blocks, stretches))
        except LookupError:
            return None
        last = {index: pieces[-1][0] for index, pieces in stretches.items()}
        ends = [block.index for block in function.blocks if self._may_end(function, block)]
        entries = self._entries(function)
        outflow: list[int | Group] = [last[block] for block in ends]
        outflow += [group for block in ends for group in inactive_behind(flow, block, last[block])]
        inflow = [group for block in entries for group in inactive_at(flow, block, stretches[block][0][0])]
        pools = Pools(edges, [*outflow, *inflow])
        counted = self._countable(function, edges, outflow, nest, heat)
        entry_nodes = [at[stretches[entry][0][0]] for entry in entries]
        while True:
            outside = 2 * len(at) + len(pools.kept)
            number = {pool: 2 * len(at) + place for place, pool in enumerate(pools.kept)}
            begins = at | {group: number.get(pools.of(group), outside) for group in pools.all}
            behind = {first: node + 1 for first, node in at.items()} | {group: begins[group] for group in pools.all}
            free = {(behind[edge.source], begins[edge.to]) for edge in edges if edge not in counted}
            free |= {(behind[node], outside) for node in outflow} | {(outside, begins[group]) for group in inflow}
            graph_edges = [_CountedEdge(*ends, None, 1, False) for ends in sorted(free) if ends[0] != ends[1]]
            graph_edges += [
                _CountedEdge(behind[edge.source], begins[edge.to], *countable) for edge, countable in counted.items()
            ]
            graph_edges += self._entering(function, outside, entry_nodes, [None] * len(entries))
            uncounted = [(edge.source, edge.to) for edge in graph_edges if edge.place is None]
            circle = closing(uncounted)
            if circle is None:
                return outside, graph_edges
            if not pools.merge_at(circle, uncounted, {node: pool for pool, node in number.items()}):
                return None

    def _countable(
        self,
        function: Function,
        edges: Sequence[LaneEdge],
        outflow: Sequence[int | Group],
        nest: LoopNest,
        heat: dict[int, float],
    ) -> dict[LaneEdge, tuple[CountingPoint | None, float, bool]]:
        """Return for edges of active lanes between blocks: the point where each can be counted, its estimated
        executions, and whether a wave takes it at most once."""
        entering: Counter[int] = Counter(self._entries(function))
        entering.update(edge.to for block in function.blocks for edge in block.successors)
        leaving: Counter[int | Group] = Counter(each.source for each in edges)
        leaving.update(outflow)
        kinds = {(block.index, edge.to): edge.kind for block in function.blocks for edge in block.successors}
        countable: dict[LaneEdge, tuple[CountingPoint | None, float, bool]] = {}
        for lane_edge in edges:
            if lane_edge.between is None or not isinstance(lane_edge.source, int):
                continue
            block, target = (self.lifted.blocks[index] for index in lane_edge.between)
            place = self._place(
                block,
                target,
                kinds[lane_edge.between],
                is_only_exit=leaving[lane_edge.source] == 1,
                is_only_entry=entering[target.index] == 1,
            )
            countable[lane_edge] = place, *self._frequency(function, block, target.index, nest, heat)
        return countable

    def _may_end(self, function: Function, block: BasicBlock) -> bool:
        """Return whether control may not continue after a block in its function."""
        return not block.successors or (block.exit == "call" and self._may_not_return(function, block))

    def _may_not_return(self, function: Function, block: BasicBlock) -> bool:
        return any(
            call.index == block.last and (not call.known or not self.ending.isdisjoint(call.callees))
            for call in function.calls
        )

    def _has_no_lanes(self, block: BasicBlock, kind: str) -> bool:
        """Return whether no lane is active on an edge."""
        if block.exit != "conditional":
            return False
        name = self.lifted.effect_table.pseudos[self.lifted.columns.opcode[block.last]]
        return (name, kind) in (("S_CBRANCH_EXECZ", "taken"), ("S_CBRANCH_EXECNZ", "fallthrough"))

    def _skipping(self, block: BasicBlock) -> int | None:
        """Return the successor of a block if no lane is active, if known."""
        return next((edge.to for edge in block.successors if self._has_no_lanes(block, edge.kind)), None)

    def _encodes_target(self, index: int) -> bool:
        return self.lifted.columns.target[index] != NO_TARGET or index in self.direct


def _cost(edge: _CountedEdge) -> float:
    if edge.place is None:
        return _UNCOUNTABLE
    if edge.place.kind in ("entry", "called"):
        return 0.0
    return edge.heat * {"within": 1.0, "behind": _BEHIND_COST, "taken": _STUB_COST}[edge.place.kind]


def _share(nest: LoopNest, block: BasicBlock, to: int, skipping: int | None) -> float:
    """Return an estimate of the share of a block's executions that continue at a successor.

    Loops are rarely left, and code is rarely skipped because no lane is active.

    Args:
        skipping: the successor if no lane is active.
    """
    rare = 1 / LOOP_FACTOR
    targets = nest.successors[block.index]
    depths = {target: nest.edge_depth(block.index, target) for target in targets}
    deepest = max(depths.values())
    staying = [target for target, depth in depths.items() if depth == deepest]
    if len(staying) < len(depths):
        return (1 - rare) / len(staying) if to in staying else rare / (len(depths) - len(staying))
    if skipping is None or len(depths) == 1:
        return 1 / len(depths)
    return rare if to == skipping else (1 - rare) / (len(depths) - 1)


def _heat(function: Function, nest: LoopNest, skipping: Callable[[BasicBlock], int | None]) -> dict[int, float]:
    """Return estimated executions of each block: the flow over its forward edges, times a factor for each loop that
    begins there."""
    blocks = {block.index: block for block in function.blocks}
    order: list[int] = []
    seen = set(nest.entries)
    work = [(entry, iter(nest.successors[entry])) for entry in nest.entries]
    while work:
        _, rest = work[-1]
        following = next((to for to in rest if to not in seen), None)
        if following is None:
            order.append(work.pop()[0])
        else:
            seen.add(following)
            work.append((following, iter(nest.successors[following])))
    order.reverse()
    position = {block: number for number, block in enumerate(order)}
    headers = Counter(header for loop in nest.loops for header in loop.headers)
    heat = dict.fromkeys(blocks, 0.0)
    for entry in nest.entries:
        heat[entry] = 1.0
    for number in order:
        heat[number] *= LOOP_FACTOR ** headers[number]
        for to in nest.successors[number]:
            if position[to] > position[number]:
                heat[to] += heat[number] * _share(nest, blocks[number], to, skipping(blocks[number]))
    return heat
