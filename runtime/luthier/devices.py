"""Opening a device by name."""

from __future__ import annotations

from luthier.emulator import EmulatedDevice
from luthier.errors import DeviceError


def open_device(name: str, *, threads: int | None = None) -> EmulatedDevice:
    """Open a device.

    Args:
        name: ``emu:<target id>``, e.g. ``emu:gfx942``: an emulated device.
        threads: host threads of an emulated device; None: as many as there are cores.

    Raises:
        DeviceError: no such kind of device.
        TargetError: unknown target.
    """
    kind, _, rest = name.partition(":")
    if kind == "emu" and rest:
        return EmulatedDevice(rest, threads)
    raise DeviceError(f"no device {name!r}: an emulated one is called emu:<target>, e.g. emu:gfx942")
