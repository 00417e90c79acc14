"""`luthier verify` does not report races of the original as errors of the patch."""

from __future__ import annotations

import pytest
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask
from luthier.verify import KernelVerdict, verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from wait_kernels import kernel

BEGIN = (
    "s_load_dwordx2 s[2:3], s[0:1], 0x0; s_waitcnt lgkmcnt(0); v_readfirstlane_b32 s4, v0; v_mov_b32_e32 v1, 0; "
    "s_nop 1; v_add_u32_e64 v4, s4, 1; s_movk_i32 s5, 40; s_movk_i32 s6, 3; s_cmp_eq_u32 s4, 0; "
    "s_cselect_b32 s5, s5, s6"
)
LOOP = "again: s_sub_u32 s5, s5, 1; {}; s_cmp_lg_u32 s5, 0; s_cbranch_scc1 again"
LAST = f"{BEGIN}; {LOOP.format('s_nop 0')}; global_store_dword v1, v4, s[2:3]"
"""The first wave's loop is longer; who ends last has the number of its first lane, and 1, in memory."""
LOST = f"{BEGIN}; global_load_dword v2, v1, s[2:3]; s_waitcnt vmcnt(0); s_movk_i32 s5, 9; " + LOOP.format(
    "v_add_u32_e32 v2, 1, v2; global_store_dword v1, v2, s[2:3]; s_waitcnt vmcnt(0); "
    "global_load_dword v2, v1, s[2:3] sc1; s_waitcnt vmcnt(0)"
)
"""Waves count together, and a turn that ends in the loop takes back what others have counted."""
OWN = f"{BEGIN}; v_lshlrev_b32_e32 v3, 2, v0; {LOOP.format('s_nop 0')}; global_store_dword v3, v0, s[2:3] offset:8"
"""Each lane writes a place of its own."""
SOURCE = """
LUTHIER_HOOK_ANNOTATE turn() {
#pragma nounroll
  for (int i = 0; i != 2000; ++i)
    __builtin_amdgcn_s_setprio(0);
}
"""


class Turns(Tool):
    """A hook in each turn of the loop, which takes so long that waves run by turns."""

    def __init__(self, module, without: str = "") -> None:
        super().__init__()
        self.module, self.without = module, without

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic == "s_sub_u32":
                task.insert_hook_before(instruction, self.module.turn)
            if instruction.mnemonic == self.without:
                task.remove(instruction)


def verdict(make_module, body: str, without: str = "") -> KernelVerdict:
    plan = LaunchPlan("k", (1, 1, 1), (128, 1, 1), ({"buffer": "uint32", "count": 256, "fill": "zero"},))
    return verify_kernel(kernel("gfx942", body), Turns(make_module(SOURCE, "gfx942"), without), plan)


@pytest.mark.parametrize("body", [LAST, LOST])
def test_races_of_the_original(make_module, body: str) -> None:
    result = verdict(make_module, body)
    assert result.equal, result.problems
    assert len(result.races) == 2
    assert "has a race: in another order of its waves it differs from itself in argument 1" in result.races[0]
    assert result.to_json()["races"] == result.races


def test_what_a_patch_does_to_a_kernel_with_races(make_module) -> None:
    result = verdict(make_module, LAST, "global_store_dword")
    assert result.races
    assert [problem.partition(" in ")[0] for problem in result.problems] == ["argument 1 differs"]


def test_kernels_without_races(make_module) -> None:
    assert verdict(make_module, OWN).races == ()
    result = verdict(make_module, OWN, "global_store_dword")
    assert (result.equal, result.races) == (False, ())
