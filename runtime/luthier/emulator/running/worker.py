"""One thread of execution: its context, the waves of one work-group, and its copies of record tables."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import RECORD_TYPE, Code
from luthier.emulator.constants import inline_bytes
from luthier.emulator.native.machine import machine_code
from luthier.emulator.running.memory import Arena
from luthier.emulator.running.start import PRIVATE_BASE, SHARED_BASE

_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


def poke(array: NDArray[np.uint8], offset: int, size: int, value: int) -> None:
    """Write a little-endian number."""
    array[offset : offset + size] = np.frombuffer((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8)


def peek(array: NDArray[np.uint8], offset: int, size: int) -> int:
    """Read a little-endian number."""
    return int.from_bytes(array[offset : offset + size].tobytes(), "little")


def put_field(array: NDArray[np.uint8], structure: layout.Layout, name: str, value: int, base: int = 0) -> None:
    """Write a field of a structure that begins at byte `base`."""
    field = structure.fields[name]
    poke(array, base + field.offset, field.size, value)


def get_field(array: NDArray[np.uint8], structure: layout.Layout, name: str, base: int = 0) -> int:
    """Read a field of a structure that begins at byte `base`."""
    field = structure.fields[name]
    return peek(array, base + field.offset, field.size)


def table_key(wave: NDArray[np.uint8]) -> int:
    """Which record table a wave's MODE and M0 ask for."""
    mode = get_field(wave, layout.WAVE, "mode")
    relative = peek(wave, layout.M0, 4) >> 12 & 15 if mode & layout.GPR_INDEX_ENABLE else 0
    return layout.mode_key(mode) | relative << 10 | get_field(wave, layout.WAVE, "stepping")


@dataclass
class Copy:
    """A thread's copy of a record table."""

    records: NDArray[np.void]
    keep: Arena
    version: int = -1

    @property
    def address(self) -> int:
        """Host address of the first record."""
        return self.keep.address


@dataclass(frozen=True)
class Access:
    """A checked memory access of an instruction."""

    hosts: NDArray[np.uint64]
    """Host address of each lane in `lanes`."""
    lanes: NDArray[np.intp]
    size: int
    """Bytes a lane."""
    scalar: bool
    """Made by the wave, not by a lane."""


