"""Memory that a process has of HIP, and what that makes of all addresses: stretches that may be accessed or not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from luthier import ApiEvent
from luthier.run.findings.finding import Allocation

OUTSIDE, FREED = "out-of-bounds", "use-after-free"
END = 1 << 64
"""Address behind the last."""


class Name(NamedTuple):
    """Name of accesses that touch a stretch."""

    kind: str
    allocation: Allocation
    is_before: bool = False
    """It is in front of the allocation."""


class Stretch(NamedTuple):
    """Addresses that are alike."""

    begin: int
    end: int
    name: Name | None
    """None: they may be accessed."""


@dataclass
class _Extent:
    """An allocation with the bytes behind it that are nobody's."""

    allocation: Allocation
    reserved: int
    """Bytes of both."""
    is_freed: bool = False


class Allocations:
    """Allocations of one process, as events tell of them."""

    def __init__(self) -> None:
        self._extents: dict[int, _Extent] = {}
        self.made = 0
        """Number of them, those that are gone included."""
        self.version = 0
        """Number of changes."""

    def tell(self, event: ApiEvent) -> None:
        """Take an event of `luthier.Tool.at_memory_event`."""
        self.version += 1
        address = event.arguments["address"]
        if event.name == "allocated":
            self.made += 1
            size, reserved = event.arguments["size"], event.arguments["reserved"]
            self._extents[address] = _Extent(Allocation(address, size, self.made), max(size, reserved))
        elif event.name == "forgotten":
            self._extents.pop(address, None)
        elif event.name == "freed" and address in self._extents:
            self._extents[address].is_freed = True

    def stretches(self) -> Iterator[Stretch]:
        """Yield all addresses in their order, without a gap.

        What is behind an allocation belongs to the nearest one. What is not known may be accessed.
        """
        begin = 0
        for begin_of_next, name in self._marks():
            if begin_of_next > begin:
                yield Stretch(begin, begin_of_next, name)
                begin = begin_of_next

    def _marks(self) -> Iterator[tuple[int, Name | None]]:
        """Yield where each stretch ends, and its name; some are empty."""
        extents = [self._extents[address] for address in sorted(self._extents)]
        last = _Extent(Allocation(END, 0, 0), 0)
        yield extents[0].allocation.address if extents else END, None
        for extent, following in pairwise([*extents, last]):
            one, other = extent.allocation, following.allocation
            end = one.address + one.size
            yield end, Name(FREED, one) if extent.is_freed else None
            behind, middle = min(one.address + extent.reserved, other.address), (end + other.address + 1) // 2
            yield min(behind, middle), Name(OUTSIDE, one)
            yield behind, Name(OUTSIDE, other, is_before=True)
            yield other.address, None
