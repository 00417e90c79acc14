"""Random kernels that clang compiled, under the tools of examples/tools: outputs and counters equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from effort import EVERYTHING, FAMILIES
from luthier.module import ToolModule
from luthier.objects import load_object
from luthier.tool import Tool
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from random_sources import GROUPS, LANES, TOGETHER, Choice, all_pairs, choices, source_of
from shipped import NAMES, tool_of
from shipped_tools import shipped_tools

CHANGING = {"instruction_replace", "register_write", "lift_dump", "launch_log", "value_log"}
"""Tools that change what kernels do, insert nothing into them, or must be told where to look."""
SHIPPED = shipped_tools()
TOOLS = tuple(name for name in NAMES if name not in CHANGING)
ALL, FEW = 200, 10
CHOSEN = choices(FAMILIES, TOOLS, ALL if EVERYTHING else FEW)
SOURCES = [CHOSEN[first : first + TOGETHER] for first in range(0, len(CHOSEN), TOGETHER)]
WORDS = GROUPS * LANES


@pytest.fixture(scope="session")
def tools(make_module: Callable[..., ToolModule]) -> Callable[[str, str], Tool]:
    return cache(lambda name, target: tool_of(make_module, name, [target], **SHIPPED[name].trial))


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    "kernels", SOURCES, ids=lambda kernels: f"{kernels[0].target}{kernels[0].level}-{kernels[0].number}"
)
def test_outputs_and_counters_are_the_originals(compile_object, tools, kernels: list[Choice]) -> None:
    object = load_object(compile_object(source_of(kernels), kernels[0].target, kernels[0].level))
    buffers = {"buffer": "uint32", "count": WORDS}, {"buffer": "uint32", "count": WORDS, "fill": "random"}
    for kernel in kernels:
        plan = LaunchPlan(f"k{kernel.number}", (GROUPS, 1, 1), (LANES, 1, 1), buffers)
        try:
            verdict = verify_kernel(object, tools(kernel.tool, kernel.target), plan)
            assert verdict.problems == ()
            assert verdict.instructions[0] > 0
        except BaseException as problem:
            problem.add_note(f"{kernel}")
            raise


def test_every_pair_is_there() -> None:
    """Every pair of the kernel's features, target, level and tool occurs."""
    combined = {frozenset(pair) for one in choices(FAMILIES, TOOLS, ALL) for pair in one.pairs}
    missing = {frozenset(pair) for pair in all_pairs(FAMILIES, TOOLS)} - combined
    assert not missing
