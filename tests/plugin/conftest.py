"""LLVM releases to test the plugin with: each one whose clang, opt and headers are installed."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from luthier.errors import BuildError
from luthier_build.plugin import plugin_for
from luthier_build.toolchain import Toolchain

RELEASES = (15, 19, 22)


@dataclass(frozen=True)
class Release:
    toolchain: Toolchain
    plugin: Path
    bin: Path
    """Folder with opt, llvm-dis and the like of this release."""


@functools.lru_cache(maxsize=None)
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


@pytest.fixture(scope="session", params=RELEASES, ids=lambda major: f"llvm{major}")
def release(request: pytest.FixtureRequest) -> Release:
    found = _release(request.param)
    if isinstance(found, str):
        pytest.skip(found)
    return found


@pytest.fixture(scope="session")
def release22() -> Release:
    found = _release(22)
    if isinstance(found, str):
        pytest.skip(found)
    return found
