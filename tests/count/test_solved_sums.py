"""Sums that are completed when a variable is read, so that kernels count them like profiles."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from effort import EVERYTHING, FAMILIES
from luthier.devices import open_device
from luthier.devices.in_process import HereRun
from luthier.errors import DeviceError, ToolError
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.counts import Cell, CounterBudget, KernelCounters, completed
from luthier.tool.observation import TypedVariable
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan
from msgspec.structs import asdict
from random_kernels import WAVES, random_kernel
from test_truth import APPS, BUDGETS, PLANS, launch, truth

KERNELS = 60 if EVERYTHING else 3
SOURCE = """
__device__ uint64_t sums[70] = {5, 6, 7};
__managed__ uint64_t managed = 9;
__device__ uint64_t result = 0;
__device__ uint64_t read = 0;
__device__ uint64_t stored = 0;
__device__ uint64_t handed = 0;
__device__ uint64_t looked_at_managed_pointer = 0;
__device__ uint64_t *address = &handed;
__managed__ uint64_t managed_and_read = 0;
__device__ uint64_t only_named[2] = {0, 0};

LUTHIER_HOOK_ANNOTATE one() { luthier::sAtomicAdd<uint64_t>(&managed, 1); }
LUTHIER_HOOK_ANNOTATE element(uint32_t index, uint64_t weight) { luthier::sAtomicAdd<uint64_t>(&sums[index], weight); }
LUTHIER_HOOK_ANNOTATE each_lane() { atomicAdd(reinterpret_cast<unsigned long long *>(&sums[2]), 7ull); }
LUTHIER_HOOK_ANNOTATE both(bool which) {
  if (which) luthier::sAtomicAdd<uint64_t>(&sums[3], 1);
  else luthier::sAtomicAdd<uint64_t>(&managed, 2);
}
LUTHIER_HOOK_ANNOTATE add_result() { sums[7] = luthier::sAtomicAdd<uint64_t>(&result, 1); }
LUTHIER_HOOK_ANNOTATE add_read() { luthier::sAtomicAdd<uint64_t>(&read, 1); }
LUTHIER_HOOK_ANNOTATE reads() { if (read == 77) luthier::sAtomicAdd<uint64_t>(&only_named[1], 1); }
LUTHIER_HOOK_ANNOTATE stores(uint64_t value) { stored = value; }
LUTHIER_HOOK_ANNOTATE hands() { luthier::sAtomicAdd<uint64_t>(address, 1); }
LUTHIER_HOOK_ANNOTATE reads_managed() { if (managed_and_read == 77) luthier::sAtomicAdd<uint64_t>(&only_named[0], 1); }
LUTHIER_HOOK_ANNOTATE adds_address() { luthier::sAtomicAdd<uint64_t>(&only_named[0], (uint64_t)&only_named[1]); }
"""
ONLY_ADDED = {"managed"}
NOT_ALONE = {"sums", "result", "read", "stored", "handed", "managed_and_read", "only_named"}
ADDING = """
__device__ uint64_t sums[70] = {5, 6, 7};
__managed__ uint64_t managed = 9;
__device__ uint64_t other = 3;
LUTHIER_HOOK_ANNOTATE one() { luthier::sAtomicAdd<uint64_t>(&managed, 1); }
LUTHIER_HOOK_ANNOTATE element(uint32_t index, uint64_t weight) { luthier::sAtomicAdd<uint64_t>(&sums[index], weight); }
LUTHIER_HOOK_ANNOTATE each_lane() { atomicAdd(reinterpret_cast<unsigned long long *>(&sums[2]), 7ull); }
LUTHIER_HOOK_ANNOTATE value(uint32_t scalar) { luthier::sAtomicAdd<uint64_t>(&sums[3], scalar); }
LUTHIER_HOOK_ANNOTATE both(bool which) {
  if (which) luthier::sAtomicAdd<uint64_t>(&sums[4], 1);
  else luthier::sAtomicAdd<uint64_t>(&managed, 2);
}
"""


@pytest.fixture(scope="module")
def module(make_module):
    """Of variables that are only added to."""
    return make_module(ADDING, *FAMILIES)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_what_hooks_do_with_variables(make_module, module, target: str) -> None:
    id = TargetId.parse(target)
    assert all(module.contents_for(id).only_adds_to(name) for name in ("sums", "managed", "other"))
    mixed = make_module(SOURCE, *FAMILIES)
    names = {name for name in (*ONLY_ADDED, *NOT_ALONE) if mixed.contents_for(id).only_adds_to(name)}
    assert names == ONLY_ADDED


def run_twice(object: CodeObject, patched, plan: LaunchPlan):
    """The patched object launched twice on one device, and what its variables hold after the first, in between written
    anew."""
    device = open_device(f"emu:{object.target.target.name}")
    loaded = device.load(patched.data)
    run = HereRun(loaded, patched)
    seen = []
    for _ in range(2):
        arguments = plan.materialise()
        loaded.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
        seen.append({one.name: one.read(np.uint64) for one in run.variables()})
        for variable in run.variables():
            run.initialise(variable.name, np.full(variable.size // 8, 1000, np.uint64))
            assert (variable.read(np.uint64) == 1000).all()
    return arguments, seen, run, device.stats


def test_an_unknown_variable() -> None:
    patched: Any = SimpleNamespace(report=SimpleNamespace(variables=["total"]), sums={})
    with pytest.raises(ToolError, match="no variable 'totl'; their hooks use total"):
        HereRun(None, patched).initialise("totl", 1)


class Kept(TypedVariable):
    """A variable in this process's memory."""

    data = b""

    def _load(self) -> bytes:
        return self.data

    def _store(self, data: Any) -> None:
        self.data = bytes(data)


