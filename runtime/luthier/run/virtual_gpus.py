"""Virtual GPUs, and the facts that programs see."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from luthier.errors import DeviceError
from luthier.isa.targets import TARGETS, TargetId
from luthier.wire.device_requests import Gpu
from luthier.wire.topology import COMPUTE_UNITS


class VirtualGpu(Struct, frozen=True):
    """A virtual device of a run."""

    target: TargetId

    @property
    def facts(self) -> Gpu:
        """Return the facts that programs see of the device."""
        target = self.target.target
        assert target.device_id is not None
        return Gpu(
            *target.version,
            wave_size=target.default_wave_size,
            waves_per_simd=target.waves_per_simd,
            simds_per_unit=target.simds_per_cu,
            units=COMPUTE_UNITS,
            lds_bytes=target.lds_bytes,
            device_id=target.device_id,
            clock_mhz=1700,
            target=target.name,
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def parse_devices(text: str) -> Sequence[VirtualGpu]:
    """Return the devices that ``--device`` names: ``emu:TARGET``, separated by commas.

    Raises:
        DeviceError: another kind of device, features, or a target without a virtual device.
        TargetError: unknown target.
    """
    devices = []
    for name in text.split(","):
        kind, _, rest = name.strip().partition(":")
        if kind != "emu" or not rest:
            raise DeviceError(f"no device {name!r}: virtual devices are named emu:<target>, e.g. emu:gfx90a")
        target = TargetId.parse(rest)
        if target.target.device_id is None:
            known = ", ".join(name for name, known in TARGETS.items() if known.device_id is not None)
            raise DeviceError(f"there is no virtual {target.target.name}; choose from {known}")
        if target.xnack or target.sramecc:
            raise DeviceError(f"virtual devices support neither XNACK nor SRAM ECC: use emu:{target.target.name}")
        devices.append(VirtualGpu(TargetId(target.target)))
    return devices
