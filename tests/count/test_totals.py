"""Sums that the device adds to variables of tools, alone and beside hooks, of one tool and of several."""

from __future__ import annotations

import random

import numpy as np
import pytest
from effort import EVERYTHING, FAMILIES
from luthier.errors import HookError, PatchError
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.counts import Cell, CounterBudget
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify.launch_plan import LaunchPlan
from random_kernels import WAVES, random_kernel
from test_truth import APPS, BUDGETS, PLANS, launch, truth

KERNELS = 100 if EVERYTHING else 4
HOOKS = """
__device__ uint64_t sums[70] = {5, 6, 7};
__managed__ uint64_t managed = 9;
__device__ uint32_t narrow = 0;
__device__ uint64_t hooked = 0;

LUTHIER_HOOK_ANNOTATE count_lanes() {
  luthier::sAtomicAdd<uint64_t>(&hooked, __builtin_popcountll(__builtin_amdgcn_read_exec()));
}

/// Clobbers SCC and VCC, narrows EXEC, and reads registers.
LUTHIER_HOOK_ANNOTATE busy(uint32_t scalar, uint32_t vector) {
  if (vector & 1)
    atomicAdd(reinterpret_cast<unsigned long long *>(&hooked), 0ull + (scalar == 77));
  else if (vector > scalar)
    atomicAdd(reinterpret_cast<unsigned long long *>(&hooked), 0ull);
}

LUTHIER_HOOK_ANNOTATE read_scc(uint32_t scc) {
  if (scc > 1) luthier::sAtomicAdd<uint64_t>(&hooked, 1000000);
}

LUTHIER_HOOK_ANNOTATE write_exec() { luthier::writeReg<uint32_t>(luthier::EXEC_LO, 1); }
"""
OTHER = """
__device__ uint64_t other[3] = {0, 0, 0};
"""


@pytest.fixture(scope="module")
def other(make_module):
    return make_module(OTHER, *FAMILIES)


def check_totals(object, plan: LaunchPlan, module, other, seed: int, budget: CounterBudget) -> None:
    """Random sums over random instructions, with hooks at random places."""
    rng = random.Random(seed)
    cells = [Cell(module, "sums", index) for index in sorted(rng.sample(range(70), rng.choice((1, 3, 6))))]
    cells += [Cell(module, "managed"), Cell(other, "other", 1)]
    wanted: dict[Cell, list[tuple[str, int, int]]] = {cell: [] for cell in cells}
    tasks, hooked = [], []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        task.counter_budget = budget
        everything = list(task.instructions)
        for cell in cells:
            for _ in range(rng.choice((1, 1, 3))):
                per, weight = rng.choice(("wave", "lane")), rng.choice((1, 1, 3, -2, 5000, 70000))
                sites = rng.sample(everything, rng.randrange(1, len(everything)))
                task.count(sites, weight, per, cell)
                wanted[cell] += [(per, weight, site.index) for site in sites]
        if seed % 2:
            request = task.count(everything)
            task.count(everything[0], per="lane")
            wanted[Cell(module, "sums", -1)] = []
            profiles.append(request)
        for instruction in everything:
            draw = rng.random()
            if draw < 0.1:
                task.insert_hook_before(instruction, module.busy, reg("s4"), reg("v0"))
            elif draw < 0.2:
                task.insert_hook_before(instruction, module.count_lanes)
                hooked.append(instruction.index)
            elif draw < 0.3:
                task.insert_hook_before(instruction, module.read_scc, reg("scc"))

    profiles: list = []
    patched = patch_object(object, instrument, [plan.kernel])
    before, _, stats = launch(object, object.data, plan)
    after, loaded, _ = launch(object, patched.data, plan)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    (task,) = tasks
    executions, lanes = truth(task, stats)
    initial = {"sums": 5, "managed": 9}
    for cell in cells:
        start = {0: 5, 1: 6, 2: 7}.get(cell.index, 0) if cell.variable == "sums" else initial.get(cell.variable, 0)
        total = sum(weight * int((lanes if per == "lane" else executions)[at]) for per, weight, at in wanted[cell])
        value = int(loaded.variable(cell.variable).read(np.uint64)[cell.index])
        assert value == (start + total) % 2**64, (cell.variable, cell.index)
    for request in profiles:
        counts = patched.counters[plan.kernel].read(loaded)
        np.testing.assert_array_equal(counts.executions, executions)
        assert counts.total(request) == int(executions.sum())
    left_out = {task.insertions[one.insertion].at for one in patched.report.refusals}
    if not left_out:
        assert loaded.variable("hooked").read(int) == int(lanes[hooked].sum())


@pytest.mark.rows(1)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", FAMILIES)
def test_sums_beside_hooks(app, module, other, target: str, budget: str) -> None:
    for seed, name in enumerate(APPS):
        check_totals(load_object(app(name, target)), PLANS[name], module, other, seed, BUDGETS[budget])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_sums_of_random_kernels(module, other, target: str) -> None:
    plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64 * WAVES},))
    for seed in range(KERNELS):
        object = random_kernel(seed, target, calls=seed % 2 == 0, saturated=seed % 4 > 1)
        try:
            check_totals(object, plan, module, other, seed, list(BUDGETS.values())[seed // 2 % len(BUDGETS)])
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


def test_a_single_sum_is_one_counter(app, module) -> None:
    """However many blocks: each way adds what its circle weighs."""

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions, into=Cell(module, "managed"))

    report = patch_object(load_object(app("divergent_loop", "gfx90a")), instrument).report.kernels[0]
    assert (report.counters, report.counts, report.sites) == (1, 1, 0)


def test_refusals(app, module) -> None:
    object = load_object(app("vector_add", "gfx90a"))

    def trying(use):
        with pytest.raises(HookError) as problem:
            patch_object(object, use)
        return problem.value.message

    assert "no variable 'absent'" in trying(lambda task: task.count(0, into=Cell(module, "absent")))
    assert "no 64-bit element 70" in trying(lambda task: task.count(0, into=Cell(module, "sums", 70)))
    assert "no 64-bit element 0" in trying(lambda task: task.count(0, into=Cell(module, "narrow")))
    assert "no reachable instruction" in trying(lambda task: task.count(10**6))
    assert "does not fit 32 bits" in trying(lambda task: task.count(task.instructions, 1 << 31))
    assert "not 'thread'" in trying(lambda task: task.count(task.instructions, per="thread"))

    def lanes(task: InstrumentationTask) -> None:
        task.count(task.instructions, per="lane")
        task.insert_hook_before(next(task.instructions), module.write_exec)

    with pytest.raises(PatchError, match="where hooks or added instructions write EXEC"):
        patch_object(object, lanes, strict=True)
    with pytest.raises(PatchError, match="lanes cannot be counted with a weight of"):
        patch_object(
            object, lambda task: task.count(task.instructions, 1 << 30, "lane", Cell(module, "managed")), strict=True
        )
