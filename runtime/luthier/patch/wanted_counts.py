"""What a task wants counted, as the counters that say it: one for each chord of a profile, or one for each sum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from luthier.counts import CELL_BYTES, Cell, CellSum, CountedFlow, CountRequest, KernelCounters, SolvedSum
from luthier.errors import PatchError
from luthier.lifting import LiftedRepresentation
from luthier.module import qualified
from luthier.patch.counted_ways import Ways, find_ways, known_callers
from luthier.patch.counter_code import LARGEST_LANE_WEIGHT
from luthier.patch.counter_storage import Counter, Increment
from luthier.wave_counts import RowLayout

LARGEST_NARROW = 1 << 12
"""A sum whose single additions are larger gets 64 bits in registers."""


_Chord = tuple[Ways, int]


def _add_up(sums: dict[_Chord, int], more: Mapping[_Chord, int], times: int = 1) -> None:
    """Add some linear combination of chords to another one."""
    for one, amount in more.items():
        sums[one] = sums.get(one, 0) + times * amount
        if not sums[one]:
            del sums[one]


class _Ways:
    """The ways through the functions that hold some sites. How often functions are entered that are called from among
    them follows from how often the calls run.

    Attributes:
        all: by function.
    """

    def __init__(self, lifted: LiftedRepresentation, sites: Collection[int], *, lanes: bool, each: bool) -> None:
        callers = {} if each else known_callers(lifted, sites)
        while True:
            self.all = list(find_ways(lifted, sites, lanes=lanes, each=each, called=callers))
            self._follows: dict[_Chord, dict[_Chord, int]] = {}
            left = [one.function for one in self.all if not self._solve(one, callers.get(one.function, ()))]
            if not left:
                return
            callers = {function: calls for function, calls in callers.items() if function not in left}

    def amounts(self, ways: Ways, weights: Mapping[int, int]) -> dict[_Chord, int]:
        """What each chord that must be counted adds to the sum of weights times how often nodes of a function run."""
        found: dict[_Chord, int] = {}
        for chord, amount in ways.graph.amounts(ways.chords, weights).items():
            _add_up(found, self.of(ways, chord), amount)
        return found

    def of(self, ways: Ways, chord: int) -> Mapping[_Chord, int]:
        """A chord as the sum of those that must be counted."""
        return self._follows.get((ways, chord), {(ways, chord): 1})

    def needed_by(self, profiled: Iterable[Ways]) -> set[_Chord]:
        """The chords that must be counted so that all is known of some functions."""
        return {one for ways in profiled for chord in ways.chords for one in self.of(ways, chord)}

    def _solve(self, ways: Ways, calls: Iterable[int]) -> bool:
        """Note what follows from calls of a function; whether it does, or nothing must."""
        entry = ways.entered_by_calls
        if entry is None:
            return True
        entered: dict[_Chord, int] = {}
        for call in calls:
            caller, node = next((one, node) for one in self.all if (node := one.node_of(call)) is not None)
            _add_up(entered, self.amounts(caller, {node: 1}))
        # Where it calls itself, how often it is entered is on both sides.
        rest = 1 - entered.pop((ways, entry), 0)
        if not rest or any(amount % rest for amount in entered.values()):
            return False
        entered = {one: amount // rest for one, amount in entered.items()}
        for known in self._follows.values():
            _add_up(known, entered, known.pop((ways, entry), 0))
        self._follows[ways, entry] = entered
        return True


class _Profile(NamedTuple):
    """How often everything in a function runs."""

    ways: Ways
    lanes: bool
    """Lanes go the ways, not waves."""
    all: _Ways
    counters: Mapping[_Chord, Counter]
    """Of the chords that are counted."""


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
        for ways, lanes, found, counters in self._profiles:
            chords = {}
            for chord in ways.chords:
                parts = found.of(ways, chord)
                cells = {cell(counters[one]): amount for one, amount in parts.items() if one in counters}
                chords[chord] = CellSum(cells, sum(amount for one, amount in parts.items() if one not in counters))
            flows[lanes].append(CountedFlow(ways.graph, chords, ways.stretches))
        solved = [
            SolvedSum(one.into, CellSum({cell(counter): amount for counter, amount in one.amounts.items()}, one.waves))
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
            found = _Ways(self._lifted, sites, lanes=lanes, each=each)
            weights: dict[Cell, dict[_Chord, int]] = {}
            profiled: list[Ways] = []
            for ways in found.all:
                mine: dict[Cell, dict[int, int]] = {}
                for request in wanted:
                    for index, weight in request.sites:
                        node = ways.node_of(index)
                        if node is None:
                            continue
                        if request.into is None:
                            profiled.append(ways)
                            break
                        nodes = mine.setdefault(request.into, {})
                        nodes[node] = nodes.get(node, 0) + weight
                for cell, nodes in mine.items():
                    _add_up(weights.setdefault(cell, {}), found.amounts(ways, nodes))
                    key = qualified(cell.module, cell.variable), CELL_BYTES * cell.index
                    if lanes or not self._solvable(cell):
                        counter = totals.setdefault(key, Counter(*key))
                        counter.wide |= any(weight < 0 for weight in nodes.values())  # 32 bits are taken for positive
            solved: dict[Cell, dict[_Chord, int]] = {}
            for cell, amounts in weights.items():
                if not lanes and self._solvable(cell):
                    solved[cell] = amounts
                    continue
                counter = totals[qualified(cell.module, cell.variable), CELL_BYTES * cell.index]
                for (ways, chord), amount in amounts.items():
                    self._grow(counter, ways, chord, amount, lanes=lanes)
            needed = found.needed_by(profiled) | {one for amounts in solved.values() for one in amounts}
            counters: dict[_Chord, Counter] = {}
            for ways in found.all:
                for chord in ways.chords:
                    if (ways, chord) not in needed or (not lanes and self._given(ways, chord)):
                        continue
                    counter = counters[ways, chord] = Counter(self._symbol, -1)
                    self._grow(counter, ways, chord, 1, lanes=lanes)
                    counter.once = ways.once_a_wave[chord] and not lanes
                    counter.wide = lanes and not ways.once_a_wave[chord]
            chords += counters.values()
            self._profiles += [_Profile(ways, lanes, found, counters) for ways in dict.fromkeys(profiled)]
            for cell, amounts in solved.items():
                sum_of_cell = self._sums.setdefault(cell, _Sum(cell))
                for one, amount in amounts.items():
                    if one in counters:
                        sum_of_cell.amounts[counters[one]] = amount
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
