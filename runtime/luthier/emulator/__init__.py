"""The emulated device: AMD GPU code objects run on the host CPU, exactly, with every instruction counted.

The names here are imported when first used: most programs need only a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.emulator.device import EmulatedDevice as EmulatedDevice
    from luthier.emulator.device import KernelHandle as KernelHandle
    from luthier.emulator.device import Module as Module
    from luthier.emulator.inspection.checks import CheckWarning as CheckWarning
    from luthier.emulator.inspection.debug import TraceRecorder as TraceRecorder
    from luthier.emulator.inspection.debug import WaveStep as WaveStep
    from luthier.emulator.inspection.debugger import DebugSession as DebugSession
    from luthier.emulator.running.stats import AddressCounts as AddressCounts
    from luthier.emulator.running.stats import BlockCounts as BlockCounts
    from luthier.emulator.running.stats import LaunchStats as LaunchStats
    from luthier.emulator.running.storage import DeviceBuffer as DeviceBuffer
    from luthier.emulator.running.storage import ModuleVariable as ModuleVariable
    from luthier.findings.finding import Finding as Finding

__getattr__ = lazy_names(__name__)
