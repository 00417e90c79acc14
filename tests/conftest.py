"""Tools that several kinds of tests instrument kernels with, compiled on the spot, once a session."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.tool import Tool
from luthier.tool_module import ToolModule

from luthier_build.compile import compile_device
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[1]

PREFIX = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
"""

MakeModule = Callable[..., ToolModule]


@pytest.fixture(scope="session")
def make_module(tmp_path_factory: pytest.TempPathFactory) -> MakeModule:
    """`make_module(source, *targets)`: the tool module of HIP source, without its usual first lines."""
    made: dict[str, ToolModule] = {}

    def make(source: str, *targets: str) -> ToolModule:
        wanted = targets or ("gfx90a", "gfx942", "gfx1100")
        key = hashlib.sha256(repr((source, wanted)).encode()).hexdigest()
        if key not in made:
            folder = tmp_path_factory.mktemp("module")
            path: Path = folder / "device.hip"
            path.write_text(PREFIX + source)
            with build_folder(folder / "build") as held:
                module = compile_device([path], wanted, folder=held, report=lambda line: None)
            made[key] = ToolModule.load(module.bundle)
        return made[key]

    return make


@pytest.fixture(scope="session")
def counter(make_module: MakeModule) -> type[Tool]:
    """The tool of examples/instr_count with a module compiled here."""
    import luthier.tool_module as tool_module

    source = (ROOT / "examples/instr_count/luthier_instr_count/device.hip").read_text()
    made = make_module(
        "\n".join(line for line in source.splitlines() if "#include" not in line and "MARK_" not in line),
        *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1150", "gfx1200", "gfx1201"),
    )
    patch = pytest.MonkeyPatch()
    patch.setattr(tool_module, "_from_package", lambda package, name: made)
    patch.syspath_prepend(str(ROOT / "examples" / "instr_count"))
    sys.modules.pop("luthier_instr_count", None)
    from luthier_instr_count import InstrCount

    patch.undo()
    sys.modules.pop("luthier_instr_count", None)
    return InstrCount
