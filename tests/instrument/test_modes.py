"""Kernels in the style of hand-written ones: vector skip mode, VGPR index mode, VGPRs at or above the first AGPR, many
SGPRs. Patched, they run beside the originals on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.errors import LiftError
from luthier.lifting import lift
from luthier.objects import CodeObject, ObjectEditor, load_object
from luthier.patch import patch_object
from luthier.patch.registers.budget import budget_of
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from msgspec.structs import replace

TARGETS = ["gfx906", "gfx908", "gfx90a", "gfx942"]
ALL = (*TARGETS, "gfx950")
HOOKS = """
__device__ uint64_t total = 0;
__device__ uint64_t noise = 0;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&total, 1); }

/// Divergent, with many vector registers: whatever is free is overwritten.
LUTHIER_HOOK_ANNOTATE churn(uint32_t x) {
  uint64_t a = x * 0x9E3779B97F4A7C15ull + __lane_id(), b = a * a + x, c = (a ^ b) * (b + 1), d = c * a + b * b;
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), a ^ (b >> 3) ^ (c << 5) ^ (d >> 7));
}

LUTHIER_HOOK_ANNOTATE add(uint32_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(&total), (unsigned long long)value);
}
"""
HEADER = "#include <hip/hip_runtime.h>\n#include <stdint.h>\n"

WRITES = "LUTHIER_HOOK_ANNOTATE put() { luthier::writeReg<uint32_t>(luthier::SGPR8, 2); }"
ONE_WORD = {"buffer": "uint32", "count": 1, "fill": "zero"}

SKIPS = (
    HEADER
    + """
