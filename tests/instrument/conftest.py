"""Tool modules compiled on the spot, once a session."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.processes import run
from luthier.tool_module import ToolModule

from luthier_build.compile import compile_device
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[2]

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


CompileObject = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_object(tmp_path_factory: pytest.TempPathFactory) -> CompileObject:
    """`compile_object(source, target, *flags)`: the code object of HIP source (a path or text), compiled once."""
    folder = tmp_path_factory.mktemp("objects")

    def compile_object(source: Path | str, target: str, *flags: str) -> Path:
        text = source.read_text() if isinstance(source, Path) else source
        output = folder / f"{hashlib.sha256(repr((text, target, flags)).encode()).hexdigest()}.hsaco"
        if not output.exists():
            toolchain = Toolchain.find()
            path = output.with_suffix(".hip")
            path.write_text(text)
            device = ["--offload-device-only", "--no-gpu-bundle-output", "-O2"]
            run([toolchain.clang, *toolchain.device_flags(target), *device, *flags, path, "-o", output])
        return output

    return compile_object


App = Callable[..., Path]


@pytest.fixture(scope="session")
def app(compile_object: CompileObject) -> App:
    """`app(name, target, *flags)`: the code object of an application in examples/apps."""

    def compile_app(name: str, target: str, *flags: str) -> Path:
        return compile_object(ROOT / "examples" / "apps" / f"{name}.hip", target, *flags)

    return compile_app
