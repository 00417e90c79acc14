"""The tools of the self-test: one that needs no compiler, and one with a hook, which needs a compiler."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from luthier import ExecutionCounts, InstrumentationTask, KernelCounts, Table, Tool, ToolModule
from luthier.errors import LuthierError

from luthier_build.compile import compile_device
from luthier_build.selftest.steps import Skip
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

_DEVICE = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
"""


class CountingTool(Tool):
    """Counts every instruction without hooks, from the execution counts of the kernel's blocks."""

    name = "counting"

    def instrument(self, task: InstrumentationTask) -> None:
        """Request counts."""
        task.count(task.instructions)

    def tables(self, counts: KernelCounts) -> Iterable[Table]:
        """Yield one row with the sum."""
        yield Table(counts.counters.kernel, ("counted",), [(sum(counts.opcodes.values()),)])


class Hooked(Tool):
    """Counts every instruction with a hook before each."""

    name = "hooked"

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self._module = module

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook before every instruction."""
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self._module.count)

    def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
        """Return the number of instructions that waves execute."""
        return {"counter": int(sum(counts.executions[instruction.index] for instruction in task.instructions))}


def compile_hook(target: str) -> ToolModule:
    """Compile the module of `Hooked`.

    Raises:
        Skip: there is no compiler.
        LuthierError: the compiler fails.
    """
    with tempfile.TemporaryDirectory(prefix="luthier-selftest-") as name:
        return ToolModule.load(hook_bundle(target, Path(name)))


def hook_bundle(target: str, place: Path) -> Path:
    """Compile the module of `Hooked` in a folder and return the file.

    Raises:
        Skip: there is no compiler.
        LuthierError: the compiler fails.
    """
    chosen = toolchain("hooks")
    (place / "device.hip").write_text(_DEVICE)
    with build_folder(place / "build") as folder:
        made = compile_device(
            ["device.hip"], [target], toolchain=chosen, folder=folder, project=place, report=lambda _: None
        )
    return made.bundle


def toolchain(purpose: str) -> Toolchain:
    """Return the compiler for something that needs it, in plural.

    Raises:
        Skip: there is none.
    """
    try:
        return Toolchain.find()
    except LuthierError as problem:
        raise Skip(f"{purpose} need a compiler: {problem}") from None
