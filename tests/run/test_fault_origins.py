"""A fault under a tool is reported with the program's instruction, its source line, and the origin of the code."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier import InstrumentationTask, Tool, ToolModule

from .conftest import PROGRAMS, Outcome, RunUnderTools

Build = Callable[..., Path]
UnderTools = Callable[..., RunUnderTools]
HOOKS = """
__device__ uint64_t seen = 0;
__device__ int *nowhere = nullptr;
LUTHIER_HOOK_ANNOTATE heavy() {
  uint32_t v = __lane_id();
  for (int i = 0; i < 16; ++i) v = v * 2654435761u ^ v >> (i + 1);
  if (v == 12345) atomicAdd((unsigned long long *)&seen, 1ull);
}
LUTHIER_HOOK_ANNOTATE bad() { *nowhere = 1; }
LUTHIER_HOOK_ANNOTATE bad_and_heavy() {
  uint32_t v = __lane_id();
#pragma unroll
  for (int i = 0; i < 40; ++i) v = v * (v >> 3) ^ v >> (i % 7 + 1);
  if (v != 12345) *nowhere = v;
}
"""


class Everywhere(Tool):
    """A hook before every instruction."""

    def __init__(self, module: ToolModule, hook: str) -> None:
        super().__init__()
        self.hook = module.hook(hook)

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if not task.lifted.restrictions.get(instruction.index):
                task.insert_hook_before(instruction, self.hook)


def blame(err: str) -> str:
    """The one line that says what stopped the kernel."""
    (line,) = (line for line in err.splitlines() if line.startswith("luthier: ") and "wave 0 of work-group 0" in line)
    return line


def line_of(text: str) -> str:
    lines = (PROGRAMS / "faults.hip").read_text().splitlines()
    return f"faults.hip:{next(at for at, line in enumerate(lines, 1) if text in line)}:"


FAULTS = [
    ("address", "outside", "void outside("),
    ("trap", "trap", "__builtin_trap()"),
    ("jump", "jump", "void jump("),
]


@pytest.mark.rows(1)
@pytest.mark.parametrize(("what", "kernel", "text"), FAULTS)
def test_without_tools(
    build_program: Build, luthier_run: Callable[..., Outcome], what: str, kernel: str, text: str
) -> None:
    assert line_of(text) in blame(luthier_run("emu:gfx90a", build_program("faults", "-g"), what).err)
    assert f"{kernel}" in blame(luthier_run("emu:gfx90a", build_program("faults"), what).err).partition("+0x")[0]


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize(("what", "kernel", "text"), FAULTS)
def test_under_tools(
    build_program: Build,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    counter: type[Tool],
    what: str,
    kernel: str,
    text: str,
) -> None:
    """Also of kernels that were patched before, and come from the cache."""
    for tool in (counter(), counter(), Everywhere(make_module(HOOKS, "gfx90a"), "heavy")):
        ran = under_tools("emu:gfx90a", [tool], build_program("faults", "-g"), what)
        assert ran.code == -signal.SIGABRT
        line = blame(ran.err)
        assert "the program's own, 0x" in line
        assert line_of(text) in line
        assert "hook" not in line
    plain = blame(under_tools("emu:gfx90a", [counter()], build_program("faults"), what).err)
    assert "the program's own, 0x" in plain
    assert kernel in plain.partition("the program's own")[2].partition("+0x")[0]


def test_a_hook(build_program: Build, under_tools: UnderTools, make_module: Callable[..., ToolModule]) -> None:
    module = make_module(HOOKS, "gfx90a")
    for _ in range(2):
        line = blame(under_tools("emu:gfx90a", [Everywhere(module, "bad")], build_program("faults", "-g"), "trap").err)
        assert "in hook bad " in line
        assert f"of {module.name}, inserted at 0x" in line
        assert "faults.hip:" in line
        assert "the program's own" not in line


def test_a_hook_that_points_share(
    build_program: Build, under_tools: UnderTools, make_module: Callable[..., ToolModule]
) -> None:
    """The report has the hook's call, which is at the kernel's first instruction."""
    tool = Everywhere(make_module(HOOKS, "gfx90a"), "bad_and_heavy")
    line = blame(under_tools("emu:gfx90a", [tool], build_program("faults", "-g"), "address").err)
    assert "in hook bad_and_heavy " in line
    place = re.search(r"which several points share, called at 0x\w+ in \w+\+(0x\w+)", line)
    assert place is not None, line
    assert place[1] == "0x0"
    assert "faults.hip:" in line.partition("called at")[2]
