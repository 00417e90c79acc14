"""Reasons why a launch has fewer findings than the check of all paths, each with its own kernel."""

from __future__ import annotations

import pytest
from luthier.verify.launch_plan import LaunchPlan
from mutation import mutants
from mutation_study import NOT_EXECUTED, Study
from mutation_ways import OTHER_LANES, OTHER_WAY, UNEXPLAINED, Ways
from wait_kernels import kernel

PLAN = LaunchPlan("k", (1, 1, 1), (128, 1, 1), ({"buffer": "uint32", "count": 128},))
BEGIN = (
    "v_readfirstlane_b32 s4, v0; s_load_dwordx2 s[2:3], s[0:1], 0x0; v_lshlrev_b32 v2, 2, v0; s_waitcnt lgkmcnt(0);"
    "s_cmp_eq_u32 s4, 0;"  # the first of two waves
)
LOAD = "global_load_dword v1, v2, s[2:3];"
WAIT = "s_waitcnt vmcnt(0);"
KERNELS = {
    OTHER_LANES: f"s_mov_b64 exec, 0xf; {LOAD} s_mov_b64 exec, 0xf0; {WAIT} v_mov_b32 v1, 0",
    "no lanes": f"s_mov_b64 exec, 0; {LOAD} s_mov_b64 exec, -1; {WAIT} v_mov_b32 v1, 0",
    OTHER_WAY: f"s_cbranch_scc0 join; {LOAD} join: {WAIT} s_cbranch_scc1 end; v_mov_b32 v3, v1; end: s_nop 0",
    NOT_EXECUTED: f"{LOAD} {WAIT} s_cmp_eq_u32 s4, 1; s_cbranch_scc0 end; v_mov_b32 v3, v1; end: s_nop 0",
    "": f"{LOAD} {WAIT} v_mov_b32 v3, v1",
}


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942"])
@pytest.mark.parametrize("reason", KERNELS)
def test_reasons(target: str, reason: str) -> None:
    object = kernel(target, BEGIN + KERNELS[reason])
    study = Study(object, PLAN)
    mutant = [one for one in mutants(object, study.lifted) if one.kind == "wait" and one.removed][-1]
    seen, wrong = study.judge(mutant)
    assert not wrong
    assert seen["static"] == 1
    assert seen["dynamic"] == (not reason)
    reasons = {name for name in (NOT_EXECUTED, OTHER_WAY, OTHER_LANES) if seen[name]}
    assert reasons == ({OTHER_LANES if reason == "no lanes" else reason} - {""})


@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942"])
def test_what_a_launch_should_find_has_no_reason(target: str) -> None:
    object = kernel(target, BEGIN + KERNELS[""])
    study = Study(object, PLAN)
    mutant = [one for one in mutants(object, study.lifted) if one.kind == "wait" and one.removed][-1]
    _, lifted, waits = study.static(mutant)
    assert Ways(object, PLAN, study.lifted).reason(lifted, waits) == UNEXPLAINED
