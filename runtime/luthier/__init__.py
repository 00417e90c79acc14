"""Luthier: instrumentation of AMD GPU programs with hooks written in HIP.

The names here are the public interface; they are imported when first used, so that ``import luthier`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

__version__ = "0.1.0"

if TYPE_CHECKING:
    from luthier.devices.in_process import reported as reported
    from luthier.devices.open import open_device as open_device
    from luthier.errors import LuthierError as LuthierError
    from luthier.hazards.checks import Check as Check
    from luthier.hazards.checks import CheckReport as CheckReport
    from luthier.lifting import Instruction as Instruction
    from luthier.lifting import LiftedRepresentation as LiftedRepresentation
    from luthier.lifting import lift as lift
    from luthier.lifting.instructions.operations import Operations as Operations
    from luthier.module import Hook as Hook
    from luthier.module import ToolModule as ToolModule
    from luthier.module import load_inline as load_inline
    from luthier.objects import CodeObject as CodeObject
    from luthier.objects import load_object as load_object
    from luthier.objects import load_objects as load_objects
    from luthier.patch import PatchedObject as PatchedObject
    from luthier.patch import patch_object as patch_object
    from luthier.payload import Intrinsic as Intrinsic
    from luthier.report.formats import ReportFormat as ReportFormat
    from luthier.report.opened import OpenedRun as OpenedRun
    from luthier.report.opened import open_run as open_run
    from luthier.report.rules import ReportRule as ReportRule
    from luthier.support.table import Table as Table
    from luthier.tool.arguments import Immediate as Immediate
    from luthier.tool.arguments import immediate as immediate
    from luthier.tool.counts import Cell as Cell
    from luthier.tool.counts import KernelCounts as KernelCounts
    from luthier.tool.observation import ApiEvent as ApiEvent
    from luthier.tool.observation import Launch as Launch
    from luthier.tool.observation import LiveChannel as LiveChannel
    from luthier.tool.observation import LiveVariable as LiveVariable
    from luthier.tool.observation import Run as Run
    from luthier.tool.site_sums import Sites as Sites
    from luthier.tool.site_sums import SiteSums as SiteSums
    from luthier.tool.task import InstrumentationTask as InstrumentationTask
    from luthier.tool.task import reg as reg
    from luthier.tool.tool import ExecutionCounts as ExecutionCounts
    from luthier.tool.tool import Tool as Tool
    from luthier.tool.wave_counts import WaveCounts as WaveCounts

__getattr__ = lazy_names(__name__)
