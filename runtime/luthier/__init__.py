"""Luthier: instrumentation of AMD GPU programs with hooks written in HIP.

The names here are the public interface; they are imported when first used, so that ``import luthier`` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from luthier.errors import LuthierError

__version__ = "0.1.0"

if TYPE_CHECKING:
    from luthier.arguments import Immediate as Immediate
    from luthier.arguments import immediate as immediate
    from luthier.counts import Cell as Cell
    from luthier.counts import KernelCounts as KernelCounts
    from luthier.devices import open_device as open_device
    from luthier.in_process import reported as reported
    from luthier.lifting import Instruction as Instruction
    from luthier.lifting import LiftedRepresentation as LiftedRepresentation
    from luthier.lifting import lift as lift
    from luthier.module import Hook as Hook
    from luthier.module import ToolModule as ToolModule
    from luthier.module import load_inline as load_inline
    from luthier.objects import CodeObject as CodeObject
    from luthier.objects import load_object as load_object
    from luthier.objects import load_objects as load_objects
    from luthier.patch import PatchedObject as PatchedObject
    from luthier.patch import patch_object as patch_object
    from luthier.payload import Intrinsic as Intrinsic
    from luthier.sites import SiteSums as SiteSums
    from luthier.table import Table as Table
    from luthier.task import InstrumentationTask as InstrumentationTask
    from luthier.task import reg as reg
    from luthier.tool import ExecutionCounts as ExecutionCounts
    from luthier.tool import Tool as Tool
    from luthier.wave_counts import WaveCounts as WaveCounts

_MODULE_OF = {
    "Cell": "luthier.counts",
    "CodeObject": "luthier.objects",
    "ExecutionCounts": "luthier.tool",
    "Hook": "luthier.module",
    "Immediate": "luthier.arguments",
    "Instruction": "luthier.lifting",
    "InstrumentationTask": "luthier.task",
    "Intrinsic": "luthier.payload",
    "KernelCounts": "luthier.counts",
    "LiftedRepresentation": "luthier.lifting",
    "PatchedObject": "luthier.patch",
    "SiteSums": "luthier.sites",
    "Table": "luthier.table",
    "Tool": "luthier.tool",
    "ToolModule": "luthier.module",
    "WaveCounts": "luthier.wave_counts",
    "immediate": "luthier.arguments",
    "lift": "luthier.lifting",
    "load_inline": "luthier.module",
    "load_object": "luthier.objects",
    "load_objects": "luthier.objects",
    "open_device": "luthier.devices",
    "patch_object": "luthier.patch",
    "reg": "luthier.task",
    "reported": "luthier.in_process",
}

__all__ = ["LuthierError", "__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(module), name))
