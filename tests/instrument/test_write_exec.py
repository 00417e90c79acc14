"""Hooks that set EXEC for the application, compared with an equal edit of the application."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from luthier import immediate, open_device
from luthier.isa.registers import SCC
from luthier.lifting import Instruction
from luthier.objects import CodeObject
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan
from random_kernels import WAVES, random_kernel

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
"""Of each family."""
SITES = 1 << 12

HOOKS = f"""
__device__ uint32_t lanes[{SITES}];
LUTHIER_HOOK_ANNOTATE narrow(uint64_t mask) {{ luthier::writeExec(__builtin_amdgcn_read_exec() & mask); }}
LUTHIER_HOOK_ANNOTATE widen(uint64_t mask) {{ luthier::writeExec(__builtin_amdgcn_read_exec() | mask); }}
/// What the hook itself does after it is done in the lanes that were active.
LUTHIER_HOOK_ANNOTATE narrow_first(uint64_t mask) {{
  luthier::writeExec(__builtin_amdgcn_read_exec() & mask);
  atomicAdd(&lanes[{SITES - 1}], 1u);
}}
LUTHIER_HOOK_ANNOTATE count(uint32_t site) {{ atomicAdd(&lanes[site], 1u); }}
"""


def run(object: CodeObject, target: str, instrument: Callable[[InstrumentationTask], None]) -> tuple[bytes, list[int]]:
    """The kernel's output and what was counted."""
    plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": WAVES * 64, "fill": "zero"},))
    data = patch_object(object, instrument, ["k"], strict=True).data
    module = open_device(f"emu:{target}", threads=1, check="waits").load(data)
    arguments = plan.materialise()
    size = object.kernels["k"].wave_size
    module.kernel("k").launch(*arguments, grid=plan.grid, block=(size, 1, 1))
    counts = np.frombuffer(module.variable("lanes").read(), np.uint32).tolist()
    return arguments[0].tobytes(), counts


def combine(operation: str, mask: int, wide: bool) -> str:
    lines = [f"s_{operation}_b32 exec_lo, exec_lo, {mask & 0xFFFFFFFF:#x}"]
    return "\n".join([*lines, *([f"s_{operation}_b32 exec_hi, exec_hi, {mask >> 32:#x}"] if wide else [])])


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "seed"), [(target, 3 * n + k) for n, target in enumerate(TARGETS) for k in range(3)]
)
def test_as_an_edit_of_the_application(hooks, target: str, seed: int) -> None:
    """At random points of random kernels, with what every lane passes counted before and behind."""
    object = random_kernel(3000 + seed, target, calls=seed % 2 == 0, saturated=seed % 3 == 0)
    wide = object.kernels["k"].wave_size == 64
    rng = random.Random(seed)

    def sites(task: InstrumentationTask) -> list[tuple[Instruction, int]]:
        rng.seed(seed)
        live = task.lifted.liveness
        free = [one for one in task.instructions if not live.live_before(one.index).active_bits >> SCC & 1]
        chosen = rng.sample(free[10:], min(6, len(free) - 10))
        return [(one, rng.getrandbits(64) | rng.getrandbits(64)) for one in chosen]

    def hooked(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hooks.count, immediate(instruction.index))
        for instruction, mask in sites(task):
            task.insert_hook_before(instruction, hooks.narrow, immediate(mask))

    def edited(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hooks.count, immediate(instruction.index))
        for instruction, mask in sites(task):
            task.add_before(instruction, combine("and", mask, wide))

    assert run(object, target, hooked) == run(object, target, edited)


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
def test_lanes_are_turned_on(hooks, target: str) -> None:
    """Where few lanes are active at first; what a hook does behind `writeExec` is done in the lanes it began in."""
    object = random_kernel(3100, target)
    wide = object.kernels["k"].wave_size == 64
    few, more = 0x0F00_0000_0000_00F1, 0x00F0_0000_0FF0_0000

    def instrument(task: InstrumentationTask, by_hook: bool) -> None:
        first, *_, last = list(task.instructions)[4:8]
        if by_hook:
            task.insert_hook_before(first, hooks.narrow_first, immediate(few))
            task.insert_hook_before(last, hooks.widen, immediate(more))
        else:
            task.add_before(first, combine("and", few, wide))
            task.add_before(last, combine("or", more, wide))
        for each in list(task.instructions)[8:]:
            task.insert_hook_before(each, hooks.count, immediate(each.index))

    output, counts = run(object, target, lambda task: instrument(task, True))
    assert counts.pop() == WAVES * object.kernels["k"].wave_size
    expected, truth = run(object, target, lambda task: instrument(task, False))
    assert truth.pop() == 0
    assert (output, counts) == (expected, truth)
