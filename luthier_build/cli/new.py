"""`luthier new`: create a tool package that builds, passes its tests and runs."""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import keyword
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from luthier import __version__
from luthier.errors import BuildError, ToolError
from luthier.terminal import say

from luthier_build.settings import DEFAULT_TARGETS
from luthier_build.toolchain import Toolchain

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_.][A-Za-z0-9]+)*\Z")

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77", "luthier"]
build-backend = "luthier_build.backend"

[project]
name = "@name@"
version = "0.1.0"
description = "A Luthier tool"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["luthier>=@version@"]

[project.optional-dependencies]
test = ["pytest", "luthier[build]"]

[project.entry-points."luthier.tools"]
@package@ = "@package@:@tool@"

[tool.setuptools]
packages = ["@package@"]
include-package-data = false

[tool.luthier]
package = "@package@"
targets = [@targets@]

[tool.luthier.modules.device]
sources = ["@package@/device.hip"]
"""

DEVICE = """\
// The device side: hooks, which are spliced into the application's kernels, and the variables they write.
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>

MARK_LUTHIER_DEVICE_MODULE

/// Branches executed so far, one per wave.
__managed__ uint64_t branches = 0;

/// Counts one branch.
LUTHIER_HOOK_ANNOTATE count_branch(uint32_t step) { luthier::sAtomicAdd<uint64_t>(&branches, step); }
"""

INIT = '''\
"""Counts the branches that a kernel's waves execute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from luthier import ExecutionCounts, InstrumentationTask, Tool
from luthier.isa import InstructionFlag

from @package@ import device


class @tool@(Tool):
    """Puts a hook before every branch."""

    @dataclass(frozen=True)
    class Options:
        """On the command line: ``@package@:step=2``."""

        step: int = 1
        """What a branch adds to the counter."""

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.flags & InstructionFlag.BRANCH:
                task.insert_hook_before(instruction, device.count_branch, self.options.step)

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """Return the counter values that `luthier verify` expects, from the emulated device's own counts."""
        branches = [i.index for i in task.instructions if i.flags & InstructionFlag.BRANCH]
        return {"branches": self.options.step * sum(int(counts.executions[index]) for index in branches)}
