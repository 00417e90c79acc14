"""Calls through a constant table of functions, with another function in each lane."""

from __future__ import annotations

import pytest
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.tool import Tool
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

SOURCE = """#include <hip/hip_runtime.h>
#include <stdint.h>
typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t f0(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t f1(uint32_t x) { return x & 1 ? x ^ 0x55 : x * x; }
__device__ __attribute__((noinline)) uint32_t f2(uint32_t x) { return x + 77; }
__device__ __attribute__((noinline)) uint32_t f3(uint32_t x) { return f0(x) + f2(x); }
extern __device__ Function const table[4];
__device__ Function const table[4] = {f0, f1, f2, f3};
extern "C" __global__ void dispatch(uint32_t *out, const uint32_t *in) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i];
  out[i] = table[v & 3](v);
}
"""
BUFFER = {"buffer": "uint32", "count": 256}
PLAN = LaunchPlan("dispatch", (2, 1, 1), (128, 1, 1), ({**BUFFER, "fill": "zero"}, {**BUFFER, "fill": "random"}))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("level", ["-O1", "-O2"])
def test_every_entry_of_the_table_is_a_target(compile_object, counter: type[Tool], target: str, level: str) -> None:
    """The compiler's loop over the different functions (readfirstlane, compare, mask, call) is followed."""
    object = load_object(compile_object(SOURCE, target, level))
    lifted = lift(object, "dispatch")
    assert lifted.unknown == ()
    (table,) = lifted.code_tables
    assert len(table.targets) == 4
    verdict = verify_kernel(object, counter(per_wave=True), PLAN)
    assert verdict.problems == ()
    assert verdict.complete
    assert verdict.counters["counter"] == verdict.instructions[0]


WIDENED = """#include <hip/hip_runtime.h>
#include <stdint.h>
__device__ __attribute__((noinline)) uint32_t f0(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t f1(uint32_t x) { return x + 5; }
extern "C" __device__ void *const table[2] = {(void *)f0, (void *)f1};
extern "C" __global__ void k(uint32_t *out, const uint32_t *in, uint32_t n) {
  asm volatile("s_getpc_b64 s[40:41]\\ns_add_u32 s40, s40, table@rel32@lo+4\\ns_addc_u32 s41, s41, table@rel32@hi+12\\n"
               "s_mov_b64 s[46:47], exec\\n"
               "v_cmp_gt_u32_e32 vcc, 3, v0\\ns_and_saveexec_b64 s[42:43], vcc\\n"
               "v_mov_b32_e32 v20, 0\\nglobal_load_dwordx2 v[10:11], v20, s[40:41]\\ns_waitcnt vmcnt(0)\\n"
               "BEFORE\\n"
               "v_readfirstlane_b32 s44, v10\\nv_readfirstlane_b32 s45, v11\\n"
               "s_swappc_b64 s[30:31], s[44:45]\\ns_mov_b64 exec, s[46:47]"
               ::: "s30", "s31", "s40", "s41", "s42", "s43", "s44", "s45", "s46", "s47", "v10", "v11", "v20", "vcc",
                   "v0", "v1", "memory");
  out[threadIdx.x] = in[threadIdx.x] + n;
}
"""


@pytest.mark.rows(2)
@pytest.mark.parametrize(
    ("before", "known"),
    [
        ("s_nop 0", True),
        ("s_mov_b64 s[48:49], exec\\ns_mov_b64 exec, s[48:49]", True),
        ("v_cmp_eq_u32_e32 vcc, 0, v0\\ns_and_b64 exec, exec, vcc", True),
        ("s_mov_b64 exec, s[46:47]", False),  # lanes that did not load
        ("s_mov_b64 exec, -1", False),
        ("s_or_b64 exec, exec, s[42:43]", False),
        ("s_xor_b64 exec, exec, s[42:43]", False),
        ("v_mov_b32_e32 v10, v0", False),
    ],
)
def test_only_lanes_that_loaded_hold_what_was_loaded(compile_object, before: str, known: bool) -> None:
    source = WIDENED.replace("BEFORE", before)
    lifted = lift(load_object(compile_object(source, "gfx90a")), "k")
    assert [not call.known for function in lifted.functions for call in function.calls][:1] == [not known]
    assert (lifted.unknown == ()) == known
