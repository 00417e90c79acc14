"""Budgets of registers, and hooks that exceed them."""

from __future__ import annotations

import pytest
from crowded import PLAN, crowded
from luthier.errors import HookError
from luthier.isa.targets import target_named
from luthier.objects import load_object
from luthier.patch import RefusedError, patch_object
from luthier.patch.outcome import KernelReport
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
"""Of each family."""

HOOKS = """
__device__ uint64_t total = 0, noise = 0;

/// 28 vector registers at least.
LUTHIER_HOOK_ANNOTATE wide(uint32_t value) {
  uint32_t part[28];
  for (uint32_t i = 0; i < 28; ++i) part[i] = value * (i + 3) ^ (value >> i);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 28; ++i) sum = sum * 3 + part[(i * 5) % 28] * part[(i * 11) % 28];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  atomicAdd(reinterpret_cast<unsigned long long *>(&total), 1ull);
}

/// As many as LLVM gives.
LUTHIER_HOOK_ANNOTATE huge(uint32_t value) {
  uint32_t part[400];
  #pragma unroll
  for (uint32_t i = 0; i < 400; ++i)
    part[i] = __hip_atomic_load(reinterpret_cast<uint32_t *>(&noise) + (value & 1), __ATOMIC_RELAXED,
                                __HIP_MEMORY_SCOPE_AGENT);
  uint32_t sum = 0;
  #pragma unroll
  for (uint32_t i = 0; i < 400; ++i) sum = sum * 3 + (part[399 - i] ^ part[i]);
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
}
"""


class Wide(Tool):
    """The hook at every instruction, within a budget."""

    def __init__(self, hooks, **budget) -> None:
        super().__init__()
        self.hook, self.given = hooks.wide, budget

    def instrument(self, task: InstrumentationTask) -> None:
        if self.given:
            task.budget(**self.given)
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.hook, reg("v0"))

    def expected(self, task, counts):
        return {"total": int(counts.active_lanes.sum())}


def report_of(object, tool: Tool) -> KernelReport:
    return patch_object(object, tool.instrument).report.kernels[0]


def many_of(target: str) -> int:
    """VGPRs with which one more lowers the occupancy."""
    family = target_named(target)
    return {"gfx906": 32}.get(target, 96 if family.vgpr_file_size(32) > 1024 else 64)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_budgets(compile_object, hooks, target: str) -> None:
    object = load_object(compile_object(crowded(target, many_of(target), 12), target))
    (kernel,) = object.kernels.values()
    before = kernel.descriptor.vgprs
    kept = report_of(object, Wide(hooks, on_excess="keep"))
    assert kept.refusals == ()
    assert kept.excess > 0 == kept.spilling
    assert kept.vgprs[1] > before
    assert kept.waves_per_simd[1] < kept.waves_per_simd[0]
    assert report_of(object, Wide(hooks)).vgprs == kept.vgprs

    refused = report_of(object, Wide(hooks, on_excess="refuse"))
    assert {one.kind for one in refused.refusals} == {"over budget"}
    assert all(one.address is not None for one in refused.refusals)
    left_out = len(refused.refusals)
    assert 0 < left_out <= kept.excess  # registers that one point needs others get, too
    assert refused.insertions + len(refused.refusals) == kept.insertions
    assert refused.waves_per_simd[1] == refused.waves_per_simd[0]

    spilling = Wide(hooks, on_excess="spill")
    spilled = report_of(object, spilling)
    assert spilled.refusals == ()
    assert spilled.spilling == left_out  # and none besides
    assert spilled.waves_per_simd[1] == spilled.waves_per_simd[0]
    assert verify_kernel(object, spilling, PLAN).problems == ()

    sampled = report_of(object, Wide(hooks, on_excess="sample", every=5))
    assert {one.kind for one in sampled.refusals} == {"sampled"}
    assert len(sampled.refusals) == left_out - -(-left_out // 5)
    assert sampled.insertions == spilled.insertions - len(sampled.refusals)
    assert 0 < sampled.spilling < spilled.spilling

    some = report_of(object, Wide(hooks, registers=before + 8, on_excess="spill"))
    assert some.vgprs[1] <= max(before + 8, some.vgprs[0])
    few = report_of(object, Wide(hooks, occupancy=1, on_excess="refuse"))
    assert few.refusals == ()


@pytest.mark.thorough
def test_scalar_registers_are_in_a_budget_of_waves(compile_object, hooks) -> None:
    """On GFX9 a wave more than ten wants fewer SGPRs: 80 are as many as ten may have."""
    object = load_object(compile_object(crowded("gfx906", 20, 74, first=7), "gfx906"))
    kept = report_of(object, Wide(hooks))
    assert kept.waves_per_simd[1] < kept.waves_per_simd[0] == 10
    assert kept.sgprs[1] > kept.sgprs[0]
    for budget in ({}, {"occupancy": 9}):
        tool = Wide(hooks, on_excess="spill", **budget)
        spilled = report_of(object, tool)
        assert spilled.refusals == ()
        assert spilled.waves_per_simd[1] >= budget.get("occupancy", 10)
        assert verify_kernel(object, tool, PLAN).problems == ()


def test_results_of_what_is_left(compile_object, hooks) -> None:
    """Hooks that are left out by a budget are left out alone: what the others count is the truth of their sites."""
    object = load_object(compile_object(crowded("gfx90a", 64, 40), "gfx90a"))
    for on_excess in ("refuse", "sample"):
        tool = Wide(hooks, on_excess=on_excess)
        left = {one.address for one in report_of(object, tool).refusals}

        def expected(task, counts, left=left):
            lanes = zip(task.lifted.columns.address, counts.active_lanes.tolist(), strict=True)
            return {"total": sum(many for address, many in lanes if address not in left)}

        tool.expected = expected
        verdict = verify_kernel(object, tool, PLAN)
        assert verdict.problems == ()
        assert verdict.refused > 0


@pytest.mark.rows(1)
@pytest.mark.parametrize("on_excess", ["keep", "refuse", "spill", "sample"])
def test_a_hook_larger_than_its_budget(compile_object, hooks, on_excess: str) -> None:
    """No spilling makes room for it: each site is refused, unless it may have what it needs."""
    object = load_object(compile_object(crowded("gfx90a", 64, 40), "gfx90a"))

    def instrument(task: InstrumentationTask) -> None:
        task.budget(on_excess=on_excess)
        for instruction in list(task.instructions)[:20:4]:
            task.insert_hook_before(instruction, hooks.huge, reg("v0"))

    if on_excess == "keep":
        assert patch_object(object, instrument).report.refusals == ()
        return
    with pytest.raises(RefusedError) as caught:
        patch_object(object, instrument)
    refusals = caught.value.report.kernels[0].refusals
    addresses = [one.address for one in refusals]
    assert len(set(addresses)) == 5
    assert caught.value.offset in addresses
    assert "over budget" in {one.kind for one in refusals}


@pytest.mark.parametrize("budget", [{"registers": 0}, {"occupancy": -1}, {"every": 0}, {"on_excess": "more"}])
def test_no_budget(compile_object, budget: dict) -> None:
    object = load_object(compile_object(crowded("gfx90a", 64, 40), "gfx90a"))
    with pytest.raises(HookError):
        patch_object(object, lambda task: task.budget(**budget))
