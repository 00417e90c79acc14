"""The virtual GPUs: which can be had, and what programs are told of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from luthier.errors import DeviceError
from luthier.isa.targets import TARGETS, TargetId

COMPUTE_UNITS = 8
"""Few, since programs size their grids by them."""


@dataclass(frozen=True)
class VirtualGpu:
    """One device of a run."""

    target: TargetId

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the native library is told, in its order: version (major, minor, stepping), lanes of a wave, waves a
        SIMD, SIMDs a compute unit, compute units, bytes of LDS, PCI device id, MHz, bytes of memory."""
        target = self.target.target
        assert target.device_id is not None
        return (
            *(*target.version, target.default_wave_size, target.waves_per_simd),
            *(target.simds_per_cu, COMPUTE_UNITS, target.lds_bytes, target.device_id, 1700),
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        )


def parse_devices(text: str) -> Sequence[VirtualGpu]:
    """The devices that ``--device`` names: ``emu:TARGET``, several separated by commas.

    Raises:
        DeviceError: another kind of device, features, or a target that there is no virtual device of.
        TargetError: unknown target.
    """
    devices = []
    for name in text.split(","):
        kind, _, rest = name.strip().partition(":")
        if kind != "emu" or not rest:
            raise DeviceError(f"no device {name!r}: a virtual one is called emu:<target>, e.g. emu:gfx90a")
        target = TargetId.parse(rest)
        if target.target.device_id is None:
            known = ", ".join(name for name, known in TARGETS.items() if known.device_id is not None)
            raise DeviceError(f"there is no virtual {target.target.name}; there are {known}")
        if target.xnack or target.sramecc:
            raise DeviceError(f"virtual devices have neither XNACK nor SRAM ECC on: {target}")
        devices.append(VirtualGpu(TargetId(target.target)))
    return devices