def test_numbers_that_a_variable_cannot_hold() -> None:
    variable = Kept("limit", 4, "float")
    for large in (1e300, 10**400):
        with pytest.raises(DeviceError, match="limit of type float cannot hold 1"):
            variable.put(large)
    for value in (np.inf, 0.1):
        variable.put(value)
        assert variable.data == np.float32(value).tobytes()


def check(object: CodeObject, plan: LaunchPlan, module, seed: int, budget: CounterBudget) -> int:
    """Random sums, hooks that count, and hooks that stay; instructions that were added."""
    rng = random.Random(seed)
    cells = [Cell(module, "sums", index) for index in rng.sample(range(10, 70), rng.choice((1, 2, 5)))]
    cells += [Cell(module, "managed"), Cell(module, "other")]
    tasks: list[InstrumentationTask] = []
    wanted: list[tuple[str, int, str, int, int]] = []
    requests = []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        task.counter_budget = budget
        task.waves_given = seed % 3 != 1
        everything = list(task.instructions)
        for cell in cells:
            for _ in range(rng.choice((1, 2))):
                per, weight = rng.choice(("wave", "wave", "lane")), rng.choice((1, 1, 3, -2, 70000, -(1 << 31)))
                if per == "lane":
                    weight = rng.choice((1, -2))
                sites = rng.sample(everything, rng.randrange(1, len(everything)))
                task.count(sites, weight, per, cell)
                wanted.extend((cell.variable, cell.index, per, weight, site.index) for site in sites)
        for instruction in everything:
            draw = rng.random()
            if draw < 0.3:
                task.insert_hook_before(instruction, module.element, 5, 11)
                wanted.append(("sums", 5, "wave", 11, instruction.index))
            elif draw < 0.35 and seed % 2:
                task.insert_hook_before(instruction, module.each_lane)
                wanted.append(("sums", 2, "lane", 7, instruction.index))
        if seed % 2:
            requests.append(task.count(everything))
        if seed % 5 == 0 and budget == CounterBudget():  # others leave too few registers for rows
            task.count(everything, granularity="wave")
            task.wave_rows = 4

    patched = patch_object(object, instrument, [plan.kernel], solve_sums=True)
    before, _, stats = launch(object, object.data, plan)
    after, seen, run, spent = run_twice(object, patched, plan)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    executions, lanes = truth(tasks[0], stats)
    for variables, first in zip(seen, (True, False), strict=True):
        for name, values in variables.items():
            total = {0: 5, 1: 6, 2: 7} if name == "sums" else {0: {"managed": 9, "other": 3}[name]}
            total = {index: total.get(index, 0) if first else 1000 for index in range(len(values))}
            for variable, index, per, weight, at in wanted:
                if variable == name:
                    total[index] += weight * int((lanes if per == "lane" else executions)[at])
            assert [value % 2**64 for value in total.values()] == values.tolist(), name
    for request in requests:
        (counts,) = run.counts()
        np.testing.assert_array_equal(counts.executions, 2 * executions)
        assert counts.total(request) == 2 * int(executions.sum())
    counters = patched.sums[plan.kernel]
    again = KernelCounters.of_json(
        tasks[0].lifted, json.loads(json.dumps(counters.to_json(tasks[0].modules))), tasks[0].modules
    )
    assert again.sums == counters.sums or list(map(asdict, again.sums)) == list(map(asdict, counters.sums))
    return spent.instructions - stats.instructions


