"""Memory of this process at the addresses that a capture names, as far as nothing is there; pages of processes."""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import PAGE, USER_SPACE, Pages
from luthier.emulator.running.memory import SLACK, AllocationTable, DeviceAllocation
from luthier.errors import DeviceError, LackError
from luthier.support.losses import lacking

_FIXED_NOREPLACE, _NORESERVE = 0x100000, 0x4000
"""Of Linux's mmap(2), on x86-64: never instead of what is there; pages cost nothing until they are touched."""
_EXISTS, _NOT_PERMITTED = 17, 1
_PRESENT_OR_SWAPPED = np.uint64(3 << 62)
"""Of an entry of /proc/PID/pagemap."""
_STEP, _STEPS = 1 << 24, 1 << 8
"""Bytes between places that are tried near an address, and how many are."""
_AT_ONCE = 1 << 18
"""Entries of it that are read at once."""
_NEAR = PAGE << 10
"""Bytes between spans whose entries are read, too: that takes no longer than to read again."""


class AddressTaken(DeviceError):
    """Something of this process is where a capture's memory was: another process has its own elsewhere."""


@contextmanager
def mapped(ranges: Sequence[tuple[int, int]], addresses: NDArray[np.uint64], pages: Pages) -> Iterator[None]:
    """Provide memory at these ranges, and at what else is on their pages: with those pages at those addresses, zeros
    elsewhere. A page is there only when something touches it, or another one less than 64 KiB away.

    Raises:
        AddressTaken: something is there.
        LackError: the host has no such memory.
    """
    library = _library()
    flags = mmap.MAP_PRIVATE | _NORESERVE | _FIXED_NOREPLACE
    made: list[tuple[int, int]] = []
    stretches = pieces(ranges)
    offsets = [0, *itertools.accumulate(end - begin for begin, end in stretches)]
    with lacking(f"no memory of {offsets[-1]} bytes"):
        file = os.memfd_create("luthier-capture")
    try:
        with lacking(f"no memory of {offsets[-1]} bytes"):
            os.ftruncate(file, offsets[-1])
            _fill(file, stretches, offsets, addresses, pages)
        for (begin, end), offset in zip(stretches, offsets, strict=False):
            got = library.mmap(begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE, flags, file, offset)
            if got == begin:
                made.append((begin, end))
                continue
            if got not in (None, ctypes.c_void_p(-1).value):  # a kernel that does not know the flag
                library.munmap(got, end - begin)
            elif ctypes.get_errno() not in (_EXISTS, _NOT_PERMITTED):
                raise LackError(f"no memory of {end - begin} bytes at {begin:#x}: {os.strerror(ctypes.get_errno())}")
            raise AddressTaken(f"this process has something else in the {end - begin} bytes at {begin:#x}")
        yield
    finally:
        os.close(file)
        for begin, end in made:
            library.munmap(begin, end - begin)


