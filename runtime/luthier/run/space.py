"""Memory that the service shares with the processes of a program at the same addresses, so that they can use compiled
code and records directly."""

from __future__ import annotations

import mmap
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import agreement
from luthier.emulator.running.memory import host_bytes
from luthier.errors import DeviceError
from luthier.run.preflight import SHARED_BYTES
from luthier.run.shared_memory import free_pages, map_file, memory_file
from luthier.wire.memory import SPACE_HEAD

BASE = 0x2000_0000_0000
"""Far from programs, their libraries and allocations, and from memory of sanitizers."""
CODE_SIZE = 1 << 32
SIZE = SHARED_BYTES
"""Bytes of address space; memory is allocated on use."""
IMPORTS = BASE + SIZE
"""After the space, each process has pointers to its own C functions."""

_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000


_LEAST_BLOCK = 1 << 16


class SharedSpace:
    """A memory file and its allocator. Only parts can be freed. Thread-safe.

    Raises:
        DeviceError: the host does not allow it.
    """

    def __init__(self) -> None:
        self.fd = memory_file("luthier", SIZE)
        map_file(self.fd, SIZE, BASE, _MAP_NORESERVE | _MAP_FIXED_NOREPLACE)
        self._lock = threading.Lock()
        self._next_code = BASE
        self._next_data = BASE + CODE_SIZE
        self._free: dict[int, list[int]] = {}
        """Addresses of free blocks, by size."""
        self.bytes(SPACE_HEAD.size).view(SPACE_HEAD.dtype)["digest"] = agreement.digest()
        self.imports: list[str] = []
        """C functions that code calls, in order of their slots."""

    def code(self, size: int) -> tuple[memoryview, int]:
        """Allocate memory for machine code; return it and its address."""
        with self._lock:
            address = self._next_code
            self._next_code += (size + 63) // 64 * 64
            if self._next_code > BASE + CODE_SIZE:
                raise DeviceError(f"the machine code of all kernels exceeds {CODE_SIZE >> 30} GiB")
        return host_bytes(address, size).data, address

    def import_slot(self, name: str) -> int:
        """Return the address of each process's pointer to its C function `name`."""
        with self._lock:
            if name not in self.imports:
                self.imports.append(name)
            return IMPORTS + 8 * self.imports.index(name)

    def bytes(self, size: int, align: int = 64) -> NDArray[np.uint8]:
        """Allocate zeroed bytes; their address is ``array.ctypes.data``."""
        with self._lock:
            address = (self._next_data + align - 1) // align * align
            self._next_data = address + size
            if self._next_data > BASE + SIZE:
                raise DeviceError(f"the decoded code of all kernels exceeds {SIZE - CODE_SIZE >> 30} GiB")
        return host_bytes(address, size)

    def take_block(self, size: int) -> int:
        """Allocate a zeroed block of a size that `SpacePart` uses; return its address."""
        with self._lock:
            known = self._free.get(size)
            if known:
                return known.pop()
        return int(self.bytes(size, mmap.PAGESIZE).ctypes.data)

    def give_back(self, address: int, size: int) -> None:
        """Free an unused block."""
        free_pages(address, size)
        # Without the lock, since this may interrupt its holder.
        self._free.setdefault(size, []).append(address)


class SpacePart:
    """Memory of a shared space for one purpose, freed as a whole when neither this object nor an array of it is
    referenced."""

    def __init__(self, space: SharedSpace) -> None:
        self._space = space
        self._blocks: list[tuple[int, int]] = []
        self._next = self._end = 0

    def bytes(self, size: int) -> NDArray[np.uint8]:
        """Allocate zeroed bytes, aligned to 64."""
        room = max(size + 63, 64) // 64 * 64
        if room > self._end - self._next:
            block = max(1 << (room - 1).bit_length(), _LEAST_BLOCK)
            self._next = self._space.take_block(block)
            self._end = self._next + block
            self._blocks.append((self._next, block))
        self._next += room
        return host_bytes(self._next - room, size, self)

    def zeros(self, count: int, dtype: Any) -> NDArray[Any]:
        """Allocate a zeroed array."""
        return self.bytes(count * np.dtype(dtype).itemsize).view(dtype)

    def __del__(self) -> None:
        for block in self._blocks:
            self._space.give_back(*block)
