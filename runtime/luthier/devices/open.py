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
        name: ``emu:<target id>``, e.g. ``emu:gfx942``, for an emulated device. ``hip:<number>``, e.g. ``hip:0``, for a
            GPU through the HIP runtime and hip-python: a `luthier.devices.hip.HipDevice`, which has the same methods to
            load, launch, and read and write variables, but no `stats`.
        threads: host threads of an emulated device; None: one for each core.
        check: one or several checks of every launch on an emulated device; see `EmulatedDevice`.

    Raises:
        DeviceError: there is no such kind of device, or no such check.
        TargetError: the target is unknown.
    """
    kind, _, rest = name.partition(":")
    if kind == "emu" and rest:
        return EmulatedDevice(rest, threads, check)
    if kind == "hip" and rest.isdecimal():
        if threads is not None or check is not None:
            raise DeviceError(f"{name} takes neither threads nor checks: they are for emulated devices")
        from luthier.devices.hip import HipDevice

        return HipDevice(int(rest))
    raise DeviceError(f"no device {name!r}: name an emulated device emu:<target>, e.g. emu:gfx942, or a GPU hip:0")
