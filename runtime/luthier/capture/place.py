"""Memory of this process at the addresses of a capture, if they are free; pages of processes."""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import PAGE, USER_SPACE, Pages
from luthier.emulator.running.memory import SLACK, AllocationTable, DeviceAllocation
from luthier.errors import DeviceError, LackError
from luthier.support.losses import lacking

_FIXED_NOREPLACE, _NORESERVE = 0x100000, 0x4000
"""Flags of Linux's mmap(2) on x86-64: do not replace mappings; reserve no memory for pages before their first use."""
_EXISTS, _NOT_PERMITTED = 17, 1
_PRESENT_OR_SWAPPED = np.uint64(3 << 62)
"""Bits of an entry of /proc/PID/pagemap."""
_STEP, _STEPS = 1 << 24, 1 << 8
"""Bytes between addresses that are tried near an address, and their number."""
_AT_ONCE = 1 << 18
"""Entries of pagemap that are read at once."""
_NEAR = PAGE << 10
"""Largest gap in bytes between spans that are read together: reading it takes no longer than a second read."""


class AddressTaken(DeviceError):
    """This process uses addresses of a capture's memory; another process may have them free."""


@contextmanager
def mapped(ranges: Sequence[tuple[int, int]], addresses: NDArray[np.uint64], pages: Pages) -> Iterator[None]:
    """Map memory as `MappedMemory` does, with `pages` at `addresses`, and zeros elsewhere.

    Raises:
        AddressTaken: this process uses some of the addresses.
        LackError: the host does not have the memory.
    """
    with closing(MappedMemory(ranges)) as memory:
        memory.write(addresses, pages)
        yield


class MappedMemory:
    """Memory of this process at ranges, rounded to pages, which is zero until `write`.

    A page is present only after an access to it, or to another one less than 64 KiB away.

    Raises:
        AddressTaken: this process uses some of the addresses.
        LackError: the host does not have the memory.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self._stretches = pieces(ranges)
        self._offsets = [0, *itertools.accumulate(end - begin for begin, end in self._stretches)]
        self._made: list[tuple[int, int]] = []
        with lacking(f"no memory of {self._offsets[-1]} bytes"):
            self._file = os.memfd_create("luthier-capture")
        try:
            with lacking(f"no memory of {self._offsets[-1]} bytes"):
                os.ftruncate(self._file, self._offsets[-1])
            for (begin, end), offset in zip(self._stretches, self._offsets, strict=False):
                self._map(begin, end, offset)
        except BaseException:
            self.close()
            raise

    def _map(self, begin: int, end: int, offset: int) -> None:
        library = _library()
        flags = mmap.MAP_PRIVATE | _NORESERVE | _FIXED_NOREPLACE
        got = library.mmap(begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE, flags, self._file, offset)
        if got == begin:
            self._made.append((begin, end))
            return
        if got not in (None, ctypes.c_void_p(-1).value):  # the system does not know the flag
            library.munmap(got, end - begin)
        elif ctypes.get_errno() not in (_EXISTS, _NOT_PERMITTED):
            why = os.strerror(ctypes.get_errno())
            raise LackError(f"cannot map {end - begin} bytes of memory at {begin:#x}: {why}")
        raise AddressTaken(f"this process already uses some of the {end - begin} bytes at {begin:#x}")

    def write(self, addresses: NDArray[np.uint64], pages: Pages) -> None:
        """Set the initial contents of pages; those outside of the ranges are skipped.

        Raises:
            LackError: the host does not have the memory.
        """
        with lacking(f"no memory of {self._offsets[-1]} bytes"):
            _fill(self._file, self._stretches, self._offsets, addresses, pages)

    def reset(self) -> None:
        """Reset all memory to its initial contents; no page is present any more."""
        _forget(self._stretches)

    def close(self) -> None:
        """Unmap the memory."""
        os.close(self._file)
        for begin, end in self._made:
            _library().munmap(begin, end - begin)


def runs(addresses: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return first and end index of each run of consecutive pages in an array of page addresses."""
    breaks = (np.flatnonzero(np.diff(addresses) != PAGE) + 1).tolist()
    return list(zip([0, *breaks], [*breaks, len(addresses)], strict=True)) if len(addresses) else []


