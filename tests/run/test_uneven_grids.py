"""Work-groups at the ends of a grid that is no multiple of them are smaller: their waves, too, keep live registers in
parts of LDS of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crowded import WIDE, full
from luthier import InstrumentationTask, Tool, ToolModule, patch_object
from luthier.task import reg

from .conftest import TARGETS, Outcome, RunUnderTools

SHAPES = [  # the work-group; how many whole ones the grid has, and the work-items that are left: in each dimension
    ((160, 1, 1), (2, 1, 1), (77, 0, 0)),
    ((16, 10, 1), (1, 2, 1), (3, 7, 0)),
    ((5, 8, 4), (2, 1, 1), (3, 3, 1)),
    ((1, 3, 53), (2, 1, 1), (0, 1, 51)),
    ((100, 2, 1), (0, 1, 1), (99, 1, 0)),
    ((7, 1, 9), (1, 2, 0), (5, 0, 8)),
]
"""In most of them waves hold parts of several rows."""


def launches() -> list[str]:
    """As the program takes them; dynamic LDS is no multiple of 4."""
    found = []
    for number, (block, whole, rest) in enumerate(SHAPES):
        grid = [size * many + more for size, many, more in zip(block, whole, rest, strict=True)]
        found.append(",".join(["x".join(map(str, block)), "x".join(map(str, grid)), str(1031 * (number % 2))]))
    return found


@pytest.mark.parametrize("target", TARGETS)
def test_live_registers_in_lds(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    executed: Callable[..., list[tuple[bytes, dict[int, tuple[int, int]]]]],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    module = make_module(WIDE, target)

    class Wide(Tool):
        """The hook at every instruction of a kernel whose stack nobody knows."""

        name = "wide"

        def instrument(self, task: InstrumentationTask) -> None:
            task.most_stack = None
            for instruction in task.instructions:
                task.insert_hook_before(instruction, module.wide, instruction.index % 4, reg("v0"))

    object = full(compile_object, target, uneven=True, flags=["-mcode-object-version=4"])  # as old a ROCr loads it
    (report,) = patch_object(object, Wide().instrument, strict=True).report.kernels
    assert report.in_lds > 0
    command = [*raw_program(target, "raw_uneven", object=object), *launches()]
    alone = luthier_run(f"emu:{target}", *command)
    lines = alone.out.splitlines()
    assert (alone.code, len(lines)) == (0, len(SHAPES)), alone
    assert all(len(set(values)) > len(values) / 2 for values in map(str.split, lines))
    ran = under_tools(f"emu:{target}", [Wide()], *command)
    assert (ran.code, ran.out) == (0, alone.out)
    active = sum(lanes for _, counts in executed(f"emu:{target}", *command) for _, lanes in counts.values())
    assert ("lanes", active) in [(name, int(value)) for _, name, value in ran.variables["wide"]]
