"""`luthier verify` delays results: it reports waits that the original lacks."""

from __future__ import annotations

import pytest
from luthier.errors import LiftError
from luthier.hazards.wait_states import HazardReport, check_hazards
from luthier.lifting import LiftedRepresentation, lift
from luthier.objects import CodeObject
from luthier.tool.task import InstrumentationTask
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from msgspec.structs import replace
from wait_kernels import HookAtEntry, kernel

BEGIN = (
    "s_load_dwordx2 s[2:3], s[0:1], 0x0; s_waitcnt lgkmcnt(0); v_and_b32_e32 v1, 31, v0; v_lshlrev_b32_e32 v1, 2, v1"
)
LOAD, USE = "global_load_dword v10, v1, s[2:3]", "v_mov_b32 v11, v10; global_store_dword v1, v11, s[2:3] offset:128"
PLAN = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "arange"},))


class WithoutNops(HookAtEntry):
    """It takes out all s_nop, too."""

    def instrument(self, task: InstrumentationTask) -> None:
        super().instrument(task)
        for instruction in task.instructions:
            if instruction.mnemonic == "s_nop":
                task.remove(instruction)


@pytest.mark.parametrize(("wait", "count"), [("s_waitcnt vmcnt(0)", 0), ("s_nop 0", 1)])
def test_waits_that_the_original_lacks(make_module, wait: str, count: int) -> None:
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx942")
    verdict = verify_kernel(kernel("gfx942", f"{BEGIN}; {LOAD}; {wait}; {USE}"), HookAtEntry(module), PLAN)
    assert verdict.equal
    assert len(verdict.missing_waits) == count
    assert all("reads v10" in wait for wait in verdict.missing_waits)


def test_a_loop_that_counts_to_what_is_not_there_yet(make_module) -> None:
    """It ends all the same, and soon."""
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx942")
    count = "s_load_dword s4, s[2:3], 40; s_mov_b32 s5, 0"
    loop = "again: s_add_u32 s5, s5, 1; s_cmp_lt_u32 s5, s4; s_cbranch_scc1 again"
    body = f"{BEGIN}; {count}; {loop}; s_waitcnt lgkmcnt(0); {LOAD}; s_waitcnt vmcnt(0); {USE}"
    verdict = verify_kernel(kernel("gfx942", body), HookAtEntry(module), PLAN)
    assert verdict.equal
    assert "reads s4" in verdict.missing_waits[0]
    assert verdict.instructions[0] < 100


LANE = "v_readfirstlane_b32 s4, v0; s_nop 3; v_readlane_b32 s5, v1, s4"


@pytest.mark.parametrize(("tool", "problems"), [(HookAtEntry, 0), (WithoutNops, 1)])
def test_a_patched_kernel_that_cannot_be_lifted_again(
    make_module, monkeypatch: pytest.MonkeyPatch, tool: type[HookAtEntry], problems: int
) -> None:
    """That its hazards were looked for in the launch alone is told; what it meets is a problem, as otherwise."""
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx906")
    object = kernel("gfx906", f"{BEGIN}; {LANE}; {LOAD}; s_waitcnt vmcnt(0); {USE}")

    def only_the_original(lifted: CodeObject, name: str) -> LiftedRepresentation:
        if lifted is not object:
            raise LiftError("an address that cannot be followed")
        return lift(lifted, name)

    verdict = verify_kernel(object, tool(module), PLAN)
    assert verdict.hazards == ()
    assert len(verdict.problems) == problems
    monkeypatch.setattr("luthier.verify.side_by_side.lift", only_the_original)
    verdict = verify_kernel(object, tool(module), PLAN)
    (hazard,) = verdict.hazards
    assert hazard.startswith("k: the patched kernel was checked for hazards in this launch only: an address that")
    assert len(verdict.problems) == problems
    assert all("it selects a lane" in problem for problem in verdict.problems)


def test_hazards_that_the_launch_meets_in_both(make_module, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no path was looked at: what the original has is told, and no problem of the patched kernel."""
    module = make_module("LUTHIER_HOOK_ANNOTATE nothing() {}\n", "gfx906")
    object = kernel("gfx906", f"{BEGIN}; {LANE.replace('s_nop 3', 's_nop 0')}")
    checked = check_hazards

    def nothing(lifted: LiftedRepresentation, *_: object, **__: object) -> HazardReport:
        return replace(checked(lifted), findings=(), consumers=())

    monkeypatch.setattr("luthier.verify.side_by_side.check_hazards", nothing)
    verdict = verify_kernel(object, HookAtEntry(module), PLAN)
    assert verdict.equal
    assert ["it selects a lane" in told for told in verdict.hazards] == [True]
