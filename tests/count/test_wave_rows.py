"""Counts of each wave, against what each wave did on the emulated device, step by step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from effort import EVERYTHING, FAMILIES
from luthier.devices import open_device
from luthier.errors import HookError, PatchError
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import PatchedObject, patch_object
from luthier.tool.counts import Cell, CounterBudget, Granularity, KernelCounters
from luthier.tool.task import InstrumentationTask
from luthier.tool.wave_counts import IDENTITY, WaveCounts
from luthier.verify.launch_plan import LaunchPlan
from random_kernels import WAVES, random_kernel
from test_truth import BUDGETS, CALLS, CALLS_PLAN, PLANS, launch

KERNELS = 60 if EVERYTHING else 4
SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void k(const unsigned *in, unsigned *out) {
  unsigned group = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  unsigned item = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  unsigned i = group * blockDim.x * blockDim.y * blockDim.z + item, x = in[i] & 7, sum = 0;
  if (blockIdx.y == 1 && item >= 64) sum += 5;
  for (unsigned n = group + item / 32; n; --n) sum = sum * 3 + x;
  if (x > 3) sum ^= 77;
  out[i] = sum;
}
"""
SHAPE = LaunchPlan(
    "k",
    (2, 3, 2),
    (10, 4, 3),
    ({"buffer": "uint32", "count": 12 * 120, "fill": "random"}, {"buffer": "uint32", "count": 12 * 120}),
)
"""Work-groups of 120 work-items in three dimensions: the last wave of each is not full."""
Who = tuple[int, int, int, int]


def steps(object: CodeObject, plan: LaunchPlan) -> dict[Who, tuple[Counter[int], Counter[int]]]:
    """By work-group and wave, of each address how often it ran, and the lanes that were active then."""
    steps_of: dict[Who, tuple[Counter[int], Counter[int]]] = {}
    width, height, _ = plan.grid

    def see(step) -> None:
        group = step.workgroup
        who = group % width, group // width % height, group // width // height, step.wave
        runs, lanes = steps_of.setdefault(who, (Counter(), Counter()))
        runs[step.address] += 1
        lanes[step.address] += step.registers.exec.bit_count()

    kernel = open_device(f"emu:{object.target.target.name}").load(object.data).kernel(plan.kernel)
    arguments = plan.materialise()
    kernel.launch(*arguments, grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=see)
    return steps_of


def patched_for(
    object: CodeObject, plan: LaunchPlan, budget: CounterBudget, lanes: bool, granularity: Granularity, room: int = 100
) -> PatchedObject:
    """Everything is counted."""

    def instrument(task: InstrumentationTask) -> None:
        task.counter_budget, task.wave_rows = budget, room
        task.count(task.instructions, granularity=granularity)
        if lanes:
            task.count(task.instructions, per="lane", granularity=granularity)

    return patch_object(object, instrument, [plan.kernel], strict=True)


def counted(
    object: CodeObject, plan: LaunchPlan, budget: CounterBudget, *, lanes: bool = True, room: int = 100
) -> tuple[KernelCounters, WaveCounts, bytes]:
    """Count all for each wave, and see that outputs are the same and sums are those of the rows."""

    patched = patched_for(object, plan, budget, lanes, "wave", room)
    before, _, stats = launch(object, object.data, plan)
    after, loaded, _ = launch(object, patched.data, plan)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    counters = patched.counters[plan.kernel]
    counts = counters.read(loaded)
    waves = counts.waves
    assert waves is not None
    assert len(waves) + waves.missing == stats.waves
    if not waves.missing:
        firsts = [first for first, _ in waves.stretches]
        np.testing.assert_array_equal(waves.runs.sum(0), counts.executions[firsts])
        assert waves.instructions.sum() == stats.instructions
    return counters, waves, patched.data


def check(object: CodeObject, plan: LaunchPlan, budget: CounterBudget, *, lanes: bool = True) -> None:
    """Each wave's row is what that wave did."""
    _, waves, data = counted(object, plan, budget, lanes=lanes)
    truth = steps(object, plan)
    whose = [tuple(row) for row in waves.identity.tolist()]
    assert sorted(whose) == sorted(truth)
    lifted = lift(object, plan.kernel)
    for index, address in enumerate(lifted.code.addresses.tolist()):
        if lifted.block_of[index] >= 0:
            assert waves.executions(index).tolist() == [truth[who][0][address] for who in whose]
            if lanes:
                assert waves.active_lanes(index).tolist() == [truth[who][1][address] for who in whose]
    before = check_hazards(lifted).findings
    for code in (data, patched_for(object, plan, budget, lanes, "total").data):
        after = check_hazards(lift(load_object(code), plan.kernel)).findings
        assert len(after) <= len(before), after


