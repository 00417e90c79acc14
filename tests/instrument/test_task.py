"""Records of a task about inserted hooks, and what patching keeps of a task."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from luthier import immediate
from luthier.errors import HookError, PatchError
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.hook_budget import HookBudget
from luthier.tool.options import PatchOptions
from luthier.tool.task import InstrumentationTask, reg
from msgspec.structs import replace

HOOKS = """
__device__ uint64_t total = 0;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&total, 1); }
LUTHIER_HOOK_ANNOTATE take(uint32_t x) { luthier::sAtomicAdd<uint64_t>(&total, x); }
LUTHIER_HOOK_ANNOTATE point(void *x) { luthier::sAtomicAdd<uint64_t>(&total, reinterpret_cast<uint64_t>(x)); }
LUTHIER_HOOK_ANNOTATE share(__attribute__((address_space(3))) int *x) { luthier::sAtomicAdd<uint64_t>(&total, (int)x); }
LUTHIER_HOOK_ANNOTATE real(float x) { luthier::sAtomicAdd<uint64_t>(&total, x > 0 ? 1 : 2); }
"""
KERNELS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void first(unsigned *out) { out[threadIdx.x] = blockIdx.x; }
extern "C" __global__ void second(unsigned *out) { out[threadIdx.x] += blockIdx.x; }
extern "C" __global__ void third(unsigned *out) { out[threadIdx.x] *= blockIdx.x; }
"""


@pytest.fixture(scope="module")
def module(make_module) -> ToolModule:
    return make_module(HOOKS, "gfx942")


@pytest.fixture(scope="module")
def three(compile_object) -> CodeObject:
    return load_object(compile_object(KERNELS, "gfx942"))


def test_insertions_share_equal_calls_only(module: ToolModule, three: CodeObject) -> None:
    task = InstrumentationTask(lift(three, "first"))
    for _ in range(2):
        for argument in (0, 1, True, False, reg("v0"), reg("s0")):
            task.insert_hook_before(0, module.take, argument)
    calls = [insertion.call for insertion in task.insertions]
    assert calls[:6] == calls[6:]
    assert len({call.arguments for call in calls if call.sources == ((),)}) == 2
    for value in (0.0, -0.0, 0, 1.5, np.float64(0.0), np.float64(-0.0)):
        task.insert_hook_before(0, module.real, value)
    texts = [insertion.call.arguments[0] for insertion in task.insertions[12:]]
    assert texts[0] == texts[2] == texts[4] != texts[1] != texts[3]
    assert texts[5] == texts[1]


def test_numbers_of_a_points_own_share_a_call(module: ToolModule, three: CodeObject) -> None:
    """Whatever the numbers are: what each point has stands in its insertion."""
    task = InstrumentationTask(lift(three, "first"))
    for value in (0, 1, True, 0xFFFFFFFF, 7):
        task.insert_hook_before(0, module.take, immediate(value))
    for value in (0.0, -0.0, 1):
        task.insert_hook_before(0, module.real, immediate(value))
    assert len({one.call for one in task.insertions}) == 2
    words = [0, 1, 1, 0xFFFFFFFF, 7, 0, 0x80000000, 0x3F800000]
    assert [one.numbers for one in task.insertions] == [((word,),) for word in words]
    with pytest.raises(HookError, match=r"argument 1 of hook take.*outside"):
        task.insert_hook_before(0, module.take, immediate(1 << 40))
    assert len(task.insertions) == len(words)


def test_hooks_of_a_kernel_have_a_limit(module: ToolModule, three: CodeObject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("luthier.tool.task.MOST_INSERTIONS", 2)
    task = InstrumentationTask(lift(three, "first"))
    for _ in range(2):
        task.insert_hook_before(0, module.take, 1)
    with pytest.raises(PatchError, match=r"more than 2 hooks take too much memory.*\d+ instructions.*kernel first"):
        task.insert_hook_before(0, module.take, 1)
    assert len(task.insertions) == 2


def test_a_tool_changes_the_options_of_its_own_task(three: CodeObject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task begins as its caller says, and what a tool says holds for this task alone."""
    monkeypatch.setattr(InstrumentationTask, "HOIST", False)
    lifted = lift(three, "first")
    given = PatchOptions(strict=True, most_stack=64, wave_rows=7)
    task, other = InstrumentationTask(lifted, given), InstrumentationTask(lifted, given)
    assert task.options == replace(given, hoist=False)  # None is as usual
    assert InstrumentationTask(lifted, replace(given, hoist=True)).hoist
    task.waves_given, task.most_stack, task.hook_budget = False, None, HookBudget(registers=9)
    assert (task.waves_given, task.most_stack, task.wave_rows) == (False, None, 7)
    changed = replace(given, hoist=False, waves_given=False, most_stack=None, hook_budget=HookBudget(registers=9))
    assert task.options == changed
    assert other.options == replace(given, hoist=False)


def test_the_public_functions_make_the_options(module: ToolModule, three: CodeObject) -> None:
    seen: list[PatchOptions] = []

    def instrument(task: InstrumentationTask) -> None:
        seen.append(task.options)
        task.insert_hook_before(0, module.count)

    patch_object(three, instrument, ["first"], hoist=True)
    patch_object(three, instrument, ["first"], strict=True, hoist=False, solve_sums=True, most_stack=48)
    assert seen == [PatchOptions(hoist=True), PatchOptions(strict=True, hoist=False, solve_sums=True, most_stack=48)]


@pytest.mark.parametrize("argument", [[1], {}, "v0", None])
def test_what_cannot_be_passed(module: ToolModule, three: CodeObject, argument: object) -> None:
    task = InstrumentationTask(lift(three, "first"))
    with pytest.raises(HookError, match="cannot be passed as i32"):
        task.insert_hook_before(0, module.take, argument)  # type: ignore[arg-type]
    assert not task.insertions


@pytest.mark.parametrize("own", [False, True], ids=["", "immediate"])
@pytest.mark.parametrize(("hook", "bits"), [("point", 64), ("share", 32)])
def test_addresses_that_fit_no_pointer(module: ToolModule, three: CodeObject, hook: str, bits: int, own: bool) -> None:
    task, given = InstrumentationTask(lift(three, "first")), immediate if own else int
    for value in (0, (1 << bits) - 1, -1, -(1 << bits - 1)):
        task.insert_hook_before(0, module.hook(hook), given(value))
    for value in (1 << bits, 1 << 70, -(1 << bits - 1) - 1):
        with pytest.raises(HookError, match=rf"argument 1 of hook {hook}.*{value} is outside"):
            task.insert_hook_before(0, module.hook(hook), given(value))


def test_lifted_kernels_are_let_go(module: ToolModule, three: CodeObject) -> None:
    """Without the garbage collector: an object may have thousands of kernels."""
    lifted: list[weakref.ref[object]] = []
    alive: list[int] = []

    def instrument(task: InstrumentationTask) -> None:
        alive.append(sum(one() is not None for one in lifted))
        lifted.append(weakref.ref(task.lifted))
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.count)

    gc.disable()
    try:
        report = patch_object(three, instrument).report
        alive.append(sum(one() is not None for one in lifted))
    finally:
        gc.enable()
    assert [kernel.sites > 0 for kernel in report.kernels] == [True] * 3
    assert alive == [0] * 4
