"""Templates bound to free registers at each point, the code laid out anew, a stand-alone object written.

What patches is imported when it is first used: who only reads what was done, as a run that patches nothing does, needs
but the report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.patch.outcome import KernelReport, PatchReport, Refusal, RefusalKind, RefusedError, UnresolvedCall, by_kind
from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.patch.output.executable import PatchedFile as PatchedFile
    from luthier.patch.output.executable import patch_executable as patch_executable
    from luthier.patch.output.object import PatchedObject as PatchedObject
    from luthier.patch.output.object import patch_object as patch_object

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
    "PatchedFile": "luthier.patch.output.executable",
    "PatchedObject": "luthier.patch.output.object",
    "patch_executable": "luthier.patch.output.executable",
    "patch_object": "luthier.patch.output.object",
}

__getattr__ = lazy_names(__name__, _MODULE_OF)
