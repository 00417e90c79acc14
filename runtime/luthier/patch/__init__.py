"""Templates bound to free registers at each point, the code laid out anew, a stand-alone object written.

What patches is imported when it is first used: who only reads what was done, as a run that patches nothing does, needs
but the report.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from luthier.patch.report import KernelReport, PatchReport, Refusal, RefusalKind, RefusedError, UnresolvedCall, by_kind

if TYPE_CHECKING:
    from luthier.patch.executable import PatchedFile as PatchedFile
    from luthier.patch.executable import patch_executable as patch_executable
    from luthier.patch.object import PatchedObject as PatchedObject
    from luthier.patch.object import patch_object as patch_object

__all__ = [
    "KernelReport",
    "PatchReport",
    "PatchedFile",
    "PatchedObject",
    "Refusal",
    "RefusalKind",
    "RefusedError",
    "UnresolvedCall",
    "by_kind",
    "patch_executable",
    "patch_object",
]

_MODULE_OF = {
    "PatchedFile": "luthier.patch.executable",
    "PatchedObject": "luthier.patch.object",
    "patch_executable": "luthier.patch.executable",
    "patch_object": "luthier.patch.object",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module(module), name))
