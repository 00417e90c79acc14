"""Launches captured from the memory that the tool library reads, on GPUs and virtual devices."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.capture.form import COUNTS, PAGE, PLACES, SCHEMA, Capture, CaptureManifest, Pages
from luthier.errors import DeviceError, LuthierError
from luthier.objects import Kernel
from luthier.run.captures import PACKET, Captures, arguments_in, joined
from luthier.run.sessions import Session, SessionKernel
from luthier.tool.observation import Launch
from luthier.wire.structures import ProtocolError
from luthier.wire.tool_requests import LaunchMemory, LaunchUnread, MemoryRange

_FIRST_FREE = 1 << 32
"""Lowest address for the packet; programs use no memory there."""


class _LaunchPages(Struct, frozen=True):
    """Pages by device address."""

    addresses: NDArray[np.uint64]
    """Sorted."""
    pages: Pages

    def __len__(self) -> int:
        return len(self.addresses)

    def places(self, first: int) -> NDArray[np.void]:
        """Return `PLACES` of the pages, numbered from `first`."""
        table = np.zeros(len(self), PLACES)
        table["address"], table["page"] = self.addresses, np.arange(first, first + len(self))
        return table

    def filled(self) -> _LaunchPages:
        """Return a copy without the pages that are all zeros."""
        some = self.pages.any(axis=1)
        return _LaunchPages(self.addresses[some], self.pages[some])

    def read(self, address: int, size: int) -> bytes:
        """Return bytes; zeros outside of the pages."""
        held = bytearray()
        for page in range(address // PAGE * PAGE, address + size, PAGE):
            at = int(np.searchsorted(self.addresses, np.uint64(page)))
            is_present = at < len(self) and int(self.addresses[at]) == page
            held += self.pages[at].tobytes() if is_present else bytes(PAGE)
        return bytes(held[address % PAGE :][:size])


class _RunningLaunch(Struct):
    """A launch that is running."""

    name: str
    """Its name in messages."""
    sent: LaunchMemory
    target: str
    before: _LaunchPages
    ranges: tuple[tuple[int, int], ...]
    time: float
    """Start time, by `time.monotonic`."""


class LaunchCaptures:
    """Captures of launches, from the memory that the processes of a run send.

    Args:
        captures: receives the captures.
    """

    def __init__(self, captures: Captures) -> None:
        self.captures = captures
        self._begun: dict[tuple[int, int], _RunningLaunch] = {}

    def selects(self, launch: Launch) -> bool:
        """Return whether a launch is selected for capture, apart from tools' requests."""
        chosen = self.captures.selection
        return chosen.skips(launch.kernel.name, launch.gpu) is None and chosen.takes(launch.number)

    def room_for(self, launch: Launch) -> int:
        """Return the limit in bytes for the memory of a captured launch; 0 if it is refused, which is reported."""
        try:
            self.captures.check_room()
        except LuthierError as problem:
            self.captures.refuse(_name(launch), problem)
            return 0
        return self.captures.most

    def take(self, session: Session, launch: Launch, sent: LaunchMemory) -> None:
        """Receive the memory of a launch at its begin or end.

        Raises:
            ProtocolError: the message is malformed.
        """
        key = self._key(session, launch, sent)
        begun = self._begun.pop(key, None)
        try:
            table = MemoryRange.read_rows(sent.ranges)
            memory = _memory(table, sent.contents)
            if not sent.is_after:
                ranges = joined((int(row["address"]), int(row["size"])) for row in table)
                self._begun[key] = _RunningLaunch(_name(launch), sent, sent.device, memory, ranges, time.monotonic())
            elif begun is not None:
                self._end(begun, session.kernels[sent.row], launch, memory)
        except ProtocolError:
            raise
        except LuthierError as refused:
            self.captures.refuse(_name(launch), refused)

    def refuse(self, session: Session, launch: Launch, sent: LaunchUnread) -> None:
        """Record that the memory of a launch cannot be read.

        Raises:
            ProtocolError: there is no such launch.
        """
        self._begun.pop(self._key(session, launch, sent), None)
        self.captures.refuse(_name(launch), DeviceError(str(sent.problem)))

    def _key(self, session: Session, launch: Launch, sent: LaunchMemory | LaunchUnread) -> tuple[int, int]:
        if sent.row >= len(session.kernels) or sent.number != launch.number:
            raise ProtocolError(f"memory was sent for launch {sent.number} of kernel {sent.row}, which is not running")
        return id(session), sent.gpu

    def end(self) -> None:
        """Refuse launches that had not ended when the program did."""
        for begun in self._begun.values():
            self.captures.refused.append(f"{begun.name}: the program ended before it")

    def _end(self, begun: _RunningLaunch, launched: SessionKernel, launch: Launch, after: _LaunchPages) -> None:
        seconds = time.monotonic() - begun.time
        kernel, sent = launched.kernel, begun.sent
        packet = _free_page(begun.ranges)
        before = _with_page(begun.before, packet, _packet(launch, kernel, sent))
        manifest = CaptureManifest(
            schema=SCHEMA,
            target=begun.target,
            kernel=kernel.name,
            object=launched.object.name,
            number=launch.number,
            grid=(launch.grid[0], launch.grid[1], launch.grid[2]),
            block=(launch.block[0], launch.block[1], launch.block[2]),
            group_segment=launch.group_segment,
            private_segment=launch.private_segment,
            dynamic_lds=max(0, launch.group_segment - kernel.group_segment_fixed_size),
            cooperative=sent.cooperative,
            packet=packet,
            queue=sent.queue,
            kernarg=sent.kernarg,
            load_address=sent.load_address,
            id=sent.id,
            arguments=arguments_in(kernel, before.read, sent.kernarg),
            ranges=joined([*begun.ranges, (packet, PAGE)]),
            counted=False,
        )
        changed = _changed(begun.before, after)
        counts = np.zeros(0, COUNTS)
        path = None if launch.captured is True else launch.captured or None
        self.captures.take(_assembled(manifest, launched.object.data, before, changed, counts), seconds, path)


