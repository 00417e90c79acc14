"""LLVM releases to test the plugin with: those whose clang, opt and headers are installed."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from luthier.errors import BuildError
from print_manifest import manifest_of as read_manifest

from luthier_build.plugin import plugin_for
from luthier_build.toolchain import Toolchain

RELEASES = (15, 19, 22)
MANIFEST_PRINTER = Path(__file__).with_name("print_manifest.py")


@dataclass(frozen=True)
class Release:
    toolchain: Toolchain
    plugin: Path
    bin: Path
    """Folder of opt, llvm-dis and the other tools."""


@pytest.fixture(scope="session")
def manifest_of() -> Callable[[bytes], dict[str, Any]]:
    return read_manifest


@functools.cache
def _release(major: int) -> Release | str:
    clang = shutil.which(f"clang-{major}")
    opt = shutil.which(f"opt-{major}")
    if not clang or not opt:
        return f"clang-{major} and llvm-{major} are not installed"
    try:
        toolchain = Toolchain.find({**os.environ, "LUTHIER_CLANG": clang})
        _ = toolchain.llvm_include
    except BuildError as problem:
        return str(problem)
    return Release(toolchain, plugin_for(toolchain), Path(opt).resolve().parent)


def _or_skip(major: int) -> Release:
    release = _release(major)
    if isinstance(release, str):
        pytest.skip(release)
    return release


@pytest.fixture(scope="session", params=RELEASES, ids=lambda major: f"llvm{major}")
def release(request: pytest.FixtureRequest) -> Release:
    return _or_skip(request.param)


@pytest.fixture(scope="session")
def release15() -> Release:
    return _or_skip(15)


@pytest.fixture(scope="session")
def release22() -> Release:
    return _or_skip(22)
