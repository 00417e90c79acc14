"""Counters in registers against the emulated device's own counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from effort import EVERYTHING, FAMILIES
from luthier.devices import open_device
from luthier.errors import PatchError
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan, read_plans
from random_kernels import WAVES, random_kernel

ROOT = Path(__file__).parents[2]
APPS = ["vector_add", "reduction", "divergent_loop", "function_call"]
PLANS = read_plans(ROOT / "examples" / "apps" / "launch.toml")
KERNELS = 300 if EVERYTHING else 8
"""Random ones of each kind, for each target."""
BUDGETS = {
    "scalars": CounterBudget(),
    "few scalars": CounterBudget(sgprs=5),
    "lanes": CounterBudget(sgprs=3),
    "memory": CounterBudget(sgprs=0, vgprs=0),
}


def launch(object: CodeObject, data: bytes, plan: LaunchPlan):
    device = open_device(f"emu:{object.target.target.name}")
    loaded = device.load(data)
    arguments = plan.materialise()
    loaded.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds)
    return arguments, loaded, device.stats


def truth(task: InstrumentationTask, stats) -> tuple[np.ndarray, np.ndarray]:
    addresses = task.lifted.code.addresses
    executions, lanes = np.zeros(len(addresses), np.int64), np.zeros(len(addresses), np.int64)
    at = np.searchsorted(addresses, stats.by_address.addresses)
    executions[at], lanes[at] = stats.by_address.executions, stats.by_address.active_lanes
    return executions, lanes


def check_profile(
    object: CodeObject, plan: LaunchPlan, budget: CounterBudget, *, waves_given: bool = False
) -> tuple[int, int]:
    """Count all, per wave and per lane; wave-instructions before and after."""
    tasks = []

    def instrument(task: InstrumentationTask) -> None:
        task.counter_budget = budget
        task.waves_given = waves_given
        task.count(task.instructions)
        task.count(task.instructions, per="lane")
        tasks.append(task)

    patched = patch_object(object, instrument, [plan.kernel], strict=True)
    before, _, stats = launch(object, object.data, plan)
    after, loaded, spent = launch(object, patched.data, plan)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    counts = patched.counters[plan.kernel].read(loaded, stats.waves)
    executions, lanes = truth(tasks[0], stats)
    np.testing.assert_array_equal(counts.executions, executions)
    np.testing.assert_array_equal(counts.active_lanes, lanes)
    return stats.instructions, spent.instructions


@pytest.mark.rows(15)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_profiles_are_the_truth(app, name: str, target: str, budget: str) -> None:
    check_profile(load_object(app(name, target)), PLANS[name], BUDGETS[budget])


@pytest.mark.rows(1)
@pytest.mark.parametrize("saturated", [False, True], ids=["", "saturated"])
@pytest.mark.parametrize("calls", [False, True], ids=["", "calls"])
@pytest.mark.parametrize("target", FAMILIES)
def test_random_control_flow(target: str, calls: bool, saturated: bool) -> None:
    """Each kernel with another storage; where all SGPRs but two are taken, counters cannot be there."""
    for seed in range(KERNELS):
        object = random_kernel(seed, target, calls=calls, saturated=saturated)
        plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64 * WAVES},))
        budget = list(BUDGETS.values())[seed % len(BUDGETS)]
        try:
            check_profile(object, plan, budget, waves_given=seed % 3 == 0)
        except BaseException as problem:
            problem.add_note(f"seed {seed}, {budget}")
            raise


@pytest.mark.parametrize("target", FAMILIES)
def test_code_without_branches_needs_no_counter(compile_object, target: str) -> None:
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void k(unsigned *out) { out[blockIdx.x * 64 + threadIdx.x] += 3; }
    """
    object = load_object(compile_object(source, target))
    plan = LaunchPlan("k", (3, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 192},))

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions)

    patched = patch_object(object, instrument, strict=True)
    _, _, stats = launch(object, object.data, plan)
    _, loaded, spent = launch(object, patched.data, plan)
    assert spent.instructions == stats.instructions
    counters = patched.counters["k"]
    assert counters.read(loaded).opcodes == counters.read(loaded, stats.waves).opcodes == stats.opcodes
    with pytest.raises(PatchError, match="number of waves"):
        counters.counts(np.zeros(0, np.int64))
    with pytest.raises(PatchError, match="0 cells, not 3"):
        counters.counts(np.zeros(3, np.int64), 1)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("name", ["vector_add", "divergent_loop"])
def test_kernels_with_preloaded_arguments(app, name: str, target: str) -> None:
    """The hardware starts them at one of two places; counters are set up at both."""
    object = load_object(app(name, target, "-mllvm", "-amdgpu-kernarg-preload-count=6"))
    assert object.kernels[name].descriptor.kernarg_preload_length > 0
    for budget in BUDGETS.values():
        check_profile(object, PLANS[name], budget, waves_given=True)


