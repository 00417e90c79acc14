"""A captured launch in parts: ranges of its work-groups, each run from the memory before the launch.

What parts leave, put together, is what the whole launch leaves, if no byte that one writes is read or written by
another: then each part does what it does whatever the others do, and when. That is seen in what they read and write,
byte by byte; an atomic does both.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.capture.footprint import Footprint
from luthier.capture.form import COUNTS, PAGE, Capture, CaptureManifest, Triple
from luthier.capture.grid import whole_groups
from luthier.capture.pages import by_address, compared
from luthier.capture.replay import PreparedLaunch, Replayed
from luthier.errors import DeviceError

Range = tuple[int, int]
"""First and end of a range of work-groups, by their position among those that run."""


class LaunchPart(Struct, frozen=True):
    """Outcome of a part of a launch."""

    range: Range
    counts: NDArray[np.void]
    """`COUNTS`, by address."""
    footprint: NDArray[np.void]
    """`luthier.emulator.running.executor.FOOTPRINT`, by address."""
    addresses: NDArray[np.uint64]
    """Pages that it has changed, in their order,"""
    pages: NDArray[np.uint8]
    """and what it has left there."""

    def packed(self) -> bytes:
        """Return it as bytes."""
        held = io.BytesIO()
        fields = {name: getattr(self, name) for name in ("counts", "footprint", "addresses", "pages")}
        np.savez_compressed(held, range=np.array(self.range), **fields)
        return held.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Return what `packed` gave."""
        with np.load(io.BytesIO(data), allow_pickle=False) as fields:
            first, end = fields["range"].tolist()
            return cls((first, end), *(fields[name] for name in ("counts", "footprint", "addresses", "pages")))


def ranges(manifest: CaptureManifest, count: int) -> list[Range]:
    """Return so many ranges of a launch's work-groups, or fewer if it has not so many.

    Raises:
        DeviceError: its work-groups wait for each other.
    """
    if manifest.cooperative:
        raise DeviceError("a cooperative launch cannot be split: its work-groups wait for each other")
    x, y, z = whole_groups(manifest)
    total = len(manifest.groups) or x * y * z
    count = min(count, total)
    return [(total * number // count, total * (number + 1) // count) for number in range(count)]


def part_of(manifest: CaptureManifest, of: Range) -> CaptureManifest:
    """Return a launch of which only a range of work-groups run."""
    return msgspec.structs.replace(manifest, groups=_groups(manifest, of))


def _groups(manifest: CaptureManifest, of: Range) -> tuple[Triple, ...]:
    if manifest.groups:
        return manifest.groups[slice(*of)]
    x, y, _ = whole_groups(manifest)
    return tuple((number % x, number // x % y, number // x // y) for number in range(*of))


def run_part(launch: PreparedLaunch, of: Range) -> tuple[LaunchPart, Replayed]:
    """Run a launch of which only this range of work-groups run.

    Raises:
        AddressTaken: this process has something else where the program had its memory.
        LuthierError: it cannot be run.
    """
    footprint = Footprint(launch.code)
    done = launch.run(None, keep=True, observed=footprint)
    addresses = np.array(sorted(done.left), np.uint64)
    pages = np.stack([done.left[address] for address in addresses.tolist()]) if len(addresses) else _NO_PAGES
    return LaunchPart(of, done.counts, footprint.pages, addresses, pages), done


_NO_PAGES = np.zeros((0, PAGE), np.uint8)
_NO_BYTES = np.zeros(PAGE // 8, np.uint8)


def merged(capture: Capture, parts: Sequence[LaunchPart], seconds: float) -> Replayed:
    """Return what a launch has done whose parts these are, all of them.

    Args:
        seconds: that it took.

    Raises:
        DeviceError: parts use the same bytes, at least one of them writing: together they may do something else. Or
            what they change is not what they were seen to write.
    """
    _check_apart(parts)
    before = by_address(capture.before)
    zeros = np.zeros(PAGE, np.uint8)
    left: dict[int, NDArray[np.uint8]] = {}

    def begun(address: int) -> NDArray[np.uint8]:
        return capture.pages[before[address]] if address in before else zeros

    def contents(address: int) -> NDArray[np.uint8]:
        return left[address] if address in left else begun(address)

    for part in parts:
        written = {int(row["address"]): row["written"] for row in part.footprint}
        for address, page in zip(part.addresses.tolist(), part.pages, strict=True):
            if address not in left:
                left[address] = begun(address).copy()
            mine = np.unpackbits(written.get(address, _NO_BYTES), bitorder="little").view(np.bool_)
            if (page != begun(address))[~mine].any():
                raise DeviceError(f"it cannot be split: bytes at {address:#x} change by no access that is seen")
            left[address][mine] = page[mine]
    counts = _sum(part.counts for part in parts)
    difference, changed = compared(capture, left.keys(), contents)
    touched = np.unique(np.concatenate([part.footprint["address"] for part in parts]))
    return Replayed(
        counts, bool(np.array_equal(counts, capture.counts)), difference, None, touched, changed, seconds, left
    )


def _sum(tables: Iterable[NDArray[np.void]]) -> NDArray[np.void]:
    """Return `COUNTS` added up by address."""
    every = np.concatenate(list(tables))
    addresses, rows = np.unique(every["address"], return_inverse=True)
    total = np.zeros(len(addresses), COUNTS)
    total["address"] = addresses
    for name in ("executions", "lanes"):
        np.add.at(total[name], rows, every[name])
    return total


def _check_apart(parts: Sequence[LaunchPart]) -> None:
    """Refuse parts of which one writes what another reads or writes.

    Raises:
        DeviceError: they do, with the first such byte.
    """
    users: dict[int, list[tuple[LaunchPart, np.void]]] = {}
    for part in parts:
        for row in part.footprint:
            users.setdefault(int(row["address"]), []).append((part, row))
    for address in sorted(users):
        for (one, first), (other, second) in itertools.permutations(users[address], 2):
            shared = first["written"] & (second["read"] | second["written"])
            if shared.any():
                byte = int(np.flatnonzero(np.unpackbits(shared, bitorder="little"))[0])
                does = "writes" if second["written"][byte // 8] >> byte % 8 & 1 else "reads"
                raise DeviceError(
                    f"it cannot be split: {_told(one)} write the byte at {address + byte:#x}, which {_told(other)} "
                    f"{does.removesuffix('s')}"
                )


def _told(part: LaunchPart) -> str:
    first, end = part.range
    return f"work-groups {first} to {end - 1}"
