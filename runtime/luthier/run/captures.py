"""Captured launches of a program: memory that a launch may access is read from the process before and after it."""

from __future__ import annotations

import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
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
from luthier.capture.page_store import PageStore, StoredPages
from luthier.capture.pages import compact
from luthier.emulator import layout
from luthier.emulator.running.worker import get_field
from luthier.errors import DeviceError, LackError, LuthierError
from luthier.objects import Kernel
from luthier.run.planner import KernelPlan, Planner
from luthier.run.process_memory import ProcessMemory
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
"""In seconds."""
MOST = 10 << 30
"""Default limit in bytes for all files together, and for the memory of a launch."""
_ALIAS = ("address", "size", "host")
_MANIFEST = 4096
"""Bytes of a held capture besides its arrays, roughly."""
_HELD_PART = 4
"""Fraction of the memory for captures that unreplayed ones may occupy."""


class _AccessibleMemory(Struct, frozen=True):
    """Memory that a launch may access."""

    memory: ProcessMemory
    ranges: tuple[tuple[int, int], ...]
    """Device addresses."""


class _RunningCapture(Struct):
    """A launch that is running."""

    wanted: CaptureRequest
    packet: tuple[int, ...]
    plan: KernelPlan
    target: str
    number: int
    accessible: _AccessibleMemory
    store: PageStore
    before: StoredPages
    time: float
    """Start time, by `time.monotonic`."""


