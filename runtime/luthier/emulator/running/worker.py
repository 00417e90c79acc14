"""A worker of the native executor as Python sees it: its context, and the waves of one work-group."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.executor import group_number
from luthier.emulator.running.memory import host_bytes
from luthier.errors import LuthierError
from luthier.wire.structures import FieldLayout


def poke(array: NDArray[np.uint8], offset: int, size: int, value: int) -> None:
    """Write a little-endian number."""
    array[offset : offset + size] = np.frombuffer((value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), np.uint8)


def peek(array: NDArray[np.uint8], offset: int, size: int) -> int:
    """Read a little-endian number."""
    return int.from_bytes(array[offset : offset + size].tobytes(), "little")


def put_field(array: NDArray[np.uint8], structure: FieldLayout, name: str, value: int, base: int = 0) -> None:
    """Write a field of a structure that begins at byte `base`."""
    field = structure.fields[name]
    poke(array, base + field.offset, field.size, value)


def get_field(array: NDArray[np.uint8], structure: FieldLayout, name: str, base: int = 0) -> int:
    """Read a field of a structure that begins at byte `base`."""
    field = structure.fields[name]
    return peek(array, base + field.offset, field.size)


class WorkerState:
    """Visible state of a worker: its context, its work-group, its waves.

    Args:
        context: memory of a `layout.CONTEXT`, live or copied from another process.
        group: of a `layout.GROUP`.
        waves: of all waves.
        workgroup: returns the number of the work-group in the launch; None: read it from `group`.
    """

    def __init__(
        self,
        code: DecodedCode,
        context: NDArray[np.uint8],
        group: NDArray[np.uint8],
        waves: NDArray[np.uint8],
        workgroup: Callable[[], int] | None = None,
    ) -> None:
        self._code, self.context, self._group, self._waves = code, context, group, waves
        self._stride = self.group_field("wave_stride")
        self._workgroup = workgroup

    def wave(self, index: int) -> NDArray[np.uint8]:
        """Return the memory of one wave."""
        return self._waves[index * self._stride : (index + 1) * self._stride]

    def field(self, name: str) -> int:
        """Return a field of the context."""
        return get_field(self.context, layout.CONTEXT, name)

    def group_field(self, name: str) -> int:
        """Return a field of the work-group."""
        return get_field(self._group, layout.GROUP, name)

    @property
    def workgroup(self) -> int:
        """Return the number of the work-group in the launch."""
        return self.group_field("number") if self._workgroup is None else self._workgroup()

    def current(self) -> NDArray[np.uint8]:
        """Return the wave that stopped last."""
        return self.wave((self.field("current") - self.group_field("waves")) // self.group_field("wave_stride"))

    def record_of(self, wave: NDArray[np.uint8]) -> int:
        """Return the record a wave continues at."""
        return (get_field(wave, layout.WAVE, "pc") - get_field(wave, layout.WAVE, "table")) // layout.RECORD.size

    def describe_wave(self, index: int) -> str:
        """Return one line on the location and state of a wave."""
        code = self._code
        wave = self.wave(index)
        status = {layout.READY: "runs", layout.WAITING: "waits at a barrier", layout.ENDED: "has ended"}
        state = status.get(get_field(wave, layout.WAVE, "status"), "?")
        record = self.record_of(wave)
        (exec_mask,) = struct.unpack("<Q", wave[layout.EXEC : layout.EXEC + 8].tobytes())
        where = (
            ""
            if state == "has ended"
            else f" at {code.address_of(record):#x} ({code.text(record)}), EXEC {exec_mask:#x}{self.origin_of(wave)}"
        )
        return f"wave {index} {state}{where}"

    def origin_of(self, wave: NDArray[np.uint8]) -> str:
        """Return the origin and source line of the instruction that a wave continues at, after a comma.

        An error becomes part of the text, so that it does not hide the report.
        """
        code = self._code
        below = self.field("code_base") - code.base

        def scalar_pair(index: int) -> int:
            """Return the code address in an SGPR pair, as a virtual address of `code`."""
            return int.from_bytes(wave[4 * index : 4 * index + 8].tobytes(), "little") - below

        try:
            origin = code.origin(code.address_of(self.record_of(wave)), scalar_pair)
        except LuthierError as problem:
            origin = f"origin unknown: {problem}"
        return origin and f", {origin}"

    def lds(self) -> NDArray[np.uint8]:
        """Return the LDS of a work-group of this process."""
        return host_bytes(self.group_field("lds"), self.group_field("lds_size"))


def worker_at(code: DecodedCode, context: int, group: int) -> WorkerState:
    """Return the live worker of this process whose context and group are at these addresses."""
    block = host_bytes(group, layout.GROUP.size)
    size = get_field(block, layout.GROUP, "wave_stride") * get_field(block, layout.GROUP, "wave_count")
    waves = host_bytes(get_field(block, layout.GROUP, "waves"), size)
    return WorkerState(code, host_bytes(context, layout.CONTEXT.size), block, waves, partial(group_number, group))
