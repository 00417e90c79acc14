"""What a task wants counted, as the counters that say it: one for each chord of a profile, or one for each sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from luthier.counts import CELL_BYTES, Cell, CountedFlow, CountRequest, KernelCounters, SolvedSum
from luthier.errors import PatchError
from luthier.lifting import LiftedRepresentation
from luthier.module import qualified
from luthier.patch.counted_ways import Ways, find_ways
from luthier.patch.counter_code import LARGEST_LANE_WEIGHT
from luthier.patch.counter_storage import Counter, Increment
from luthier.wave_counts import RowLayout

LARGEST_NARROW = 1 << 12
"""A sum whose single additions are larger gets 64 bits in registers."""


class _Profile(NamedTuple):
    """How often everything in a function runs."""

    ways: Ways
    lanes: bool
    """Lanes go the ways, not waves."""
    by_chord: Mapping[int, Counter]
    """Those that are counted."""


@dataclass
class _Sum:
    """What a variable lacks: `luthier.counts.SolvedSum`, while counters have no cells yet."""

    into: Cell
    amounts: dict[Counter, int] = field(default_factory=dict)
    waves: int = 0


class WantedCounts:
    """The counters that answer all requests of a kernel, and what follows from them.

    Args:
        symbol: of the kernel's own cells.
        waves_given: whether who reads profiles knows how many waves were launched, and all began at one entry.
        solvable: whether who reads a cell adds what follows from counters like those of profiles.
        each: whether every block is counted by itself.

    Attributes:
        counters: all of them, which have no places yet.

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
        """What counters say once they have their places; None where all goes to variables.

        Args:
            rows: what each wave writes besides.
        """
        if not self._profiles and not self._sums:
            return None

        def cell(counter: Counter) -> int:
            return counter.offset // CELL_BYTES

        flows: dict[bool, list[CountedFlow]] = {False: [], True: []}
        for ways, lanes, by_chord in self._profiles:
            cells = {chord: cell(counter) for chord, counter in by_chord.items()}
            given = frozenset(set(ways.chords) - cells.keys())
            flows[lanes].append(CountedFlow(ways.graph, cells, given, ways.stretches))
        solved = [
            SolvedSum(one.into, {cell(counter): amount for counter, amount in one.amounts.items()}, one.waves)
            for one in self._sums.values()
        ]
        size = sum(counter.symbol == self._symbol for counter in self.counters)
        return KernelCounters.of(self._lifted, self._symbol, size, flows[False], flows[True], rows, solved)

    def _reduce(self, requests: Sequence[CountRequest], *, each: bool) -> list[Counter]:
        totals: dict[tuple[str, int], Counter] = {}
        chords: list[Counter] = []
        for lanes in (False, True):
            wanted = [request for request in requests if (request.per == "lane") == lanes]
            sites = {index for request in wanted for index, _ in request.sites}
            for ways in find_ways(self._lifted, sites, lanes=lanes, each=each):
                weights: dict[Cell, dict[int, int]] = {}
                profiled = False
                for request in wanted:
                    for index, weight in request.sites:
                        node = ways.node_of(index)
                        if node is None:
                            continue
                        if request.into is None:
                            profiled = True
                            break
                        mine = weights.setdefault(request.into, {})
                        mine[node] = mine.get(node, 0) + weight
                solved: dict[Cell, dict[int, int]] = {}
                for cell, mine in weights.items():
                    amounts = ways.graph.amounts(ways.chords, mine)
                    if not lanes and self._solvable(cell):
                        solved[cell] = amounts
                        continue
                    key = qualified(cell.module, cell.variable), CELL_BYTES * cell.index
                    counter = totals.setdefault(key, Counter(*key))
                    counter.wide |= any(weight < 0 for weight in mine.values())  # 32 bits are taken for positive
                    for chord, amount in amounts.items():
                        self._grow(counter, ways, chord, amount, lanes=lanes)
                needed = set(ways.chords) if profiled else {chord for amounts in solved.values() for chord in amounts}
                by_chord = {
                    chord: Counter(self._symbol, -1)
                    for chord in ways.chords
                    if chord in needed and (lanes or not self._given(ways, chord))
                }
                for chord, counter in by_chord.items():
                    self._grow(counter, ways, chord, 1, lanes=lanes)
                    counter.once = ways.once_a_wave[chord] and not lanes
                    counter.wide = lanes and not ways.once_a_wave[chord]
                chords += by_chord.values()
                if profiled:
                    self._profiles.append(_Profile(ways, lanes, by_chord))
                for cell, amounts in solved.items():
                    sum_of_cell = self._sums.setdefault(cell, _Sum(cell))
                    for chord, amount in amounts.items():
                        if chord in by_chord:
                            sum_of_cell.amounts[by_chord[chord]] = amount
                        else:
                            sum_of_cell.waves += amount
        return [*totals.values(), *chords]

    def _given(self, ways: Ways, chord: int) -> bool:
        """Whether executions of a chord need not be counted, since each wave that is launched goes it once."""
        place = ways.places[chord]
        return self._waves_given and place is not None and place.kind == "entry" and ways.once_a_wave[chord]

    def _grow(self, counter: Counter, ways: Ways, chord: int, amount: int, *, lanes: bool) -> None:
        """Let a counter add something for each time that a chord is gone."""
        place = ways.places[chord]
        if place is None:
            raise PatchError("a way through the code cannot be counted", kernel=self._lifted.kernel.name)
        if lanes and abs(amount) >= LARGEST_LANE_WEIGHT:
            raise PatchError(
                f"active lanes cannot be counted with a weight of {amount}: it must stay below {LARGEST_LANE_WEIGHT}",
                kernel=self._lifted.kernel.name,
            )
        counter.increments.append(Increment(place, amount, lanes, ways.heat[chord], ways.once_a_wave[chord]))
        counter.wide |= abs(amount) > LARGEST_NARROW or not ways.once_a_wave[chord]
