"""Memory of one kind that the service shares with a process."""

from __future__ import annotations

import mmap
import os

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import agreement
from luthier.wire.structures import Structure


class SharedMemory:
    """A file of memory, and its bytes here."""

    def __init__(self, name: str, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)

    def head(self, structure: Structure) -> NDArray[np.void]:
        """The structure that the memory begins with; its digest is written."""
        head = self.bytes[: structure.size].view(structure.dtype)
        head["digest"] = agreement.digest()
        return head

    def give_back(self, start: int, end: int) -> None:
        """Free the memory of whole pages between two offsets; they are zeros then."""
        start, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            self._map.madvise(mmap.MADV_REMOVE, start, end - start)