@pytest.mark.rows(4)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_sums_of_programs(app, module, name: str, target: str, budget: str) -> None:
    for seed in range(3):
        check(load_object(app(name, target)), PLANS[name], module, seed, BUDGETS[budget])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_sums_of_random_kernels(module, target: str) -> None:
    plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64 * WAVES},))
    for seed in range(KERNELS):
        object = random_kernel(seed, target, calls=seed % 2 == 0, saturated=seed % 4 > 1)
        try:
            check(object, plan, module, seed, list(BUDGETS.values())[seed % len(BUDGETS)])
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


@pytest.mark.rows(6)
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_a_sum_costs_what_a_profile_costs(app, module, name: str, target: str) -> None:
    """Also where it is asked for by hooks, and where both are asked for."""
    object, plan = load_object(app(name, target)), PLANS[name]

    def profile(task: InstrumentationTask) -> None:
        task.count(task.instructions)

    def total(task: InstrumentationTask) -> None:
        task.count(task.instructions, into=Cell(module, "managed"))

    def hooks(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.one)

    def all_of_it(task: InstrumentationTask) -> None:
        for part in (profile, total, hooks):
            part(task)
        for index in range(5):
            task.count(list(task.instructions)[index::5], index, into=Cell(module, "sums", index))

    spent = {}
    _, _, stats = launch(object, object.data, plan)
    for instrument in (profile, total, hooks, all_of_it):
        patched = patch_object(object, instrument, strict=True, solve_sums=True)
        _, loaded, counters = launch(object, patched.data, plan)
        spent[instrument] = counters.instructions
        if instrument is not profile:
            times = 2 if instrument is all_of_it else 1
            assert HereRun(loaded, patched).total("managed") == 9 + times * stats.instructions
            assert loaded.variable("managed").read(int) == 9  # nothing was added to on the device
    assert spent[total] <= spent[profile] == spent[all_of_it]
    assert spent[hooks] == spent[total]
    assert set(patch_object(object, total, solve_sums=True).counters) == set()


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", FAMILIES)
def test_code_without_branches_needs_no_addition(compile_object, module, target: str) -> None:
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void k(unsigned *out) { out[blockIdx.x * 64 + threadIdx.x] += 3; }
    """
    object = load_object(compile_object(source, target))
    plan = LaunchPlan("k", (3, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 192},))
    patched = patch_object(
        object, lambda task: task.count(task.instructions, into=Cell(module, "other")) and None, solve_sums=True
    )
    _, _, stats = launch(object, object.data, plan)
    _, loaded, spent = launch(object, patched.data, plan)
    assert spent.instructions == stats.instructions
    assert HereRun(loaded, patched).total("other") == 3 + stats.instructions


@pytest.mark.parametrize("solve", [False, True])
def test_variables_that_hooks_look_at_are_whole_in_memory(app, make_module, solve: bool) -> None:
    mixed = make_module(SOURCE, *FAMILIES)
    object, plan = load_object(app("divergent_loop", "gfx90a")), PLANS["divergent_loop"]

    def instrument(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, mixed.add_read)
            task.insert_hook_before(instruction, mixed.one)

    patched = patch_object(object, instrument, strict=True, solve_sums=solve)
    assert patched.report.kernels[0].hoisted == patched.report.kernels[0].insertions
    _, _, stats = launch(object, object.data, plan)
    _, loaded, _ = launch(object, patched.data, plan)
    assert loaded.variable("read").read(int) == stats.instructions
    assert loaded.variable("managed").read(int) == 9 + (0 if solve else stats.instructions)
    run = HereRun(loaded, patched)
    assert (run.total("read"), run.total("managed")) == (stats.instructions, 9 + stats.instructions)


def test_what_is_missing_wraps() -> None:
    data = np.array([1, 2**64 - 1, 7], np.uint64).tobytes()
    assert np.frombuffer(completed(data, {0: -3, 1: 2}), np.uint64).tolist() == [2**64 - 2, 1, 7]
    assert completed(data, {}) is data
