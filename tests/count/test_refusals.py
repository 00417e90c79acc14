"""Kernels that leave no room for counters: each is counted correctly, or refused with the instruction."""

from __future__ import annotations

import random

import pytest
from assembly import assembled, function, kernel_text
from effort import EVERYTHING, FAMILIES
from luthier.errors import PatchError
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan
from test_truth import check_profile

PLAN = LaunchPlan("k", (3, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 192},))
KERNELS = 60 if EVERYTHING else 4


def crowded(seed: int, target: str) -> tuple[CodeObject, str]:
    """A loop through which all, or nearly all, SGPRs and VGPRs are live, and SCC where nothing else is done; and what
    is special about it."""
    rng = random.Random(seed)
    generation = target_named(target)
    wide = generation.default_wave_size == 64
    sgprs = range(36, 36 + rng.choice((0, 64, 66, 66)))
    last = rng.choice((8, 200, 253, 256, 256))
    vgprs = [1, 2, *range(4, last)]
    live = rng.random() < 0.6
    lines = ["load2 s[4:5], s[0:1], 0x0", "workgroup_id s6", "wait_scalar"]
    lines += ["v_mbcnt_lo_u32_b32 v0, -1, 0", *(["v_mbcnt_hi_u32_b32 v0, -1, v0"] if wide else [])]
    lines += ["v_mov_b32_e32 v3, v0", "s_movk_i32 s22, 5"]
    full = rng.random() < 0.5
    taken = [number for number in (*range(4), *range(7, 22), *range(23, 36)) if full or rng.random() < 0.9]
    if full:
        sgprs = range(36, 106 if generation.major >= 10 else 102)
        lines += ["s_mov_b32 vcc_lo, 1", "s_mov_b32 vcc_hi, 2", "s_mov_b32 m0, 3"]
    lines += [f"s_mov_b32 s{number}, {number}" for number in (*taken, *sgprs)]
    lines += [f"v_mov_b32_e32 v{number}, {number}" for number in vgprs]
    body = ["s_cmp_lg_u32 s22, 2", "again:"]
    body += ["s_cbranch_scc0 skip", "vadd v3, s22, v3", "skip:"]
    lines += body if live else ["again:", "s_cmp_lg_u32 s22, 2", *body[2:]]
    # In the loop SCC says whether there is one more round, from one end to the other.
    lines += ["s_sub_u32 s22, s22, 1", "s_cmp_lg_u32 s22, 0"]
    lines += ["s_cbranch_scc1 again"]
    lines += [f"s_add_u32 s22, s22, s{number}" for number in (*taken, *sgprs)]
    lines += ["s_add_u32 s22, s22, vcc_lo", "s_add_u32 s22, s22, vcc_hi", "s_add_u32 s22, s22, m0"] * full
    lines += [f"vadd v3, v{number}, v3" for number in vgprs]
    lines += ["vadd v3, s22, v3", f"s_mul_i32 s6, s6, {256 if wide else 128}", "v_lshlrev_b32_e32 v1, 2, v0"]
    lines += ["vadd v1, s6, v1", "global_store v1, v3, s[4:5]", "s_endpgm"]
    text = kernel_text(function("k", lines), target, sgprs=106 if generation.major >= 10 else 102, vgprs=last)
    return assembled(text, target), f"{len(sgprs)} and {len(taken)} SGPRs, VGPRs to {last}, SCC {live}"


def right_or_refused(object: CodeObject, budget: CounterBudget) -> bool:
    """Whether a profile is counted, and then it is right; else the error says where."""
    code = lift(object, "k").code
    try:
        check_profile(object, PLAN, budget)
    except PatchError as problem:
        assert problem.kernel == "k"  # noqa: PT017 - right or refused
        assert problem.offset in code.addresses  # noqa: PT017
        return False
    return True


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
def test_crowded_kernels(target: str) -> None:
    budgets = (CounterBudget(), CounterBudget(vgprs=0), CounterBudget(sgprs=0, vgprs=0))
    outcomes = set()
    for seed in range(KERNELS):
        object, what = crowded(seed, target)
        for budget in budgets:
            try:
                outcomes.add(right_or_refused(object, budget))
            except BaseException as problem:
                problem.add_note(f"seed {seed}: {what}; {budget}")
                raise
    assert outcomes == {True, False}


def test_lanes_that_hooks_turn_on(app, make_module) -> None:
    """The hook that writes EXEC is named."""
    module = make_module("LUTHIER_HOOK_ANNOTATE one() { luthier::writeReg<uint32_t>(luthier::EXEC_LO, 1); }", "gfx90a")
    object = load_object(app("vector_add", "gfx90a"))
    sites = []

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions, per="lane")
        sites.append(list(task.instructions)[7])
        task.insert_hook_before(sites[0], module.one)

    with pytest.raises(PatchError, match="where hooks or added instructions write EXEC") as problem:
        patch_object(object, instrument, strict=True)
    assert problem.value.offset == sites[0].address


@pytest.mark.parametrize("change", ["add_before", "add_after"])
def test_lanes_that_added_instructions_turn_off(app, change: str) -> None:
    object = load_object(app("vector_add", "gfx90a"))

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions, per="lane")
        getattr(task, change)(list(task.instructions)[7], "s_mov_b64 exec, 1")

    with pytest.raises(PatchError, match="where hooks or added instructions write EXEC") as problem:
        patch_object(object, instrument, strict=True)
    instructions = list(lift(object, "vector_add").instructions)
    assert problem.value.offset == instructions[7 + (change == "add_after")].address


@pytest.mark.parametrize("flag", [0, 1])
def test_ends_in_skip_mode(compile_object, flag: int) -> None:
    """Where a wave ends in vector skip mode nothing can go to memory: before that each block can."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void k(unsigned *out, unsigned flag) {
      out[blockIdx.x * 64 + threadIdx.x] = 1;
      asm volatile("s_waitcnt vmcnt(0)\\ns_setvskip %0, 0\\ns_endpgm" :: "s"(flag));
    }
    """
    object = load_object(compile_object(source, "gfx90a"))
    plan = LaunchPlan("k", (3, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 192}, flag))
    check_profile(object, plan, CounterBudget())