extern "C" __global__ void skips(uint32_t *out, uint32_t *sum, uint32_t flags) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  for (int round = 0; round < 3; ++round) {
    uint32_t bits = flags >> round;
    asm volatile("s_nop 0\\n"
                 "s_setvskip %2, 0\\n"
                 "global_atomic_add %3, %0, %1\\n"
                 "v_add_u32_e32 %0, 100, %0\\n"
                 "s_setvskip 0, 0\\n"
                 "s_nop 1\\n"
                 "v_add_u32_e32 %0, 1, %0\\n"
                 "s_waitcnt vmcnt(0)\\n"
                 : "+v"(v) : "s"(sum), "s"(bits), "v"(0) : "memory");
  }
  out[i] = v;
}
"""
)


class Everywhere(Tool):
    """Two hooks before every instruction and one after, with counters that are predicted."""

    def __init__(self, module) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.module.count)
            task.insert_hook_before(instruction, self.module.churn, reg("exec_lo"))

    def expected(self, task, counts):
        return {"total": int(counts.executions.sum())}


@pytest.fixture(scope="module")
def everywhere(make_module) -> Everywhere:
    return Everywhere(make_module(HOOKS, *ALL))


def plan_of(name: str, *arguments: object) -> LaunchPlan:
    return LaunchPlan(name, (2, 1, 1), (128, 1, 1), ({"buffer": "uint32", "count": 256, "fill": "zero"}, *arguments))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("flags", [0, 0b101, 0b010, 0b111])
def test_vector_skip_mode(compile_object, everywhere: Everywhere, target: str, flags: int) -> None:
    """The mode is off while a payload runs, and is set again from what it was set from: nothing is refused."""
    object = load_object(compile_object(SKIPS, target))
    verdict = verify_kernel(object, everywhere, plan_of("skips", ONE_WORD, flags))
    assert verdict.problems == ()
    assert verdict.patch is not None
    assert verdict.patch.refusals == ()
    assert verdict.complete
    assert verdict.counters["total"] == verdict.instructions[0]


SKIP_SOURCES = ("-1, 0", "0x500, 8", "s8, 0", "s8, 3", "s8, s9", "5, s9")
"""What s_setvskip takes: constants, a literal, an SGPR, and which bit of it."""
SKIPPED = (
    "v_mov_b32 v2, 77",
    "ds_write_b32 v4, v2",
    "global_store_dword v1, v2, s[4:5] offset:4",
    "s_add_u32 s10, s10, 1",
    "v_fma_f32 v3, v2, v2, v3",
)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_every_way_into_vector_skip_mode(everywhere: Everywhere, target: str) -> None:
    """Every source in turn, one with the last use of its SGPR, and the mode set again while it is on.

    Hooks at every instruction overwrite all free registers.
    """
    lines = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "v_lshlrev_b32 v1, 3, v0", "v_mov_b32 v2, v0", "v_mov_b32 v4, 0"]
    lines += ["v_mov_b32 v3, 0", "s_mov_b32 s10, 0", "s_waitcnt 0"]
    for round, source in enumerate(SKIP_SOURCES):
        lines += [f"s_mov_b32 s8, {0x1B5 >> round}", f"s_mov_b32 s9, {round % 3}", f"s_setvskip {source}", "s_nop 1"]
        lines += [f"v_add_u32 v2, {1 << round}, v2", SKIPPED[round % len(SKIPPED)]]
        lines += ["s_setvskip s8, 1", "s_nop 1", *SKIPPED] if round % 2 else []
        lines += ["s_setvskip 0, 0", "s_nop 1", "s_waitcnt 0"]
    lines += ["v_add_u32 v2, s10, v2", "global_store_dword v1, v2, s[4:5]", "s_endpgm"]
    object = assembled(kernel_text(function("k", lines), target, lds=64), target)
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 256, "fill": "zero"},))
    verdict = verify_kernel(object, everywhere, plan)
    assert verdict.problems == ()
    assert verdict.patch is not None
    assert verdict.patch.refusals == ()
    assert verdict.complete


@pytest.mark.rows(3)
@pytest.mark.parametrize(
    ("before", "inside"),
    [
        ("", "s_mov_b32 s8, 3"),  # no longer there
        ("s_cbranch_scc1 .Lin", ""),  # off on one way
        ("s_setvskip s9, 0\n s_cbranch_scc1 .Lin", ""),  # from something else on one way
        ("s_set_gpr_idx_on s9, gpr_idx(SRC0)", ""),  # both modes
    ],
)
def test_points_where_vector_skip_mode_is_not_known_are_refused(
    everywhere: Everywhere, before: str, inside: str
) -> None:
    lines = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "s_mov_b32 s8, 1", "s_mov_b32 s9, 0", "v_lshlrev_b32 v1, 2, v0"]
    lines += ["v_mov_b32 v2, 1", "s_cmp_eq_u32 s8, s9", before, "s_setvskip s8, 0", ".Lin:", inside]
    lines += ["v_mov_b32 v2, 77", "s_setvskip 0, 0", "s_set_gpr_idx_off", "s_nop 1", "s_waitcnt 0"]
    lines += ["global_store_dword v1, v2, s[4:5]", "s_endpgm"]
    object = assembled(kernel_text(function("k", [line for line in lines if line]), "gfx90a"), "gfx90a")
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "zero"},))
    verdict = verify_kernel(object, everywhere, plan)
    assert verdict.problems == ()
    assert verdict.patch is not None
    assert "in vector skip mode" in {refusal.kind for refusal in verdict.patch.refusals}
    addresses = {refusal.address for refusal in verdict.patch.refusals}
    texts = [one.text for one in lift(object, "k").instructions if one.address in addresses]
    assert "v_mov_b32_e32 v2, 0x4d" in texts
    assert "global_store_dword v1, v2, s[4:5]" not in texts


def test_a_hook_that_writes_what_vector_skip_mode_was_set_from_is_refused(make_module) -> None:
    """The mode would be another behind it."""
    module = make_module(WRITES, "gfx90a")
    lines = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "s_mov_b32 s8, 1", "s_nop 0", "s_setvskip s8, 0", "s_nop 1"]
    lines += ["v_mov_b32 v2, 1", "s_setvskip 0, 0", "s_endpgm"]
    object = assembled(kernel_text(function("k", lines), "gfx90a"), "gfx90a")

    def put(task: InstrumentationTask) -> None:
        for instruction in task.select(lambda instruction: instruction.text.startswith("s_nop")):
            task.insert_hook_before(instruction, module.put)

    patched = patch_object(object, put)
    (refusal,) = patched.report.refusals
    assert refusal.kind == "hook"
    assert "the hook writes the SGPR from which vector skip mode must be set again" in refusal.message


def test_what_vector_skip_mode_leaves_alone_stays_live(compile_object) -> None:
    source = (
        HEADER
        + """