class WorkerState:
    """What can be seen of a thread: its context, its work-group, its waves."""

    _code: Code | None = None
    _context_bytes: NDArray[np.uint8]
    _group_bytes: NDArray[np.uint8]

    def wave(self, index: int) -> NDArray[np.uint8]:
        """The memory of one wave."""
        raise NotImplementedError

    def field(self, name: str) -> int:
        """A field of the context."""
        return get_field(self._context_bytes, layout.CONTEXT, name)

    def group_field(self, name: str) -> int:
        """A field of the work-group."""
        return get_field(self._group_bytes, layout.GROUP, name)

    def current(self) -> NDArray[np.uint8]:
        """The wave that returned last."""
        return self.wave((self.field("current") - self.group_field("waves")) // self.group_field("wave_stride"))

    def record_of(self, wave: NDArray[np.uint8]) -> int:
        """The record a wave continues at."""
        return (get_field(wave, layout.WAVE, "pc") - get_field(wave, layout.WAVE, "table")) // layout.RECORD.size

    def describe_wave(self, index: int) -> str:
        """One line about a wave: where it is and what it does."""
        code = self._code
        assert code is not None
        wave = self.wave(index)
        status = {layout.READY: "runs", layout.WAITING: "waits at a barrier", layout.ENDED: "has ended"}
        state = status.get(get_field(wave, layout.WAVE, "status"), "?")
        record = self.record_of(wave)
        (exec_mask,) = struct.unpack("<Q", wave[layout.EXEC : layout.EXEC + 8].tobytes())
        where = (
            ""
            if state == "has ended"
            else f" at {code.address_of(record):#x} ({code.text(record)}), EXEC {exec_mask:#x}"
        )
        return f"wave {index} {state}{where}"


class StoppedWorker(WorkerState):
    """The same of a thread of another process, from copies of its memory."""

    def __init__(
        self, code: Code, context: NDArray[np.uint8], group: NDArray[np.uint8], waves: NDArray[np.uint8]
    ) -> None:
        self._code, self._context_bytes, self._group_bytes, self._waves = code, context, group, waves

    def wave(self, index: int) -> NDArray[np.uint8]:
        """The memory of one wave."""
        stride = self.group_field("wave_stride")
        return self._waves[index * stride : (index + 1) * stride]


class Worker(WorkerState):
    """State of one thread, reused from launch to launch."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._context = Arena(layout.CONTEXT.size)
        self._group = Arena(layout.GROUP.size)
        self._context_bytes, self._group_bytes = self._context.array, self._group.array
        self._waves: Arena | None = None
        self._stride = 0
        self._lds = Arena(0)
        self._tables = Arena(8 * layout.TABLES)
        self._code: Code | None = None
        self._copies: dict[int, Copy] = {}
        put_field(self._context.array, layout.CONTEXT, "translate", machine_code().translate)

    # Set-up ---------------------------------------------------------------------------------------------------------

    def prepare(
        self, code: Code, key: int, waves: int, lds_size: int, lds_limit: int, scratch: int, scratch_lane: int
    ) -> None:
        """Make room for a work-group of `waves` waves and have the record table `key` at hand."""
        wave_size = code.isa.wave_size
        stride = layout.wave_stride(wave_size)
        if self._waves is None or self._stride != stride or self._waves.size < waves * stride + 256:
            self._waves = Arena(waves * stride + 256)
            self._stride = stride
        if self._lds.size < lds_size:
            self._lds = Arena(max(lds_size, lds_limit))
        if self._code is not code:
            self._code, self._copies = code, {}
            self._tables = Arena(8 * layout.TABLES)
        else:
            for copy in self._copies.values():
                copy.records["count"] = 0
                copy.records["lanes"] = 0
        self.sync(key)
        group = self._group.array
        put_field(group, layout.GROUP, "waves", self._first)
        put_field(group, layout.GROUP, "wave_stride", stride)
        put_field(group, layout.GROUP, "wave_count", waves)
        put_field(group, layout.GROUP, "active", 0)
        put_field(group, layout.GROUP, "lds", self._lds.address)
        put_field(group, layout.GROUP, "lds_size", lds_size)
        constants = np.frombuffer(inline_bytes(), np.uint8)
        for index in range(waves):
            wave = self.wave(index)
            wave[layout.CONSTANTS : layout.CONSTANTS + len(constants)] = constants
            scratch_here = scratch + (self.number * waves + index) * wave_size * scratch_lane
            for name, value in (
                ("zero", 0),
                ("context", self._context.address),
                ("group", self._group.address),
                ("tables", self._tables.address),
                ("lds", self._lds.address),
                ("lds_size", lds_size),
                ("scratch", scratch_here),
                ("scratch_size", scratch_lane),
                ("shared_base", SHARED_BASE),
                ("shared_limit", SHARED_BASE | 0xFFFF),
                ("private_base", PRIVATE_BASE),
                ("private_limit", PRIVATE_BASE | 0xFFFFFFFF),
                ("pops_exiting_wave_id", 0),
                ("index", index),
            ):
                put_field(wave, layout.WAVE, name, value)

    def begin_at(self, key: int, entry: int) -> None:
        """Let stepped waves start at the record `entry`."""
        assert self._code is not None
        self._code.start_at(self._copies[key].records, entry)

    def context(self, **fields: int) -> None:
        """Set fields of the context."""
        for name, value in fields.items():
            put_field(self._context.array, layout.CONTEXT, name, value)

    def sync(self, key: int) -> None:
        """Bring this thread's copy of the table `key` up to date."""
        code = self._code
        assert code is not None
        master = code.table(key)
        copy = self._copies.get(key)
        if copy is None:
            arena = Arena(RECORD_TYPE.itemsize * len(master.records))
            records = arena.array[: RECORD_TYPE.itemsize * len(master.records)].view(RECORD_TYPE)
            copy = self._copies[key] = Copy(records, arena)
            poke(self._tables.array, 8 * key, 8, arena.address)
        copy.version = code.refresh(master, copy.records, copy.version)

    # Running --------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until something needs Python; one of the codes of `layout`."""
        function = _FUNCTION(machine_code().scheduler)
        return int(function(self._context.address, self._group.address))

    @property
    def _first(self) -> int:
        assert self._waves is not None
        return (self._waves.address + 255) // 256 * 256

    def wave(self, index: int) -> NDArray[np.uint8]:
        """The memory of one wave."""
        assert self._waves is not None
        start = self._first - self._waves.address + index * self._stride
        return self._waves.array[start : start + self._stride]

    def lds(self) -> NDArray[np.uint8]:
        """LDS of the work-group."""
        return self._lds.array

    def switch_mode(self, wave: NDArray[np.uint8]) -> None:
        """Let a wave continue in the table of its MODE."""
        key = table_key(wave)
        record = self.record_of(wave)
        self.sync(key)
        table = self._copies[key].address
        put_field(wave, layout.WAVE, "table", table)
        put_field(wave, layout.WAVE, "pc", table + record * layout.RECORD.size)

    def take_accesses(self) -> list[Access]:
        """What the instruction stepped last accessed, and forget it."""
        count = min(self.field("accesses"), layout.ACCESSES)
        if count == 0:
            return []
        put_field(self._context.array, layout.CONTEXT, "accesses", 0)
        found = []
        for number in range(count):
            base = layout.CONTEXT["access_log"] + number * layout.ACCESS.size
            mask, size, scalar = (
                get_field(self._context.array, layout.ACCESS, name, base) for name in ("mask", "size", "scalar")
            )
            lanes = np.array([lane for lane in range(64) if mask >> lane & 1], np.intp)
            start = base + layout.ACCESS["addresses"]
            hosts = self._context.array[start : start + 64 * 8].view(np.uint64)[lanes]
            found.append(Access(hosts, lanes, size, bool(scalar)))
        return found

    def counts(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Executions and active lanes of every record in this launch."""
        assert self._code is not None
        count = np.zeros(self._code.count, np.uint64)
        lanes = np.zeros(self._code.count, np.uint64)
        for copy in self._copies.values():
            count += copy.records["count"][:-1]
            lanes += copy.records["lanes"][:-1]
        return count, lanes
