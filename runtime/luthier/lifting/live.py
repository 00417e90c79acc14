"""Live registers at one or many points of the code: the result of liveness analysis."""

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
    which are fast to create; the properties without ``_bits`` return them as sets of units.
    """

    active_bits: int
    """Units whose value in a lane that is active at the point may be read later."""
    inactive_bits: int
    """Units whose value in a lane that is inactive at the point may be read later."""

    @property
    def all_bits(self) -> int:
        """Return the units whose value in any lane may be read later."""
        return self.active_bits | self.inactive_bits

    @property
    def active(self) -> UnitSet:
        """Return the units that must be preserved in the active lanes.

        All others may be overwritten under the current EXEC.
        """
        return UnitSet(self.active_bits)

    @property
    def inactive(self) -> UnitSet:
        """Return the units that must be preserved in the inactive lanes."""
        return UnitSet(self.inactive_bits)

    @property
    def all_lanes(self) -> UnitSet:
        """Return the units that must be preserved in some lane.

        All others may be overwritten under any EXEC.
        """
        return UnitSet(self.all_bits)


class LivePoints:
    """Live registers at several points: a column of 64-bit words for each, the lowest units first.

    Args:
        active: [words of a set, points] of `Live.active_bits`.
        inactive: [words of a set, points] of `Live.inactive_bits`.
    """

    def __init__(self, active: NDArray[np.uint64], inactive: NDArray[np.uint64]) -> None:
        self._active, self._inactive = active, inactive
        self._unions: list[int | None] = [None, None]
        """Units live at some point, in the active lanes and in any lane; None until asked for."""

    def __len__(self) -> int:
        return int(self._active.shape[1])

    def __getitem__(self, point: int) -> Live:
        """Return the live registers at one point, by its position."""
        sets = (int.from_bytes(lanes[:, point].tobytes(), "little") for lanes in (self._active, self._inactive))
        return Live(*sets)

    def only(self, points: slice | Sequence[int]) -> LivePoints:
        """Return some of the points, by their positions; a slice gives views, not copies: change neither."""
        return LivePoints(self._active[:, points], self._inactive[:, points])

    def keep(self, units: int, points: slice | Sequence[int] = slice(None)) -> None:
        """Mark a bit set of units as live in the active lanes at some of the points."""
        for word, bits in _words(units):
            self._active[word, points] |= bits
        self._unions = [None, None]

    def let_any_lane_be_active(self, points: Sequence[int]) -> None:
        """Assume that any lane may be active at some of the points."""
        self._active[:, points] |= self._inactive[:, points]
        self._unions = [None, None]

    def anywhere(self, *, in_all_lanes: bool) -> int:
        """Return the units that are live at some of the points; for `in_all_lanes` see `has`."""
        union = self._unions[in_all_lanes]
        if union is None:
            words = np.bitwise_or.reduce(self._active, axis=1)
            if in_all_lanes:
                words |= np.bitwise_or.reduce(self._inactive, axis=1)
            union = self._unions[in_all_lanes] = int.from_bytes(words.tobytes(), "little")
        return union

    def has(self, units: int, *, in_all_lanes: bool) -> NDArray[np.bool_]:
        """Return [points] whether some unit of a bit set is live.

        Args:
            in_all_lanes: in any lane; otherwise only in the active lanes.
        """
        live = np.zeros(len(self), np.bool_)
        for word, bits in _words(units & self.anywhere(in_all_lanes=in_all_lanes)):
            live |= (self._lanes(word, in_all_lanes) & bits) != 0
        return live

    def dead_among(self, units: int, *, in_all_lanes: bool) -> NDArray[np.int64]:
        """Return [points] the number of units of a bit set that are not live; for `in_all_lanes` see `has`."""
        counts = np.zeros(len(self), np.int64)
        for word, bits in _words(units):
            counts += np.bitwise_count(~self._lanes(word, in_all_lanes) & bits)
        return counts

    def has_dead_pair(self, units: int, *, in_all_lanes: bool) -> NDArray[np.bool_]:
        """Return [points] whether two adjacent units of a bit set, the first one even, are not live.

        Args:
            in_all_lanes: see `has`.
        """
        pairs = np.zeros(len(self), np.bool_)
        for word, bits in _words(units):
            dead = ~self._lanes(word, in_all_lanes) & bits
            pairs |= (dead & dead >> np.uint64(1) & _EVEN) != 0
        return pairs

    def _lanes(self, word: int, in_all_lanes: bool) -> NDArray[np.uint64]:
        active: NDArray[np.uint64] = self._active[word]
        return active | self._inactive[word] if in_all_lanes else active


_EVEN = np.uint64(0x5555555555555555)


@functools.lru_cache(maxsize=4096)
def _words(units: int) -> tuple[tuple[int, np.uint64], ...]:
    """Return the nonzero words of a bit set with their positions."""
    words = np.frombuffer(units.to_bytes(UNIT_LIMIT // 8, "little"), "<u8")
    return tuple((int(position), words[position]) for position in np.flatnonzero(words))