class Captures(Struct):
    """The captures of a run. The launches of a process are captured one at a time.

    Args:
        folder: folder for the files.
        most: limit in bytes for all files together, and for the memory of each launch.
        patience: seconds that launches wait for a captured one; then they run beside it, and its capture is refused.
        hold: keep captures in memory, if they fit, in `held`: they are replayed before they are written.
        most_held: limit in bytes for the pages of held captures.
    """

    folder: Path
    selection: Selection
    most: int
    patience: float = PATIENCE
    hold: bool = False
    most_held: int = field(default_factory=lambda: room_for() // _HELD_PART)
    files: list[Path] = field(default_factory=list)
    """Files of the captures, held or written."""
    held: dict[Path, Capture] = field(default_factory=dict)
    """Captures that are not written yet."""
    refused: list[str] = field(default_factory=list)
    """Launches that were selected and not captured, with the reasons."""
    used: int = 0
    took: dict[Path, float] = field(default_factory=dict)
    """Seconds that each launch took."""
    _holding: int = 0
    """Bytes of pages of held captures."""
    _added: dict[Path, int] = field(default_factory=dict)
    """Bytes of pages that each held capture added."""
    _stores: dict[int, PageStore] = field(default_factory=dict)
    """Pages of captures, by process; 0: of those that are read elsewhere."""
    _memories: dict[int, tuple[bytes, bytes, _AccessibleMemory]] = field(default_factory=dict)
    """Ranges and aliases of the last captured launch of a process, and what they mean."""
    _running: dict[int, _RunningCapture] = field(default_factory=dict)
    _numbers: Counter[tuple[int, int]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, pid: int, wanted: CaptureRequest, devices: Sequence[VirtualGpu], planner: Planner) -> bool:
        """Begin the capture of a launch and return whether it is captured.

        Raises:
            ProtocolError: the request is malformed.
        """
        if wanted.plan not in planner.plans or wanted.gpu >= len(devices) or len(wanted.packet) != PACKET.size:
            raise ProtocolError("the request for a capture is malformed")
        plan = planner.plans[wanted.plan]
        kernel = plan.kernel.name
        # Kernels without a file are ROCr's own copies and fills.
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
                raise DeviceError("its process is in a PID namespace that Luthier cannot access")
            if plan.code.object is None:
                raise DeviceError("its code object is unknown: the kernel exists in memory only")
            self.check_room()
            accessible = self._accessible(pid, wanted)
            store = self._stores.setdefault(pid, PageStore())
            before = accessible.memory.before(store)
        except LuthierError as problem:
            self.refuse(name, problem)
            return False
        now = time.monotonic()
        parts, target = PACKET.unpack(wanted.packet), devices[wanted.gpu].target.target.name
        self._running[pid] = _RunningCapture(wanted, parts, plan, target, number, accessible, store, before, now)
        return True

    def _accessible(self, pid: int, wanted: CaptureRequest) -> _AccessibleMemory:
        """Return the memory that a launch may access, which it often has in common with the one before.

        Raises:
            DeviceError: ranges overlap.
        """
        ranges, aliases, known = self._memories.get(pid, (b"", b"", None))
        if known is None or (ranges, aliases) != (wanted.ranges, wanted.aliases):
            table = np.frombuffer(wanted.ranges, layout.RANGE.dtype)
            own = joined([(int(row[0]), int(row[1])) for row in table.tolist() if row[1]])
            elsewhere = _elsewhere(wanted.aliases, own)
            all_ranges = joined([*own, *((address, size) for address, size, _ in elsewhere)])
            known = _AccessibleMemory(ProcessMemory(pid, own, elsewhere, self.most), all_ranges)
            self._memories[pid] = wanted.ranges, wanted.aliases, known
        return known

    def end(self, pid: int, captured: Captured) -> None:
        """Finish the capture of a launch that has ended.

        Raises:
            ProtocolError: the launch never began.
        """
        begun = self._running.pop(pid, None)
        if begun is None:
            raise ProtocolError("a launch ended that never began")
        ended = time.monotonic()
        name = f"launch {begun.number} of {begun.plan.kernel.name} in process {pid}"
        try:
            if captured.failed:
                raise DeviceError("it failed, or was cut short")
            if captured.outside:
                raise DeviceError("it calls functions of another code object")
            if captured.beside:
                raise DeviceError(
                    f"{captured.beside} launches ran beside it after {self.patience:g} seconds (--patience): "
                    "kernels that wait for each other cannot be captured"
                )
            first, last = (_tally(counts, begun.plan.code.number) for counts in (captured.before, captured.after))
            capture = checked(_made(begun, _counts(begun.plan, first, last)))
            with self._lock:
                self._hold(capture, begun.store.growth(), ended - begun.time)
        except LuthierError as problem:
            self.refuse(name, problem)

    def forget(self, pid: int) -> None:
        """Forget the memory of a process that has ended."""
        self._stores.pop(pid, None)
        self._memories.pop(pid, None)

    def refuse(self, name: str, problem: LuthierError) -> None:
        """Record that a launch is not captured; if the system lacked resources, as a loss."""
        self.refused.append(f"{name}: {problem}")
        if isinstance(problem, LackError):
            note_loss(self.refused[-1])

    def check_room(self) -> None:
        """Check that there is space for another capture.

        Raises:
            DeviceError: there is not.
        """
        if self.used + self._holding >= self.most:
            raise DeviceError(f"the captures take {self.used + self._holding} bytes; --most allows {self.most}")

    def take(self, capture: Capture, seconds: float, path: Path | None = None) -> None:
        """Add a capture.

        Args:
            seconds: duration of the launch.
            path: path of the file; None: a new one in the folder.

        Raises:
            LuthierError: the capture is malformed.
        """
        checked(capture)
        with self._lock:
            store = self._stores.setdefault(0, PageStore())
            self._hold(store.shared(capture), store.growth(), seconds, path)

    def _hold(self, capture: Capture, added: int, seconds: float, path: Path | None = None) -> None:
        """Add a capture; if it cannot be held, write it, and those that are held.

        Args:
            added: bytes of pages that the launches before do not have.
        """
        name = f"{len(self.took):06}-{_plain(capture.manifest.kernel)}-{capture.manifest.number}.lcap"
        path = self.folder / name if path is None else path
        self.files.append(path)
        self.took[path] = seconds
        added += capture.before.nbytes + capture.after.nbytes + capture.counts.nbytes + _MANIFEST
        self.held[path], self._added[path] = capture, added
        self._holding += added
        if not self.hold or self._holding > self.most_held:
            self.write([*self.held])
            if sum(store.pages.nbytes for store in self._stores.values()) > self.most_held:
                self._stores.clear()

    def write(self, paths: Iterable[Path]) -> None:
        """Write captures that are held; refuse those that cannot be written."""
        for path in paths:
            try:
                write_capture(path, compact(self.release(path)))
                self.used += path.stat().st_size
            except LuthierError as problem:
                self.files.remove(path)
                self.refused.append(f"{path.name}: {problem}")
                note_loss(self.refused[-1])

    def release(self, path: Path) -> Capture:
        """Remove and return a held capture."""
        self._holding -= self._added.pop(path)
        return self.held.pop(path)


def _plain(name: str) -> str:
    """Convert a name to part of a file name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]


def joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sort ranges and merge those that overlap."""
    merged: list[tuple[int, int]] = []
    for address, size in sorted(ranges):
        if merged and address < sum(merged[-1]):
            merged[-1] = merged[-1][0], max(sum(merged[-1]), address + size) - merged[-1][0]
        else:
            merged.append((address, size))
    return tuple(merged)


def _elsewhere(aliases: bytes, own: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Return memory that has other addresses on devices than in the process.

    Raises:
        DeviceError: it overlaps other memory, or is not aligned to pages.
    """
    memory = []
    for at in range(0, len(aliases), layout.ALIAS.size):
        address, size, host = (get_field(np.frombuffer(aliases, np.uint8), layout.ALIAS, name, at) for name in _ALIAS)
        if any(address < begin + length and begin < address + size for begin, length in own):
            raise DeviceError(f"{size} bytes of device memory at {address:#x} overlap other memory")
        if address % PAGE or host % PAGE:
            raise DeviceError(f"{size} bytes of device memory at {address:#x} are not aligned to a page")
        memory.append((address, size, host))
    return memory


def _tally(codes: Sequence[CodeCounts], code: int) -> dict[int, tuple[int, int]]:
    """Return record -> executions and lanes for one code."""
    rows = next((RecordCounts.read_rows(counted.records) for counted in codes if counted.code == code), None)
    return {} if rows is None else {record: (executions, lanes) for record, executions, lanes in rows.tolist()}


def _counts(plan: KernelPlan, first: dict[int, tuple[int, int]], last: dict[int, tuple[int, int]]) -> NDArray[np.void]:
    addresses = plan.code.code.addresses()
    rows = []
    for record, (times, lanes) in last.items():
        if record >= len(addresses):
            raise ProtocolError("counts belong to code that was never planned")
        before = first.get(record, (0, 0))
        if times != before[0]:
            rows.append((int(addresses[record]), times - before[0], lanes - before[1]))
    return np.array(sorted(rows), COUNTS)


def _made(begun: _RunningCapture, counts: NDArray[np.void]) -> Capture:
    """Return the capture of a launch that has ended. Several of its pages may be equal."""
    wanted, packet, kernel, code = begun.wanted, begun.packet, begun.plan.kernel, begun.plan.code
    before, after = begun.before, begun.accessible.memory.after(begun.store)
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
        arguments=arguments_in(kernel, partial(begun.store.read, before), kernarg),
        ranges=begun.accessible.ranges,
    )
    return Capture(manifest, code.object.data, begun.store.pages, before.places(), before.changes_to(after), counts)


def arguments_in(kernel: Kernel, read: Callable[[int, int], bytes], kernarg: int) -> tuple[CapturedArgument, ...]:
    """Read the arguments of a kernel from memory.

    Args:
        read: `read(address, size)` returns the bytes of memory there.
    """
    return tuple(
        CapturedArgument(a.name, a.type_name, a.value_kind, a.offset, a.size, read(kernarg + a.offset, a.size).hex())
        for a in kernel.arguments
    )
