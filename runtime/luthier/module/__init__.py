"""A tool's device side: hooks, variables and bitcode, read from the results of the build."""

from __future__ import annotations

from typing import TYPE_CHECKING

from luthier.support.lazy import lazy_names

if TYPE_CHECKING:
    from luthier.module.description import DeviceContents as DeviceContents
    from luthier.module.description import DeviceVariable as DeviceVariable
    from luthier.module.description import Hook as Hook
    from luthier.module.description import LoadedModule as LoadedModule
    from luthier.module.description import Parameter as Parameter
    from luthier.module.description import VariableStorage as VariableStorage
    from luthier.module.description import qualified as qualified
    from luthier.module.embedded import BITCODE_SECTION as BITCODE_SECTION
    from luthier.module.inline import load_inline as load_inline
    from luthier.module.manifest import ModuleManifest as ModuleManifest
    from luthier.module.tool_module import ToolModule as ToolModule

__getattr__ = lazy_names(__name__)
