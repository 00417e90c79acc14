"""A tool's device side: hooks, variables and bitcode, read from what the build embedded."""

from __future__ import annotations

from luthier.module.description import DeviceContents, DeviceVariable, Hook, LoadedModule, Parameter, Storage, qualified
from luthier.module.embedded import BITCODE_SECTION
from luthier.module.inline import load_inline
from luthier.module.manifest import Manifest
from luthier.module.tool_module import ToolModule

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
