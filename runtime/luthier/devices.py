"""Opening a device by name."""

from __future__ import annotations

from collections.abc import Collection

from luthier.emulator import EmulatedDevice
from luthier.errors import DeviceError


def open_device(name: str, *, threads: int | None = None, check: str | Collection[str] | None = None) -> EmulatedDevice:
    """Open a device.

    Args:
        name: ``emu:<target id>``, e.g. ``emu:gfx942``: an emulated device.
        threads: host threads of an emulated device; None: as many as there are cores.
        check: what an emulated device looks for in every launch: ``uninitialised``, ``races``, or both; slow.

    Raises:
        DeviceError: no such kind of device, or no such check.
        TargetError: unknown target.
    """
    kind, _, rest = name.partition(":")
    if kind == "emu" and rest:
        return EmulatedDevice(rest, threads, check)
    raise DeviceError(f"no device {name!r}: an emulated one is called emu:<target>, e.g. emu:gfx942")