def positions(known: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the positions of values in a sorted array, and whether it contains them."""
    rows = np.searchsorted(known, wanted)
    inside = rows < len(known)
    inside[inside] = known[rows[inside]] == wanted[inside]
    return rows, inside


def _fill(
    file: int,
    stretches: Sequence[tuple[int, int]],
    offsets: Sequence[int],
    addresses: NDArray[np.uint64],
    pages: Pages,
) -> None:
    """Write pages to a file that has stretches of memory at these offsets; pages outside them are skipped."""
    if not stretches:
        return
    begins, ends = np.array(stretches, np.uint64).T
    inside = np.searchsorted(begins, addresses, side="right") - 1
    known = (inside >= 0) & (addresses < ends[inside])
    at = addresses[known] - begins[inside[known]] + np.array(offsets, np.uint64)[inside[known]]
    inner = pages if known.all() else pages[known]
    for first, end in runs(at):
        view, offset = np.ascontiguousarray(inner[first:end]).data.cast("B"), int(at[first])
        while view:
            written = os.pwrite(file, view, offset)
            view, offset = view[written:], offset + written


class NearMemory(AllocationTable):
    """Memory whose allocations are near an address and outside a capture's memory.

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
            DeviceError: there is no free memory near the address.
        """
        pages = -(-(size + SLACK) // PAGE) * PAGE
        for step in range(1, _STEPS):
            for begin in (self._address + step * _STEP, self._address - step * _STEP):
                if PAGE <= begin < USER_SPACE - pages and not self._is_taken(begin, pages):
                    mapping = _AnonymousMapping.at(begin, pages)
                    if mapping is not None:
                        return self.register(begin, size, label, mapping)
        raise DeviceError(f"no {size} free bytes within {_STEP * _STEPS} bytes of {self._address:#x}")

    def _is_taken(self, begin: int, size: int) -> bool:
        at = bisect.bisect_left(self._begins, begin + size)
        return at > 0 and self._ends[at - 1] > begin


class _AnonymousMapping:
    """Memory of this process, unmapped with this object."""

    def __init__(self, begin: int, size: int) -> None:
        self._begin, self._size = begin, size

    @classmethod
    def at(cls, begin: int, size: int) -> _AnonymousMapping | None:
        """Map zeroed memory at an address; None: the address is in use."""
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
    """Return the C library with the signatures of the functions used."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return library


def fresh(ranges: Sequence[tuple[int, int]]) -> None:
    """Reset memory that `mapped` provides to its initial contents.

    Raises:
        DeviceError: madvise(2) fails.
    """
    _forget(pieces(ranges))


def _forget(stretches: Iterable[tuple[int, int]]) -> None:
    library = _library()
    for begin, end in stretches:
        if library.madvise(begin, end - begin, mmap.MADV_DONTNEED):
            raise DeviceError(f"cannot reset {end - begin} bytes at {begin:#x}: {os.strerror(ctypes.get_errno())}")


def pieces(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of the stretches of pages that contain sorted ranges."""
    stretches: list[tuple[int, int]] = []
    for address, size in ranges:
        begin, end = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        if stretches and begin <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(end, stretches[-1][1])
        else:
            stretches.append((begin, end))
    return stretches


def present(pid: int, spans: Sequence[tuple[int, int]]) -> NDArray[np.uint64]:
    """Return the addresses of a process's pages that are in memory or swapped out.

    Args:
        spans: sorted pairs of begin and end to search.

    Raises:
        DeviceError: /proc/PID/pagemap cannot be read.
    """
    numbers = [np.zeros(0, np.uint64)]
    try:
        with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
            for begin, end in _near(spans):
                for first in range(begin // PAGE, end // PAGE, _AT_ONCE):
                    count = min(_AT_ONCE, end // PAGE - first)
                    entries = np.frombuffer(os.pread(file.fileno(), 8 * count, 8 * first), np.uint64)
                    numbers.append((entries & _PRESENT_OR_SWAPPED).nonzero()[0].astype(np.uint64) + np.uint64(first))
    except OSError as problem:
        raise DeviceError(f"cannot read the page map of process {pid}: {problem}") from None
    pages: NDArray[np.uint64] = np.concatenate(numbers) * np.uint64(PAGE)
    if not len(pages):
        return pages
    begins, ends = np.array(spans, np.uint64).T
    inside: NDArray[np.bool_] = pages < ends[np.searchsorted(begins, pages, side="right") - 1]
    return pages[inside]


def _near(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return begin and end of spans, after joining those that are near each other."""
    joined: list[tuple[int, int]] = []
    for begin, end in spans:
        if joined and begin - joined[-1][1] <= _NEAR:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((begin, end))
    return joined
