"""The virtual GPUs: which can be had, and what programs are told of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from luthier.errors import DeviceError
from luthier.isa.targets import TargetId

COMPUTE_UNITS = 8
"""Few, since programs size their grids by them."""

_DEVICE_IDS = {"gfx906": 0x66A1, "gfx908": 0x738C, "gfx90a": 0x740C, "gfx1030": 0x73BF}
"""PCI ids of a product with each processor (Linux, amdgpu_drv.c); these targets ROCr 5.2.3 knows."""


@dataclass(frozen=True)
class VirtualGpu:
    """One device of a run."""

    target: TargetId

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the native library is told, in its order: version (major, minor, stepping), lanes of a wave, waves a
        SIMD, SIMDs a compute unit, compute units, bytes of LDS, PCI device id, MHz, bytes of memory."""
        target = self.target.target
        version = target.name.removeprefix("gfx")
        major, minor, stepping = int(version[:-2]), int(version[-2], 16), int(version[-1], 16)
        return (
            *(major, minor, stepping, target.default_wave_size, target.waves_per_simd),
            *(4 if target.major == 9 else 2, COMPUTE_UNITS, target.lds_bytes, _DEVICE_IDS[target.name], 1700),
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def parse_devices(text: str) -> Sequence[VirtualGpu]:
    """The devices that ``--device`` names: ``emu:TARGET``, several separated by commas.

    Raises:
        DeviceError: another kind of device, features, or a target that ROCr 5.2.3 does not know.
        TargetError: unknown target.
    """
    devices = []
    for name in text.split(","):
        kind, _, rest = name.strip().partition(":")
        if kind != "emu" or not rest:
            raise DeviceError(f"no device {name!r}: a virtual one is called emu:<target>, e.g. emu:gfx90a")
        target = TargetId.parse(rest)
        if target.target.name not in _DEVICE_IDS:
            known = ", ".join(_DEVICE_IDS)
            raise DeviceError(
                f"no virtual {target.target.name} under this ROCm, which would not know it; there are {known}"
            )
        if target.xnack or target.sramecc:
            raise DeviceError(f"virtual devices have neither XNACK nor SRAM ECC on: {target}")
        devices.append(VirtualGpu(TargetId(target.target)))
    return devices
