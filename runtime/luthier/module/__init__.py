"""A tool's device side: hooks, variables and bitcode, read from what the build embedded."""

from __future__ import annotations

from luthier.module.tool_module import BITCODE_SECTION, DeviceVariable, Hook, Parameter, ToolModule, read_manifest

__all__ = ["BITCODE_SECTION", "DeviceVariable", "Hook", "Parameter", "ToolModule", "read_manifest"]