extern "C" __global__ void k(uint32_t *out, uint32_t bits) {
  asm volatile("v_mov_b32_e32 v20, 7\\ns_nop 3\\ns_setvskip %0, 0\\nv_mov_b32_e32 v20, 1\\ns_setvskip 0, 0\\n"
               "s_nop 1\\nv_mov_b32_e32 v21, v20\\nglobal_store_dword %1, v21, %2"
               :: "s"(bits), "v"(0), "s"(out) : "v20", "v21", "memory");
}
"""
    )
    lifted = lift(load_object(compile_object(source, "gfx90a")), "k")
    (nop,) = [one.index for one in lifted.instructions if one.text == "s_nop 3"]
    assert 256 + 20 in lifted.liveness.live_before(nop).active


@pytest.mark.parametrize("inside", ["v_cmp_eq_u32_e64 s[40:41], v0, v0", "v_writelane_b32 v20, s40, 1"])
def test_scalars_that_may_not_be_set_are_refused(compile_object, inside: str) -> None:
    source = (
        HEADER
        + f"""
extern "C" __global__ void k(uint32_t bits) {{
  asm volatile("s_setvskip %0, 0\\n{inside}\\ns_setvskip 0, 0" :: "s"(bits) : "v20", "s40", "s41");
}}
"""
    )
    with pytest.raises(LiftError, match="in vector skip mode: whether it sets its result is not known"):
        lift(load_object(compile_object(source, "gfx90a")), "k")


INDEXED = (
    HEADER
    + """
extern "C" __global__ void indexed(uint32_t *out, uint32_t index) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  asm volatile("v_mov_b32_e32 v20, 20\\nv_mov_b32_e32 v21, 21\\nv_mov_b32_e32 v22, 22\\nv_mov_b32_e32 v23, 23\\n"
               "s_set_gpr_idx_on %1, gpr_idx(SRC0)\\n"
               "v_add_u32_e32 v30, v20, %0\\n"
               "s_set_gpr_idx_mode gpr_idx(DST)\\n"
               "v_mov_b32_e32 v20, v30\\n"
               "s_set_gpr_idx_idx 1\\n"
               "s_nop 0\\n"
               "v_add_u32_e32 v21, %0, %0\\n"
               "s_set_gpr_idx_off\\n"
               "v_add_u32_e32 %0, v20, v21\\n"
               "v_lshl_add_u32 %0, v22, 8, %0\\n"
               "v_lshl_add_u32 %0, v23, 16, %0\\n"
               : "+v"(v) : "s"(index) : "v20", "v21", "v22", "v23", "v30", "m0");
  out[i] = v;
}
"""
)


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_vgpr_index_mode(compile_object, everywhere: Everywhere, target: str, index: int) -> None:
    """The mode is off while a payload runs, and M0 keeps its value: nothing is refused."""
    verdict = verify_kernel(load_object(compile_object(INDEXED, target)), everywhere, plan_of("indexed", index))
    assert verdict.problems == ()
    assert verdict.patch is not None
    assert verdict.patch.refusals == ()
    assert verdict.complete
    assert verdict.counters["total"] == verdict.instructions[0]


def test_points_where_the_index_mode_is_not_known_are_refused(compile_object, everywhere: Everywhere) -> None:
    source = INDEXED.replace('"s_set_gpr_idx_idx 1\\n"', '"s_mov_b32 m0, 0x8001\\n"')
    assert source != INDEXED
    object = load_object(compile_object(source, "gfx90a"))
    verdict = verify_kernel(object, everywhere, plan_of("indexed", 2))
    assert verdict.problems == ()
    assert verdict.patch is not None
    assert {refusal.kind for refusal in verdict.patch.refusals} == {"in VGPR index mode"}
    addresses = {refusal.address for refusal in verdict.patch.refusals}
    texts = [one.text for one in lift(object, "indexed").instructions if one.address in addresses]
    assert [text.split()[0] for text in texts] == ["s_nop", "v_add_u32_e32", "s_set_gpr_idx_off"]


def with_descriptor(object: CodeObject, name: str, **changes: int) -> CodeObject:
    kernel = object.kernels[name]
    editor = ObjectEditor(object)
    editor.write(kernel.descriptor_address, replace(kernel.descriptor, **changes).encode())
    return CodeObject(editor.finish())


MANY = (
    HEADER
    + """
