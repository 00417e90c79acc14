"""Opening a device by name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from luthier.emulator import EmulatedDevice
from luthier.errors import DeviceError


def open_device(
    name: str, *, threads: int | None = None, check: str | Collection[str] | None = None
) -> EmulatedDevice | Any:
    """Open a device.

    Args:
        name: ``emu:<target id>``, e.g. ``emu:gfx942``: an emulated device. ``hip:<number>``, e.g. ``hip:0``: a GPU
            through the HIP runtime, with hip-python; a `hip_device.HipDevice`, with the same methods to load, launch,
            and read and write variables. It has no `stats`.
        threads: host threads of an emulated device; None: as many as there are cores.
        check: what an emulated device looks for in every launch: ``uninitialised``, ``races``, ``waits``, ``hazards``,
            ``race``, ``barrier``, ``early-exit``,
            or several; all but ``waits`` are slow.

    Raises:
        DeviceError: no such kind of device, or no such check.
        TargetError: unknown target.
    """
    kind, _, rest = name.partition(":")
    if kind == "emu" and rest:
        return EmulatedDevice(rest, threads, check)
    if kind == "hip" and rest.isdecimal():
        if threads is not None or check is not None:
            raise DeviceError(f"{name} takes no threads and no checks: those are an emulated device's")
        from luthier.devices.hip import HipDevice

        return HipDevice(int(rest))
    raise DeviceError(f"no device {name!r}: an emulated one is called emu:<target>, e.g. emu:gfx942, a GPU hip:0")