def runs(addresses: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return first and end, in an array of addresses of pages, of those that follow each other in memory."""
    breaks = (np.flatnonzero(np.diff(addresses) != PAGE) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, len(addresses)], strict=True)) if len(addresses) else []


def _fill(
    file: int,
    stretches: Sequence[tuple[int, int]],
    offsets: Sequence[int],
    addresses: NDArray[np.uint64],
    pages: Pages,
) -> None:
    """Write pages to a file that has stretches of memory at these offsets; those that are in none are left out."""
    if not stretches:
        return
    begins, ends = np.array(stretches, np.uint64).T
    inside = np.searchsorted(begins, addresses, side="right") - 1
    known = (inside >= 0) & (addresses < ends[inside])
    at = addresses[known] - begins[inside[known]] + np.array(offsets, np.uint64)[inside[known]]
    held = pages if known.all() else pages[known]
    for first, end in runs(at):
        view, offset = np.ascontiguousarray(held[first:end]).data.cast("B"), int(at[first])
        while view:
            written = os.pwrite(file, view, offset)
            view, offset = view[written:], offset + written


class NearMemory(AllocationTable):
    """Memory whose allocations are as near as possible to an address, and not where a capture's memory is.

    Args:
        ranges: the capture's memory, which need not be mapped yet.
    """

    def __init__(self, address: int, ranges: Sequence[tuple[int, int]]) -> None:
        super().__init__(limit=1 << 62)
        self._address = address // _STEP * _STEP
        taken = pieces(ranges)
        self._begins, self._ends = ([piece[side] for piece in taken] for side in (0, 1))

    def allocate(self, size: int, label: str = "buffer", align: int = 256) -> DeviceAllocation:
        """Allocate `size` bytes of zeroed memory, aligned to a page or more.

        Raises:
            DeviceError: there is no room near the address.
        """
        pages = -(-(size + SLACK) // PAGE) * PAGE
        for step in range(1, _STEPS):
            for begin in (self._address + step * _STEP, self._address - step * _STEP):
                if PAGE <= begin < USER_SPACE - pages and not self._is_taken(begin, pages):
                    mapping = _AnonymousMapping.at(begin, pages)
                    if mapping is not None:
                        return self.register(begin, size, label, mapping)
        raise DeviceError(f"no room for {size} bytes within {_STEP * _STEPS} bytes of {self._address:#x}")

    def _is_taken(self, begin: int, size: int) -> bool:
        at = bisect.bisect_left(self._begins, begin + size)
        return at > 0 and self._ends[at - 1] > begin


class _AnonymousMapping:
    """Memory of this process, until nobody has it any more."""

    def __init__(self, begin: int, size: int) -> None:
        self._begin, self._size = begin, size

    @classmethod
    def at(cls, begin: int, size: int) -> _AnonymousMapping | None:
        """Return zeroed memory at an address; None if something is there."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED_NOREPLACE
        library = _library()
        got = library.mmap(begin, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if got == begin:
            return cls(begin, size)
        if got not in (None, ctypes.c_void_p(-1).value):
            library.munmap(got, size)
        return None

    def __del__(self) -> None:
        _library().munmap(self._begin, self._size)


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the C library, with the functions that are called here."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def fresh(ranges: Sequence[tuple[int, int]]) -> None:
    """Give memory that `mapped` provides the contents that it had in the beginning.

    Raises:
        DeviceError: the system refuses.
    """
    library = _library()
    for begin, end in pieces(ranges):
        if library.madvise(begin, end - begin, mmap.MADV_DONTNEED):
            raise DeviceError(f"{end - begin} bytes at {begin:#x} cannot be given back: errno {ctypes.get_errno()}")


def pieces(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of the stretches of pages that ranges, which are in their order, are in."""
    found: list[tuple[int, int]] = []
    for address, size in ranges:
        begin, end = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def present(pid: int, spans: Sequence[tuple[int, int]]) -> NDArray[np.uint64]:
    """Return the addresses of the pages that a process has in memory or swapped, between pairs of addresses, which are
    in their order.

    Raises:
        DeviceError: the system does not tell.
    """
    found = [np.zeros(0, np.uint64)]
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
            for begin, end in _near(spans):
                for first in range(begin // PAGE, end // PAGE, _AT_ONCE):
                    count = min(_AT_ONCE, end // PAGE - first)
                    entries = np.frombuffer(os.pread(file.fileno(), 8 * count, 8 * first), np.uint64)
                    found.append((entries & _PRESENT_OR_SWAPPED).nonzero()[0].astype(np.uint64) + np.uint64(first))
    except OSError as problem:
        raise DeviceError(f"the pages of process {pid} cannot be found: {problem}") from None
    pages: NDArray[np.uint64] = np.concatenate(found) * np.uint64(PAGE)
    if not len(pages):
        return pages
    begins, ends = np.array(spans, np.uint64).T
    inside: NDArray[np.bool_] = pages < ends[np.searchsorted(begins, pages, side="right") - 1]
    return pages[inside]


def _near(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of spans, of which those that are near to each other are one."""
    found: list[tuple[int, int]] = []
    for begin, end in spans:
        if found and begin - found[-1][1] <= _NEAR:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return found
