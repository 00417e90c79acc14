"""Minimisation of a captured launch that fails: delta debugging (Zeller, Hildebrandt 2002) of its work-groups, then of
its memory pages. Pages that are left out are zeros."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.capture.form import PAGE, Capture, CaptureManifest, Triple
from luthier.capture.grid import whole_groups
from luthier.capture.pages import by_address, with_pages
from luthier.capture.place import fresh
from luthier.capture.replay import PreparedLaunch, Replayed
from luthier.emulator.running.memory import host_bytes
from luthier.errors import EmulationError, LuthierError

_T = TypeVar("_T")
_GRID_IN_PACKET = 12
"""Byte offset of the grid in a dispatch packet (HSA specification 2.9.6)."""
_BLOCK_COUNT = "hidden_block_count_"
_QUANTA = 1 << 10
"""Quanta of a work-group that a smaller launch may always use."""


class Failure(Struct, frozen=True):
    """A failure that a smaller launch must also have."""

    kind: str
    """``difference``, ``fault`` or ``finding``."""
    key: tuple[object, ...]
    """Identifies the failure."""
    text: str


@dataclass
class Minimiser:
    """Search for a smaller launch with the same failure.

    Args:
        launch: the launch that fails, with the recorded code or another object's.
        recorded: the launch with the recorded code, if `launch` has another object's; differences are between the two.
        check: checks, one of whose findings is the failure.
        seconds: when the search ends.
    """

    launch: PreparedLaunch
    recorded: PreparedLaunch | None = None
    check: Collection[str] = ()
    seconds: float = 600
    tries: int = 0
    failure: Failure | None = None
    _until: float = field(init=False)
    _pages: dict[int, int] = field(default_factory=dict)
    """Pages that may have to become zeros, by address."""

    def run(self) -> Capture:
        """Return the smallest capture found, which expects the results of the recorded code.

        Raises:
            AddressTaken: this process uses addresses of the captured memory.
            LuthierError: the launch does not fail.
        """
        self._until = time.monotonic() + self.seconds
        with self.launch.memory():
            whole = self.launch.capture
            self._pages = by_address(whole.before)
            self.failure, done = self._try(whole)
            if self.failure is None:
                raise LuthierError("its replay has no difference, fault or finding", kernel=whole.manifest.kernel)
            self._limit(done)
            few = self._accessed(self._smaller_grid(self._fewer_groups(whole)))
            # Leave pages that are not accessed unchanged, which is much quicker; then try without them.
            self._pages = by_address(few.before)
            smaller = self._fewer_pages(few)
            self._pages = by_address(whole.before)
            return self._as_recorded(smaller if self._fails(smaller) else few)

    def _fewer_groups(self, capture: Capture) -> Capture:
        manifest = capture.manifest
        if manifest.cooperative:
            return capture  # its work-groups wait for each other
        everyone = manifest.groups or tuple(_groups(manifest.grid, manifest.block))

        def with_groups(groups: Sequence[Triple]) -> Capture:
            return replace(capture, manifest=msgspec.structs.replace(manifest, groups=tuple(groups)))

        return with_groups(self._fewest(everyone, lambda groups: bool(groups) and self._fails(with_groups(groups))))

    def _smaller_grid(self, capture: Capture) -> Capture:
        """Return the capture with the smallest grid that contains its work-groups, if that also fails."""
        manifest = capture.manifest
        if not manifest.groups or any(whole % size for whole, size in zip(manifest.grid, manifest.block, strict=True)):
            return capture
        x, y, z = (max(group[axis] for group in manifest.groups) + 1 for axis in range(3))
        grid = x * manifest.block[0], y * manifest.block[1], z * manifest.block[2]
        if grid == manifest.grid:
            return capture
        smaller = with_grid(capture, grid)
        return smaller if self._fails(smaller) else capture

    def _accessed(self, capture: Capture) -> Capture:
        """Return the capture without pages that its launch does not access, if that still fails."""
        accessed: set[int] = set()
        for launch in self._launches():
            accessed |= set(self._run(launch, capture).touched.tolist())
        smaller = _with_pages(capture, accessed)
        return smaller if self._fails(smaller) else capture

    def _fewer_pages(self, capture: Capture) -> Capture:
        pages = capture.before["address"].tolist()
        kept = self._fewest(pages, lambda some: self._fails(_with_pages(capture, set(some))))
        return _with_pages(capture, set(kept))

    def _fewest(self, items: Sequence[_T], fails: Callable[[Sequence[_T]], bool]) -> Sequence[_T]:
        """Return a failing subset of which no single item can be left out, or the smallest found in time."""
        if fails(()):
            return ()
        count = 2
        while len(items) > 1 and time.monotonic() < self._until:
            size = -(-len(items) // count)
            parts = [items[at : at + size] for at in range(0, len(items), size)]
            rests = [[*items[:at], *items[at + size :]] for at in range(0, len(items), size)]
            smaller = next((part for part in parts if self._in_time() and fails(part)), None)
            if smaller is not None:
                items, count = smaller, 2
                continue
            smaller = next((rest for rest in rests if count > 2 and self._in_time() and fails(rest)), None)
            if smaller is not None:
                items, count = smaller, max(count - 1, 2)
            elif count >= len(items):
                break
            else:
                count = min(len(items), 2 * count)
        return items

    def _in_time(self) -> bool:
        return time.monotonic() < self._until

    # One try --------------------------------------------------------------------------------------------------------

    def _fails(self, capture: Capture) -> bool:
        """Return whether a capture's launch has the failure."""
        return self._try(capture)[0] is not None

    def _try(self, capture: Capture) -> tuple[Failure | None, Replayed]:
        """Return the failure of a capture's launch: the wanted one, or the first if none is wanted yet."""
        self.tries += 1
        expected = None
        if self.recorded is not None:
            # No comparison is needed: its results are the expected ones.
            reference = self._run(self.recorded, replace(capture, after=capture.after[:0]), keep=True)
            if reference.fault is not None:
                return None, reference
            expected = _expecting(capture, reference)
        done = self._run(self.launch, capture, expected, keep=True)
        wanted = self.failure
        failures = [
            one for one in self._failures(done) if wanted is None or (one.kind, one.key) == (wanted.kind, wanted.key)
        ]
        if wanted is not None and wanted.kind == "difference" and self.recorded is None and not failures:
            failures = [wanted] if done.fault is None and self._byte(done, wanted) == wanted.key[1] else []
        return (failures[0] if failures else None), done

    def _failures(self, done: Replayed) -> Iterator[Failure]:
        if self.check:
            yield from (Failure("finding", one.defect, str(one)) for one in done.findings)
        elif done.fault is not None:
            yield Failure("fault", _identity(done.fault), str(done.fault))
        elif done.difference is not None:
            other = self.recorded is not None  # then any difference from the recorded code counts
            key = () if other else (done.difference.address, done.difference.found)
            yield Failure("difference", key, str(done.difference))

    def _byte(self, done: Replayed, failure: Failure) -> int:
        """Return the byte that a launch left at the address of the failure."""
        address = failure.key[0]
        assert isinstance(address, int)
        return int(host_bytes(address, 1)[0])

    def _launches(self) -> list[PreparedLaunch]:
        return [self.launch] if self.recorded is None else [self.recorded, self.launch]

    def _run(
        self, launch: PreparedLaunch, capture: Capture, expected: Capture | None = None, *, keep: bool = False
    ) -> Replayed:
        """Run a smaller launch in the memory of the whole one.

        Args:
            expected: the capture with the expected results, if it is not `capture`.
        """
        smaller = copy.copy(launch)
        smaller.capture = expected or capture
        fresh(capture.manifest.ranges)
        kept = by_address(capture.before)
        for address, page in self._pages.items():
            if kept.get(address) != page:  # smaller captures only add pages to those of the whole launch
                host_bytes(address, PAGE)[:] = capture.pages[kept[address]] if address in kept else 0
        smaller.prepare()
        return smaller.run_here(None, self.check, keep=keep)

    def _limit(self, done: Replayed) -> None:
        """Limit the steps of smaller launches: with other memory they may never end."""
        for launch in self._launches():
            launch.step_limit = min(launch.step_limit, _QUANTA + 2 * done.instructions)

    def _as_recorded(self, capture: Capture) -> Capture:
        """Return the capture that expects the results of the recorded code, except for the byte of a difference."""
        launch = self.recorded or self.launch
        done = self._run(launch, capture, keep=True)
        settled = _expecting(capture, done if done.fault is None else replace(done, left={}))
        failure = self.failure
        if failure is not None and failure.kind == "difference" and self.recorded is None:
            from luthier.capture.against import Contents, expecting

            address = failure.key[0]
            assert isinstance(address, int)
            settled = expecting(settled, [(address, Contents(self.launch.capture).read(address, 1))])
        return replace(settled, counts=done.counts)


