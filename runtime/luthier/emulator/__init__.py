"""The emulated device: AMD GPU code objects run on the host CPU, exactly, with every instruction counted."""

from __future__ import annotations

from luthier.emulator.debug import Step
from luthier.emulator.device import DeviceBuffer, EmulatedDevice, KernelHandle, Module, Variable
from luthier.emulator.stats import AddressCounts, LaunchStats

__all__ = [
    "AddressCounts",
    "DeviceBuffer",
    "EmulatedDevice",
    "KernelHandle",
    "LaunchStats",
    "Module",
    "Step",
    "Variable",
]
