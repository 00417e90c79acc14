"""Counters for a task's requests: one for each chord of a profile, or one for each sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from luthier.errors import PatchError
from luthier.lifting import LiftedRepresentation
from luthier.module import qualified
from luthier.patch.counters.code import LARGEST_LANE_WEIGHT
from luthier.patch.counters.counted_edges import FunctionEdges, find_edges, known_callers
from luthier.patch.counters.storage import Increment, WaveCounter
from luthier.tool.counts import CELL_BYTES, Cell, CellSum, CountedFlow, CountRequest, KernelCounters, SolvedSum
from luthier.tool.wave_counts import RowLayout

LARGEST_NARROW = 1 << 12
"""A sum with larger increments gets 64 bits in registers."""


_Chord = tuple[FunctionEdges, int]


def _add_up(sums: dict[_Chord, int], more: Mapping[_Chord, int], times: int = 1) -> None:
    """Add a linear combination of chords to another one."""
    for chord, amount in more.items():
        sums[chord] = sums.get(chord, 0) + times * amount
        if not sums[chord]:
            del sums[chord]


class _CountedGraphs:
    """The edges of the functions that contain sites. The entry counts of functions that are called among these follow
    from the executions of the calls.

    Attributes:
        all: by function.
    """

    def __init__(self, lifted: LiftedRepresentation, sites: Collection[int], *, lanes: bool, each: bool) -> None:
        callers = {} if each else known_callers(lifted, sites)
        while True:
            self.all = list(find_edges(lifted, sites, lanes=lanes, each=each, called=callers))
            self._follows: dict[_Chord, dict[_Chord, int]] = {}
            left = [one.function for one in self.all if not self._solve(one, callers.get(one.function, ()))]
            if not left:
                return
            callers = {function: calls for function, calls in callers.items() if function not in left}

    def amounts(self, edges: FunctionEdges, weights: Mapping[int, int]) -> dict[_Chord, int]:
        """Return the increment of each counted chord for the sum of weights times executions of a function's nodes."""
        amounts: dict[_Chord, int] = {}
        for chord, amount in edges.graph.amounts(edges.chords, weights).items():
            _add_up(amounts, self.of(edges, chord), amount)
        return amounts

    def of(self, edges: FunctionEdges, chord: int) -> Mapping[_Chord, int]:
        """Return a chord as the sum of those that must be counted."""
        return self._follows.get((edges, chord), {(edges, chord): 1})

    def needed_by(self, profiled: Iterable[FunctionEdges]) -> set[_Chord]:
        """Return the chords that must be counted to know all counts of some functions."""
        return {one for edges in profiled for chord in edges.chords for one in self.of(edges, chord)}

    def _solve(self, edges: FunctionEdges, calls: Iterable[int]) -> bool:
        """Record the entry count that follows from calls of a function. Return whether it is known or not needed."""
        entry = edges.entered_by_calls
        if entry is None:
            return True
        entered: dict[_Chord, int] = {}
        for call in calls:
            caller, node = next((one, node) for one in self.all if (node := one.node_of(call)) is not None)
            _add_up(entered, self.amounts(caller, {node: 1}))
        # If the function calls itself, its entry count is on both sides of the equation.
        rest = 1 - entered.pop((edges, entry), 0)
        if not rest or any(amount % rest for amount in entered.values()):
            return False
        entered = {one: amount // rest for one, amount in entered.items()}
        for followed in self._follows.values():
            _add_up(followed, entered, followed.pop((edges, entry), 0))
        self._follows[edges, entry] = entered
        return True


class _Profile(NamedTuple):
    """Counts of everything in a function."""

    edges: FunctionEdges
    lanes: bool
    """Whether the edges count lanes, instead of waves."""
    all: _CountedGraphs
    counters: Mapping[_Chord, WaveCounter]
    """Counters of the chords that are counted."""


class _Sum(Struct):
    """A `luthier.tool.counts.SolvedSum` before counters have cells."""

    into: Cell
    amounts: dict[WaveCounter, int] = field(default_factory=dict)
    waves: int = 0


class _Weights(NamedTuple):
    """The weights of requests in the functions of a kernel."""

    of_cells: dict[Cell, dict[_Chord, int]]
    """Cell -> chord -> its increment."""
    profiled: list[FunctionEdges]
    """Functions in which every instruction is counted."""


def _key(cell: Cell) -> tuple[str, int]:
    """Return the symbol and the byte offset of a cell."""
    return qualified(cell.module, cell.variable), CELL_BYTES * cell.index


class WantedCounts:
    """The counters for all requests of a kernel, and the sums that follow from them.

    Args:
        symbol: symbol of the kernel's own cells.
        waves_given: whether readers of profiles know the number of launched waves, and all start at one entry.
        solvable: whether the reader of a cell adds the sums that follow from counters.
        each: whether to count every block separately.

    Attributes:
        counters: all counters, which have no places yet.

    Raises:
        PatchError: something cannot be counted.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        requests: Sequence[CountRequest],
        symbol: str,
        *,
        waves_given: bool,
        solvable: Callable[[Cell], bool],
        each: bool,
    ) -> None:
        self._lifted, self._symbol = lifted, symbol
        self._waves_given, self._solvable = waves_given, solvable
        self._profiles: list[_Profile] = []
        self._sums: dict[Cell, _Sum] = {}
        self.counters = self._reduce(requests, each=each)

    def result(self, rows: RowLayout | None) -> KernelCounters | None:
        """Return the meaning of the counters, which must have places; None if all counts go to variables.

        Args:
            rows: layout of the rows of waves.
        """
        if not self._profiles and not self._sums:
            return None

        def cell(counter: WaveCounter) -> int:
            return counter.offset // CELL_BYTES

        flows: dict[bool, list[CountedFlow]] = {False: [], True: []}
        for edges, lanes, graphs, counters in self._profiles:
            chords = {}
            for chord in edges.chords:
                parts = graphs.of(edges, chord)
                cells = {cell(counters[one]): amount for one, amount in parts.items() if one in counters}
                chords[chord] = CellSum(cells, sum(amount for one, amount in parts.items() if one not in counters))
            flows[lanes].append(CountedFlow(edges.graph, chords, edges.stretches))
        solved = [
            SolvedSum(one.into, CellSum({cell(counter): amount for counter, amount in one.amounts.items()}, one.waves))
            for one in self._sums.values()
        ]
        size = sum(counter.symbol == self._symbol for counter in self.counters)
        return KernelCounters.of(self._lifted, self._symbol, size, flows[False], flows[True], rows, solved)

    def _reduce(self, requests: Sequence[CountRequest], *, each: bool) -> list[WaveCounter]:
        """Return the counters of all requests, separately for waves and lanes, which have different edges."""
        totals: dict[tuple[str, int], WaveCounter] = {}
        chords: list[WaveCounter] = []
        for lanes in (False, True):
            wanted = [request for request in requests if (request.per == "lane") == lanes]
            sites = {index for request in wanted for index, _ in request.sites}
            graphs = _CountedGraphs(self._lifted, sites, lanes=lanes, each=each)
            weights = self._weights(graphs, wanted, totals, lanes=lanes)
            solved = self._sum_up(weights.of_cells, totals, lanes=lanes)
            needed = graphs.needed_by(weights.profiled) | {one for amounts in solved.values() for one in amounts}
            counters = self._count_chords(graphs, needed, lanes=lanes)
            chords += counters.values()
            self._profiles += [_Profile(edges, lanes, graphs, counters) for edges in dict.fromkeys(weights.profiled)]
            self._solve_sums(solved, counters)
        return [*totals.values(), *chords]

    def _weights(
        self,
        graphs: _CountedGraphs,
        wanted: Sequence[CountRequest],
        totals: dict[tuple[str, int], WaveCounter],
        *,
        lanes: bool,
    ) -> _Weights:
        """Return the weights of requests. `totals` receives a counter for each cell whose sum does not follow from
        other counters."""
        weights = _Weights({}, [])
        for edges in graphs.all:
            by_cell: dict[Cell, dict[int, int]] = {}
            for request in wanted:
                for index, weight in request.sites:
                    node = edges.node_of(index)
                    if node is None:
                        continue
                    if request.into is None:
                        weights.profiled.append(edges)
                        break
                    nodes = by_cell.setdefault(request.into, {})
                    nodes[node] = nodes.get(node, 0) + weight
            for cell, nodes in by_cell.items():
                _add_up(weights.of_cells.setdefault(cell, {}), graphs.amounts(edges, nodes))
                if lanes or not self._solvable(cell):
                    counter = totals.setdefault(_key(cell), WaveCounter(*_key(cell)))
                    counter.wide |= any(weight < 0 for weight in nodes.values())  # 32 bits are unsigned
        return weights

    def _sum_up(
        self,
        weights: Mapping[Cell, dict[_Chord, int]],
        totals: Mapping[tuple[str, int], WaveCounter],
        *,
        lanes: bool,
    ) -> dict[Cell, dict[_Chord, int]]:
        """Add increments to the counter of each cell. Return the cells whose sums follow from chords instead."""
        solved: dict[Cell, dict[_Chord, int]] = {}
        for cell, amounts in weights.items():
            if not lanes and self._solvable(cell):
                solved[cell] = amounts
                continue
            for (edges, chord), amount in amounts.items():
                self._grow(totals[_key(cell)], edges, chord, amount, lanes=lanes)
        return solved

    def _count_chords(self, graphs: _CountedGraphs, needed: set[_Chord], *, lanes: bool) -> dict[_Chord, WaveCounter]:
        """Return a counter for each needed chord that is not known otherwise."""
        counters: dict[_Chord, WaveCounter] = {}
        for edges in graphs.all:
            for chord in edges.chords:
                if (edges, chord) not in needed or (not lanes and self._given(edges, chord)):
                    continue
                counter = counters[edges, chord] = WaveCounter(self._symbol, -1)
                self._grow(counter, edges, chord, 1, lanes=lanes)
                counter.once = edges.once_a_wave[chord] and not lanes
                counter.wide = lanes and not edges.once_a_wave[chord]
        return counters

    def _solve_sums(self, solved: Mapping[Cell, Mapping[_Chord, int]], counters: Mapping[_Chord, WaveCounter]) -> None:
        """Record how sums follow from counters, and for chords without a counter, from the number of waves."""
        for cell, amounts in solved.items():
            sum_of_cell = self._sums.setdefault(cell, _Sum(cell))
            for chord, amount in amounts.items():
                if chord in counters:
                    sum_of_cell.amounts[counters[chord]] = amount
                else:
                    sum_of_cell.waves += amount

    def _given(self, edges: FunctionEdges, chord: int) -> bool:
        """Return whether a chord need not be counted, since each launched wave takes it once."""
        place = edges.places[chord]
        return self._waves_given and place is not None and place.kind == "entry" and edges.once_a_wave[chord]

    def _grow(self, counter: WaveCounter, edges: FunctionEdges, chord: int, amount: int, *, lanes: bool) -> None:
        """Add an increment of a counter for a chord."""
        place = edges.places[chord]
        if place is None:
            raise PatchError("an edge of the control flow cannot be counted", kernel=self._lifted.kernel.name)
        if lanes and abs(amount) >= LARGEST_LANE_WEIGHT:
            raise PatchError(
                f"active lanes cannot be counted with a weight of {amount}: it must stay below {LARGEST_LANE_WEIGHT}",
                kernel=self._lifted.kernel.name,
            )
        counter.increments.append(Increment(place, amount, lanes, edges.heat[chord], edges.once_a_wave[chord]))
        counter.wide |= abs(amount) > LARGEST_NARROW or not edges.once_a_wave[chord]