def group_count(manifest: CaptureManifest) -> int:
    """Return the number of work-groups that a launch runs."""
    return len(manifest.groups) or math.prod(whole_groups(manifest))


def _identity(fault: EmulationError) -> tuple[object, ...]:
    """Return the identity of a fault: the instruction and the kind."""
    return type(fault).__name__, fault.offset, fault.message.split(" ")[0]


def _groups(grid: Triple, block: Triple) -> Iterator[Triple]:
    """Yield the ids of all work-groups in order."""
    x, y, z = (range(-(-whole // size)) for whole, size in zip(grid, block, strict=True))
    yield from ((at_x, at_y, at_z) for at_z in z for at_y in y for at_x in x)


def with_grid(capture: Capture, grid: Triple) -> Capture:
    """Return the capture with a smaller grid of whole work-groups, also in its packet and hidden arguments."""
    manifest = capture.manifest
    counts = [whole // size for whole, size in zip(grid, manifest.block, strict=True)]
    words = [(manifest.packet + _GRID_IN_PACKET + 4 * axis, grid[axis].to_bytes(4, "little")) for axis in range(3)]
    arguments = list(manifest.arguments)
    for number, argument in enumerate(arguments):
        if argument.kind.startswith(_BLOCK_COUNT):
            value = counts["xyz".index(argument.kind[-1])].to_bytes(argument.size, "little")
            words.append((manifest.kernarg + argument.offset, value))
            arguments[number] = msgspec.structs.replace(argument, value=value.hex())
    groups = () if len(manifest.groups) == math.prod(counts) else manifest.groups
    smaller = msgspec.structs.replace(manifest, grid=grid, groups=groups, arguments=tuple(arguments))
    return _edited(replace(capture, manifest=smaller), words)


def _edited(capture: Capture, words: Sequence[tuple[int, bytes]]) -> Capture:
    """Return the capture with other bytes at addresses; changed pages are added."""
    pages, before = by_address(capture.before), capture.before.copy()
    added: dict[int, NDArray[np.uint8]] = {}
    for address, data in words:
        for at, byte in enumerate(data, address):
            page = at // PAGE * PAGE
            if page in pages:  # otherwise the page is all zeros and nothing reads it
                added.setdefault(page, capture.pages[pages[page]].copy())[at - page] = byte
    for number, page in enumerate(added):
        before["page"][before["address"] == page] = len(capture.pages) + number
    new_pages = (page[None] for page in added.values())
    return replace(capture, before=before, pages=np.concatenate([capture.pages, *new_pages]))


def _with_pages(capture: Capture, kept: Collection[int]) -> Capture:
    """Return the capture with only these pages; all others are zeros."""
    before = capture.before[[address in kept for address in capture.before["address"].tolist()]]
    return replace(capture, before=before)


def _expecting(capture: Capture, done: Replayed) -> Capture:
    """Return a capture that expects the results of a launch, which were kept, with only the pages that it needs."""
    before = {int(row["address"]): capture.pages[int(row["page"])] for row in capture.before}
    return with_pages(capture, before, done.left)
