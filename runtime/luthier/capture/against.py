"""Expected contents of memory that replace the recorded ones in the comparison of a replay."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import PAGE, Capture, CapturedArgument, CaptureManifest
from luthier.capture.pages import by_address, with_pages
from luthier.errors import LuthierError

Pieces = Iterable[tuple[int, NDArray[np.uint8]]]
"""Addresses and the bytes expected there."""


class Contents:
    """Memory of a capture after the launch.

    Args:
        after: False: memory before the launch.
    """

    def __init__(self, capture: Capture, *, after: bool = True) -> None:
        self._pages = capture.pages
        self._page_at: dict[int, int] = {}
        for places in (capture.before, capture.after) if after else (capture.before,):
            self._page_at |= by_address(places)

    def page(self, address: int) -> NDArray[np.uint8]:
        """Return a copy of the page at an address."""
        number = self._page_at.get(address)
        return np.zeros(PAGE, np.uint8) if number is None else self._pages[number].copy()

    def read(self, address: int, size: int) -> NDArray[np.uint8]:
        """Return `size` bytes at an address."""
        first = address // PAGE * PAGE
        pages = [self.page(page) for page in range(first, address + size, PAGE)]
        return np.concatenate([np.zeros(0, np.uint8), *pages])[address - first :][:size]


def expecting(capture: Capture, pieces: Pieces) -> Capture:
    """Return a capture that also expects these bytes.

    Raises:
        LuthierError: they are outside the memory of the launch.
    """
    contents = Contents(capture)
    wanted = {int(address): contents.page(int(address)) for address in capture.after["address"]}
    for address, data in pieces:
        if not any(begin <= address and address + len(data) <= begin + size for begin, size in capture.manifest.ranges):
            raise LuthierError(f"{len(data)} bytes at {address:#x} are outside the memory of the launch")
        for page in range(address // PAGE * PAGE, address + len(data), PAGE):
            expected = wanted.setdefault(page, contents.page(page))
            begin, end = max(page, address), min(page + PAGE, address + len(data))
            expected[begin - page : end - page] = data[begin - address : end - address]
    before = {int(row["address"]): capture.pages[int(row["page"])] for row in capture.before}
    return with_pages(capture, before, wanted)


def of_capture(capture: Capture, other: Capture) -> Pieces:
    """Yield the memory that another capture of the same launch left behind its pointer arguments, at this one's
    addresses.

    Raises:
        LuthierError: the arguments of the two captures differ.
    """
    manifest, expected = capture.manifest, other.manifest
    if [(one.kind, one.size) for one in _explicit(manifest)] != [(one.kind, one.size) for one in _explicit(expected)]:
        raise LuthierError(f"the arguments of {expected.kernel} differ from those of {manifest.kernel}")
    contents = Contents(other)
    for argument, expected_argument in zip(_explicit(manifest), _explicit(expected), strict=True):
        if argument.kind != "global_buffer":
            continue
        address, expected_address = _value(argument), _value(expected_argument)
        size = min(_left(manifest, address), _left(expected, expected_address))
        for page in other.after["address"].tolist():
            begin, end = max(page, expected_address), min(page + PAGE, expected_address + size)
            if begin < end:
                yield begin - expected_address + address, contents.read(begin, end - begin)


def pointer(manifest: CaptureManifest, number: int) -> int:
    """Return the value of an explicit pointer argument.

    Raises:
        LuthierError: the kernel has no such argument, or it is not a pointer.
    """
    arguments = _explicit(manifest)
    if not 0 <= number < len(arguments) or arguments[number].kind != "global_buffer":
        raise LuthierError(f"argument {number} of {len(arguments)} of {manifest.kernel} is not a pointer")
    return _value(arguments[number])


def _value(argument: CapturedArgument) -> int:
    return int.from_bytes(bytes.fromhex(argument.value), "little")


def _explicit(manifest: CaptureManifest) -> list[CapturedArgument]:
    return [one for one in manifest.arguments if not one.kind.startswith("hidden_")]


def _left(manifest: CaptureManifest, address: int) -> int:
    """Return the bytes from an address to the end of its memory range; 0: it is in none."""
    return next((begin + size - address for begin, size in manifest.ranges if begin <= address < begin + size), 0)
