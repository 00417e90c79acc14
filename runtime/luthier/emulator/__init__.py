"""The emulated device: AMD GPU code objects run on the host CPU, exactly, with every instruction counted."""

from __future__ import annotations

from luthier.emulator.checks import CheckWarning, Finding
from luthier.emulator.debug import Step, TraceRecorder
from luthier.emulator.debugger import DebugSession
from luthier.emulator.device import DeviceBuffer, EmulatedDevice, KernelHandle, Module, Variable
from luthier.emulator.stats import AddressCounts, BlockCounts, LaunchStats

__all__ = [
    "AddressCounts",
    "BlockCounts",
    "CheckWarning",
    "DebugSession",
    "DeviceBuffer",
    "EmulatedDevice",
    "Finding",
    "KernelHandle",
    "LaunchStats",
    "Module",
    "Step",
    "TraceRecorder",
    "Variable",
]
