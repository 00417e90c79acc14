"""Fixtures of the build tests: the toolchain, a wheel of Luthier, small generated projects."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from luthier.errors import BuildError

from luthier_build import wrapper_tables
from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).parents[2]

HOOK = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
/// Events so far.
__managed__ uint64_t counter = 0;
/// Counts.
LUTHIER_HOOK_ANNOTATE count(uint32_t step) { luthier::sAtomicAdd<uint64_t>(&counter, step); }
"""


@pytest.fixture(scope="session")
def hook() -> str:
    """Source of a device module with one hook, `count(uint32_t step)`, and one managed variable, `counter`."""
    return HOOK


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return Toolchain.find()


@pytest.fixture(scope="session")
def clang15() -> Toolchain:
    """The compiler of Debian's hipcc, where it is installed with what the plugin needs."""
    try:
        toolchain = Toolchain.find({"LUTHIER_CLANG": "clang-15", "PATH": "/usr/bin:/bin"})
        assert toolchain.llvm_include
    except BuildError as problem:
        pytest.skip(f"no clang 15: {problem}")
    return toolchain


MakeProject = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Writes files (name -> text) into a fresh folder."""

    def make(files: Mapping[str, str]) -> Path:
        folder = tmp_path / "project"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return folder

    return make


def copied_sources(copy: Path) -> Path:
    """Copy what Luthier is built from into a folder."""
    skipped = shutil.ignore_patterns("__pycache__", "*.so", ".*")
    for folder in ("runtime", "luthier_build", "compiler_plugin"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=skipped)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copy / name)
    return copy


def wheel_of(copy: Path, wheels: Path, **variables: str) -> Path:
    """Build a wheel of such a copy, and return the folder that it is put into."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", wheels, copy], check=True, env={**os.environ, **variables})
    return wheels


@pytest.fixture(scope="session")
def luthier_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel of this source tree, built from a copy so that nothing is written into the tree."""
    copy = copied_sources(tmp_path_factory.mktemp("luthier-source"))
    # The native parts of the tree are taken over; setuptools builds what is missing or older than its sources.
    built = copy / "build" / f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}" / "luthier"
    for name in (f"_mc{sysconfig.get_config_var('EXT_SUFFIX')}", "run/native/libluthier_kfd.so"):
        if (ROOT / "runtime/luthier" / name).exists():
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / "runtime/luthier" / name, built / name)
    return wheel_of(copy, tmp_path_factory.mktemp("wheels"))


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Luthier's commands as they are installed, made from the source tree."""
    folder = tmp_path_factory.mktemp("commands")
    for name, module in (("luthier", "luthier.cli.main"), ("luthier-wrapper", "luthier_build.wrapper")):
        script = folder / name
        script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
        script.chmod(0o755)
    source = ROOT / "runtime/native/launcher/launcher.cpp"
    headers = tmp_path_factory.mktemp("headers")
    (headers / "wrapper_tables.h").write_text(wrapper_tables.header())
    for number, name in enumerate(("luthier-cc", "luthier-hipcc")):
        flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", f"-DLUTHIER_HIPCC={number}", f"-I{headers}"]
        subprocess.run(["c++", *flags, source, "-o", folder / name], check=True)
    return folder
