"""Replay of a captured launch on a GPU through HIP, with memory at addresses that HIP chooses."""

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
    """First difference in the memory that the launch read or wrote, at its recorded address."""
    seconds: float
    """Duration of the launch, measured by the host."""


def replay_on_gpu(capture: Capture, device: HipDevice, *, relocate: bool = False) -> GpuReplay:
    """Run a captured launch on a GPU.

    Args:
        relocate: as for `luthier.capture.export.export_hip`.

    Raises:
        LuthierError: the launch cannot run at other addresses, or not on this GPU; or HIP fails.
    """
    parts = exported(capture, relocate=relocate)
    module = device.load(parts.object)
    buffers = [None if exported.variable else device.allocate(exported.size) for exported in parts.buffers]
    try:
        addresses = [
            module.variable(exported.variable).address if buffer is None else buffer.address
            for exported, buffer in zip(parts.buffers, buffers, strict=True)
        ]
        arguments, before, after = _relocated(parts, addresses)
        for (number, offset), data in before.items():
            module.hip.write(addresses[number] + offset, np.frombuffer(data, np.uint8))
        manifest = capture.manifest
        began = time.monotonic()
        kernel = module.kernel(manifest.kernel)
        kernel.launch(bytes(arguments), grid=parts.groups, block=manifest.block, dynamic_lds=manifest.dynamic_lds)
        seconds = time.monotonic() - began
        return GpuReplay(_difference(parts, module, addresses, before | after), seconds)
    finally:
        for buffer in buffers:
            if buffer is not None:
                buffer.free()
        module.unload()


def _relocated(parts: Exported, addresses: list[int]) -> tuple[bytearray, _Pieces, _Pieces]:
    """Return arguments and contents with pointers to the new addresses of the buffers."""
    arguments, before, after = bytearray(parts.arguments), _by_place(parts.before), _by_place(parts.after)
    places = {ARGUMENTS: {(0, 0): arguments}, BEFORE: before, AFTER: after}
    for where, buffer, offset, target, inside in parts.relocations:
        begin = max(at for number, at in places[where] if number == buffer and at <= offset)
        struct.pack_into("<Q", places[where][buffer, begin], offset - begin, addresses[target] + inside)
    return arguments, before, after


def _by_place(pieces: Iterable[Piece]) -> _Pieces:
    return {(number, offset): bytearray(data) for number, offset, data in pieces}


def _difference(parts: Exported, module: HipModule, addresses: list[int], expected: _Pieces) -> Difference | None:
    """Return the first byte, by recorded address, that differs from the expected one."""
    total, first = 0, None
    for (number, offset), data in sorted(
        expected.items(), key=lambda entry: parts.buffers[entry[0][0]].address + entry[0][1]
    ):
        contents = np.frombuffer(module.hip.read(addresses[number] + offset, len(data)), np.uint8)
        wanted = np.frombuffer(data, np.uint8)
        wrong = np.flatnonzero(contents != wanted)
        total += len(wrong)
        if first is None and len(wrong):
            at, buffer = int(wrong[0]), parts.buffers[number]
            first = buffer.address + offset + at, (buffer.address, buffer.size), int(wanted[at]), int(contents[at])
    return None if first is None else Difference(*first, total)
