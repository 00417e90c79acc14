"""The memory that replays share if they run one after the other: most launches of a program have the same ranges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from luthier.capture.form import PAGE, PLACES, Capture, CaptureManifest, Pages
from luthier.capture.place import MappedMemory, positions
from luthier.emulator.running.memory import AllocationTable

_ZEROS = np.zeros((1, PAGE), np.uint8)
_NOTHING = np.zeros(0, PLACES)


class ReplayRoom:
    """Mapped memory and the table of what kernels may access. Only the pages in which a launch differs from the one
    before are written. Launches use it one at a time."""

    def __init__(self) -> None:
        self._memory: MappedMemory | None = None
        self._ranges: tuple[tuple[int, int], ...] = ()
        self._pages: Pages = _ZEROS
        """Pages of the last capture."""
        self._held = _NOTHING
        """Where in `_pages` the pages are that the memory begins with; others are zeros."""
        self._table: tuple[object, AllocationTable] | None = None

    def close(self) -> None:
        """Unmap the memory."""
        memory, self._memory, self._table = self._memory, None, None
        if memory is not None:
            memory.close()

    @contextmanager
    def memory(self, capture: Capture) -> Iterator[None]:
        """Map the memory of a capture with its contents before the launch.

        Raises:
            AddressTaken: this process uses addresses of it.
            LackError: the host does not have the memory.
        """
        ranges = capture.manifest.ranges
        if self._memory is not None and ranges == self._ranges:
            self._memory.reset()
        else:
            self.close()
            self._memory, self._ranges, self._held = MappedMemory(ranges), ranges, _NOTHING
        try:
            self._write(self._memory, capture)
        except BaseException:
            self.close()  # it is not known what the memory has
            raise
        yield

    def _write(self, memory: MappedMemory, capture: Capture) -> None:
        wanted, held = capture.before, self._held
        changed = wanted
        if capture.pages is self._pages:
            rows, known = positions(held["address"], wanted["address"])
            known[known] = held["page"][rows[known]] == wanted["page"][known]
            changed = wanted[~known]
        gone = held["address"][~np.isin(held["address"], wanted["address"])]
        if len(changed):
            memory.write(changed["address"], capture.pages[changed["page"]])
        if len(gone):
            memory.write(gone, np.broadcast_to(_ZEROS, (len(gone), PAGE)))
        self._pages, self._held = capture.pages, wanted

    def table(self, manifest: CaptureManifest, ranges: Iterator[tuple[int, int]]) -> AllocationTable:
        """Return the table of a launch's memory.

        Args:
            ranges: what the launch may access, which depends on the manifest's ranges and the place of its arguments.
        """
        inside = next(
            (at for at, (begin, size) in enumerate(manifest.ranges) if 0 <= manifest.kernarg - begin < size), -1
        )
        key = manifest.ranges, manifest.left_out, inside
        if self._table is None or self._table[0] != key:
            made = AllocationTable(limit=1 << 62)
            for address, size in ranges:
                made.register(address, size, "captured memory")
            self._table = key, made
        return self._table[1]
