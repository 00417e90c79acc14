"""Contents of memory that a replay is compared with in the place of what was recorded."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import PAGE, Capture, CapturedArgument, CaptureManifest
from luthier.capture.pages import by_address, with_pages
from luthier.errors import LuthierError

Pieces = Iterable[tuple[int, NDArray[np.uint8]]]
"""Address and bytes of what is expected there."""


class Contents:
    """Memory of a capture as the launch has left it.

    Args:
        after: False: as it was before.
    """

    def __init__(self, capture: Capture, *, after: bool = True) -> None:
        self._pages = capture.pages
        self._page_at: dict[int, int] = {}
        for places in (capture.before, capture.after) if after else (capture.before,):
            self._page_at |= by_address(places)

    def page(self, address: int) -> NDArray[np.uint8]:
        """Return a copy of the page at an address."""
        found = self._page_at.get(address)
        return np.zeros(PAGE, np.uint8) if found is None else self._pages[found].copy()

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return the bytes from an address on."""
        first = address // PAGE * PAGE
        pages = [self.page(page) for page in range(first, address + size, PAGE)]
        return np.concatenate([np.zeros(0, np.uint8), *pages])[address - first :][:size]


def expecting(capture: Capture, pieces: Pieces) -> Capture:
    """Return a capture that expects these bytes, and elsewhere what it did.

    Raises:
        LuthierError: they are outside of what the launch may access.
    """
    contents = Contents(capture)
    wanted = {int(address): contents.page(int(address)) for address in capture.after["address"]}
    for address, data in pieces:
        if not any(begin <= address and address + len(data) <= begin + size for begin, size in capture.manifest.ranges):
            raise LuthierError(f"{len(data)} bytes at {address:#x} are not in the memory of the launch")
        for page in range(address // PAGE * PAGE, address + len(data), PAGE):
            held = wanted.setdefault(page, contents.page(page))
            begin, end = max(page, address), min(page + PAGE, address + len(data))
            held[begin - page : end - page] = data[begin - address : end - address]
    before = {int(row["address"]): capture.pages[int(row["page"])] for row in capture.before}
    return with_pages(capture, before, wanted)


def of_capture(capture: Capture, other: Capture) -> Pieces:
    """Yield what another capture of the same launch has left where the arguments point, by this one's addresses.

    Raises:
        LuthierError: its arguments are others.
    """
    told, expected = capture.manifest, other.manifest
    if [(one.kind, one.size) for one in _explicit(told)] != [(one.kind, one.size) for one in _explicit(expected)]:
        raise LuthierError(f"{expected.kernel} takes other arguments than {told.kernel}")
    contents = Contents(other)
    for mine, theirs in zip(_explicit(told), _explicit(expected), strict=True):
        if mine.kind != "global_buffer":
            continue
        here, there = (int.from_bytes(bytes.fromhex(one.value), "little") for one in (mine, theirs))
        size = min(_left(told, here), _left(expected, there))
        for page in other.after["address"].tolist():
            begin, end = max(page, there), min(page + PAGE, there + size)
            if begin < end:
                yield begin - there + here, contents.read(begin, end - begin)


def pointer(manifest: CaptureManifest, number: int) -> int:
    """Return what the explicit argument of a number points at.

    Raises:
        LuthierError: there is none, or it is no pointer.
    """
    arguments = _explicit(manifest)
    if not 0 <= number < len(arguments) or arguments[number].kind != "global_buffer":
        raise LuthierError(f"argument {number} of {len(arguments)} of {manifest.kernel} is no pointer")
    return int.from_bytes(bytes.fromhex(arguments[number].value), "little")


def _explicit(manifest: CaptureManifest) -> list[CapturedArgument]:
    return [one for one in manifest.arguments if not one.kind.startswith("hidden_")]


def _left(manifest: CaptureManifest, address: int) -> int:
    """Return the bytes from an address to the end of the memory that it is in; 0 if it is in none."""
    return next((begin + size - address for begin, size in manifest.ranges if begin <= address < begin + size), 0)