@pytest.mark.rows(3)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", [*FAMILIES, "gfx1100, wave64", "gfx1201, wave64"])
def test_who_went_where(compile_object, target: str, budget: str) -> None:
    """In three dimensions, with waves that are not full, wherever counters are."""
    name, _, wide = target.partition(", ")
    object = load_object(compile_object(SOURCE, name, *(["-mwavefrontsize64"] if wide else [])))
    assert object.kernels["k"].wave_size == (64 if wide or name.startswith("gfx9") else 32)
    if budget == "memory":
        with pytest.raises(PatchError, match="nothing can be counted for each wave: it leaves too few registers"):
            counted(object, SHAPE, BUDGETS[budget])
    else:
        check(object, SHAPE, BUDGETS[budget])


@pytest.mark.rows(1)
@pytest.mark.parametrize("calls", [False, True], ids=["", "calls"])
@pytest.mark.parametrize("target", FAMILIES)
def test_random_control_flow(target: str, calls: bool) -> None:
    for seed in range(KERNELS):
        object = random_kernel(seed, target, calls=calls, saturated=seed % 3 == 2)
        plan = LaunchPlan("k", (WAVES, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64 * WAVES},))
        try:
            check(object, plan, CounterBudget(), lanes=seed % 2 == 0)
        except BaseException as problem:
            problem.add_note(f"seed {seed}")
            raise


@pytest.mark.rows(5)
@pytest.mark.parametrize("room", [0, 1, 7, 23, 24])
@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_waves_without_room_are_counted(compile_object, target: str, room: int) -> None:
    """None of them writes elsewhere, and sums are whole."""
    object = load_object(compile_object(SOURCE, target))
    counters, waves, _ = counted(object, SHAPE, CounterBudget(), room=room)
    launched = 24 if object.kernels["k"].wave_size == 64 else 48
    assert (len(waves), waves.missing) == (min(room, launched), max(launched - room, 0))
    assert counters.rows is not None
    truth = steps(object, SHAPE)
    first = int(waves.block_of[0])
    assert first == waves.blocks[0]
    for who in map(tuple, waves.identity.tolist()):
        assert who in truth


def test_results(compile_object) -> None:
    """Sums of a request, columns, Arrow, and ways from block to block, of each wave."""
    object = load_object(compile_object(SOURCE, "gfx1100"))
    requests = []

    def instrument(task: InstrumentationTask) -> None:
        some = list(task.instructions)[::3]
        requests.append(task.count(some, 7, granularity="wave"))

    patched = patch_object(object, instrument, strict=True)
    _, loaded, _ = launch(object, patched.data, SHAPE)
    counts = patched.counters["k"].read(loaded)
    waves = counts.waves
    assert waves is not None
    (request,) = requests
    assert waves.total(request).sum() == counts.total(request) > 0
    table = waves.to_arrow()
    assert table.column_names == [*IDENTITY, "instructions", *(f"block_{block}" for block in waves.blocks)]
    assert table.num_rows == len(waves) == 48
    assert table["instructions"].to_pylist() == waves.instructions.tolist()
    assert dict(zip(waves.edges, waves.gone.sum(0).tolist(), strict=True)) == {
        (edge.source, edge.to): edge.executions for edge in counts.edges
    }
    assert waves.gone.std(0).any()
    with pytest.raises(PatchError, match="not counted"):
        waves.active_lanes(0)
    again = KernelCounters.of_json(lift(object, "k"), patched.counters["k"].to_json())
    reread = again.read(loaded).waves
    assert reread is not None
    np.testing.assert_array_equal(reread.runs, waves.runs)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_kernels_that_call_by_pointers(compile_object, target: str) -> None:
    object = load_object(compile_object(CALLS, target, "-fvisibility=default"))
    assert lift(object, "k").unknown
    check(object, CALLS_PLAN, CounterBudget())


def test_what_cannot_be(compile_object, make_module) -> None:
    module = make_module("__device__ uint64_t sums[2];", "gfx1100")
    object = load_object(compile_object(SOURCE, "gfx1100"))
    task = InstrumentationTask(lift(object, "k"))
    with pytest.raises(HookError, match="takes sums, not counts"):
        task.count(0, into=Cell(module, "sums"), granularity="wave")
    with pytest.raises(HookError, match="not 'group'"):
        task.count(0, granularity="group")  # type: ignore[arg-type]
    for room in (-1, 1 << 30):

        def too_many(task: InstrumentationTask, room: int = room) -> None:
            task.wave_rows = room
            task.count(task.instructions, granularity="wave")

        with pytest.raises(PatchError, match=f"{room} rows of"):
            patch_object(object, too_many, strict=True)


def test_launch_after_launch(app) -> None:
    """Rows of all launches are there."""
    object, plan = load_object(app("divergent_loop", "gfx90a")), PLANS["divergent_loop"]
    patched = patch_object(object, lambda task: task.count(0, granularity="wave") and None, [plan.kernel], strict=True)
    device = open_device("emu:gfx90a")
    module = device.load(patched.data)
    for _ in range(2):
        module.kernel(plan.kernel).launch(*plan.materialise(), grid=plan.grid, block=plan.block)
    waves = patched.counters[plan.kernel].read(module).waves
    assert waves is not None
    assert len(waves) == 2 * device.stats.waves
    assert set(Counter(map(tuple, waves.identity.tolist())).values()) == {2}
