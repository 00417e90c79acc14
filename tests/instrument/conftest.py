"""Code objects compiled on the spot, once a session; the tool modules are in ../conftest.py."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.processes import run

from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).parents[2]

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
