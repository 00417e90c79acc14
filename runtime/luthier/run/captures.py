"""Launches of a program, captured: the memory that a launch may access is read from the process before and after."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from luthier.capture.form import (
    COUNTS,
    PAGE,
    SCHEMA,
    Capture,
    CapturedArgument,
    CaptureManifest,
    checked,
    room_for,
    write_capture,
)
from luthier.capture.pages import compact
from luthier.emulator import layout
from luthier.emulator.running.worker import get_field
from luthier.errors import DeviceError, LackError, LuthierError
from luthier.objects import Kernel
from luthier.run.planner import KernelPlan, Planner
from luthier.run.process_memory import ProcessMemory, ProcessPages, Room
from luthier.run.selection import Selection
from luthier.run.virtual_gpus import VirtualGpu
from luthier.support.losses import note_loss
from luthier.wire.device_requests import Captured
from luthier.wire.device_requests import CaptureRequest as CaptureRequest
from luthier.wire.messages import CodeCounts, RecordCounts
from luthier.wire.structures import ProtocolError

PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")
"""A dispatch packet (HSA specification 2.9.6)."""

PATIENCE = 60.0
"""Seconds."""
MOST = 10 << 30
"""Bytes of all files together, and of the memory of a launch, unless told otherwise."""
_ALIAS = ("address", "size", "host")
_HELD_PART = 4
"""Part of the memory that captures may have, for those that wait in memory for their replay."""


class _RunningCapture(Struct):
    """A launch that runs."""

    wanted: CaptureRequest
    packet: tuple[int, ...]
    plan: KernelPlan
    target: str
    number: int
    memory: ProcessMemory
    ranges: tuple[tuple[int, int], ...]
    """Addresses that the launch may access, the devices'."""
    room: Room
    before: ProcessPages
    """What is in the room."""
    time: float
    """When it began, by `time.monotonic`."""