extern "C" __global__ __launch_bounds__(128) void many(uint32_t *out) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  asm volatile("v_lshlrev_b32_e32 v190, 1, %0\\ns_nop 0\\nv_add_u32_e32 %0, v190, %0" : "+v"(v) :: "v190");
  asm volatile("s_mov_b32 s99, 3\\ns_mov_b32 s101, 5\\ns_nop 1\\ns_add_u32 s99, s99, s101\\nv_add_u32_e32 %0, s99, %0"
               : "+v"(v) :: "s99", "s101", "scc");
  out[i] = v;
}
"""
)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
def test_vgprs_at_or_above_the_first_agpr(compile_object, everywhere: Everywhere, target: str) -> None:
    """They are AGPRs by another name: the AGPRs stay where they are, and hooks may read them."""
    plain = load_object(compile_object(MANY, target))
    object = with_descriptor(plain, "many", accum_offset=128 // 4 - 1)
    descriptor = object.kernels["many"].descriptor
    assert descriptor.architected_vgprs == 128 < 190 < descriptor.vgprs
    assert verify_kernel(object, everywhere, plan_of("many")).problems == ()
    patched = CodeObject(patch_object(object, everywhere.instrument).data)
    assert patched.kernels["many"].descriptor.accum_offset == 128 // 4 - 1

    def edit(task: InstrumentationTask) -> None:
        task.replace(next(one for one in task.instructions if one.text == "s_nop 0"), "v_mov_b32_e32 v190, v190")

    after = CodeObject(patch_object(object, edit).data).kernels["many"].descriptor
    assert after.accum_offset == descriptor.accum_offset

    class Reads(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            lifted = task.lifted
            assert budget_of(lifted).vgpr_limit == 128 < budget_of(lift(plain, "many")).vgpr_limit
            for instruction in task.instructions:
                if instruction.text == "s_nop 0":
                    task.insert_hook_before(instruction, everywhere.module.add, reg("v190"))

        def expected(self, task, counts):
            return {"total": 2 * sum(range(256))}

    verdict = verify_kernel(object, Reads(), plan_of("many"))
    assert verdict.problems == ()
    assert verdict.complete


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
def test_sgprs_are_given_out_by_sixteen(compile_object, everywhere: Everywhere, target: str) -> None:
    """A kernel that declares 104 has 112, so that s99 to s101 are below the six special ones."""
    object = with_descriptor(load_object(compile_object(MANY, target)), "many", granulated_wavefront_sgpr_count=12)
    assert object.kernels["many"].descriptor.sgprs == 104

    class Reads(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.text == "s_nop 1":
                    task.insert_hook_before(instruction, everywhere.module.add, reg("s101"))

        def expected(self, task, counts):
            return {"total": 256 * 5}

    verdict = verify_kernel(object, Reads(), plan_of("many"))
    assert verdict.problems == ()
    assert verdict.complete
    assert verify_kernel(object, everywhere, plan_of("many")).problems == ()
    assert np.all(verdict.counters["total"] == 1280)


@pytest.mark.parametrize("target", TARGETS)
def test_sgprs_in_place_of_specials(everywhere: Everywhere, target: str) -> None:
    """A kernel without FLAT_SCRATCH and XNACK_MASK has the SGPRs that these would take of its last step."""
    lines = ["s_load_dwordx2 s[2:3], s[0:1], 0x0", "s_mov_b32 s12, 77", "s_nop 0", "v_mov_b32 v1, s12"]
    lines += ["v_lshlrev_b32 v0, 2, v0", "s_waitcnt 0", "global_store_dword v0, v1, s[2:3]", "s_endpgm"]
    made = assembled(kernel_text(function("k", lines), target, sgprs=13, vgprs=4), target)
    object = with_descriptor(made, "k", granulated_wavefront_sgpr_count=1)
    assert object.kernels["k"].descriptor.usable_sgprs == 10

    class Reads(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            (at,) = task.select(lambda instruction: instruction.text == "s_nop 0")
            task.insert_hook_before(at, everywhere.module.add, reg("s12"))

        def expected(self, task, counts):
            return {"total": 77 * 64}

    arguments = ({"buffer": "uint32", "count": 64},)
    verdict = verify_kernel(object, Reads(), LaunchPlan("k", (1, 1, 1), (64, 1, 1), arguments))
    assert verdict.problems == ()
    assert verdict.complete
