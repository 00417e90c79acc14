"""M0 that a payload has used: the application may use it at once when it is restored."""

from __future__ import annotations

import pytest
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

HOOK = """
extern "C" __device__ uint32_t writelane(uint32_t value, uint32_t lane, uint32_t) __asm("llvm.amdgcn.writelane.i32");
__device__ uint32_t seen[64];
/// The lane's number goes through M0 on GFX9.
LUTHIER_HOOK_ANNOTATE into_lane(uint32_t value, uint32_t lane) {
  seen[__builtin_amdgcn_mbcnt_lo(~0u, 0)] = writelane(value, lane, 0);
}
"""
SET = "s_mov_b32 m0, 64"
GFX9 = ("gfx906", "gfx90a", "gfx942")
USES = [  # what uses M0 at once, and where it is one of the table's
    ("buffer_load_dword off, s[4:7], 0 lds", GFX9),  # LLVM alone keeps it apart
    ("global_load_lds_dword v[2:3], off", ("gfx942",)),
    ("s_sendmsg sendmsg(MSG_INTERRUPT)", GFX9),
    ("ds_read_addtid_b32 v1", GFX9),
    ("v_mov_b32_e32 v1, src_lds_direct", ("gfx906",)),
]


@pytest.mark.rows(3)
@pytest.mark.parametrize(("use", "target"), [(use, target) for use, targets in USES for target in targets])
def test_is_ready(make_module, use: str, target: str) -> None:
    module = make_module(HOOK, *GFX9)
    object = kernel(target, f"{SET}; s_nop 0; {use}; s_waitcnt vmcnt(0) lgkmcnt(0)")

    def instrument(task: InstrumentationTask) -> None:
        point = next(one for one in task.instructions if one.text == use)
        task.insert_hook_before(point, module.into_lane, reg("s8"), reg("s9"))

    patched = load_object(patch_object(object, instrument, ["k"], strict=True).data)
    lifted = lift(patched, "k")
    texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
    at = texts.index(use)
    assert texts[at - 1] == "s_nop 0"
    assert "m0" in texts[at - 2]
    assert not check_hazards(lifted, unneeded=False).findings
