"""Memory that the service shares with the processes of a program: at the same addresses in all, so that compiled code
and records can be used as they are."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import agreement
from luthier.emulator.running.memory import host_bytes
from luthier.errors import DeviceError
from luthier.run.preflight import SHARED_BYTES
from luthier.run.shared_memory import map_file, memory_file
from luthier.wire.memory import SPACE_HEAD

BASE = 0x2000_0000_0000
"""Far from where programs, their libraries and their allocations lie, and from what sanitizers take."""
CODE_SIZE = 1 << 32
SIZE = SHARED_BYTES
"""Bytes of addresses; memory is taken as it is used."""
IMPORTS = BASE + SIZE
"""Behind it each process has pointers to its own C functions."""

_MAP_NORESERVE, _MAP_FIXED_NOREPLACE = 0x4000, 0x100000


class SharedSpace:
    """A file of memory and what was taken of it. Nothing is given back. Safe from several threads.

    Raises:
        DeviceError: the host does not allow it.
    """

    def __init__(self) -> None:
        self.fd = memory_file("luthier", SIZE)
        map_file(self.fd, SIZE, BASE, _MAP_NORESERVE | _MAP_FIXED_NOREPLACE)
        self._lock = threading.Lock()
        self._next_code = BASE
        self._next_data = BASE + CODE_SIZE
        self.bytes(SPACE_HEAD.size).view(SPACE_HEAD.dtype)["digest"] = agreement.digest()
        self.imports: list[str] = []
        """C functions that code calls, in the order of their slots."""

    def code(self, size: int) -> tuple[memoryview, int]:
        """Return room for machine code, and its address."""
        with self._lock:
            address = self._next_code
            self._next_code += (size + 63) // 64 * 64
            if self._next_code > BASE + CODE_SIZE:
                raise DeviceError("the machine code of all kernels is too large")
        return host_bytes(address, size).data, address

    def import_slot(self, name: str) -> int:
        """Return the address of each process's pointer to its C function `name`."""
        with self._lock:
            if name not in self.imports:
                self.imports.append(name)
            return IMPORTS + 8 * self.imports.index(name)

    def bytes(self, size: int, align: int = 64) -> NDArray[np.uint8]:
        """Return zeroed bytes; their address is ``array.ctypes.data``."""
        with self._lock:
            address = (self._next_data + align - 1) // align * align
            self._next_data = address + size
            if self._next_data > BASE + SIZE:
                raise DeviceError("what is decoded of all kernels is too large")
        return host_bytes(address, size)

    def zeros(self, count: int, dtype: Any) -> NDArray[Any]:
        """Return a zeroed array."""
        return self.bytes(count * np.dtype(dtype).itemsize).view(dtype)
