"""Pages of captures in memory: launches of a program have most of their pages in common."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.form import PAGE, PLACES, Capture, Pages
from luthier.capture.place import positions

ROOM = 2048
"""Pages that an array has for changes, at least. All captures that refer to an array keep it in memory."""
AT_ONCE = 256
"""Pages compared at once: two copies fit in the cache of a core."""
_ZERO = 0
"""Number of a page of zeros."""


class StoredPages(Struct, frozen=True):
    """Pages by address, as numbers in the array of a store."""

    addresses: NDArray[np.uint64]
    """Sorted."""
    numbers: NDArray[np.intp]

    def places(self) -> NDArray[np.void]:
        """Return `PLACES` of the non-zero pages."""
        some = self.numbers != _ZERO
        return _table(self.addresses[some], self.numbers[some])

    def changes_to(self, after: StoredPages) -> NDArray[np.void]:
        """Return `PLACES` of the pages whose contents differ in `after`; missing pages are zeros."""
        if np.array_equal(self.addresses, after.addresses):
            changed = after.numbers != self.numbers
            return _table(after.addresses[changed], after.numbers[changed])
        addresses = np.union1d(self.addresses, after.addresses)
        numbers = after.at(addresses)
        changed = numbers != self.at(addresses)
        return _table(addresses[changed], numbers[changed])

    def at(self, addresses: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the numbers of the pages at addresses, that of zeros for missing ones."""
        rows, known = positions(self.addresses, addresses)
        numbers = np.full(len(addresses), _ZERO, np.intp)
        numbers[known] = self.numbers[rows[known]]
        return numbers


class PageStore:
    """Keeps a page only if it differs from what was last seen at its address.

    Attributes:
        pages: the array of pages; a number stays valid until `begin`, and in this array.
        used: number of pages in it.
        block: buffer for pages to add, reused, since the system takes longer to provide memory than to copy it.
    """

    def __init__(self) -> None:
        self._last = StoredPages(np.zeros(0, np.uint64), np.zeros(0, np.intp))
        self.pages: Pages = np.empty((0, PAGE), np.uint8)
        self.used = self._added = self._earlier = 0
        self.block, self._old = (np.empty((AT_ONCE, PAGE), np.uint8) for _ in range(2))

    def begin(self, count: int) -> None:
        """Prepare for the first look at this many pages of a launch: a new array follows one without room for changes.

        A launch that changes most of its memory needs a larger array in any case (`add`).
        """
        self._earlier = self.used
        if len(self.pages) - self.used > min(count, _for_changes(count)) // 2:
            return
        self._earlier = 0
        self._last = StoredPages(np.zeros(0, np.uint64), np.zeros(0, np.intp))
        self.pages = self.pages[:0].copy()  # frees the old array before the new one, if no capture needs it
        self.pages = np.empty((1 + count + _for_changes(count), PAGE), np.uint8)
        self.pages[_ZERO] = 0
        self.used = 1

    def add(self, addresses: NDArray[np.uint64], pages: Pages) -> NDArray[np.intp]:
        """Add the pages that the store lacks, and return the numbers of all.

        Args:
            addresses: at most `AT_ONCE`, sorted.
        """
        numbers = self._last.at(addresses)
        other = self._differing(pages, numbers)
        if len(other):
            filled = pages[other].any(axis=1)
            count = int(filled.sum())
            if self.used + count > len(self.pages):
                more = np.empty((self.used + count + _for_changes(self.used), PAGE), np.uint8)
                more[: self.used] = self.pages[: self.used]
                self.pages = more
                self._added += self._earlier  # captures of earlier launches keep the old array
                self._earlier = 0
            self.pages[self.used : self.used + count] = pages[other[filled]]
            numbers[other] = _ZERO
            numbers[other[filled]] = np.arange(self.used, self.used + count)
            self.used += count
            self._added += count
            self._note(addresses[other], numbers[other])
        return numbers

    def _differing(self, now: Pages, numbers: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows of `now` that differ from the stored pages of these numbers."""
        if not len(now):
            return np.zeros(0, np.intp)
        first, last = int(numbers[0]), int(numbers[-1])
        if last - first == len(numbers) - 1 and (np.diff(numbers) == 1).all():
            old = self.pages[first : last + 1]
        else:
            old = np.take(self.pages, numbers, axis=0, out=self._old[: len(numbers)], mode="clip")
        words, old_words = now.view(np.uint64), old.view(np.uint64)
        if np.array_equal(words, old_words):
            return np.zeros(0, np.intp)
        return np.flatnonzero((words != old_words).any(axis=1))

    def _note(self, addresses: NDArray[np.uint64], numbers: NDArray[np.intp]) -> None:
        """Note what was last seen at addresses."""
        rows, known = positions(self._last.addresses, addresses)
        self._last.numbers[rows[known]] = numbers[known]
        if not known.all():
            new = rows[~known]
            self._last = StoredPages(
                np.insert(self._last.addresses, new, addresses[~known]),
                np.insert(self._last.numbers, new, numbers[~known]),
            )

    def read(self, seen: StoredPages, address: int, size: int) -> bytes:
        """Return bytes of memory; zeros outside of the pages."""
        first = address // PAGE * PAGE
        numbers = seen.at(np.fromiter(range(first, address + size, PAGE), np.uint64))
        return self.pages[numbers].tobytes()[address - first :][:size]

    def growth(self) -> int:
        """Return the bytes of memory that were added since the last call."""
        added, self._added = self._added, 0
        return added * PAGE

    def shared(self, capture: Capture) -> Capture:
        """Return a capture whose pages are in the array that it shares with others."""
        self.begin(len(capture.before) + len(capture.after))
        before, after = (self._shared(places, capture.pages) for places in (capture.before, capture.after))
        return replace(capture, pages=self.pages, before=before, after=after)

    def _shared(self, places: NDArray[np.void], pages: Pages) -> NDArray[np.void]:
        """Return `PLACES` of pages in the array, after adding those that it lacks."""
        numbers = np.empty(len(places), np.intp)
        for first in range(0, len(places), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            numbers[some] = self.add(places["address"][some], pages[places["page"][some]])
        return _table(places["address"], numbers)


def _for_changes(count: int) -> int:
    """Return the number of changed pages for which an array has room, besides its first `count` pages."""
    return max(ROOM, count // 4)


def _table(addresses: NDArray[np.uint64], numbers: NDArray[np.intp]) -> NDArray[np.void]:
    table = np.zeros(len(addresses), PLACES)
    table["address"], table["page"] = addresses, numbers
    return table