def mnemonics(object: CodeObject, kernel: str) -> list[str]:
    """What a kernel consists of."""
    return [one.mnemonic for one in lift(object, kernel).instructions if one.block >= 0]


@pytest.mark.parametrize("target", FAMILIES)
def test_each_storage_is_used(app, target: str) -> None:
    object = load_object(app("divergent_loop", target))
    before = mnemonics(object, "divergent_loop")
    instructions = {}
    for name, budget in BUDGETS.items():

        def instrument(task: InstrumentationTask, budget: CounterBudget = budget) -> None:
            task.counter_budget = budget
            task.waves_given = False  # else there is less to count, and each end has an addition of its own
            task.count(task.instructions)
            task.count(task.instructions, per="lane")

        patched = patch_object(object, instrument, strict=True)
        instructions[name] = Counter(mnemonics(load_object(patched.data), "divergent_loop"))
        instructions[name].subtract(before)
    atomics = {
        name: sum(count for mnemonic, count in counts.items() if mnemonic.startswith("global_atomic_add"))
        for name, counts in instructions.items()
    }
    assert not instructions["scalars"]["v_readlane_b32"]
    assert atomics["memory"] > 2 * len(lift(object, "divergent_loop").blocks)
    assert instructions["lanes"]["v_readlane_b32"] > instructions["few scalars"]["v_readlane_b32"] > 0
    # One addition gives all to memory that is in registers; what a wave counts at most once may go there at once.
    assert 0 < atomics["scalars"] < atomics["few scalars"] <= atomics["lanes"] < atomics["memory"] / 2


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_registers_are_still_given_back_early(target: str) -> None:
    """Counters get to memory before a wave gives its vector registers back."""
    for seed in range(20):
        object = random_kernel(seed, target)
        if not lift(object, "k").releases:
            continue
        patched = patch_object(object, lambda task: task.count(task.instructions) and None, strict=True)
        again = lift(load_object(patched.data), "k")
        assert len(again.releases) == len(lift(object, "k").releases)
        for index in again.releases:
            assert again.instructions[index - 2].mnemonic.startswith("global_atomic_add")
            assert again.instructions[index - 1].mnemonic == "s_nop"
        return
    raise AssertionError("no random kernel gives registers back")


CALLS = """
#include <hip/hip_runtime.h>
extern "C" __device__ __attribute__((noinline, used)) int twice(int x) { return 2 * x; }
extern "C" __device__ __attribute__((noinline, used)) int square(int x) { return x * x; }
__device__ int (*writable[2])(int) = {twice, square};
extern "C" __global__ void k(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, sum = 0;
  for (int round = 0; round < 3; ++round)
    if (in[i] > 20 * round) sum += writable[(n + round) & 1](in[i]);
  out[i] = sum;
}
"""


CALLS_PLAN = LaunchPlan(
    "k",
    (2, 1, 1),
    (64, 1, 1),
    ({"buffer": "int32", "count": 128, "fill": "random"}, {"buffer": "int32", "count": 128}, 99),
)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_calls_with_unknown_targets(compile_object, target: str) -> None:
    object = load_object(compile_object(CALLS, target, "-fvisibility=default"))
    plan = CALLS_PLAN
    lifted = lift(object, "k")
    assert lifted.unknown
    patched = patch_object(object, lambda task: task.count(task.instructions) and None, strict=True)
    before, _, stats = launch(object, object.data, plan)
    after, loaded, _ = launch(object, patched.data, plan)
    np.testing.assert_array_equal(before[1], after[1])
    counts = patched.counters["k"].read(loaded)
    for index, address in enumerate(lifted.code.addresses.tolist()):
        if counts.counted[index]:
            assert counts.executions[index] == stats.executions_at(address)
    assert counts.counted.sum() == sum(block >= 0 for block in lifted.block_of)


KEPT_ADDRESS = """
#include <hip/hip_runtime.h>
using Function = unsigned (*)(unsigned);
extern "C" __attribute__((noinline)) __device__ unsigned direct(unsigned x) {
  return x & 4 ? x % (7u + (x & 3)) : x * 3u;
}
__attribute__((noinline)) __device__ unsigned first(unsigned x) { return x * 5u + 1; }
__attribute__((noinline)) __device__ unsigned second(unsigned x) { return x ^ x >> 7; }
__device__ Function table[2] = {first, second};
extern "C" __global__ void k(const unsigned *in, unsigned *out, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x, a = in[i];
  a ^= direct(a + n);
  a += table[a & 1](a);
  out[i] = a ^ direct(a >> 1);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", FAMILIES)
def test_addresses_of_functions_that_are_kept_over_calls_by_pointers(compile_object, target: str, level: str) -> None:
    """After a call with unknown writes, the register may not hold the copy's address."""
    object = load_object(compile_object(KEPT_ADDRESS, target, level))
    assert len(lift(object, "k").unknown) == 2  # the call by the table's pointer, and that behind it
    check_profile(object, CALLS_PLAN, CounterBudget())
