"""Registers of a kernel's counters, and the groups in which they are added to memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from luthier.patch.counters.code import Batch, CounterCode, Held
from luthier.patch.counters.counted_edges import CountingPoint
from luthier.patch.payloads.zones import Zone
from luthier.tool.counts import CELL_BYTES

WORD_BITS = 32


class NoRoom(Exception):
    """There are too few registers for counters that cannot add to memory directly."""


class Increment(NamedTuple):
    """A point where a counter is incremented."""

    place: CountingPoint
    amount: int
    lanes: bool
    """Whether `amount` is multiplied by the number of active lanes."""
    heat: float
    """Estimated executions."""
    once: bool
    """Whether a wave passes it at most once."""


class WaveCounter(Struct, eq=False):
    """One counter of a wave."""

    symbol: str
    offset: int
    """Bytes from the symbol to its cell; for profiles set by `CounterStorage.groups`."""
    increments: list[Increment] = field(default_factory=list)
    once: bool = False
    """Whether a wave adds only 1, at most once, so that one bit is enough."""
    wide: bool = False
    """Whether it needs 64 bits while a wave runs."""
    scalar: bool = False
    """Whether it is incremented where vector instructions cannot be used."""
    places: list[tuple[int, Zone, bool] | None] = field(default_factory=list)
    """For each increment the instruction, the zone, and whether SCC is live there; None at kernel entry."""
    known: bool = False
    """Whether its value is known at each end of a wave from the edge taken, so that it is not counted."""

    @property
    def single(self) -> bool:
        """Return whether it is incremented at most once in a wave, at one point."""
        return len(self.increments) == 1 and self.increments[0].once

    @property
    def heat(self) -> float:
        """Return the estimated number of increments."""
        return sum(increment.heat for increment in self.increments)


class CounterStorage(Struct):
    """Registers that hold counters."""

    wave_size: int
    held: dict[WaveCounter, Held] = field(default_factory=dict)
    """Counter -> its registers; other counters add to memory directly."""
    bit: dict[WaveCounter, int] = field(default_factory=dict)
    """Counter that is a single bit -> its bit."""
    temporaries: list[int] = field(default_factory=list)
    """SGPR units for `CounterCode.add`."""
    reserved: int = 0
    """Bit set of all used units."""

    def take(self, units: list[int], count: int = 1) -> list[int]:
        """Remove units from the free ones, the lowest first; two of them are an aligned pair if there is one."""
        first = 0
        if count == 2:
            pairs = (at for at, unit in enumerate(units[:-1]) if unit % 2 == 0 and units[at + 1] == unit + 1)
            first = next(pairs, 0)
        taken = units[first : first + count]
        del units[first : first + count]
        for unit in taken:
            self.reserved |= 1 << unit
        return taken

    def groups(self, counters: Sequence[WaveCounter]) -> list[list[WaveCounter]]:
        """Return the counters that go to memory together, at most one per lane.

        Also assign cells to the counters of profiles, including those without a register.
        """
        result: list[list[WaveCounter]] = []
        symbols = {counter.symbol: None for counter in counters}
        for symbol in symbols:
            matching = [counter for counter in counters if counter.symbol == symbol]
            matching.sort(key=lambda counter: counter.offset)  # profiles have no offsets yet and keep their order
            groups = self._together(matching)
            result += groups
            cell = 0
            grouped = [counter for group in groups for counter in group]
            rest = [counter for counter in matching if counter not in self.held and not counter.known]
            for counter in [*grouped, *rest]:
                if counter.offset < 0:
                    counter.offset = CELL_BYTES * cell
                    cell += 1
        return result

    def batch(self, group: Sequence[WaveCounter], values: Mapping[WaveCounter, int], *, whole: bool) -> Batch | None:
        """Return the part of a group that goes to memory where some of its values are known.

        Args:
            values: the known values.
            whole: whether to include counters known to be 0, so that the cells may be consecutive.

        Returns:
            None if all counters are known to be 0.
        """
        if not any(values.get(counter, 1) for counter in group):
            return None
        in_vector = any(counter in self.held and self.held[counter].lane is not None for counter in group)
        bits = [counter for counter in group if counter in self.bit]
        kept = bits if whole or any(values.get(counter, 1) for counter in bits) else []
        words = [counter for counter in group if counter not in self.bit]
        kept = kept + [counter for counter in words if whole or in_vector or values.get(counter, 1)]
        held = [
            None if counter in self.bit else self.held[counter] if counter in self.held else values[counter]
            for counter in kept
        ]
        word = self.held[bits[0]].low if bits and kept[0] in self.bit else None
        return Batch(tuple(held), tuple(counter.offset for counter in kept), kept[0].symbol, word)

    def _together(self, counters: Sequence[WaveCounter]) -> list[list[WaveCounter]]:
        """Return the groups of counters that are added to memory together.

        Counters in one VGPR form a group. The bits of one SGPR begin a group, which other counters fill, those without
        a register last.
        """
        words: dict[int, list[WaveCounter]] = {}
        vectors: dict[int, list[WaveCounter]] = {}
        scalars: list[WaveCounter] = []
        for counter in counters:
            held = self.held.get(counter)
            if held is None:
                continue
            if counter in self.bit:
                words.setdefault(held.low, []).append(counter)
            elif held.lane is not None:
                vectors.setdefault(held.low, []).append(counter)
            else:
                scalars.append(counter)
        scalars += [counter for counter in counters if counter.known]
        groups = [sorted(word, key=self.bit.__getitem__) for word in words.values()]
        for group in groups:
            room = self.wave_size - len(group)
            group += scalars[:room]
            del scalars[:room]
        groups += [scalars[start : start + self.wave_size] for start in range(0, len(scalars), self.wave_size)]
        return groups + [sorted(vector, key=lambda each: self.held[each].lane or 0) for vector in vectors.values()]


def store(
    counters: Sequence[WaveCounter],
    scalars: Sequence[int],
    vectors: Sequence[int],
    wave_size: int,
    code: CounterCode,
    *,
    in_lanes: bool = False,
) -> CounterStorage:
    """Choose registers: SGPRs for all counters, or if there are too few, SGPRs for the hottest and lanes for the rest.

    Args:
        scalars, vectors: units that nothing else uses.
        in_lanes: whether to use no SGPRs for counters.
    """
    storage = CounterStorage(wave_size)
    counters = [counter for counter in counters if not counter.known]
    free, lanes = list(scalars), list(vectors)
    needed = max((_temporaries(counter, code, lane=None) for counter in counters), default=0)
    once = [counter for counter in counters if counter.once]
    repeated = sorted((counter for counter in counters if not counter.once), key=lambda counter: -counter.heat)
    words = -(-len(once) // WORD_BITS)
    wanted = needed + words + sum(1 + counter.wide for counter in repeated)
    if in_lanes or wanted > len(free):
        needed = max((_temporaries(counter, code, lane=0) for counter in counters), default=0)
    if needed > len(free):
        needed = 0  # only counters that need no temporaries can have a register
    if code.keeps_pairs:
        needed += needed & 1
    storage.temporaries = storage.take(free, needed)
    if in_lanes:
        free.clear()
    for start in range(0, len(once), WORD_BITS):
        word = once[start : start + WORD_BITS]
        if any(_temporaries(counter, code, lane=None) > needed for counter in word) or not free:
            break
        (unit,) = storage.take(free)
        for bit, counter in enumerate(word):
            storage.held[counter], storage.bit[counter] = Held(unit, None), bit
    _put_into_sgprs(storage, repeated, free, code)
    left = [counter for counter in counters if counter not in storage.held and not counter.scalar]
    _put_into_lanes(storage, left, lanes, code)
    return storage


def _temporaries(counter: WaveCounter, code: CounterCode, lane: int | None) -> int:
    held = Held(0, 0 if counter.wide else None, lane)
    return max(
        (
            code.needed_temporaries(held, lanes=increment.lanes, scc_live=bool(point and point[2]))
            for increment, point in zip(counter.increments, counter.places, strict=True)
        ),
        default=0,
    )


def _put_into_sgprs(
    storage: CounterStorage, counters: Sequence[WaveCounter], free: list[int], code: CounterCode
) -> None:
    for counter in counters:
        size = 1 + counter.wide
        if size <= len(free) and _temporaries(counter, code, lane=None) <= len(storage.temporaries):
            low, *high = storage.take(free, size)
            storage.held[counter] = Held(low, high[0] if high else None)


def _put_into_lanes(
    storage: CounterStorage, counters: Sequence[WaveCounter], free: list[int], code: CounterCode
) -> None:
    """Assign lanes of VGPRs to counters. Those of one symbol share VGPRs; if one of them is wide, all are."""
    symbols = {counter.symbol: None for counter in counters}
    for symbol in symbols:
        matching = [counter for counter in counters if counter.symbol == symbol]
        wide = any(counter.wide for counter in matching)
        for counter in matching:
            counter.wide = wide
        matching = [counter for counter in matching if _temporaries(counter, code, lane=0) <= len(storage.temporaries)]
        for start in range(0, len(matching), storage.wave_size):
            if len(free) < 1 + wide:
                return
            low, *high = storage.take(free, 1 + wide)
            for lane, counter in enumerate(matching[start : start + storage.wave_size]):
                storage.held[counter] = Held(low, high[0] if high else None, lane)
