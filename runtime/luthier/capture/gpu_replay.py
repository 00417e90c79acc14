"""A captured launch, run again on a GPU through HIP: its memory is wherever HIP has room for it."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from luthier.capture.export import AFTER, ARGUMENTS, BEFORE, Exported, Piece, exported
from luthier.capture.form import Capture
from luthier.capture.pages import Difference

if TYPE_CHECKING:
    from luthier.devices.hip import HipDevice, HipModule

_Pieces = dict[tuple[int, int], bytearray]
"""Contents by buffer and offset."""


class GpuReplay(Struct, frozen=True):
    """The outcome of a replay on a GPU."""

    difference: Difference | None
    """Where it left otherwise than recorded what the launch read or wrote; addresses are the recorded ones."""
    seconds: float
    """Of the launch, as the host sees it."""


def replay_on_gpu(capture: Capture, device: HipDevice, *, relocate: bool = False) -> GpuReplay:
    """Run a captured launch on a GPU.

    Args:
        relocate: as of `luthier.capture.export.export_hip`: memory is at other addresses than it was.

    Raises:
        LuthierError: it cannot be run at other addresses, or not on that GPU; HIP fails.
    """
    parts = exported(capture, relocate=relocate)
    module = device.load(parts.object)
    buffers = [None if one.variable else device.allocate(one.size) for one in parts.buffers]
    try:
        addresses = [
            module.variable(one.variable).address if buffer is None else buffer.address
            for one, buffer in zip(parts.buffers, buffers, strict=True)
        ]
        arguments, before, after = _relocated(parts, addresses)
        for (number, offset), data in before.items():
            module.hip.write(addresses[number] + offset, np.frombuffer(data, np.uint8))
        told = capture.manifest
        began = time.monotonic()
        kernel = module.kernel(told.kernel)
        kernel.launch(bytes(arguments), grid=parts.groups, block=told.block, dynamic_lds=told.dynamic_lds)
        seconds = time.monotonic() - began
        return GpuReplay(_difference(parts, module, addresses, before | after), seconds)
    finally:
        for buffer in buffers:
            if buffer is not None:
                buffer.free()
        module.unload()


def _relocated(parts: Exported, addresses: list[int]) -> tuple[bytearray, _Pieces, _Pieces]:
    """Return arguments and contents with pointers to where the buffers are now."""
    arguments, before, after = bytearray(parts.arguments), _by_place(parts.before), _by_place(parts.after)
    places = {ARGUMENTS: {(0, 0): arguments}, BEFORE: before, AFTER: after}
    for where, buffer, offset, target, inside in parts.relocations:
        begin = max(at for number, at in places[where] if number == buffer and at <= offset)
        struct.pack_into("<Q", places[where][buffer, begin], offset - begin, addresses[target] + inside)
    return arguments, before, after


def _by_place(pieces: Iterable[Piece]) -> _Pieces:
    return {(number, offset): bytearray(data) for number, offset, data in pieces}


def _difference(parts: Exported, module: HipModule, addresses: list[int], expected: _Pieces) -> Difference | None:
    """Return the first byte, in the order of the recorded addresses, that is not what is expected."""
    total, first = 0, None
    for (number, offset), data in sorted(
        expected.items(), key=lambda one: parts.buffers[one[0][0]].address + one[0][1]
    ):
        found = np.frombuffer(module.hip.read(addresses[number] + offset, len(data)), np.uint8)
        wanted = np.frombuffer(data, np.uint8)
        wrong = np.flatnonzero(found != wanted)
        total += len(wrong)
        if first is None and len(wrong):
            at, buffer = int(wrong[0]), parts.buffers[number]
            first = buffer.address + offset + at, (buffer.address, buffer.size), int(wanted[at]), int(found[at])
    return None if first is None else Difference(*first, total)
