"""Hooks with private memory, calls and many registers, at every instruction of kernels that leave them no room."""

from __future__ import annotations

import pytest
from crowded import FULL_LDS, PLAN, PRIVATE, crowded
from luthier.errors import HookError
from luthier.isa.registers import SGPRS, mask_of
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.objects.editor import ObjectEditor
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from msgspec.structs import replace

pytestmark = pytest.mark.rows()

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
"""Of each family."""
SITES = 4
"""Constants that hooks are given, in turn: each is compiled apart."""

HOOKS = """
__device__ uint64_t total = 0;
__device__ uint64_t waves = 0;
__device__ uint64_t noise = 0;

__device__ uint32_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

/// Needs private memory for an array.
LUTHIER_HOOK_ANNOTATE stack(uint32_t site) {
  volatile uint32_t array[8];
  for (uint32_t i = 0; i < 8; ++i) array[i] = site * i + 1;
  atomicAdd(reinterpret_cast<unsigned long long *>(&total), static_cast<unsigned long long>(array[site & 7]));
}

/// Private memory, recursion, and 28 vector registers at least.
LUTHIER_HOOK_ANNOTATE deep(uint32_t site, uint32_t register_) {
  volatile uint32_t array[4] = {site, 1, 2, 3};
  uint32_t part[28];
  for (uint32_t i = 0; i < 28; ++i) part[i] = register_ * (i + site) ^ (register_ >> i);
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 28; ++i) sum = sum * 3 + part[(i * 5) % 28] * part[(i * 11) % 28];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  uint32_t value = fibonacci((array[0] & 3) + 4) + array[site & 3];
  atomicAdd(reinterpret_cast<unsigned long long *>(&total), static_cast<unsigned long long>(value));
}

/// Runs with lanes that are not active.
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&waves, 1); }

/// Writes a register and needs a frame: the value that was there, by way of private memory.
LUTHIER_HOOK_ANNOTATE rewrite(uint32_t site) {
  volatile uint32_t array[4] = {};
  array[site & 3] = luthier::readReg<uint32_t>(luthier::VGPR0);
  luthier::writeReg<uint32_t>(luthier::VGPR0, array[site & 3]);
}
"""


def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def registers_of(target: str) -> tuple[int, int]:
    """As many as a kernel may have whose work-groups have 1024 lanes."""
    family = target_named(target)
    waves = 1024 // family.default_wave_size
    vectors = family.vgpr_file_size(family.default_wave_size) // (waves // 4)
    granule = family.vgpr_allocation_granule(family.default_wave_size)
    return min(256, vectors // granule * granule), 98


class Everywhere(Tool):
    """One hook before every instruction, and behind each that control comes back from."""

    def __init__(self, hooks, name: str) -> None:
        super().__init__()
        self.hook = hooks.hook(name)
        self.name = name

    def arguments(self, index: int) -> tuple:
        index %= SITES
        if self.name == "count":
            return ()
        return (index, reg("v0")) if self.name == "deep" else (index,)

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.hook, *self.arguments(instruction.index))

    def expected(self, task, counts):
        lanes = counts.active_lanes.tolist()
        if self.name == "count":
            return {"waves": int(counts.executions.sum())}
        if self.name == "stack":
            return {"total": sum(many * (site % SITES) ** 2 + many for site, many in enumerate(lanes))}
        if self.name == "deep":
            array = [0, 1, 2, 3]
            return {
                "total": sum(
                    many * (fibonacci(site % SITES + 4) + array[site % SITES]) for site, many in enumerate(lanes)
                )
            }
        return {}


