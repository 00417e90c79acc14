"""Replay of a captured launch in parts: ranges of its work-groups, each started from the memory before the launch.

The merged results of the parts are those of the whole launch if no part reads or writes a byte that another one
writes: then no part depends on the others. The footprints of the parts show this byte by byte; an atomic reads and
writes.
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
"""First and end of a range of work-groups, by position among those that run."""


class LaunchPart(Struct, frozen=True):
    """Outcome of a part of a launch."""

    range: Range
    counts: NDArray[np.void]
    """`COUNTS`, by address."""
    footprint: NDArray[np.void]
    """`luthier.emulator.running.executor.FOOTPRINT`, by address."""
    addresses: NDArray[np.uint64]
    """Sorted addresses of the changed pages."""
    pages: NDArray[np.uint8]
    """Their contents after the launch."""

    def packed(self) -> bytes:
        """Return the outcome as bytes for `unpacked`."""
        file = io.BytesIO()
        fields = {name: getattr(self, name) for name in ("counts", "footprint", "addresses", "pages")}
        np.savez_compressed(file, range=np.array(self.range), **fields)
        return file.getvalue()

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """Return the outcome in the bytes of `packed`."""
        with np.load(io.BytesIO(data), allow_pickle=False) as fields:
            first, end = fields["range"].tolist()
            return cls((first, end), *(fields[name] for name in ("counts", "footprint", "addresses", "pages")))


def ranges(manifest: CaptureManifest, count: int) -> list[Range]:
    """Return `count` ranges of a launch's work-groups, or one for each work-group if it has fewer.

    Raises:
        DeviceError: the launch is cooperative.
    """
    if manifest.cooperative:
        raise DeviceError("a cooperative launch cannot be split: its work-groups wait for each other")
    x, y, z = whole_groups(manifest)
    total = len(manifest.groups) or x * y * z
    count = min(count, total)
    return [(total * number // count, total * (number + 1) // count) for number in range(count)]


def part_of(manifest: CaptureManifest, of: Range) -> CaptureManifest:
    """Return a launch that runs only a range of its work-groups."""
    return msgspec.structs.replace(manifest, groups=_groups(manifest, of))


def _groups(manifest: CaptureManifest, of: Range) -> tuple[Triple, ...]:
    if manifest.groups:
        return manifest.groups[slice(*of)]
    x, y, _ = whole_groups(manifest)
    return tuple((number % x, number // x % y, number // x // y) for number in range(*of))


def run_part(launch: PreparedLaunch, of: Range) -> tuple[LaunchPart, Replayed]:
    """Run a launch that is limited to this range of work-groups.

    Raises:
        AddressTaken: this process uses addresses of the captured memory.
        LuthierError: the launch cannot be run.
    """
    footprint = Footprint(launch.code)
    done = launch.run(None, keep=True, observed=footprint)
    addresses = np.array(sorted(done.left), np.uint64)
    pages = np.stack([done.left[address] for address in addresses.tolist()]) if len(addresses) else _NO_PAGES
    return LaunchPart(of, done.counts, footprint.pages, addresses, pages), done


_NO_PAGES = np.zeros((0, PAGE), np.uint8)
_NO_BYTES = np.zeros(PAGE // 8, np.uint8)


def merged(capture: Capture, parts: Sequence[LaunchPart], seconds: float) -> Replayed:
    """Return the outcome of a launch from the outcomes of all its parts.

    Args:
        seconds: duration of the launch.

    Raises:
        DeviceError: a part writes bytes that another one uses, so that the whole launch may behave differently; or a
            part changed bytes outside its footprint.
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
            own = np.unpackbits(written.get(address, _NO_BYTES), bitorder="little").view(np.bool_)
            if (page != begun(address))[~own].any():
                raise DeviceError(f"the launch cannot be split: bytes at {address:#x} change without an observed write")
            left[address][own] = page[own]
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
    """Check that no part reads or writes a byte that another one writes.

    Raises:
        DeviceError: one does, with the first such byte.
    """
    users: dict[int, list[tuple[LaunchPart, np.void]]] = {}
    for part in parts:
        for row in part.footprint:
            users.setdefault(int(row["address"]), []).append((part, row))
    for address in sorted(users):
        for (writer, first), (user, second) in itertools.permutations(users[address], 2):
            shared = first["written"] & (second["read"] | second["written"])
            if shared.any():
                byte = int(np.flatnonzero(np.unpackbits(shared, bitorder="little"))[0])
                does = "write" if second["written"][byte // 8] >> byte % 8 & 1 else "read"
                raise DeviceError(
                    f"the launch cannot be split: {_range_text(writer)} write the byte at {address + byte:#x}, which "
                    f"{_range_text(user)} {does}"
                )


def _range_text(part: LaunchPart) -> str:
    first, end = part.range
    return f"work-groups {first} to {end - 1}"
