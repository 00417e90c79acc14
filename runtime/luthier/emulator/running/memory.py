"""Device memory: host memory with bounds. A device address is a host address inside an allocation."""

from __future__ import annotations

import bisect
import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.errors import DeviceError

REACH = 1 << 36
"""Distance in bytes up to which an address may be meant for an allocation: the reach of a 32-bit index."""
_NULL = 1 << 16
"""Bytes from address 0 that no process can map (vm.mmap_min_addr)."""
_ADDRESSES = 1 << 64
SLACK = 256
"""Bytes between allocations, which kernels cannot access: an access past an end does not hit the next allocation."""


def null_pointer(address: int) -> str:
    """Return an address as a null pointer with an offset; empty if it is not near 0."""
    if address < _NULL:
        return f"a null pointer plus {address}" if address else "a null pointer"
    return f"a null pointer minus {_ADDRESSES - address}" if address >= _ADDRESSES - _NULL else ""


class DeviceAllocation(Struct, frozen=True):
    """One range of addresses that kernels may access."""

    address: int
    size: int
    """Bytes."""
    label: str
    """Name for reports."""
    keep: Any
    """Keeps the host memory alive."""

    @property
    def end(self) -> int:
        """Return the address after the last byte."""
        return self.address + self.size

    def view(self) -> NDArray[np.uint8]:
        """Return the bytes, writable."""
        return host_bytes(self.address, self.size)


def host_bytes(address: int, size: int, keep: object = None) -> NDArray[np.uint8]:
    """Return a writable view of host memory. The caller guarantees that it is mapped.

    Args:
        keep: kept alive by the view.
    """
    if size == 0:
        return np.zeros(0, np.uint8)
    return np.asarray(_HostArray(address, size, keep))


class _HostArray:
    """Host memory with NumPy's array interface."""

    def __init__(self, address: int, size: int, keep: object) -> None:
        self.__array_interface__ = {"data": (address, False), "shape": (size,), "typestr": "|u1", "version": 3}
        self._keep = keep


class Arena:
    """Zeroed, page-aligned host memory; pages take no memory until they are accessed."""

    def __init__(self, size: int) -> None:
        self._map = mmap.mmap(-1, max(size, 1) + SLACK)
        self.array: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self.address: int = self.array.ctypes.data
        self.size = size


def host_memory() -> int:
    """Return the bytes of the host's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class AllocationTable:
    """The allocations of a device, and the table of them that compiled code searches. Safe from several threads.

    Args:
        limit: bytes of all allocations together; None: the size of the host's memory.
        elsewhere: describes an address outside all allocations; empty if unknown.
    """

    def __init__(self, limit: int | None = None, elsewhere: Callable[[int], str] = null_pointer) -> None:
        self._elsewhere = elsewhere
        self._lock = threading.RLock()
        self._allocations: dict[int, DeviceAllocation] = {}
        self._ordered: list[int] = []
        """Their addresses, in order."""
        self._table: tuple[NDArray[np.uint64], tuple[DeviceAllocation, ...]] | None = None
        self._limit = host_memory() if limit is None else limit
        self._longest = 0
        self._used = 0

    def allocate(self, size: int, label: str = "buffer", align: int = 256) -> DeviceAllocation:
        """Allocate `size` bytes of zeroed memory.

        Raises:
            DeviceError: there is not enough memory.
        """
        if size < 0:
            raise DeviceError(f"cannot allocate {size} bytes of device memory")
        if self._used + size > self._limit:
            raise DeviceError(
                f"cannot allocate {size} bytes of device memory: {self._used} of {self._limit} bytes are in use"
            )
        try:
            if size >= 1 << 16 or align > 256:
                arena = Arena(size + align)
                keep: Any = arena
                base = arena.address
            else:
                keep = np.zeros(size + align + SLACK, np.uint8)
                base = keep.ctypes.data
        except (MemoryError, OSError, ValueError) as problem:
            raise DeviceError(f"cannot allocate {size} bytes of device memory: {problem}") from None
        address = (base + align - 1) // align * align
        return self.register(address, size, label, keep)

    def register(self, address: int, size: int, label: str, keep: Any = None) -> DeviceAllocation:
        """Make existing host memory accessible to kernels.

        Raises:
            DeviceError: it overlaps another allocation.
        """
        allocation = DeviceAllocation(address, size, label, keep)
        with self._lock:
            ordered = self._ordered
            at = bisect.bisect_right(ordered, address)
            before = self._allocations[ordered[at - 1]] if at else None
            after = self._allocations[ordered[at]] if at < len(ordered) else None
            for other in (before, after):
                if other is not None and other.address < address + size and address < other.end:
                    raise DeviceError(f"memory at {address:#x} overlaps {other.label} at {other.address:#x}")
            if address not in self._allocations:
                ordered.insert(at, address)
            self._allocations[address] = allocation
            self._used += size
            self._table = None
        return allocation

    def free(self, allocation: DeviceAllocation) -> None:
        """Remove an allocation; accesses to it fault from then on.

        Raises:
            DeviceError: it is not allocated.
        """
        with self._lock:
            if self._allocations.get(allocation.address) is not allocation:
                raise DeviceError(f"no allocation at {allocation.address:#x}")
            del self._allocations[allocation.address]
            del self._ordered[bisect.bisect_left(self._ordered, allocation.address)]
            self._used -= allocation.size
            self._table = None

    def table(self) -> tuple[NDArray[np.uint64], tuple[DeviceAllocation, ...]]:
        """Return the table of allocations for compiled code, and the allocations.

        The table has the address and length of every allocation, sorted, and never changes after it was returned.
        Holding the allocations keeps their host memory alive, even if another thread frees them.

        The table never gets shorter: records remember an index into it between launches. Unused entries are empty.
        """
        with self._lock:
            if self._table is None:
                rows = sorted((a.address, a.size) for a in self._allocations.values() if a.size)
                self._longest = max(self._longest, len(rows) + 1)
                rows += [((1 << 64) - 1, 0)] * (self._longest - len(rows))
                self._table = np.array(rows, np.uint64), tuple(self._allocations.values())
            return self._table

    def find(self, address: int) -> DeviceAllocation | None:
        """Return the allocation that holds `address`."""
        with self._lock:
            ordered = self._ordered
            at = bisect.bisect_right(ordered, address)
            if at and address < self._allocations[ordered[at - 1]].end:
                return self._allocations[ordered[at - 1]]
        return None

    def describe(self, address: int) -> str:
        """Describe an address: the allocation around it, or its distance from the nearest one within `REACH`."""
        inside = self.find(address)
        if inside is not None:
            left = inside.end - address
            return f"{address - inside.address} bytes into {inside.label} of {inside.size} bytes, {left} before its end"
        if elsewhere := self._elsewhere(address):
            return elsewhere
        with self._lock:
            allocations = list(self._allocations.values())
        if not allocations:
            return "nothing is allocated"
        nearest = min(allocations, key=lambda a: a.address - address if address < a.address else address - a.end)
        if not nearest.address - REACH < address < nearest.end + REACH:
            return "far from all allocations"
        what = f"{nearest.label} of {nearest.size} bytes at {nearest.address:#x}"
        if address < nearest.address:
            return f"{nearest.address - address} bytes before {what}"
        return f"{address - nearest.end} bytes past the end of {what}"
