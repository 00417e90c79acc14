"""Ends of waves: each path to an end has counters of its own."""

from __future__ import annotations

import random

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from effort import EVERYTHING, FAMILIES
from luthier.isa.targets import target_named
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.counts import Cell
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan
from test_truth import PLANS, launch, truth

GROUPS = 24
KERNELS = 200 if EVERYTHING else 6
HOOKS = "__device__ uint64_t sum = 11;"


def early_exits(seed: int, target: str) -> CodeObject:
    """A kernel of blocks that go forwards to each other and to several ends, by every kind of way; the ends do nothing
    else, or little. One block may be a loop, and one may call a function in which waves end, too."""
    rng = random.Random(seed)
    count = rng.randrange(2, 8)
    ends = [f"end{number}" for number in range(rng.choice((1, 1, 2, 3)))]
    places = {end: rng.randrange(count) for end in ends[1:]}
    early = target_named(target).major >= 11
    lines = ["workgroup_id s6"]
    lines += ["s_mul_i32 s20, s6, 0x9E3779B1", f"s_add_i32 s20, s20, {rng.randrange(1 << 31):#x}"]
    loop, calling = rng.randrange(2 * count), rng.randrange(3 * count)

    def end(name: str) -> list[str]:
        before = [[], [], ["s_nop 0"], ["s_mov_b32 s21, 5"]]
        release = ["s_nop 0", "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)"] if early and rng.random() < 0.4 else []
        return [f"{name}:", *rng.choice(before), *release, "s_endpgm"]

    for number in range(count):
        lines += [f"block{number}:", "s_mul_i32 s20, s20, 0x19660D", "s_add_i32 s20, s20, 0x3C6EF35F"]
        lines += ["v_mov_b32_e32 v1, s20"] * rng.randrange(3)
        if number == loop:
            again = [f"again{number}:", "s_sub_u32 s22, s22, 1", "s_cmp_lg_u32 s22, 0"]
            lines += [f"s_lshr_b32 s22, s20, {rng.randrange(28, 31)}", "s_add_u32 s22, s22, 1", *again]
            lines += [f"s_cbranch_scc1 again{number}"]
        if number == calling:
            lines += ["call 30, 31, f0"]
        to = rng.choice([*ends, *ends, *(f"block{later}" for later in range(number + 1, count))])
        bit = f"s_bitcmp1_b32 s20, {rng.randrange(24, 32)}"
        kind = rng.randrange(5)
        if kind < 3:
            lines += [bit, f"s_cbranch_scc{kind % 2} {to}"]
        elif kind == 3:
            lines += [bit, f"s_cbranch_scc1 {to}", f"s_branch {rng.choice(ends)}"]
        for name, place in places.items():
            if place == number:  # control falls into it
                lines += end(name)
    lines += end(ends[0])
    lines += [".p2align 8\n.type f0,@function\nf0:", "s_bitcmp1_b32 s20, 31", "s_cbranch_scc0 f0_return", "s_endpgm"]
    lines += ["f0_return:", "s_setpc_b64 s[30:31]"]
    return assembled(kernel_text(function("k", lines), target, sgprs=64, vgprs=8), target)


def check(object: CodeObject, plan: LaunchPlan, module, *, waves_given: bool) -> tuple[int, int]:
    """Check a profile and a sum separately; return wave-instructions without and with the profile."""
    tasks: list[InstrumentationTask] = []

    def profile(task: InstrumentationTask) -> None:
        task.waves_given = waves_given
        task.count(task.instructions)
        tasks.append(task)

    def sum_up(task: InstrumentationTask) -> None:
        task.count(task.instructions, into=Cell(module, "sum"))

    _, _, stats = launch(object, object.data, plan)
    patched = patch_object(object, profile, [plan.kernel], strict=True)
    _, loaded, spent = launch(object, patched.data, plan)
    counts = patched.counters[plan.kernel].read(loaded)
    executions, _ = truth(tasks[0], stats)
    np.testing.assert_array_equal(counts.executions, executions)
    summed = patch_object(object, sum_up, [plan.kernel], strict=True)
    _, loaded, _ = launch(object, summed.data, plan)
    assert loaded.variable("sum").read(int) == 11 + stats.instructions
    return stats.instructions, spent.instructions


@pytest.mark.rows(1)
@pytest.mark.parametrize("waves_given", [False, True], ids=["counted", "given"])
@pytest.mark.parametrize("target", FAMILIES)
def test_early_exits(module, target: str, waves_given: bool) -> None:
    for seed in range(KERNELS):
        plan = LaunchPlan("k", (GROUPS, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 1},))
        try:
            check(early_exits(seed, target), plan, module, waves_given=waves_given)
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("target", FAMILIES)
def test_who_has_work_says_nothing(app, module, target: str) -> None:
    """Only waves without an element say so: the others run what they ran before."""
    object = load_object(app("vector_add", target))
    before, after = check(object, PLANS["vector_add"], module, waves_given=True)
    full = LaunchPlan("vector_add", (4, 1, 1), (64, 1, 1), (*[{"buffer": "float32", "count": 256}] * 3, 256))
    none = LaunchPlan("vector_add", (4, 1, 1), (64, 1, 1), (*[{"buffer": "float32", "count": 256}] * 3, 0))
    assert before <= after
    before, after = check(object, full, module, waves_given=True)
    assert after == before
    before, after = check(object, none, module, waves_given=True)
    assert after > before


def test_hooks_at_ends_come_first(app, module, make_module) -> None:
    """A hook at the end of a wave finds the lanes of the application."""
    source = """
    __device__ uint64_t lanes = 0;
    LUTHIER_HOOK_ANNOTATE at_end() { atomicAdd((unsigned long long *)&lanes, 1ull); }
    """
    hooks = make_module(source, "gfx90a")
    object = load_object(app("vector_add", "gfx90a"))
    plan = PLANS["vector_add"]

    def instrument(task: InstrumentationTask, *, count: bool) -> None:
        task.hoist = False
        task.insert_hook_at_kernel_exit(hooks.at_end)
        if count:
            task.count(task.instructions, into=Cell(module, "sum"))

    lanes = []
    for count in (False, True):
        patched = patch_object(object, lambda task, count=count: instrument(task, count=count), strict=True)
        _, loaded, _ = launch(object, patched.data, plan)
        lanes.append(loaded.variable("lanes").read(int))
    assert lanes[0] == lanes[1] != 0
