"""Errors for faults, from the state in which a kernel stopped in a program's process."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.memory import AllocationTable
from luthier.emulator.running.report import explain
from luthier.emulator.running.worker import WorkerState, get_field
from luthier.errors import DeviceError, EmulationError


def describe(
    reason: int,
    name: str,
    code: DecodedCode,
    context: bytes,
    group: bytes,
    waves: bytes,
    ranges: NDArray[np.void],
    elsewhere: Callable[[int], str],
) -> EmulationError:
    """Return the error for the fault that stopped a kernel.

    It is derived from one of `layout`'s codes, and the memory of its thread in the native executor.

    Args:
        elsewhere: as for `AllocationTable`.

    Raises:
        DeviceError: sizes do not match the layouts.
    """
    if len(context) != layout.CONTEXT.size or len(group) != layout.GROUP.size:
        raise DeviceError("the sizes in the report of a fault do not match the layouts")
    arrays = [np.frombuffer(bytearray(part), np.uint8) for part in (context, group, waves)]
    stride, count = (get_field(arrays[1], layout.GROUP, field) for field in ("wave_stride", "wave_count"))
    current = get_field(arrays[0], layout.CONTEXT, "current") - get_field(arrays[1], layout.GROUP, "waves")
    if len(waves) != stride * count or not 0 <= current < len(waves):
        raise DeviceError("the sizes in the report of a fault do not match the layouts")
    memory = AllocationTable(1 << 62, elsewhere)
    for address, size in ranges.tolist():
        if size:
            memory.register(address, size, "an allocation")
    return explain(memory, name, code, WorkerState(code, arrays[0], arrays[1], arrays[2]), reason)
