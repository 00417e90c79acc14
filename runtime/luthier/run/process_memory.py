"""Memory of a process before and after a captured launch."""

from __future__ import annotations

import bisect
import ctypes
import errno
import fcntl
import functools
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import PAGE, Pages
from luthier.capture.page_store import AT_ONCE, PageStore, StoredPages
from luthier.capture.place import pieces, positions, present, runs
from luthier.errors import DeviceError

_SHARED = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ...s ")
"""Beginning of a line of /proc/PID/maps for a shared mapping."""
_LONGEST_SHARED = 40
"""Maximum length of this in bytes."""
_QUERY, _QUERY_SIZE, _NEXT_SHARED = 0xC0686611, 13 * 8, 0x18
"""PROCMAP_QUERY of linux/fs.h: request, size of its structure (size, flags, address, begin, end, …), and flags for the
first shared mapping that ends after an address."""
_END = 1 << 63
"""Upper limit of addresses of process memory."""

Ranges = Sequence[tuple[int, int]]
"""Address and size of each."""
Aliases = Sequence[tuple[int, int, int]]
"""Device address, size and process address of each."""


class ProcessMemory:
    """The memory of a process that a launch may access.

    Args:
        own: memory with the same address in the process and on its devices, sorted.
        elsewhere: other memory.
        most: limit in bytes.
    """

    def __init__(self, pid: int, own: Ranges, elsewhere: Aliases, most: int) -> None:
        self._pid, self._most = pid, most
        self._edges = dict(_edges([*own, *((address, size) for address, size, _ in elsewhere)]))
        self._stretches = pieces(sorted([*own, *((host, size) for _, size, host in elsewhere)]))
        self._begins, self._ends = ([stretch[side] for stretch in self._stretches] for side in (0, 1))
        self._own = np.array(pieces(own), np.uint64).reshape(-1, 2)
        self._elsewhere = elsewhere

    def before(self, store: PageStore) -> StoredPages:
        """Add its pages to a store before a launch, with zeros outside of the ranges.

        Raises:
            DeviceError: they cannot be read, or exceed the limit.
        """
        addresses, places = self._present()
        store.begin(len(addresses))
        return self._stored(addresses, places, store)

    def after(self, store: PageStore) -> StoredPages:
        """Add its pages to a store after the launch; the numbers of `before` stay valid.

        Raises:
            DeviceError: pages cannot be read, or exceed the limit.
        """
        return self._stored(*self._present(), store)

    def _stored(self, addresses: NDArray[np.uint64], places: NDArray[np.uint64], store: PageStore) -> StoredPages:
        numbers = np.empty(len(addresses), np.intp)
        for first in range(0, len(addresses), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            read = store.block[: len(addresses[some])]
            self._read(addresses[some], places[some], read)
            numbers[some] = store.add(addresses[some], read)
        return StoredPages(addresses, numbers)

    def _present(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the device addresses of existing pages, sorted, and their process addresses.

        Raises:
            DeviceError: the system does not list them, or they exceed the limit.
        """
        present_pages = self._present_in_process()
        if not self._elsewhere:
            return present_pages, present_pages
        begins, ends = self._own.T
        inside = np.searchsorted(begins, present_pages, side="right") - 1
        own = present_pages[(inside >= 0) & (present_pages < ends[inside])] if len(begins) else present_pages[:0]
        places, addresses = [own], [own]
        for address, size, host in self._elsewhere:
            first, end = np.searchsorted(present_pages, np.array([host, host + size], np.uint64)).tolist()
            places.append(present_pages[first:end])
            addresses.append(present_pages[first:end] - np.uint64(host) + np.uint64(address))
        of_device, of_process = np.concatenate(addresses), np.concatenate(places)
        if len(of_device) * PAGE > self._most:
            raise DeviceError(f"it can access {len(of_device) * PAGE} bytes; --most allows {self._most}")
        order = np.argsort(of_device)
        of_device, of_process = of_device[order], of_process[order]
        if (of_device[1:] == of_device[:-1]).any():
            raise DeviceError("several pages of the process have the same device address")
        return of_device, of_process

    def _present_in_process(self) -> NDArray[np.uint64]:
        """Return the process addresses of existing pages, sorted.

        Raises:
            DeviceError: the system does not list them, or they exceed the limit.
        """
        try:
            shared = _shared(self._pid)
        except OSError as problem:
            raise _unreadable(self._pid, problem) from None
        parts = [present(self._pid, self._stretches)]
        for first, last in shared:
            at, until = bisect.bisect_right(self._ends, first), bisect.bisect_left(self._begins, last)
            for begin, end in self._stretches[at:until]:
                low, high = max(begin, first), min(end, last)
                if high - low > self._most:
                    raise DeviceError(f"it can access {high - low} bytes of shared memory; --most allows {self._most}")
                parts.append(np.arange(low, high, PAGE, dtype=np.uint64))
        pages = parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        if len(pages) * PAGE > self._most:
            raise DeviceError(f"it can access {len(pages) * PAGE} bytes; --most allows {self._most}")
        return pages

    def _read(self, addresses: NDArray[np.uint64], places: NDArray[np.uint64], pages: Pages) -> None:
        """Read pages, with zeros outside of the ranges.

        Raises:
            DeviceError: they cannot be read.
        """
        starts = places.tolist()
        stretches = [(starts[first], pages[first:end]) for first, end in runs(places)]
        if not _read_at_once(self._pid, [(begin, part.nbytes) for begin, part in stretches], pages):
            try:
                _read_each(self._pid, stretches)
            except OSError as problem:
                raise _unreadable(self._pid, problem) from None
        if self._edges:
            rows, inside = positions(addresses, np.fromiter(self._edges, np.uint64, len(self._edges)))
            for row, is_inside, kept in zip(rows.tolist(), inside.tolist(), self._edges.values(), strict=True):
                if is_inside:
                    pages[row][~kept] = 0


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Return bytes of a process's memory.

    Raises:
        DeviceError: they cannot be read.
    """
    contents = np.empty(size, np.uint8)
    try:
        _read_each(pid, [(address, contents)])
    except OSError as problem:
        raise _unreadable(pid, problem) from None
    return contents.tobytes()


def _unreadable(pid: int, problem: OSError) -> DeviceError:
    return DeviceError(f"the memory of process {pid} cannot be read: {problem}")


def _edges(ranges: Ranges) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Yield pages that are only partly in ranges, and which of their bytes belong to the launch."""
    for page in {at // PAGE * PAGE for address, size in ranges for at in (address, address + size) if at % PAGE}:
        inside = np.zeros(PAGE, np.bool_)
        for address, size in ranges:
            inside[max(0, address - page) : max(0, address + size - page)] = True
        yield page, inside


def _read_at_once(pid: int, stretches: Ranges, pages: Pages) -> bool:
    """Read memory of a process with process_vm_readv(2); return whether that succeeded. It fails for memory that the
    process itself may not read."""
    if not stretches:
        return True
    remote = np.array(stretches, np.uint64)
    local = np.array([pages.ctypes.data, pages.nbytes], np.uint64)
    return bool(_readv()(pid, local.ctypes.data, 1, remote.ctypes.data, len(remote), 0) == pages.nbytes)


def _read_each(pid: int, stretches: Sequence[tuple[int, Pages]]) -> None:
    """Read memory of a process at addresses, even if the process itself may not read it.

    Raises:
        OSError: the process has ended, or part of the memory does not exist.
    """
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for begin, part in stretches:
            if not 0 <= begin < _END - part.nbytes:
                raise OSError(errno.EFAULT, f"{part.nbytes} bytes at {begin:#x} are outside of process memory")
            rest = part.data.cast("B")
            while rest:  # the system moves less than 2 GiB at once
                moved = os.preadv(file.fileno(), [rest], begin + part.nbytes - len(rest))
                if not moved:
                    raise OSError(errno.EFAULT, f"{part.nbytes} bytes at {begin:#x} cannot be read in one piece")
                rest = rest[moved:]


@functools.cache
def _readv() -> Callable[..., int]:
    function = ctypes.CDLL(None).process_vm_readv
    function.restype = ctypes.c_ssize_t
    vector = (ctypes.c_void_p, ctypes.c_ulong)
    function.argtypes = (ctypes.c_int, *vector, *vector, ctypes.c_ulong)
    return cast(Callable[..., int], function)


def _shared(pid: int) -> list[tuple[int, int]]:
    """Return begin and end of shared mappings, which others may have written without a trace in the page tables."""
    with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
        try:
            return [*_shared_mappings(file.fileno())]
        except OSError as problem:
            if problem.errno != errno.ENOTTY:  # a kernel before 6.11
                raise
        lines = file.readall().split(b"\n")
    matches = (_SHARED.match(line) for line in lines if b"s " in line[:_LONGEST_SHARED])
    return [(int(one[1], 16), int(one[2], 16)) for one in matches if one]


def _shared_mappings(file: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of shared mappings, by queries of a /proc/PID/maps.

    Raises:
        OSError: the kernel does not support that.
    """
    at = 0
    while True:
        query = bytearray(_QUERY_SIZE)
        struct.pack_into("<QQQ", query, 0, _QUERY_SIZE, _NEXT_SHARED, at)
        try:
            fcntl.ioctl(file, _QUERY, query)
        except OSError as problem:
            if problem.errno == errno.ENOENT:
                return
            raise
        begin, at = struct.unpack_from("<QQ", query, 24)
        yield begin, at
