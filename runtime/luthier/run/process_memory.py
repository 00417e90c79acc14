"""Memory of a process whose launch is captured: what is in it before, and what has changed after."""

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
from msgspec import Struct
from numpy.typing import NDArray

from luthier.capture.form import PAGE, PLACES, Pages
from luthier.capture.place import pieces, present, runs
from luthier.errors import DeviceError

_SHARED = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ...s ")
"""Begin of a line of /proc/PID/maps, of what is shared."""
_LONGEST_SHARED = 40
"""Bytes that this can be."""
_QUERY, _QUERY_SIZE, _NEXT_SHARED = 0xC0686611, 13 * 8, 0x18
"""PROCMAP_QUERY of linux/fs.h: the request, bytes of its structure (size, flags, address, begin, end, …), and flags for
the first shared mapping that ends behind an address."""
_AT_ONCE = 256
"""Pages that are compared at once: the cache of a core has them twice."""
_END = 1 << 63
"""Address that all memory of processes is below."""

Ranges = Sequence[tuple[int, int]]
"""Address and bytes of each."""
Aliases = Sequence[tuple[int, int, int]]
"""Devices' address, bytes and the process's address of each."""


class ProcessPages(Struct, frozen=True):
    """Pages by the devices' addresses."""

    addresses: NDArray[np.uint64]
    """In their order."""
    pages: Pages

    def __len__(self) -> int:
        return len(self.addresses)

    def places(self, first: int) -> NDArray[np.void]:
        """Return `PLACES` of the pages, which are numbered from `first` on."""
        table = np.zeros(len(self), PLACES)
        table["address"], table["page"] = self.addresses, np.arange(first, first + len(self))
        return table

    def filled(self) -> ProcessPages:
        """Return a copy without the pages that are all zeros."""
        some = self.pages.any(axis=1)
        return ProcessPages(self.addresses[some], self.pages[some])

    def without(self, rows: NDArray[np.intp]) -> ProcessPages:
        """Return the pages but those of these numbers, each of which is given once."""
        if len(rows) == len(self):
            return ProcessPages(self.addresses[:0], self.pages[:0])
        others = np.ones(len(self), np.bool_)
        others[rows] = False
        return ProcessPages(self.addresses[others], self.pages[others])

    def read(self, address: int, size: int) -> bytes:
        """Return bytes; zeros where no page is."""
        held = bytearray()
        for page in range(address // PAGE * PAGE, address + size, PAGE):
            at = int(np.searchsorted(self.addresses, np.uint64(page)))
            there = at < len(self) and int(self.addresses[at]) == page
            held += self.pages[at].tobytes() if there else bytes(PAGE)
        return bytes(held[address % PAGE :][:size])


class Room:
    """Place for pages, used by one launch after the other: the system takes longer to give memory than to copy it."""

    def __init__(self) -> None:
        self._pages = np.empty((0, PAGE), np.uint8)

    def take(self, count: int) -> Pages:
        """Return place for so many pages, which is no longer the last one's."""
        if len(self._pages) < count:
            self._pages = np.empty((count, PAGE), np.uint8)
        return self._pages[:count]


class ProcessMemory:
    """The memory of a process that a launch may access.

    Args:
        own: what is at the same addresses for the process and its devices, in order.
        elsewhere: what is not.
        most: bytes that may be read.
    """

    def __init__(self, pid: int, own: Ranges, elsewhere: Aliases, most: int) -> None:
        self._pid, self._most = pid, most
        self._edges = dict(_edges([*own, *((address, size) for address, size, _ in elsewhere)]))
        self._stretches = pieces(sorted([*own, *((host, size) for _, size, host in elsewhere)]))
        self._own = np.array(pieces(own), np.uint64).reshape(-1, 2)
        self._elsewhere = elsewhere

    def before(self, room: Room) -> ProcessPages:
        """Return its pages, with zeros beside the ranges, until the room is taken for something else.

        Raises:
            DeviceError: they cannot be read, or are too many.
        """
        addresses, places = self._present()
        pages = room.take(len(addresses))
        self._read(addresses, places, pages)
        return ProcessPages(addresses, pages)

    def changed(self, before: ProcessPages) -> ProcessPages:
        """Return the pages whose contents are no longer those of `before`.

        Raises:
            DeviceError: pages cannot be read, or are too many.
        """
        addresses, places = self._present()
        rows, known = _places(before.addresses, addresses)
        gone = before.without(rows[known]).filled()
        found, contents = [gone.addresses], [np.zeros_like(gone.pages)]
        now = np.empty((_AT_ONCE, PAGE), np.uint8)
        for first in range(0, len(addresses), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            read = now[: len(addresses[some])]
            self._read(addresses[some], places[some], read)
            other = _differing(read, before.pages, rows[some], known[some])
            found.append(addresses[some][other])
            contents.append(read[other])
        all_addresses, all_pages = np.concatenate(found), np.concatenate(contents)
        order = np.argsort(all_addresses)
        return ProcessPages(all_addresses[order], all_pages[order])

    def _present(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return the pages that there are: the devices' addresses, in order, and the process's.

        Raises:
            DeviceError: the system does not tell, or they are too many.
        """
        there = self._present_in_process()
        if not self._elsewhere:
            return there, there
        begins, ends = self._own.T
        inside = np.searchsorted(begins, there, side="right") - 1
        own = there[(inside >= 0) & (there < ends[inside])] if len(begins) else there[:0]
        places, addresses = [own], [own]
        for address, size, host in self._elsewhere:
            first, end = np.searchsorted(there, np.array([host, host + size], np.uint64)).tolist()
            places.append(there[first:end])
            addresses.append(there[first:end] - np.uint64(host) + np.uint64(address))
        of_device, of_process = np.concatenate(addresses), np.concatenate(places)
        if len(of_device) * PAGE > self._most:
            raise DeviceError(f"{len(of_device) * PAGE} bytes of memory, of {self._most} (--most)")
        order = np.argsort(of_device)
        of_device, of_process = of_device[order], of_process[order]
        if (of_device[1:] == of_device[:-1]).any():
            raise DeviceError("devices have several pages of the process at one address")
        return of_device, of_process

    def _present_in_process(self) -> NDArray[np.uint64]:
        """Return the process's addresses of the pages that there are, in order.

        Raises:
            DeviceError: the system does not tell, or they are too many.
        """
        try:
            shared = _shared(self._pid)
        except OSError as problem:
            raise _unreadable(self._pid, problem) from None
        found = [present(self._pid, self._stretches)]
        for begin, end in self._stretches:
            at = bisect.bisect_right(shared, begin, key=lambda one: one[1])
            until = bisect.bisect_left(shared, end, key=lambda one: one[0])
            for first, last in shared[at:until]:
                low, high = max(begin, first), min(end, last)
                if high - low > self._most:
                    raise DeviceError(f"{high - low} bytes of shared memory, of {self._most} (--most)")
                found.append(np.arange(low, high, PAGE, dtype=np.uint64))
        pages = found[0] if len(found) == 1 else np.unique(np.concatenate(found))
        if len(pages) * PAGE > self._most:
            raise DeviceError(f"{len(pages) * PAGE} bytes of memory, of {self._most} (--most)")
        return pages

    def _read(self, addresses: NDArray[np.uint64], places: NDArray[np.uint64], pages: Pages) -> None:
        """Read pages, with zeros beside the ranges.

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
            for at, address in enumerate(addresses.tolist()):
                if address in self._edges:
                    pages[at][~self._edges[address]] = 0


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
    """Yield the pages that are not all within ranges, and which of their bytes are: others are none of the launch's."""
    for page in {at // PAGE * PAGE for address, size in ranges for at in (address, address + size) if at % PAGE}:
        inside = np.zeros(PAGE, np.bool_)
        for address, size in ranges:
            inside[max(0, address - page) : max(0, address + size - page)] = True
        yield page, inside


def _places(known: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return where values are in an array that is in order, and whether they are."""
    places = np.searchsorted(known, wanted)
    inside = places < len(known)
    inside[inside] = known[places[inside]] == wanted[inside]
    return places, inside


def _differing(now: Pages, before: Pages, rows: NDArray[np.intp], known: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the numbers of the pages that are not what they were.

    Args:
        rows: which page of `before` each was,
        known: if it was one; others were zeros.
    """
    if known.all() and rows[-1] - rows[0] == len(rows) - 1:
        old = before[rows[0] : rows[-1] + 1]
    else:
        old = np.zeros_like(now)
        old[known] = before[rows[known]]
    if np.array_equal(now.view(np.uint64), old.view(np.uint64)):
        return np.zeros(0, np.intp)
    return np.flatnonzero((now.view(np.uint64) != old.view(np.uint64)).any(axis=1))


def _read_at_once(pid: int, stretches: Ranges, pages: Pages) -> bool:
    """Read memory of a process by process_vm_readv(2), and return whether that could be done: not what the process
    itself may not read."""
    if not stretches:
        return True
    there = np.array(stretches, np.uint64)
    here = np.array([pages.ctypes.data, pages.nbytes], np.uint64)
    return bool(_readv()(pid, here.ctypes.data, 1, there.ctypes.data, len(there), 0) == pages.nbytes)


def _read_each(pid: int, stretches: Sequence[tuple[int, Pages]]) -> None:
    """Read memory of a process at addresses, whatever the process itself may read.

    Raises:
        OSError: the process is gone, or something of that is not there.
    """
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for begin, part in stretches:
            if not 0 <= begin < _END - part.nbytes:
                raise OSError(errno.EFAULT, f"no process has {part.nbytes} bytes at {begin:#x}")
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
    """Return begin and end of what others may have written of a process's memory: its page tables do not tell."""
    with open(f"/proc/{pid}/maps", "rb", buffering=0) as file:
        try:
            return [*_shared_mappings(file.fileno())]
        except OSError as problem:
            if problem.errno != errno.ENOTTY:  # a kernel before 6.11
                raise
        lines = file.readall().split(b"\n")
    found = (_SHARED.match(line) for line in lines if b"s " in line[:_LONGEST_SHARED])
    return [(int(one[1], 16), int(one[2], 16)) for one in found if one]


def _shared_mappings(file: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of shared mappings, as a /proc/PID/maps tells that is asked.

    Raises:
        OSError: the kernel cannot be asked.
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
