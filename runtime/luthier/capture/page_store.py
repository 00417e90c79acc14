"""Pages of captures in memory: launches of a program have most of their pages in common."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.form import PAGE, Capture, Pages

ROOM = 2048
"""Pages of one array, which all captures that refer to it keep in memory."""


class PageStore:
    """Keeps a page of a capture only if it differs from what the last capture has at its address."""

    def __init__(self) -> None:
        self._pages: Pages = np.empty((0, PAGE), np.uint8)
        self._used = 0
        self._last: dict[int, tuple[int, bytes]] = {}
        """Address -> number and contents of the page that was last there."""

    def shared(self, capture: Capture) -> tuple[Capture, int]:
        """Return a capture whose pages are in an array that it shares with others, and the bytes that it added there.

        A capture with more pages than `ROOM` is returned as it is.
        """
        count = len(capture.before) + len(capture.after)
        if count > ROOM:
            return capture, capture.pages.nbytes
        if self._used + count > len(self._pages):
            self._pages, self._used, self._last = np.empty((ROOM, PAGE), np.uint8), 0, {}
        first = self._used
        before = self._placed(capture.before, capture.pages)
        after = self._placed(capture.after, capture.pages)
        added = (self._used - first) * PAGE
        return replace(capture, pages=self._pages, before=before, after=after), added

    def _placed(self, places: NDArray[np.void], pages: Pages) -> NDArray[np.void]:
        """Return `PLACES` of pages in the array, after adding those that it lacks."""
        placed = places.copy()
        for at, (address, page) in enumerate(places.tolist()):
            data = pages[page].tobytes()  # far quicker to compare than arrays
            number, last = self._last.get(address, (0, b""))
            if data != last:
                number, self._used = self._used, self._used + 1
                self._pages[number] = pages[page]
                self._last[address] = number, data
            placed["page"][at] = number
        return placed
