"""Tools that several kinds of tests instrument kernels with, and code objects, compiled on the spot."""

from __future__ import annotations

import functools
import gc
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from compiling import compiled
from device_modules import device_module
from effort import FAMILIES
from kept import ROOT, kept
from luthier.module import ToolModule
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask
from selection import pytest_collection_modifyitems, pytest_generate_tests  # noqa: F401 - pytest finds them here

from luthier_build.toolchain import Toolchain

if TYPE_CHECKING:
    from playwright.sync_api import Browser

signal.signal(signal.SIGINT, signal.default_int_handler)
"""What begins in the background ignores interrupts, and so would the programs that tests start and interrupt."""
gc.disable()
"""Until all tests are collected: they stay, and to look at them again and again takes long."""
BROWSER = "/usr/bin/chromium-headless-shell"
MakeModule = Callable[..., ToolModule]


def pytest_collection_finish() -> None:
    """Look for garbage from now on, but not among what was imported and collected."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Run a final garbage collection, because native modules report leaked objects."""
    gc.unfreeze()


AS_HOOKS = ("filetests", "instrument", "plugin", "proof", "triton", "waits")
"""Folders of tests whose hooks are to run as such, those that do nothing but count, too."""


@pytest.fixture(autouse=True, scope="module")
def hoisting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set whether hooks become counts in this test module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InstrumentationTask, "HOIST", request.path.parent.name not in AS_HOOKS)
        yield


@pytest.fixture(scope="session")
def make_module() -> MakeModule:
    """`make_module(source, *targets, both_wave_sizes=False, in_file=False)`: the tool module of HIP source, without its
    usual first lines; see `device_modules.device_module`."""
    made = functools.cache(device_module)

    def make(source: str, *targets: str, **how: bool) -> ToolModule:
        return made(source, targets or ("gfx90a", "gfx942", "gfx1100"), **how)

    return make


@pytest.fixture(scope="module")
def module(request: pytest.FixtureRequest, make_module: MakeModule) -> ToolModule:
    """The tool module of the test file's `HOOKS`, for its `TARGETS`, or for a processor of each generation."""
    return make_module(request.module.HOOKS, *getattr(request.module, "TARGETS", FAMILIES))


@pytest.fixture(scope="module")
def hooks(module: ToolModule) -> ToolModule:
    """`module`, for tests that also load modules."""
    return module


@pytest.fixture(scope="session")
def counter(make_module: MakeModule) -> type[Tool]:
    """The tool of examples/tools/instr_count with a module compiled by the tests."""
    from luthier.module.tool_module import loaded_by

    source = (ROOT / "examples/tools/instr_count/luthier_instr_count/device.hip").read_text()
    made = make_module(
        "\n".join(line for line in source.splitlines() if "#include" not in line and "MARK_" not in line),
        *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1150"),
        *("gfx1200", "gfx1201", "gfx1250"),
    )
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(ROOT / "examples" / "tools" / "instr_count"))
    sys.modules.pop("luthier_instr_count", None)
    with loaded_by(lambda package, name: made):
        from luthier_instr_count import InstrCount

    patch.undo()
    sys.modules.pop("luthier_instr_count", None)
    return InstrCount


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, without windows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


CompileObject = Callable[..., Path]


@pytest.fixture(scope="session")
def compile_object() -> CompileObject:
    """`compile_object(source, target, *flags, clang="")`: the code object of HIP source (a path or text), by a certain
    clang if one is named."""

    def compile_object(source: Path | str, target: str, *flags: str, clang: str = "") -> Path:
        text = source.read_text() if isinstance(source, Path) else source
        path = kept(text, lambda path: path.write_text(text), "source.hip")
        toolchain = Toolchain.find({"LUTHIER_CLANG": clang, "PATH": "/usr/bin:/bin"} if clang else None)
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
