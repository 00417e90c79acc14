"""Hooks that only count become counters, and variables get the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from effort import FAMILIES
from luthier.devices import open_device
from luthier.isa import InstructionFlag
from luthier.lifting import Instruction
from luthier.module import Hook
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from random_kernels import WAVES, random_kernel
from test_truth import APPS, BUDGETS, PLANS, launch, truth

HOOKS = """
__device__ uint64_t sums[8] = {1, 2, 3, 4, 5, 6, 7, 8};
__managed__ uint64_t managed = 9;
__device__ uint32_t narrow = 0;
__device__ uint64_t read_too = 0;

// What is plain
LUTHIER_HOOK_ANNOTATE waves(uint64_t weight) { luthier::sAtomicAdd<uint64_t>(&managed, weight); }
LUTHIER_HOOK_ANNOTATE element(uint32_t index) { luthier::sAtomicAdd<uint64_t>(&sums[index], 3); }
LUTHIER_HOOK_ANNOTATE active() {
  luthier::sAtomicAdd<uint64_t>(&sums[1], 5 * __builtin_popcountll(__builtin_amdgcn_read_exec()));
}
LUTHIER_HOOK_ANNOTATE each_lane() { atomicAdd(reinterpret_cast<unsigned long long *>(&sums[2]), 7ull); }

// What is not
LUTHIER_HOOK_ANNOTATE narrow_sum() { luthier::sAtomicAdd<uint32_t>(&narrow, 1); }
LUTHIER_HOOK_ANNOTATE value(uint64_t scalar) { luthier::sAtomicAdd<uint64_t>(&sums[3], scalar); }
LUTHIER_HOOK_ANNOTATE result() { sums[4] = luthier::sAtomicAdd<uint64_t>(&sums[5], 1); }
LUTHIER_HOOK_ANNOTATE sometimes() {
  if (__lane_id() == 3) atomicAdd(reinterpret_cast<unsigned long long *>(&sums[6]), 1ull);
}
LUTHIER_HOOK_ANNOTATE two() {
  luthier::sAtomicAdd<uint64_t>(&sums[0], 1);
  luthier::sAtomicAdd<uint64_t>(&sums[1], 1);
}
LUTHIER_HOOK_ANNOTATE wraps() {
  const uint32_t narrow = static_cast<uint32_t>(__builtin_popcountll(__builtin_amdgcn_read_exec())) * 0xFFFFFFFDu;
  luthier::sAtomicAdd<uint64_t>(&sums[0], narrow);
}
LUTHIER_HOOK_ANNOTATE other_lanes() { luthier::sAtomicAdd<uint64_t>(&sums[7], __popcll(__ballot(__lane_id() & 1))); }

// What changes lanes
LUTHIER_HOOK_ANNOTATE saved(uint64_t mask) { luthier::writeReg<uint64_t>(luthier::SGPR8, mask); }

