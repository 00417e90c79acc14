"""Launches of a program, captured: the memory that a launch may access is read from the process before and after."""

from __future__ import annotations

import bisect
import os
import re
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from luthier.capture.form import COUNTS, PAGE, SCHEMA, Argument, Capture, Manifest, Pages, write_capture
from luthier.capture.place import pieces, present
from luthier.capture.replay import packed
from luthier.emulator import layout
from luthier.emulator.running.worker import get_field
from luthier.errors import DeviceError, LuthierError
from luthier.objects import Kernel
from luthier.run.planner import Plan, Planner
from luthier.run.protocol import ProtocolError, Reader, Writer
from luthier.run.selection import Selection
from luthier.run.virtual_gpus import VirtualGpu
from luthier.wire import messages
from luthier.wire.messages import Request

_ROWS = np.dtype([(name, "<u8") for name in messages.RecordCounts.field_names()])
_PACKET = struct.Struct("<HHHHHHIIIIIQQQQ")
"""A dispatch packet (HSA specification 2.9.6)."""

PATIENCE = 60.0
"""Seconds."""
_SHARED = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) ...s ", re.MULTILINE)
"""What is shared, of /proc/PID/maps."""
_ALIAS = ("address", "size", "host")
Memory = dict[int, NDArray[np.uint8]]
"""Pages by address, without those that are all zeros."""


@dataclass
class _Begun:
    """A launch that runs."""

    wanted: messages.Capture
    packet: tuple[int, ...]
    plan: Plan
    target: str
    number: int
    own: tuple[tuple[int, int], ...]
    """Memory that is at the same addresses for the process and its devices."""
    elsewhere: list[tuple[int, int, int]]
    """Memory that is not: the devices' address, bytes, the process's address."""
    ranges: tuple[tuple[int, int], ...]
    """Both, by the devices' addresses."""
    before: Memory
    time: float
    """When it began, by `time.monotonic`."""


@dataclass
class Captures:
    """The captures of a run. Launches of a process come one at a time.

    Args:
        folder: where files are made.
        most: bytes that all files together, and the memory of one launch, may have.
        patience: seconds that launches wait for one that is captured; then they run beside it, which is no capture.
    """

    folder: Path
    selection: Selection
    most: int
    patience: float = PATIENCE
    files: list[Path] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What was selected and is not captured, and why."""
    used: int = 0
    took: dict[Path, float] = field(default_factory=dict)
    """Seconds that the launches took."""
    _running: dict[int, _Begun] = field(default_factory=dict)
    _numbers: Counter[tuple[int, int]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, kind: int, pid: int, request: Reader, devices: Sequence[VirtualGpu], planner: Planner) -> Writer:
        """Answer one of the requests that captures make.

        Raises:
            ProtocolError: it is malformed.
        """
        if kind == Request.CAPTURE:
            return Writer().number(self._begin(pid, request, devices, planner))
        self._end(pid, request, planner)
        return Writer()

    def _begin(self, pid: int, request: Reader, devices: Sequence[VirtualGpu], planner: Planner) -> bool:
        wanted = request.numbers(messages.Capture)
        packet, rows, aliases = request.string(), request.string(), request.string()
        if wanted.plan >= len(planner.plans) or wanted.gpu >= len(devices) or len(packet) != _PACKET.size:
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
        chosen = self.selection
        if not chosen.first <= number < chosen.end or (number - chosen.first) % chosen.step:
            return False
        name = f"launch {number} of {kernel} in process {pid}"
        try:
            if plan.code.object is None:
                raise DeviceError("its code object is not known: the kernel is in memory alone")
            if self.used >= self.most:
                raise DeviceError(f"the captures have {self.used} bytes, of {self.most} (--most)")
            table = np.frombuffer(rows, layout.RANGE.dtype)
            own = _joined([(int(row[0]), int(row[1])) for row in table.tolist() if row[1]])
            elsewhere = _elsewhere(aliases, own)
            ranges = _joined([*own, *((address, size) for address, size, _ in elsewhere)])
            before = _read(pid, own, elsewhere, self.most)
        except LuthierError as problem:
            self.refused.append(f"{name}: {problem}")
            return False
        now = time.monotonic()
        parts, target = _PACKET.unpack(packet), devices[wanted.gpu].target.target.name
        self._running[pid] = _Begun(wanted, parts, plan, target, number, own, elsewhere, ranges, before, now)
        return True

    def _end(self, pid: int, request: Reader, planner: Planner) -> None:
        begun = self._running.pop(pid, None)
        if begun is None:
            raise ProtocolError("the end of a launch that never began")
        failed, outside, beside = request.number(), request.number(), request.number()
        ended = time.monotonic()
        name = f"launch {begun.number} of {begun.plan.kernel.name} in process {pid}"
        try:
            if failed:
                raise DeviceError("it failed, or was cut short")
            if outside:
                raise DeviceError("it calls functions of another code object")
            if beside:
                raise DeviceError(
                    f"{beside} launches ran beside it, after they had waited {self.patience:g} seconds for launches to "
                    "end (--patience): kernels that wait for each other cannot be captured"
                )
            first, last = (_tally(request, begun.plan.code.number) for _ in range(2))
            after = _read(pid, begun.own, begun.elsewhere, self.most)
            capture = _made(begun, after, _counts(begun.plan, first, last))
            path = self.folder / f"{len(self.files):06}-{_plain(begun.plan.kernel.name)}-{begun.number}.lcap"
            write_capture(path, capture)
            self.files.append(path)
            self.took[path] = ended - begun.time
            self.used += path.stat().st_size
        except LuthierError as problem:
            self.refused.append(f"{name}: {problem}")


def _plain(name: str) -> str:
    """Return a name as a part of a file's name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:60]


