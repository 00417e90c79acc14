"""A tool's device side: hooks, variables and bitcode, read from what the build embedded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.module.description import DeviceContents as DeviceContents
    from luthier.module.description import DeviceVariable as DeviceVariable
    from luthier.module.description import Hook as Hook
    from luthier.module.description import LoadedModule as LoadedModule
    from luthier.module.description import Parameter as Parameter
    from luthier.module.description import Storage as Storage
    from luthier.module.description import qualified as qualified
    from luthier.module.embedded import BITCODE_SECTION as BITCODE_SECTION
    from luthier.module.inline import load_inline as load_inline
    from luthier.module.manifest import Manifest as Manifest
    from luthier.module.tool_module import ToolModule as ToolModule

_MODULE_OF = {
    "BITCODE_SECTION": "luthier.module.embedded",
    "DeviceContents": "luthier.module.description",
    "DeviceVariable": "luthier.module.description",
    "Hook": "luthier.module.description",
    "LoadedModule": "luthier.module.description",
    "Manifest": "luthier.module.manifest",
    "Parameter": "luthier.module.description",
    "Storage": "luthier.module.description",
    "ToolModule": "luthier.module.tool_module",
    "load_inline": "luthier.module.inline",
    "qualified": "luthier.module.description",
}

__all__ = [
    "BITCODE_SECTION",
    "DeviceContents",
    "DeviceVariable",
    "Hook",
    "LoadedModule",
    "Manifest",
    "Parameter",
    "Storage",
    "ToolModule",
    "load_inline",
    "qualified",
]

__getattr__ = lazy_names(__name__, _MODULE_OF)
