"""The emulated device: AMD GPU code objects run on the host CPU, exactly, with every instruction counted.

The names here are imported when first used: most programs need only a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from luthier.emulator.device import EmulatedDevice as EmulatedDevice
    from luthier.emulator.device import KernelHandle as KernelHandle
    from luthier.emulator.device import Module as Module
    from luthier.emulator.inspection.checks import CheckWarning as CheckWarning
    from luthier.emulator.inspection.checks import Finding as Finding
    from luthier.emulator.inspection.debug import Step as Step
    from luthier.emulator.inspection.debug import TraceRecorder as TraceRecorder
    from luthier.emulator.inspection.debugger import DebugSession as DebugSession
    from luthier.emulator.running.stats import AddressCounts as AddressCounts
    from luthier.emulator.running.stats import BlockCounts as BlockCounts
    from luthier.emulator.running.stats import LaunchStats as LaunchStats
    from luthier.emulator.running.storage import DeviceBuffer as DeviceBuffer
    from luthier.emulator.running.storage import Variable as Variable

_MODULE_OF = {
    "AddressCounts": "running.stats",
    "BlockCounts": "running.stats",
    "CheckWarning": "inspection.checks",
    "DebugSession": "inspection.debugger",
    "DeviceBuffer": "running.storage",
    "EmulatedDevice": "device",
    "Finding": "inspection.checks",
    "KernelHandle": "device",
    "LaunchStats": "running.stats",
    "Module": "device",
    "Step": "inspection.debug",
    "TraceRecorder": "inspection.debug",
    "Variable": "running.storage",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(f"{__name__}.{module}"), name))