class Captures(Struct):
    """The captures of a run. Launches of a process come one at a time.

    Args:
        folder: where files are made.
        most: bytes that all files together, and the memory of one launch, may have.
        patience: seconds that launches wait for one that is captured; then they run beside it, which is no capture.
        hold: leave captures in memory, while there is room, for `held`: they are to be replayed before they are files.
        most_held: bytes of pages that there is room for.
    """

    folder: Path
    selection: Selection
    most: int
    patience: float = PATIENCE
    hold: bool = False
    most_held: int = field(default_factory=lambda: room_for() // _HELD_PART)
    files: list[Path] = field(default_factory=list)
    """Those of the captures, whether they are held or written."""
    held: dict[Path, Capture] = field(default_factory=dict)
    """Captures that are not written."""
    refused: list[str] = field(default_factory=list)
    """What was selected and is not captured, and why."""
    used: int = 0
    took: dict[Path, float] = field(default_factory=dict)
    """Seconds that the launches took."""
    _holding: int = 0
    """Bytes of pages of those that are held."""
    _rooms: list[Room] = field(default_factory=list)
    """Rooms that nobody uses."""
    _running: dict[int, _RunningCapture] = field(default_factory=dict)
    _numbers: Counter[tuple[int, int]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, pid: int, wanted: CaptureRequest, devices: Sequence[VirtualGpu], planner: Planner) -> bool:
        """Return whether a launch is captured that is about to begin.

        Raises:
            ProtocolError: there is no such launch.
        """
        if wanted.plan not in planner.plans or wanted.gpu >= len(devices) or len(wanted.packet) != PACKET.size:
            raise ProtocolError("a malformed request for a capture")
        plan = planner.plans[wanted.plan]
        kernel = plan.kernel.name
        # Kernels that are in memory alone are ROCr's own, to copy and fill.
        of_runtime = plan.code.object is None and not self.selection.runtime_kernels
        if of_runtime or self.selection.skips(kernel, wanted.gpu) is not None:
            return False
        with self._lock:
            number = self._numbers[pid, wanted.plan]
            self._numbers[pid, wanted.plan] += 1
        if not self.selection.takes(number):
            return False
        name = f"launch {number} of {kernel} in process {pid}"
        try:
            if not pid:
                raise DeviceError("its process is in a PID namespace that Luthier cannot look into")
            if plan.code.object is None:
                raise DeviceError("its code object is not known: the kernel is in memory alone")
            self.check_room()
            table = np.frombuffer(wanted.ranges, layout.RANGE.dtype)
            own = joined([(int(row[0]), int(row[1])) for row in table.tolist() if row[1]])
            elsewhere = _elsewhere(wanted.aliases, own)
            ranges = joined([*own, *((address, size) for address, size, _ in elsewhere)])
            memory = ProcessMemory(pid, own, elsewhere, self.most)
            room = self._rooms.pop() if self._rooms else Room()
            before = memory.before(room)
        except LuthierError as problem:
            self.refuse(name, problem)
            return False
        now = time.monotonic()
        parts, target = PACKET.unpack(wanted.packet), devices[wanted.gpu].target.target.name
        self._running[pid] = _RunningCapture(wanted, parts, plan, target, number, memory, ranges, room, before, now)
        return True

    def end(self, pid: int, told: Captured) -> None:
        """Take the capture of a launch that has ended.

        Raises:
            ProtocolError: it never began.
        """
        begun = self._running.pop(pid, None)
        if begun is None:
            raise ProtocolError("the end of a launch that never began")
        ended = time.monotonic()
        name = f"launch {begun.number} of {begun.plan.kernel.name} in process {pid}"
        try:
            if told.failed:
                raise DeviceError("it failed, or was cut short")
            if told.outside:
                raise DeviceError("it calls functions of another code object")
            if told.beside:
                raise DeviceError(
                    f"{told.beside} launches ran beside it, after they had waited {self.patience:g} seconds for "
                    "launches to end (--patience): kernels that wait for each other cannot be captured"
                )
            first, last = (_tally(counts, begun.plan.code.number) for counts in (told.before, told.after))
            self.take(_made(begun, _counts(begun.plan, first, last)), ended - begun.time)
        except LuthierError as problem:
            self.refuse(name, problem)
        finally:
            self._rooms.append(begun.room)

    def refuse(self, name: str, problem: LuthierError) -> None:
        """Note a launch that is not captured; where the system lacked something, it is lost."""
        self.refused.append(f"{name}: {problem}")
        if isinstance(problem, LackError):
            note_loss(self.refused[-1])

    def check_room(self) -> None:
        """Check that there is room for one more.

        Raises:
            DeviceError: there is none.
        """
        if self.used + self._holding >= self.most:
            raise DeviceError(f"the captures have {self.used + self._holding} bytes, of {self.most} (--most)")

    def take(self, capture: Capture, seconds: float, path: Path | None = None) -> None:
        """Take a capture.

        Args:
            seconds: how long the launch took.
            path: of the file; None: one in the folder.

        Raises:
            LuthierError: it is none.
        """
        checked(capture)
        with self._lock:
            name = f"{len(self.took):06}-{_plain(capture.manifest.kernel)}-{capture.manifest.number}.lcap"
            path = self.folder / name if path is None else path
            self.files.append(path)
            self.took[path] = seconds
            self.held[path] = capture
            self._holding += capture.pages.nbytes
            if not self.hold or self._holding > self.most_held:
                self.write([*self.held])

    def write(self, paths: Iterable[Path]) -> None:
        """Write captures that are held; one that cannot be written is refused."""
        for path in paths:
            try:
                write_capture(path, compact(self.release(path)))
                self.used += path.stat().st_size
            except LuthierError as problem:
                self.files.remove(path)
                self.refused.append(f"{path.name}: {problem}")
                note_loss(self.refused[-1])

    def release(self, path: Path) -> Capture:
        """Return a capture that was held, and hold it no longer."""
        capture = self.held.pop(path)
        self._holding -= capture.pages.nbytes
        return capture


def _plain(name: str) -> str:
    """Return a name as a part of a file's name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]


def joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges in their order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for address, size in sorted(ranges):
        if found and address < sum(found[-1]):
            found[-1] = found[-1][0], max(sum(found[-1]), address + size) - found[-1][0]
        else:
            found.append((address, size))
    return tuple(found)


def _elsewhere(aliases: bytes, own: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return memory that devices have at other addresses than the process.

    Raises:
        DeviceError: it is not apart from the other memory, page by page.
    """
    found = []
    for at in range(0, len(aliases), layout.ALIAS.size):
        address, size, host = (get_field(np.frombuffer(aliases, np.uint8), layout.ALIAS, name, at) for name in _ALIAS)
        if any(address < begin + length and begin < address + size for begin, length in own):
            raise DeviceError(f"{size} bytes that devices have at {address:#x} overlap other memory")
        if address % PAGE or host % PAGE:
            raise DeviceError(f"{size} bytes that devices have at {address:#x} do not begin with a page")
        found.append((address, size, host))
    return found


def _tally(codes: Sequence[CodeCounts], code: int) -> dict[int, tuple[int, int]]:
    """Return executions and lanes by record of one code."""
    rows = next((RecordCounts.read_rows(counted.records) for counted in codes if counted.code == code), None)
    return {} if rows is None else {record: (executions, lanes) for record, executions, lanes in rows.tolist()}


def _counts(plan: KernelPlan, first: dict[int, tuple[int, int]], last: dict[int, tuple[int, int]]) -> NDArray[np.void]:
    addresses = plan.code.code.addresses()
    rows = []
    for record, (times, lanes) in last.items():
        if record >= len(addresses):
            raise ProtocolError("counts of code that was never planned")
        before = first.get(record, (0, 0))
        if times != before[0]:
            rows.append((int(addresses[record]), times - before[0], lanes - before[1]))
    return np.array(sorted(rows), COUNTS)


def _made(begun: _RunningCapture, counts: NDArray[np.void]) -> Capture:
    """Return what a launch that has ended did. Its pages are as they come: some may have the same contents."""
    wanted, packet, kernel, code = begun.wanted, begun.packet, begun.plan.kernel, begun.plan.code
    assert code.object is not None  # such a launch was refused
    private, group, descriptor, kernarg = packet[9], packet[10], packet[11], packet[12]
    manifest = CaptureManifest(
        schema=SCHEMA,
        target=begun.target,
        kernel=kernel.name,
        object=code.object.name,
        number=begun.number,
        grid=(packet[6], packet[7], packet[8]),
        block=(packet[2], packet[3], packet[4]),
        group_segment=group,
        private_segment=private,
        dynamic_lds=max(0, group - kernel.group_segment_fixed_size),
        cooperative=wanted.cooperative,
        packet=wanted.packet_address,
        queue=wanted.queue,
        kernarg=kernarg,
        load_address=descriptor - kernel.descriptor_address,
        id=wanted.id,
        arguments=arguments_in(kernel, begun.before, kernarg),
        ranges=begun.ranges,
    )
    return assembled(manifest, code.object.data, begun.before, begun.memory.changed(begun.before), counts)


def assembled(
    manifest: CaptureManifest, object: bytes, before: ProcessPages, changed: ProcessPages, counts: NDArray[np.void]
) -> Capture:
    """Return a capture of what was in memory before a launch, and of the pages that it has changed."""
    before = before.filled()
    pages = np.concatenate([before.pages, changed.pages])
    return Capture(manifest, object, pages, before.places(0), changed.places(len(before)), counts)


def arguments_in(kernel: Kernel, memory: ProcessPages, kernarg: int) -> tuple[CapturedArgument, ...]:
    """Return the arguments of a kernel that are in memory at an address."""
    return tuple(
        CapturedArgument(
            a.name, a.type_name, a.value_kind, a.offset, a.size, memory.read(kernarg + a.offset, a.size).hex()
        )
        for a in kernel.arguments
    )