@pytest.mark.rows(1)
@pytest.mark.parametrize("private", ["", PRIVATE], ids=["", "own"])
@pytest.mark.parametrize("hook", ["stack", "deep", "count", "rewrite"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_site_is_refused_where_every_register_is_live(
    compile_object, hooks, target: str, hook: str, private: str
) -> None:
    vectors, scalars = registers_of(target)
    object = load_object(compile_object(crowded(target, vectors, scalars, private), target))
    assert object.kernels["crowded"].descriptor.architected_vgprs >= vectors - 4
    tool = Everywhere(hooks, hook)
    verdict = verify_kernel(object, tool, PLAN)
    assert verdict.problems == ()
    assert verdict.refused == 0
    (after,) = load_object(patch_object(object, tool.instrument).data).kernels.values()
    assert after.private_segment_fixed_size > object.kernels["crowded"].private_segment_fixed_size


@pytest.mark.thorough
@pytest.mark.parametrize("hook", ["deep", "count"])
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_left(compile_object, hooks, target: str, hook: str) -> None:
    """No VGPR, no AGPR, 100 SGPRs live, no LDS."""
    family = target_named(target)
    vectors, _ = registers_of(target)
    matrices = 256 if family.unified_vgprs else 0
    source = crowded(target, 256 if matrices else vectors, 102, FULL_LDS, first=8, matrices=matrices)
    object = load_object(compile_object(source, target))
    (kernel,) = object.kernels.values()
    assert kernel.group_segment_fixed_size == family.lds_bytes
    assert kernel.descriptor.agprs == matrices
    lifted = lift(object, "crowded")
    most = max(
        (lifted.liveness.live_before(one.index).active_bits & mask_of(SGPRS)).bit_count()
        for one in InstrumentationTask(lifted).instructions
    )
    assert most >= 96, most
    verdict = verify_kernel(object, Everywhere(hooks, hook), replace(PLAN, grid=(1, 1, 1)))
    assert verdict.problems == ()
    assert verdict.refused == 0


AGPR_TARGETS = ["gfx908", "gfx90a", "gfx942", "gfx950"]
WIDE = """
__device__ uint64_t waves = 0, noise = 0, lanes = 0;

/// Many vector registers, no private memory.
LUTHIER_HOOK_ANNOTATE wide(uint32_t site, uint32_t register_) {
  uint32_t part[20], sum = 0;
  for (uint32_t i = 0; i < 20; ++i) part[i] = register_ * (i + site) ^ (register_ >> i);
  for (uint32_t i = 0; i < 20; ++i) sum = sum * 3 + part[(i * 5) % 20] * part[(i * 11) % 20];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  atomicAdd(reinterpret_cast<unsigned long long *>(&lanes), 1ull);
}

/// Runs with lanes that are not active.
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&waves, 1); }
"""


class WideEverywhere(Everywhere):
    def arguments(self, index: int) -> tuple:
        return () if self.name == "count" else (index % SITES, reg("v0"))

    def expected(self, task, counts):
        if self.name == "count":
            return {"waves": int(counts.executions.sum())}
        return {"lanes": int(counts.active_lanes.sum())}


@pytest.mark.rows(1)
@pytest.mark.parametrize("free", [True, False], ids=["free", "none"])
@pytest.mark.parametrize("hook", ["wide", "count"])
@pytest.mark.parametrize("target", AGPR_TARGETS)
def test_agprs_before_private_memory(compile_object, make_module, target: str, hook: str, free: bool) -> None:
    """Every VGPR is live, and AGPRs that cost nothing are there or all in use."""
    vectors, scalars = registers_of(target)
    source = crowded(target, vectors, scalars)
    if target != "gfx908":  # one file: AGPRs cost nothing where waves have the most registers anyhow
        vectors = 256
        source = crowded(target, vectors, scalars).replace("bounds__(1024)", "bounds__(256)")
    named = f"a{5 if free else vectors - 1}"
    moves = f"v_accvgpr_write_b32 {named}, %1\\n s_nop 4\\n v_accvgpr_read_b32 %0, {named}\\n s_nop 4"
    use = f'asm volatile("{moves}" : "=v"(v) : "v"(v) : "{named}");'
    object = load_object(compile_object(source.replace("if (i % 3)", f"{use} if (i % 3)"), target))
    tool = WideEverywhere(make_module(WIDE, *AGPR_TARGETS), hook)
    verdict = verify_kernel(object, tool, PLAN, strict=True)
    assert verdict.problems == ()
    patched = patch_object(object, tool.instrument, strict=True)
    (report,) = patched.report.kernels
    before, (after,) = object.kernels["crowded"], load_object(patched.data).kernels.values()
    cost = dict(zip(patched.report.cost().columns, patched.report.cost().rows[0], strict=True))
    assert (cost["in AGPRs"], cost["spilling"]) == (report.in_agprs, report.spilling)
    assert (report.in_agprs > 0, report.spilling > 0) == (free, not free)
    assert (after.private_segment_fixed_size > before.private_segment_fixed_size) == (not free)
    assert report.waves_per_simd[0] == report.waves_per_simd[1]
    assert after.descriptor.agprs >= before.descriptor.agprs


def with_dynamic_stack(object):
    """The object, its kernel said to need private memory of a size known only when it runs."""
    editor = ObjectEditor(object)
    kernel = object.kernels["crowded"]
    editor.write(kernel.descriptor_address, replace(kernel.descriptor, uses_dynamic_stack=1).encode())
    return load_object(editor.finish())


def test_a_kernel_whose_own_stack_has_no_end_gets_no_frames(compile_object, hooks) -> None:
    object = with_dynamic_stack(load_object(compile_object(crowded("gfx90a", 60, 40), "gfx90a")))

    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(next(iter(task.instructions)), hooks.hook("stack"), 1)

    with pytest.raises(HookError, match=r"needs private memory.*known only when it runs"):
        patch_object(object, insert, strict=True)


def test_private_memory_is_asked_for_only_where_it_is_used(compile_object, hooks) -> None:
    object = load_object(compile_object(crowded("gfx90a", 60, 40, PRIVATE), "gfx90a"))
    (before,) = object.kernels.values()

    def patched(name: str, *arguments):
        def insert(task: InstrumentationTask) -> None:
            task.insert_hook_before(next(iter(task.instructions)), hooks.hook(name), *arguments)

        (kernel,) = load_object(patch_object(object, insert).data).kernels.values()
        return kernel

    assert patched("count").private_segment_fixed_size == before.private_segment_fixed_size
    after = patched("stack", 1)
    assert 32 <= after.private_segment_fixed_size - before.private_segment_fixed_size < 64
    assert after.private_segment_fixed_size == after.descriptor.private_segment_fixed_size
    assert patched("deep", 1, reg("v0")).private_segment_fixed_size > 16384
