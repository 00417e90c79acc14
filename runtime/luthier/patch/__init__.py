"""Patching: binds payload templates to free registers at each point, lays the code out again, and writes an object.

The modules that patch are imported on first use: readers of a report, such as a run that patches nothing, do not need
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.patch.outcome import KernelReport as KernelReport
    from luthier.patch.outcome import PatchRefusal as PatchRefusal
    from luthier.patch.outcome import PatchReport as PatchReport
    from luthier.patch.outcome import RefusalKind as RefusalKind
    from luthier.patch.outcome import RefusedError as RefusedError
    from luthier.patch.outcome import UnresolvedCall as UnresolvedCall
    from luthier.patch.outcome import by_kind as by_kind
    from luthier.patch.output.executable import PatchedFile as PatchedFile
    from luthier.patch.output.executable import patch_executable as patch_executable
    from luthier.patch.output.object import PatchedObject as PatchedObject
    from luthier.patch.output.object import patch_object as patch_object

__getattr__ = lazy_names(__name__)