// Plain, but somebody looks at the number
LUTHIER_HOOK_ANNOTATE looked_at() { luthier::sAtomicAdd<uint64_t>(&read_too, 1); }
LUTHIER_HOOK_ANNOTATE looks() { if (read_too == 77) narrow = 1; }
"""
LEAVES = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL


@pytest.mark.rows(2)
@pytest.mark.parametrize("per_wave", [False, True])
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_an_instruction_counter_is_hoisted(app, counter: type[Tool], name: str, target: str, per_wave: bool) -> None:
    object, plan = load_object(app(name, target)), PLANS[name]
    verdict = verify_kernel(object, counter(per_wave=per_wave), plan)
    assert verdict.problems == ()
    assert verdict.expected["counter"] == verdict.counters["counter"] > 100
    patch = verdict.patch
    assert patch is not None
    assert patch.hoisted == patch.insertions == patch.sites == patch.requested_sites > 20
    assert verdict.instructions[1] < (1.5 if per_wave else 2.2) * verdict.instructions[0]
    as_hooks = verify_kernel(object, counter(per_wave=per_wave), plan, hoist=False)
    assert as_hooks.patch is not None
    assert as_hooks.patch.hoisted == 0
    assert as_hooks.counters == verdict.counters


def hoisted_alone(object, hook, *arguments) -> bool:
    """Whether a hook before each instruction becomes a count."""
    report = patch_object(
        object,
        lambda task: [task.insert_hook_before(one, hook, *arguments) for one in task.instructions] and None,
    ).report.kernels[0]
    assert report.hoisted in (0, report.insertions)
    assert report.counters == (report.hoisted > 0)
    return report.hoisted > 0


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_what_is_plain(app, module, target: str) -> None:
    object = load_object(app("divergent_loop", target))
    for hook, *arguments in [(module.waves, 3), (module.element, 6), (module.active,), (module.each_lane,)]:
        assert hoisted_alone(object, hook, *arguments), hook
    assert hoisted_alone(object, module.waves, 1 << 20)
    not_plain = [module.narrow_sum, module.result, module.sometimes, module.two, module.wraps, module.other_lanes]
    for hook in not_plain:
        assert not hoisted_alone(object, hook), hook
    assert not hoisted_alone(object, module.value, reg("s[0:1]"))
    assert not hoisted_alone(object, module.waves, 1 << 40)
    assert not hoisted_alone(object, module.element, 8)  # beyond the variable


def test_numbers_that_others_look_at_stay_exact(app, module) -> None:
    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.looked_at)
            task.insert_hook_before(instruction, module.waves, 1)
        task.insert_hook_before(next(task.instructions), module.looks)

    object = load_object(app("divergent_loop", "gfx90a"))
    report = patch_object(object, instrument).report.kernels[0]
    assert 2 * report.hoisted == report.insertions - 1


BRANCH = """
s_load_dwordx2 s[4:5], s[0:1], 0x0
v_cmp_gt_u32_e32 vcc, 16, v0
s_and_saveexec_b64 s[8:9], vcc
s_nop 1
s_or_b64 exec, exec, s[8:9]
s_nop 2
s_nop 3
v_mov_b32_e32 v2, 1
s_endpgm
"""
MASK, LANE = "s_mov_b64 s[8:9], 0xffff", "s_mov_b64 exec, 1"
CHANGED: dict[str, tuple[Callable[[InstrumentationTask, Callable[[str], Instruction], Hook], object], int]] = {
    "nothing": (lambda task, at, saved: None, 64),
    "the mask, by a hook": (lambda task, at, saved: task.insert_hook_before(at("s_nop 1"), saved, 0xFFFF), 16),
    "the mask, by an edit": (lambda task, at, saved: task.add_before(at("s_nop 1"), MASK), 16),
    "lanes, by an edit before": (lambda task, at, saved: task.add_before(at("s_nop 3"), LANE), 64),
    "lanes, by an edit behind": (lambda task, at, saved: task.add_after(at("s_nop 2"), LANE), 1),
    "lanes, in the place of another": (lambda task, at, saved: task.replace(at("s_nop 2"), LANE), 1),
}
"""By hooks and edits, with the lanes that a hook before the last s_nop then sees."""


@pytest.mark.parametrize("what", CHANGED)
def test_lanes_that_hooks_and_edits_change(module, what: str) -> None:
    change, lanes = CHANGED[what]
    object = assembled(kernel_text(function("k", BRANCH.split("\n")), "gfx90a"), "gfx90a")

    def instrument(task: InstrumentationTask) -> None:
        def at(text: str) -> Instruction:
            return next(one for one in task.instructions if one.text == text)

        change(task, at, module.saved)
        task.insert_hook_before(at("s_nop 3"), module.each_lane)

    for hoist in (False, True):
        patched = patch_object(object, instrument, strict=True, hoist=hoist)
        loaded = open_device("emu:gfx90a", threads=1).load(patched.data)
        loaded.kernel("k").launch(np.zeros(64, np.uint32), grid=1, block=64)
        assert np.frombuffer(loaded.variable("sums").read(), np.uint64)[2] == 3 + 7 * lanes


def check(object, plan: LaunchPlan, module, budget: CounterBudget) -> None:
    """The same hooks with and without hoisting: the same values in memory, and those the emulator counted."""
    tasks = []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        task.counter_budget = budget
        for number, instruction in enumerate(task.instructions):
            task.insert_hook_before(instruction, module.waves, number + 1)
            task.insert_hook_before(instruction, module.element, 0)
            task.insert_hook_before(instruction, module.active)
            if not instruction.flags & LEAVES:
                task.insert_hook_after(instruction, module.each_lane)
            if number % 3 == 0:
                task.insert_hook_before(instruction, module.narrow_sum)

    patched = [patch_object(object, instrument, [plan.kernel], strict=True, hoist=hoist) for hoist in (False, True)]
    original, _, stats = launch(object, object.data, plan)
    executions, lanes = truth(tasks[0], stats)
    values = []
    for result in patched:
        arguments, loaded, _ = launch(object, result.data, plan)
        for left, right in zip(original, arguments, strict=True):
            np.testing.assert_array_equal(left, right)
        values.append([loaded.variable(name).read() for name in ("sums", "managed", "narrow")])
    assert values[0] == values[1]
    sums = np.frombuffer(values[1][0], np.uint64)
    assert sums[0] == 1 + 3 * executions.sum()
    assert sums[1] == 2 + 5 * lanes.sum()
    assert patched[1].report.kernels[0].hoisted > 3 * patched[1].report.kernels[0].insertions // 5


@pytest.mark.rows(1)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", FAMILIES)
def test_hoisted_hooks_do_what_hooks_do(app, module, target: str, budget: str) -> None:
    for name in ("vector_add", "function_call"):
        check(load_object(app(name, target)), PLANS[name], module, BUDGETS[budget])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_hoisted_hooks_in_random_kernels(module, target: str) -> None:
    plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64 * WAVES},))
    for seed in range(2):
        check(random_kernel(seed, target, calls=seed == 1), plan, module, BUDGETS["scalars"])
