"""Templates bound to free registers at each point, the code laid out anew, a stand-alone object written."""

from __future__ import annotations

from luthier.patch.executable import PatchedFile, patch_executable
from luthier.patch.object import PatchedObject, patch_object
from luthier.patch.report import KernelReport, PatchReport, Refusal, RefusalKind, RefusedError, UnresolvedCall, by_kind

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
