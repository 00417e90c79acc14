"""Pages of captures: contents by address, differences, and captures with other pages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.form import PAGE, PLACES, Capture, Pages
from luthier.capture.place import runs


class Difference(Struct, frozen=True):
    """The first byte that differs after a replay from the recorded one."""

    address: int
    range: tuple[int, int]
    """Address and bytes of the memory that contains it."""
    expected: int
    found: int
    bytes: int
    """Total number of bytes that differ."""
    store: str = ""
    """The instruction that wrote it last, with its source line; empty if there is none or it was not searched for."""

    def __str__(self) -> str:
        begin, size = self.range
        text = (
            f"{self.bytes} bytes differ; the first is {self.address - begin} bytes into the {size} bytes at "
            f"{begin:#x}: {self.found:#04x}, recorded {self.expected:#04x}"
        )
        return f"{text}; written by {self.store}" if self.store else text


def compared(
    capture: Capture, addresses: Collection[int], contents: Callable[[int], NDArray[np.uint8]]
) -> tuple[Difference | None, NDArray[np.uint64]]:
    """Return the first difference from the recorded memory, and the addresses of the changed pages.

    Args:
        addresses: of the pages that may have changed.
        contents: returns the contents of the page at an address.
    """
    wanted_at = {*addresses, *capture.after["address"].tolist()}
    before, after = by_address(inside(capture.before, wanted_at)), by_address(capture.after)
    first: tuple[int, int, int] | None = None
    total, written, zeros = 0, [], np.zeros(PAGE, np.uint8)
    for address in sorted(wanted_at):
        now = contents(address)
        old = capture.pages[before[address]] if address in before else zeros
        wanted = capture.pages[after[address]] if address in after else old
        data = now.tobytes()  # far quicker to compare than arrays
        same = data == old.tobytes()
        if not same:
            written.append(address)
        if (same and wanted is old) or data == wanted.tobytes():
            continue
        wrong = np.flatnonzero(now != wanted)
        total += len(wrong)
        if first is None:
            at = int(wrong[0])
            first = address + at, int(wanted[at]), int(now[at])
    changed = np.array(written, np.uint64)
    if first is None:
        return None, changed
    around = next((r for r in capture.manifest.ranges if 0 <= first[0] - r[0] < r[1]), (first[0], 1))
    return Difference(first[0], around, first[1], first[2], total), changed


def by_address(places: NDArray[np.void]) -> dict[int, int]:
    """Return `PLACES` as a mapping from addresses to page numbers."""
    return dict(zip(places["address"].tolist(), places["page"].tolist(), strict=True))


def inside(places: NDArray[np.void], addresses: Collection[int]) -> NDArray[np.void]:
    """Return the rows of `PLACES` at addresses."""
    some: NDArray[np.void] = places[np.isin(places["address"], np.fromiter(addresses, np.uint64, len(addresses)))]
    return some


def with_pages(
    capture: Capture, before: Mapping[int, NDArray[np.uint8]], after: Mapping[int, NDArray[np.uint8]]
) -> Capture:
    """Return a capture with other pages, by address; equal pages are stored once."""
    known: dict[bytes, int] = {}
    kept: list[Pages] = []
    tables = []
    for places in (before, after):
        table = np.zeros(len(places), PLACES)
        for row, address in enumerate(sorted(places)):
            contents = places[address].tobytes()
            if contents not in known:
                known[contents] = len(kept)
                kept.append(places[address])
            table[row] = address, known[contents]
        tables.append(table)
    pages = np.stack(kept) if kept else np.zeros((0, PAGE), np.uint8)
    return replace(capture, pages=pages, before=tables[0], after=tables[1])


def compact(capture: Capture) -> Capture:
    """Return a capture without duplicate pages."""
    before, after = (
        {address: capture.pages[page] for address, page in by_address(places).items()}
        for places in (capture.before, capture.after)
    )
    return with_pages(capture, before, after)


def stretches(pages: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return address and bytes of each stretch of consecutive pages; `pages` are sorted addresses."""
    return [(int(pages[first]), (end - first) * PAGE) for first, end in runs(pages)]


def without(ranges: Sequence[tuple[int, int]], left_out: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield address and bytes of the parts of `ranges` outside `left_out`; both are sorted."""
    at = 0
    for address, size in ranges:
        begin, end = address, address + size
        while at < len(left_out) and left_out[at][0] < end:
            first, length = left_out[at]
            if begin < first:
                yield begin, first - begin
            begin = max(begin, first + length)
            if first + length > end:
                break  # its rest may be in the next range
            at += 1
        if begin < end:
            yield begin, end - begin
