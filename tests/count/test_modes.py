"""Loops in VGPR index mode and in vector skip mode, where vector instructions do something else."""

from __future__ import annotations

import pytest
from luthier.errors import PatchError
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.tool.counts import CounterBudget
from luthier.verify.launch_plan import LaunchPlan
from test_truth import BUDGETS, check_profile

LOOP = """
L%=:
v_add_u32_e32 %0, 100, %0
s_sub_u32 s20, s20, 1
s_cmp_lg_u32 s20, 0
s_cbranch_scc1 L%=
"""
SWITCHES = {
    "skipping": ("s_setvskip %1, 0", "s_setvskip 0, 0\ns_nop 1"),
    "indexed": ("s_set_gpr_idx_on %1, gpr_idx(SRC0)", "s_set_gpr_idx_off"),
}


def kernel(compile_object, mode: str, target: str) -> CodeObject:
    on, off = SWITCHES[mode]
    text = "\\n".join(f"s_mov_b32 s20, 5\n{on}{LOOP}{off}".split("\n"))
    source = f"""
    #include <hip/hip_runtime.h>
    extern "C" __global__ void k(unsigned *out, unsigned flag) {{
      unsigned i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
      asm volatile("{text}" : "+v"(v) : "s"(flag) : "s20", "scc", "m0");
      out[i] = v;
    }}
    """
    return load_object(compile_object(source, target))


@pytest.mark.rows(5)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("mode", SWITCHES)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942"])
def test_counters_in_modes(compile_object, target: str, mode: str, budget: str) -> None:
    object = kernel(compile_object, mode, target)
    lifted = lift(object, "k")
    assert lifted.skipped if mode == "skipping" else lifted.index_mode
    for flag in (0, 1):
        # In index mode the operands of the loop are those of their names where the index is 0.
        flag *= mode == "skipping"
        plan = LaunchPlan("k", (2, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 128}, flag))
        try:
            check_profile(object, plan, BUDGETS[budget])
        except PatchError as problem:
            assert "in vector skip mode" in str(problem)  # noqa: PT017 - right or refused
            assert mode == "skipping"
            assert BUDGETS[budget] != CounterBudget()
