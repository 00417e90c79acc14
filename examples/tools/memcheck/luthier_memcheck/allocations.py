"""Memory that a process allocated through HIP, and the stretches of addresses that may be accessed or not."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

from luthier import ApiEvent
from luthier.findings.finding import NearbyAllocation

OUTSIDE, FREED, NOWHERE = "out-of-bounds", "use-after-free", "invalid-address"
PROCESS_END, END = 1 << 47, 1 << 64
"""Addresses after the last: of a process, and of all."""
Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""First address, and the address after the last, in order."""


class Name(NamedTuple):
    """Name of accesses to a stretch."""

    kind: str
    allocation: NearbyAllocation | None
    """The nearest; None if there is none."""
    is_before: bool = False
    """It is before the allocation."""


class Stretch(NamedTuple):
    """Addresses with the same name."""

    begin: int
    end: int
    name: Name | None
    """None: they may be accessed."""


@dataclass
class _Extent:
    """An allocation with the unused bytes after it."""

    allocation: NearbyAllocation
    reserved: int
    """Bytes of both."""
    is_freed: bool = False


class Allocations:
    """Allocations of one process, from events."""

    def __init__(self) -> None:
        self._extents: dict[int, _Extent] = {}
        self.made = 0
        """Number of allocations, freed ones included."""
        self.version = 0
        """Number of changes."""

    def tell(self, event: ApiEvent) -> None:
        """Take an event of `luthier.Tool.at_memory_event`."""
        self.version += 1
        address = event.arguments["address"]
        if event.name == "allocated":
            self.made += 1
            size, reserved = event.arguments["size"], event.arguments["reserved"]
            self._extents[address] = _Extent(NearbyAllocation(address, size, self.made), max(size, reserved))
        elif event.name == "forgotten":
            self._extents.pop(address, None)
        elif event.name == "freed" and address in self._extents:
            self._extents[address].is_freed = True

    def stretches(self, mapped: Ranges | None = None) -> Iterator[Stretch]:
        """Yield all addresses in their order, without a gap.

        Addresses between allocations belong to the nearest one. Unknown addresses may be accessed if they are mapped.

        Args:
            mapped: the ranges that the process has mapped; None: all.
        """
        begin = 0
        for end, name in self._marks(((0, END),) if mapped is None else mapped):
            if end > begin:
                yield Stretch(begin, end, name)
                begin = end

    def _marks(self, mapped: Ranges) -> Iterator[tuple[int, Name | None]]:
        """Yield where each stretch ends, and its name; some are empty."""
        extents = [self._extents[address] for address in sorted(self._extents)]
        following = [*extents, None]  # empty allocations are not named
        for place in reversed(range(len(extents))):
            if not extents[place].allocation.size:
                following[place] = following[place + 1]
        next_allocations = [None if extent is None else extent.allocation for extent in following]
        behind, previous = 0, None
        for place, extent in enumerate(extents):
            allocation = extent.allocation
            yield from _unknown(behind, allocation.address, previous, next_allocations[place], mapped)
            previous = allocation if allocation.size else previous
            most = END if place + 1 == len(extents) else extents[place + 1].allocation.address
            yield allocation.address + allocation.size, Name(FREED, allocation) if extent.is_freed else None
            behind = min(allocation.address + extent.reserved, most)
            yield from _divided(behind, OUTSIDE, previous, next_allocations[place + 1])
        yield from _unknown(behind, END, previous, None, mapped)


def _divided(
    end: int, kind: str, left: NearbyAllocation | None, right: NearbyAllocation | None
) -> Iterator[tuple[int, Name]]:
    """Yield marks between two allocations up to an address, each half named after the nearer one."""
    behind, before = Name(kind, left), Name(kind, right, is_before=True)
    if left is None or right is None:
        yield end, before if left is None else behind
        return
    yield min(end, (left.address + left.size + right.address + 1) // 2), behind
    yield end, before


def _unknown(
    first: int, last: int, left: NearbyAllocation | None, right: NearbyAllocation | None, mapped: Ranges
) -> Iterator[tuple[int, Name | None]]:
    """Yield marks of unknown addresses, between two allocations if there are any."""
    at = bisect_right(mapped, first, key=itemgetter(1))
    for begin, end in islice(mapped, at, None):
        if begin > first:
            yield from _divided(min(begin, last), NOWHERE, left, right)
        yield min(end, last), None
        if end >= last:
            return
    yield from _divided(last, NOWHERE, left, right)


def map_of(pid: int) -> bytes:
    """Return the map of a process from the kernel; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/maps").read_bytes()
    except OSError:
        return b""


@functools.lru_cache(maxsize=64)
def mapped(text: bytes) -> Ranges | None:
    """Return where a process has mapped anything, memory of its devices included; None of an empty map.

    ROCr reserves addresses for what devices see in the process, too. Above what processes have are the apertures of LDS
    and private memory.
    """
    ranges: list[tuple[int, int]] = []
    for line in text.splitlines():
        begin, end = (int(number, 16) for number in line.partition(b" ")[0].split(b"-"))
        if ranges and ranges[-1][1] == begin:
            begin = ranges.pop()[0]
        if end <= PROCESS_END:
            ranges.append((begin, end))
    return (*ranges, (PROCESS_END, END)) if ranges else None
