"""Code objects compiled on the spot; the tool modules are in ../conftest.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kept import compiled, kept

from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).parents[2]

sys.path.append(str(Path(__file__).parent))  # the module random_kernels

CompileObject = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_object() -> CompileObject:
    """`compile_object(source, target, *flags)`: the code object of HIP source (a path or text)."""

    def compile_object(source: Path | str, target: str, *flags: str) -> Path:
        text = source.read_text() if isinstance(source, Path) else source
        path = kept(text, lambda path: path.write_text(text), "source.hip")
        toolchain = Toolchain.find()
        device = ["--offload-device-only", "--no-gpu-bundle-output", "-O2"]
        command = [toolchain.clang, *toolchain.device_flags(target), *device, *flags, path]
        return compiled(command, [path], f"{target}.hsaco")

    return compile_object


App = Callable[..., Path]


@pytest.fixture(scope="session")
def app(compile_object: CompileObject) -> App:
    """`app(name, target, *flags)`: the code object of an application in examples/apps."""

    def compile_app(name: str, target: str, *flags: str) -> Path:
        return compile_object(ROOT / "examples" / "apps" / f"{name}.hip", target, *flags)

    return compile_app
