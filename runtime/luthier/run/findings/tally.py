"""Counts of what the processes of a program have checked, in memory that they share."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.findings.scope import CheckedScope
from luthier.run.shared_memory import SharedMemory
from luthier.wire.memory import CHECK_TALLY
from luthier.wire.structures import File

_NANOSECONDS = 1e-9


class LaunchTally:
    """Counts of launches and allocations.

    Raises:
        LackError: there is no memory for it.
    """

    def __init__(self) -> None:
        self._memory = SharedMemory("luthier-checks", CHECK_TALLY.size)
        self._head = self._memory.head(CHECK_TALLY)
        self.kernels: set[str] = set()
        """Symbols of the program's kernels that were launched."""

    @property
    def file(self) -> File:
        """Return the file of the memory."""
        return File(self._memory.fd)

    def scope(self) -> CheckedScope:
        """Return the counts so far."""
        names = "launches", "observed", "left", "allocations", "bytes"
        counts = {name: int(self._head[name][0]) for name in names}
        seconds = int(self._head["nanoseconds"][0]) * _NANOSECONDS
        return replace(CheckedScope(kernels=len(self.kernels), seconds=seconds), **counts)
