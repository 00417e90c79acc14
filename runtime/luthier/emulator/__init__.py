"""The emulated device: AMD GPU code objects run on the host CPU, exactly, with every instruction counted.

The names here are imported when first used: most programs need only a device.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from luthier.emulator import sources as sources  # before any other module of the package: it says why

if TYPE_CHECKING:
    from luthier.emulator.checks import CheckWarning as CheckWarning
    from luthier.emulator.checks import Finding as Finding
    from luthier.emulator.debug import Step as Step
    from luthier.emulator.debug import TraceRecorder as TraceRecorder
    from luthier.emulator.debugger import DebugSession as DebugSession
    from luthier.emulator.device import DeviceBuffer as DeviceBuffer
    from luthier.emulator.device import EmulatedDevice as EmulatedDevice
    from luthier.emulator.device import KernelHandle as KernelHandle
    from luthier.emulator.device import Module as Module
    from luthier.emulator.device import Variable as Variable
    from luthier.emulator.stats import AddressCounts as AddressCounts
    from luthier.emulator.stats import BlockCounts as BlockCounts
    from luthier.emulator.stats import LaunchStats as LaunchStats

_MODULE_OF = {
    "AddressCounts": "stats",
    "BlockCounts": "stats",
    "CheckWarning": "checks",
    "DebugSession": "debugger",
    "DeviceBuffer": "device",
    "EmulatedDevice": "device",
    "Finding": "checks",
    "KernelHandle": "device",
    "LaunchStats": "stats",
    "Module": "device",
    "Step": "debug",
    "TraceRecorder": "debug",
    "Variable": "device",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(f"{__name__}.{module}"), name))
