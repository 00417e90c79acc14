"""Memory that the service shares with processes of the program."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import agreement
from luthier.errors import LackError
from luthier.support.losses import lacking
from luthier.wire.structures import WireStructure

_MAP_FAILED = ctypes.c_void_p(-1).value
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
"""Prevent processes from truncating the file: an access beyond its end would kill the service by SIGBUS."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def memory_file(name: str, size: int) -> int:
    """Create a memory file whose size no process can change.

    Raises:
        LackError: it cannot be created.
    """
    with lacking(f"cannot create {size} bytes of shared memory"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


def map_file(fd: int, size: int, address: int | None = None, flags: int = 0) -> int:
    """Map a file, readable and writable.

    Args:
        address: required address; None: any.
        flags: flags of mmap(2), besides ``MAP_SHARED``.

    Returns:
        The address of the mapping.

    Raises:
        LackError: the host does not allow it.
    """
    got = _LIBC.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | flags, fd, 0)
    if got in (None, _MAP_FAILED) or (address is not None and got != address):
        where = "" if address is None else f" at {address:#x}"
        raise LackError(f"cannot map {size} bytes of shared memory{where}: {os.strerror(ctypes.get_errno())}")
    return int(got)


def free_pages(address: int, size: int) -> None:
    """Free the memory of whole pages of a mapped file, which become zero in all mappings."""
    _LIBC.madvise(address, size, mmap.MADV_REMOVE)


class _FileMapping:
    """A mapped file for NumPy: arrays refer to it, and it is unmapped with the last of them.

    `mmap.mmap` would keep a descriptor open until then.
    """

    def __init__(self, fd: int, size: int) -> None:
        self.address, self._size, self._unmap = map_file(fd, size), size, _LIBC.munmap
        self.__array_interface__ = {"data": (self.address, False), "shape": (size,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        if hasattr(self, "_unmap"):
            self._unmap(self.address, self._size)


class SharedMemory:
    """A memory file and its mapping.

    Raises:
        LackError: it cannot be created or mapped.
    """

    def __init__(self, name: str, size: int) -> None:
        self.size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.fd = memory_file(name, self.size)
        self._map = _FileMapping(self.fd, self.size)
        self.bytes: NDArray[np.uint8] = np.asarray(self._map)

    def close(self) -> None:
        """Close the file, so that no other process can receive it. The bytes stay mapped."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def head(self, structure: WireStructure) -> NDArray[np.void]:
        """Return the structure at the beginning of the memory, with its digest set."""
        head = self.bytes[: structure.size].view(structure.dtype)
        head["digest"] = agreement.digest()
        return head

    def give_back(self, start: int, end: int) -> None:
        """Free the memory of whole pages between two offsets, which become zero."""
        start, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if end > start:
            free_pages(self._map.address + start, end - start)
