"""The host's end of one ring."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.channels.layout import HEAD, RING, Description
from luthier.wire.channels import Mode

_MOST_WAITING = 1 << 32
"""Bound on the tickets of waves that wait for room: no device has as many lanes."""


class Ring:
    """Shared memory for the records of one channel on one device. Thread-safe.

    A wave writes its records and then, with release order, their sequence words: the turn of the ring, from 1 on. So
    whoever sees the word sees the whole record; the word of an earlier turn means that the record is not there yet. The
    host makes room with its own counter, `read`: waves do not overwrite records beyond it.

    Args:
        description: the channel.
        variable: the variable's bytes in device memory, which the constructor writes.
        memory: ``description.ring_size`` zeroed bytes that device and host share.
        distance: device address of `memory` minus that of the variable.
    """

    def __init__(
        self, description: Description, variable: NDArray[np.uint8], memory: NDArray[np.uint8], distance: int
    ) -> None:
        self.description = description
        self.lost = 0
        """Records that were incomplete when their waves were killed."""
        self.taken = 0
        """Records that `take` and `settle` have returned."""
        self.damaged = False
        """The ticket counters have impossible values: the program has overwritten them."""
        self._lock = threading.Lock()
        self._head = variable[: HEAD.itemsize].view(HEAD)
        control = memory[: RING.itemsize].view(RING)
        # One machine instruction reads or writes each of these.
        self._reserved, self._dropped, self._read = control["reserved"], control["dropped"], control["read"]
        self._mode = control["mode"]
        self._position = int(self._read[0])
        """The true value of `read`: the program may overwrite the one in memory."""
        words = 4 * description.capacity
        self._sequence = memory[RING.itemsize : RING.itemsize + words].view("<u4")
        records = memory[RING.itemsize + words : description.ring_size]
        self._records: NDArray[np.void] = records.view(f"V{description.dtype.itemsize}")
        self._mode[0] = description.mode
        self._head["shift"] = description.shift
        self._head["ring"] = np.array(distance & 0xFFFF_FFFF_FFFF_FFFF, np.uint64).view(np.int64)

    @property
    def dropped(self) -> int:
        """Return the number of records that were dropped, or that nothing drained."""
        return int(self._dropped[0]) + int(self._head["unheard"][0])

    @property
    def mode(self) -> Mode:
        """Return what waves do when the ring is full; it may be changed at any time."""
        return Mode(int(self._mode[0]))

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode[0] = mode

    @property
    def waiting(self) -> bool:
        """Return whether there are tickets whose records were not read yet."""
        return int(self._reserved[0]) != self._position

    def take(self) -> NDArray[Any]:
        """Return a copy of the next complete records in the order of tickets, and free their slots.

        One call returns at most the records up to the end of the ring.
        """
        with self._lock:
            return self._take()

    def _take(self) -> NDArray[Any]:
        capacity, shift, read = self.description.capacity, self.description.shift, self._position
        first = read & (capacity - 1)
        end = min(first + self._left(), capacity)
        whole = self._sequence[first:end] == self._turn(read >> shift)
        count = len(whole)
        if not whole.all():
            count = int(whole.argmin())
        batch = self._records[first : first + count].copy().view(self.description.dtype)
        self._move(count)
        self.taken += count
        return batch

    def _left(self) -> int:
        """Return the number of tickets whose records were not read yet."""
        if int(self._read[0]) != self._position:  # otherwise waves would wait although there is room
            self._read[0] = self._position
            self.damaged = True
        left = int(self._reserved[0]) - self._position
        if not 0 <= left <= self.description.capacity + _MOST_WAITING:
            self.damaged = True
        return max(left, 0)

    def _move(self, count: int) -> None:
        """Free the slots of `count` tickets."""
        self._position += count
        self._read[0] = self._position

    def settle(self) -> list[NDArray[Any]]:
        """Return all remaining complete records, when no wave with tickets runs any more.

        Incomplete ones are counted as `lost`.
        """
        with self._lock:
            batches = []
            capacity, shift = self.description.capacity, self.description.shift
            while len(batch := self._take()):
                batches.append(batch)
            left = self._left()
            written = min(left, capacity)  # waves with later tickets have waited for room
            while written:
                # After a gap: all complete records up to the end of this turn.
                first = self._position & (capacity - 1)
                count = min(written, capacity - first)
                whole = self._sequence[first : first + count] == self._turn(self._position >> shift)
                batch = self._records[first : first + count][whole].view(self.description.dtype)
                self.taken += len(batch)
                self.lost += count - len(batch)
                self._move(count)
                batches.append(batch)
                written -= count
                left -= count
            if not self.damaged:  # otherwise `left` is not the number of tickets
                self.lost += left
                self._move(left)
            return [batch for batch in batches if len(batch)]

    @staticmethod
    def _turn(turn: int) -> np.uint32:
        return np.uint32((turn + 1) & 0xFFFF_FFFF)
