"""Work-groups at the ends of a grid that is no multiple of them are smaller: their waves, too, keep live registers in
parts of LDS of their own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
from crowded import WIDE, full
from luthier import InstrumentationTask, Tool, ToolModule, patch_object
from luthier.objects import CodeObject, load_object
from luthier.objects.editor import ObjectEditor
from luthier.tool.task import reg

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


class Wide(Tool):
    """A hook that counts lanes at every instruction of a kernel whose stack nobody knows."""

    name = "wide"

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        task.most_stack = None
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.module.wide, instruction.index % 4, reg("v0"))


@pytest.mark.covering(0)
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

    object = full(compile_object, target, uneven=True, flags=["-mcode-object-version=4"])  # as old a ROCr loads it
    (report,) = patch_object(object, Wide(module).instrument, strict=True).report.kernels
    assert report.in_lds > 0
    command = [*raw_program(target, "raw_uneven", object=object), *launches()]
    alone = luthier_run(f"emu:{target}", *command)
    lines = alone.out.splitlines()
    assert (alone.code, len(lines)) == (0, len(SHAPES)), alone
    assert all(len(set(values)) > len(values) / 2 for values in map(str.split, lines))
    ran = under_tools(f"emu:{target}", [Wide(module)], *command)
    assert (ran.code, ran.out) == (0, alone.out)
    active = sum(lanes for _, counts in executed(f"emu:{target}", *command) for _, lanes in counts.values())
    assert ("lanes", active) in [(name, int(value)) for _, name, value in ran.variables["wide"]]


LAUNCHES = ("320x1x1,640x1x1,0", "512x1x1,1024x1x1,0", "300x1x1,600x1x1,0")
"""The largest work-group that `small_groups` leaves room for, one that is larger, and the largest it allows."""


def small_groups(compile_object: Callable[..., Path], target: str) -> CodeObject:
    """A kernel that can have work-groups of 512 work-items, of which its metadata say that they have 300 at most."""
    object = full(compile_object, target, lanes=512, uneven=True, flags=["-mcode-object-version=4"])
    metadata = copy.deepcopy(object.metadata)
    metadata["amdhsa.kernels"][0][".max_flat_workgroup_size"] = 300
    editor = ObjectEditor(object)
    editor.set_metadata(metadata)
    return load_object(editor.finish())


@pytest.mark.covering(0)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_larger_groups_than_metadata_allow_run_as_they_are(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    under_tools: Callable[..., RunUnderTools],
    target: str,
) -> None:
    """HIP refuses them; by HSA they run, and hooks have room for registers of the waves of those that are allowed."""
    tool = Wide(make_module(WIDE, target))
    object = small_groups(compile_object, target)
    report = patch_object(object, tool.instrument, strict=True).report
    assert report.kernels[0].in_lds > 0
    command = [*raw_program(target, "raw_uneven", object=object), *LAUNCHES]
    alone = luthier_run(f"emu:{target}", *command)
    assert (alone.code, len(alone.out.splitlines())) == (0, len(LAUNCHES)), alone
    ran = under_tools(f"emu:{target}", [tool], *command)
    assert (ran.code, ran.out) == (0, alone.out)
    assert ran.kernels()["crowded"]["instrumented"] == 2
    assert "launches with more than 320 work-items a work-group run as they are" in ran.err + str(ran.summary)


@pytest.mark.covering(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_larger_groups_of_kernels_patched_on_disk_are_stopped(
    make_module: Callable[..., ToolModule],
    compile_object: Callable[..., Path],
    raw_program: Callable[..., list[Path]],
    luthier_run: Callable[..., Outcome],
    target: str,
) -> None:
    """Nobody else looks at how large they are: the wave that has no part of LDS stops before it uses another one's."""
    patched = patch_object(
        small_groups(compile_object, target), Wide(make_module(WIDE, target)).instrument, strict=True
    )
    command = raw_program(target, "raw_uneven", object=load_object(patched.data))
    ran = luthier_run(f"emu:{target}", *command, LAUNCHES[1])
    assert ran.code != 0
    assert "trap 2" in ran.err
    assert "when the kernel begins" in ran.err