def _assembled(
    manifest: CaptureManifest, object: bytes, before: _LaunchPages, changed: _LaunchPages, counts: NDArray[np.void]
) -> Capture:
    """Return a capture from the memory before a launch and the pages that it changed."""
    before = before.filled()
    pages = np.concatenate([before.pages, changed.pages])
    return Capture(manifest, object, pages, before.places(0), changed.places(len(before)), counts)


def _name(launch: Launch) -> str:
    return f"launch {launch.number} of {launch.kernel.name} in process {launch.pid}"


def _memory(table: NDArray[np.void], file: int) -> _LaunchPages:
    """Return the pages of ranges from a file, with zeros outside of the ranges.

    Raises:
        ProtocolError: the file does not contain them.
    """
    pages: dict[int, NDArray[np.uint8]] = {}
    for address, size, offset in table.tolist():
        first, end = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        place = offset - (address - first)
        if place < 0 or place % PAGE or place + end - first > os.fstat(file).st_size:
            raise ProtocolError("memory of a launch is not in its file")
        contents = _read(file, place, end - first).reshape(-1, PAGE)
        for row, page in enumerate(range(first, end, PAGE)):
            # Ranges may share a page.
            pages[page] = contents[row] | pages[page] if page in pages else contents[row]
    return _as_memory(pages)


def _read(file: int, place: int, size: int) -> NDArray[np.uint8]:
    """Read a part of a file without mapping it, since the process that sent it may truncate it at any time.

    Raises:
        ProtocolError: the file was truncated.
    """
    contents = np.empty(size, np.uint8)
    done = 0
    while done < size:
        count = os.preadv(file, [contents[done:].data], place + done)
        if not count:
            raise ProtocolError("the file with the memory of a launch was truncated")
        done += count
    return contents


def _as_memory(pages: dict[int, NDArray[np.uint8]]) -> _LaunchPages:
    addresses = sorted(pages)
    contents = np.stack([pages[one] for one in addresses]) if addresses else np.zeros((0, PAGE), np.uint8)
    return _LaunchPages(np.array(addresses, np.uint64), contents)


def _with_page(memory: _LaunchPages, address: int, contents: bytes) -> _LaunchPages:
    """Return memory with a page added."""
    page = np.zeros((1, PAGE), np.uint8)
    page[0, : len(contents)] = np.frombuffer(contents, np.uint8)
    at = int(np.searchsorted(memory.addresses, np.uint64(address)))
    addresses = np.insert(memory.addresses, at, np.uint64(address))
    return _LaunchPages(addresses, np.concatenate([memory.pages[:at], page, memory.pages[at:]]))


def _changed(before: _LaunchPages, after: _LaunchPages) -> _LaunchPages:
    """Return the pages that changed."""
    other = (before.pages != after.pages).any(axis=1)
    return _LaunchPages(after.addresses[other], after.pages[other])


def _free_page(ranges: Sequence[tuple[int, int]]) -> int:
    """Return the address of a page that is in no range."""
    page = _FIRST_FREE
    for address, size in ranges:
        if address < page + PAGE and page < address + size:
            page = -(-(address + size) // PAGE) * PAGE
    return page


def _packet(launch: Launch, kernel: Kernel, sent: LaunchMemory) -> bytes:
    """Return a packet as kernels read it. Only the device knows its original place in the queue."""
    dimensions = max(axis + 1 for axis in range(3) if axis == 0 or launch.grid[axis] > 1)
    sizes = launch.private_segment, launch.group_segment
    code = kernel.descriptor_address + sent.load_address
    return PACKET.pack(_DISPATCH, dimensions, *launch.block, 0, *launch.grid, *sizes, code, sent.kernarg, 0, 0)


_DISPATCH = 2
"""Header of a dispatch packet: its type (HSA specification 2.9.1)."""