def _joined(ranges: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges in their order, those that overlap as one."""
    found: list[tuple[int, int]] = []
    for address, size in sorted(ranges):
        if found and address < sum(found[-1]):
            found[-1] = found[-1][0], max(sum(found[-1]), address + size) - found[-1][0]
        else:
            found.append((address, size))
    return tuple(found)


def _shared(pid: int) -> list[tuple[int, int]]:
    """Return what of a process's memory others may have written: its page tables do not tell what is in it."""
    text = Path(f"/proc/{pid}/maps").read_bytes()
    return [(int(begin, 16), int(end, 16)) for begin, end in _SHARED.findall(text)]


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


def _read(pid: int, own: Sequence[tuple[int, int]], elsewhere: Sequence[tuple[int, int, int]], most: int) -> Memory:
    """Return the pages of a launch's memory by the devices' addresses, with zeros beside the ranges.

    Raises:
        DeviceError: they cannot be read, or are too many.
    """
    shared = _shared(pid)
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            found = _read_pages(pid, file.fileno(), own, shared, most)
            for address, size, host in elsewhere:
                pages = _read_pages(pid, file.fileno(), [(host, size)], shared, most)
                found |= {page - host + address: contents for page, contents in pages.items()}
    except OSError as problem:
        raise DeviceError(f"the memory of process {pid} cannot be read: {problem}") from None
    return found


def _read_pages(
    pid: int, file: int, ranges: Sequence[tuple[int, int]], shared: Sequence[tuple[int, int]], most: int
) -> Memory:
    """Return the pages of a process's memory, as `_read`, by its addresses.

    Args:
        file: descriptor of its memory.
        shared: what `_shared` returns.
    """
    stretches = pieces(ranges)
    addresses: list[NDArray[np.uint64]] = [present(pid, stretches)]
    for begin, end in stretches:
        at = bisect.bisect_right(shared, begin, key=lambda one: one[1])
        until = bisect.bisect_left(shared, end, key=lambda one: one[0])
        for first, last in shared[at:until]:
            low, high = max(begin, first), min(end, last)
            if high - low > most:
                raise DeviceError(f"{high - low} bytes of shared memory, of {most} (--most)")
            addresses.append(np.arange(low, high, PAGE, dtype=np.uint64))
    wanted = np.unique(np.concatenate(addresses))
    if len(wanted) * PAGE > most:
        raise DeviceError(f"{len(wanted) * PAGE} bytes of memory, of {most} (--most)")
    breaks = np.flatnonzero(np.diff(wanted) != PAGE) + 1
    found: Memory = {}
    for run in np.split(wanted, breaks):
        if not len(run):
            continue
        block = np.empty((len(run), PAGE), np.uint8)
        if os.preadv(file, [block.data], int(run[0])) != block.nbytes:
            raise DeviceError(f"memory at {int(run[0]):#x} cannot be read in one piece")
        for index in np.flatnonzero(block.any(axis=1)).tolist():
            found[int(run[index])] = block[index]
    _blank(found, ranges)
    return found


def _blank(memory: Memory, ranges: Sequence[tuple[int, int]]) -> None:
    """Put zeros where pages are beside the ranges: that is none of the launch's memory."""
    edges = {at // PAGE * PAGE for address, size in ranges for at in (address, address + size) if at % PAGE}
    for page in edges & memory.keys():
        inside = np.zeros(PAGE, np.bool_)
        for address, size in ranges:
            inside[max(0, address - page) : max(0, address + size - page)] = True
        memory[page] = np.where(inside, memory[page], np.uint8(0))


def _tally(request: Reader, code: int) -> dict[int, tuple[int, int]]:
    """Return executions and lanes by record of one code."""
    found: dict[int, tuple[int, int]] = {}
    for _ in range(request.number()):
        counted = request.numbers(messages.CodeCounts)
        rows = np.frombuffer(request.take(counted.records * _ROWS.itemsize), _ROWS)
        if counted.code == code:
            found = {int(row["record"]): (int(row["executions"]), int(row["lanes"])) for row in rows}
    return found


def _counts(plan: Plan, first: dict[int, tuple[int, int]], last: dict[int, tuple[int, int]]) -> NDArray[np.void]:
    addresses = plan.code.code.addresses()
    rows = []
    for record, (times, lanes) in last.items():
        if record >= len(addresses):
            raise ProtocolError("counts of code that was never planned")
        before = first.get(record, (0, 0))
        if times != before[0]:
            rows.append((int(addresses[record]), times - before[0], lanes - before[1]))
    return np.array(sorted(rows), COUNTS)


def _made(begun: _Begun, after: Memory, counts: NDArray[np.void]) -> Capture:
    wanted, packet, kernel, code = begun.wanted, begun.packet, begun.plan.kernel, begun.plan.code
    assert code.object is not None  # such a launch was refused
    private, group, descriptor, kernarg = packet[9], packet[10], packet[11], packet[12]
    manifest = Manifest(
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
        cooperative=bool(wanted.cooperative),
        packet=wanted.packet,
        queue=wanted.queue,
        kernarg=kernarg,
        load_address=descriptor - kernel.descriptor_address,
        id=wanted.id,
        arguments=_arguments(kernel, begun.before, kernarg),
        ranges=begun.ranges,
    )
    zeros = np.zeros(PAGE, np.uint8)
    changed = {
        address: after.get(address, zeros)
        for address in begun.before.keys() | after.keys()
        if begun.before.get(address, zeros).tobytes() != after.get(address, zeros).tobytes()
    }
    known: dict[bytes, int] = {}
    kept: list[Pages] = []
    tables = packed(begun.before, known, kept), packed(changed, known, kept)
    pages = np.stack(kept) if kept else np.zeros((0, PAGE), np.uint8)
    return Capture(manifest, code.object.data, pages, *tables, counts)


def _arguments(kernel: Kernel, memory: Memory, kernarg: int) -> tuple[Argument, ...]:
    zeros = np.zeros(PAGE, np.uint8)

    def take(address: int, size: int) -> bytes:
        pages = range(address // PAGE * PAGE, address + size, PAGE)
        held = b"".join(memory.get(page, zeros).tobytes() for page in pages)
        return held[address % PAGE :][:size]

    return tuple(
        Argument(a.name, a.type_name, a.value_kind, a.offset, a.size, take(kernarg + a.offset, a.size).hex())
        for a in kernel.arguments
    )
