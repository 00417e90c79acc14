"""Templates bound to free registers at each point, the code laid out anew, a stand-alone object written."""

from __future__ import annotations

from luthier.patch.object import KernelReport, PatchedObject, PatchReport, patch_object

__all__ = ["KernelReport", "PatchReport", "PatchedObject", "patch_object"]