'''

TEST = '''\
"""Run the tool on a kernel on the emulated device: results are unchanged, and the counter is correct."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.objects import load_object
from luthier.verify import verify_object
from luthier_build.compile import compile_application
from luthier_build.settings import load_settings, read_table
from @package@ import @tool@

TARGETS = load_settings(read_table(Path(__file__).parents[1]) or {}).targets
"""Targets from LUTHIER_TARGETS or pyproject.toml."""

APPLICATION = """
#include <hip/hip_runtime.h>
extern "C" __global__ void collatz(unsigned *steps) {
  unsigned n = threadIdx.x + 1, count = 0;
  while (n != 1) {
    n = n % 2 ? 3 * n + 1 : n / 2;
    count++;
  }
  steps[threadIdx.x] = count;
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_branches_are_counted(tmp_path: Path, target: str) -> None:
    source = tmp_path / "collatz.hip"
    source.write_text(APPLICATION)
    application = load_object(compile_application(source, target, tmp_path / "collatz.hsaco"))
    for step in (1, 3):
        for verdict in verify_object(application, @tool@(step=step)):
            assert not verdict.problems
            assert verdict.counters["branches"] > 0
'''

README = """\
# @name@

A Luthier tool: counts the branches that a kernel's waves execute.

```
pip install --no-build-isolation .
luthier tools
luthier verify APPLICATION -t @package@
```

Tests need no GPU: `pip install --no-build-isolation -e '.[test]' && pytest`. In an editable install, hooks that were
edited are rebuilt when a program that uses them starts.
"""

CLANGD = """\
CompileFlags:
  CompilationDatabase: build/luthier
"""

IGNORE = """\
build/
dist/
*.egg-info/
__pycache__/
# files that an editable install puts next to the sources
@package@/device.hipfb
@package@/device.json
@package@/device.py
@package@/device.pyi
@package@/.luthier-editable.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("name", help="name of the tool and of its new folder, e.g. branch-count")
    parser.add_argument(
        "--directory", metavar="DIR", type=Path, default=Path(), help="parent folder (default: current folder)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command and return the exit status."""
    folder = make_tool(args.name, args.directory)
    # Not a bare name, which pip would look up as a distribution.
    place = shlex.quote(os.fspath(folder) if folder.is_absolute() else os.path.join(".", folder))
    say(f"{folder} is ready: pip install --no-build-isolation {place}, then luthier tools")
    try:
        Toolchain.find()
    except BuildError as problem:
        say(f"luthier new: warning: pip needs a compiler: {problem}", file=sys.stderr)
    return 0


_KNOWN_TO_ALL = ("gfx90a", "gfx1100")
"""Targets that every supported compiler knows."""
_MODULES = ("luthier", "luthier_build", "test", "clang", "hip")
"""Modules that are not in `sys.stdlib_module_names`, and modules of optional requirements under their import names."""


@functools.cache
def _required() -> frozenset[str]:
    """Return the distributions that Luthier or pip requires: a tool with such a name would replace the distribution."""
    requirements = importlib.metadata.requires("luthier") or ()
    named = (re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0] for requirement in requirements)
    return frozenset(map(_canonical, (*named, "pip", "setuptools", "wheel")))


@functools.cache
def _needed() -> frozenset[str]:
    """Return the import packages of Luthier's requirements, e.g. ``numpy``: a tool must not replace them."""
    every = importlib.metadata.packages_distributions()
    return frozenset(name for name, owners in every.items() if not _required().isdisjoint(map(_canonical, owners)))


def _package(name: str) -> str:
    """Return the import name for a distribution's name."""
    return re.sub(r"[-.]", "_", name).lower()


def _class_name(package: str) -> str:
    return "".join(word.capitalize() for word in package.split("_"))


def _taken(package: str) -> str | None:
    """Return what the package name, or the name of its tool's class, would hide; None if nothing."""
    if package in sys.stdlib_module_names or package in _MODULES or package in _needed():
        return "a module of that name"
    if _canonical(package) in _required():
        return "a distribution of that name, which Luthier or pip needs"
    if keyword.iskeyword(package) or keyword.iskeyword(_class_name(package)):
        return "a Python keyword"
    if package in ("build", "dist", "tests"):
        return "a folder that the project needs"
    if any(
        _class_name(package) in re.findall(r"\w+", names) for names in re.findall(r"^from .* import (.*)", INIT, re.M)
    ):
        return f"the class {_class_name(package)}, which the tool needs"
    return None


def _suggestion(name: str) -> str:
    """Return a similar name that is valid."""
    words = re.findall(r"[A-Za-z0-9]+", name)
    close = "-".join(words) if words and words[0][0].isalpha() else "-".join(["tool", *words])
    return close if _NAME.match(close) and _taken(_package(close)) is None else f"{close}-tool"


def _canonical(name: str) -> str:
    """Return the name of a distribution in the form in which pip compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def make_tool(name: str, directory: Path) -> Path:
    """Write a tool package `name` into a new folder in `directory` and return the folder; on failure, none is left.

    Raises:
        ToolError: the name is not usable, or the folder exists.
    """
    package = _package(name)
    if not _NAME.match(name):
        raise ToolError(
            f"{name!r} is not a valid package name: use letters and digits, a letter first, with single dashes, dots "
            f"or underscores between them, e.g. {_suggestion(name)}"
        )
    if (why := _taken(package)) is not None:
        raise ToolError(f"the package {package} would hide {why}: choose another name, e.g. {_suggestion(name)}")
    for point in importlib.metadata.entry_points(group="luthier.tools", name=package):
        if point.dist is not None and _canonical(point.dist.name) != _canonical(name):
            raise ToolError(f"a tool {package} from {point.dist.name} is already installed: choose another name")
    folder = directory / name
    if folder.exists():
        raise ToolError(f"{folder} already exists")
    words = {
        "name": name,
        "package": package,
        "tool": _class_name(package),
        "version": __version__,
        "targets": ", ".join(f'"{target}"' for target in _targets()),
    }
    files = {
        "pyproject.toml": PYPROJECT,
        f"{package}/__init__.py": INIT,
        f"{package}/device.hip": DEVICE,
        f"tests/test_{package}.py": TEST,
        "README.md": README,
        ".clangd": CLANGD,
        ".gitignore": IGNORE,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=directory))
    except OSError as problem:
        raise ToolError(f"cannot write to {directory}: {problem.strerror}") from problem
    try:
        for path, text in files.items():
            (fresh / path).parent.mkdir(exist_ok=True)
            (fresh / path).write_text(re.sub(r"@(\w+)@", lambda match: words[match[1]], text))
        fresh.chmod(0o755)
        os.rename(fresh, folder)
    except OSError as problem:
        raise ToolError(f"cannot write {folder}: {problem.strerror}") from problem
    finally:
        shutil.rmtree(fresh, ignore_errors=True)  # does not exist after success
    return folder


def _targets() -> tuple[str, ...]:
    """Return the default targets that this machine's compiler knows, or all if it knows none of them.

    Without a compiler, return `_KNOWN_TO_ALL`.
    """
    try:
        toolchain = Toolchain.find()
    except BuildError:
        return _KNOWN_TO_ALL
    return tuple(filter(toolchain.knows, DEFAULT_TARGETS)) or DEFAULT_TARGETS
