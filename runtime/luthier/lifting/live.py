"""Live registers at a point of the code, or at many: the result of liveness, for binding and listings."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.isa.registers import UNIT_LIMIT, UnitSet


class Live(NamedTuple):
    """Live registers at a point of the code.

    A wave has one copy of a scalar register, so a scalar unit is in all sets or in none. The fields are plain bit sets,
    which are quick to make; the properties without ``_bits`` are the same as sets of units.
    """

    active_bits: int
    """Units whose value in a lane that is active here may be read later."""
    inactive_bits: int
    """Units whose value in a lane that is not active here may be read later."""

    @property
    def all_bits(self) -> int:
        """Return the units whose value in any lane may be read later."""
        return self.active_bits | self.inactive_bits

    @property
    def active(self) -> UnitSet:
        """Return the units that must not be overwritten in the lanes that are active here.

        Any other may be overwritten, under the current EXEC.
        """
        return UnitSet(self.active_bits)

    @property
    def inactive(self) -> UnitSet:
        """Return the units that must not be overwritten in the lanes that are not active here."""
        return UnitSet(self.inactive_bits)

    @property
    def all_lanes(self) -> UnitSet:
        """Return the units that must not be overwritten in some lane.

        Any other may be overwritten, under any EXEC.
        """
        return UnitSet(self.all_bits)


class LivePoints:
    """Live registers at several points: for each a column of 64-bit words, the lowest units first.

    Args:
        active: [words of a set, points], as of `Live.active_bits`.
        inactive: [words of a set, points], as of `Live.inactive_bits`.
    """

    def __init__(self, active: NDArray[np.uint64], inactive: NDArray[np.uint64]) -> None:
        self._active, self._inactive = active, inactive

    def __len__(self) -> int:
        return int(self._active.shape[1])

    def __getitem__(self, point: int) -> Live:
        """Return the live registers at one point, by its place here."""
        sets = (int.from_bytes(lanes[:, point].tobytes(), "little") for lanes in (self._active, self._inactive))
        return Live(*sets)

    def only(self, points: slice | Sequence[int]) -> LivePoints:
        """Return some of the points, by their places here; those of a slice are views, not copies."""
        return LivePoints(self._active[:, points], self._inactive[:, points])

    def keep(self, units: int, points: slice | Sequence[int] = slice(None)) -> None:
        """Take these units of a bit set to be live in active lanes, at some of the points."""
        for word, bits in _words(units):
            self._active[word, points] |= bits

    def let_any_lane_be_active(self, points: Sequence[int]) -> None:
        """Assume at some of the points that any lane may be active."""
        self._active[:, points] |= self._inactive[:, points]

    def has(self, units: int, *, in_all_lanes: bool) -> NDArray[np.bool_]:
        """Return [points] whether some of the units of a bit set are live.

        Args:
            in_all_lanes: in any lane; else in those that are active.
        """
        found = np.zeros(len(self), np.bool_)
        for word, bits in _words(units):
            found |= (self._lanes(word, in_all_lanes) & bits) != 0
        return found

    def dead_among(self, units: int, *, in_all_lanes: bool) -> NDArray[np.int64]:
        """Return [points] how many of the units of a bit set are not live; `in_all_lanes` as of `has`."""
        found = np.zeros(len(self), np.int64)
        for word, bits in _words(units):
            found += np.bitwise_count(~self._lanes(word, in_all_lanes) & bits)
        return found

    def has_dead_pair(self, units: int, *, in_all_lanes: bool) -> NDArray[np.bool_]:
        """Return [points] whether two neighbours of a bit set, the first one even, are not live.

        Args:
            in_all_lanes: as of `has`.
        """
        found = np.zeros(len(self), np.bool_)
        for word, bits in _words(units):
            dead = ~self._lanes(word, in_all_lanes) & bits
            found |= (dead & dead >> np.uint64(1) & _EVEN) != 0
        return found

    def _lanes(self, word: int, in_all_lanes: bool) -> NDArray[np.uint64]:
        active: NDArray[np.uint64] = self._active[word]
        return active | self._inactive[word] if in_all_lanes else active


_EVEN = np.uint64(0x5555555555555555)


@functools.lru_cache(maxsize=4096)
def _words(units: int) -> tuple[tuple[int, np.uint64], ...]:
    """Return the words of a bit set that are not 0, by their places."""
    words = np.frombuffer(units.to_bytes(UNIT_LIMIT // 8, "little"), "<u8")
    return tuple((int(place), words[place]) for place in np.flatnonzero(words))
