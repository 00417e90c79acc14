"""Accesses to memory that the emulated device made, as an oracle for tools that see accesses."""

from __future__ import annotations

import numpy as np
from luthier.emulator import layout
from luthier.emulator.running.worker import WorkerState, get_field, put_field
from msgspec import Struct
from numpy.typing import NDArray


class CheckedAccess(Struct, frozen=True):
    """A checked memory access of an instruction."""

    places: NDArray[np.uint64]
    """Host address for each lane in `lanes`; outside LDS, the offset that the lane used."""
    lanes: NDArray[np.intp]
    size: int
    """Bytes a lane."""
    scalar: bool
    """Made by the wave, not by a lane."""
    outside: bool
    """Beyond the end of LDS."""


def take_accesses(worker: WorkerState) -> list[CheckedAccess]:
    """Return the accesses of the instruction that was stepped last, and clear the device's log."""
    count = min(worker.field("accesses"), layout.ACCESSES)
    put_field(worker.context, layout.CONTEXT, "accesses", 0)
    accesses = []
    for number in range(count):
        base = layout.CONTEXT["access_log"] + number * layout.ACCESS.size
        mask, size, kind = (get_field(worker.context, layout.ACCESS, name, base) for name in ("mask", "size", "kind"))
        lanes = np.array([lane for lane in range(64) if mask >> lane & 1], np.intp)
        start = base + layout.ACCESS["addresses"]
        places = worker.context[start : start + 64 * 8].view(np.uint64)[lanes]
        scalar, outside = kind == layout.ACCESS_SCALAR, kind == layout.ACCESS_OUTSIDE
        accesses.append(CheckedAccess(places, lanes, size, scalar, outside))
    return accesses
