"""Lane masks on GFX11 where payloads meet the application, in waves of 64 lanes
(`luthier.patch.registers.lane_masks`)."""

from __future__ import annotations

import pytest
from luthier import load_object
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.patch import patch_object
from luthier.patch.registers import lane_masks
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

HOOKS = """
__device__ uint64_t sums[64];
LUTHIER_HOOK_ANNOTATE add(uint32_t value) {
  uint32_t lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
  uint64_t sum = sums[lane];
  sums[lane] = sum * 3 + (uint64_t{value} << 20) + (sum > value ? lane : 7);
}
"""
MASK = "v_cmp_lt_u32_e64 {mask}, v1, v2"
# VCC and an SGPR pair hold the application's masks where a payload wants VCC for its own.
BODIES = [
    "{write}; {use}",
    "{write}; s_nop 0; {use}; s_nop 0; {use}",
    "{write}; {use}; s_mov_b64 {mask}, 1; s_nop 4; {use}",
    "s_cbranch_scc1 a; {write}; a: ; {use}; s_and_b64 {mask}, {mask}, exec; {use}",
]


@pytest.mark.rows(1)
@pytest.mark.parametrize("mask", ["vcc", "s[8:9]"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("target", ["gfx1100", "gfx1150"])
def test_masks_of_payloads(make_module, target: str, body: str, mask: str) -> None:
    module = make_module(HOOKS, "gfx1100", "gfx1150", both_wave_sizes=True)
    use = f"v_cndmask_b32_e64 v3, v1, v2, {mask}"
    text = body.format(write=MASK.format(mask=mask), use=use, mask=mask)
    object = kernel(target, text, wave_size=64)
    before = {str(one.hazard) for one in check_hazards(lift(object, "k"), unneeded=False).findings}

    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.add, reg("v1"))

    patched = load_object(patch_object(object, everywhere, ["k"], strict=True).data)
    assert {str(one.hazard) for one in check_hazards(lift(patched, "k"), unneeded=False).findings} <= before


@pytest.mark.rows(2)
@pytest.mark.parametrize("change", ["s_mov_b64 exec, s[8:9]", "s_and_saveexec_b64 s[8:9], vcc", "s_nop 0"])
@pytest.mark.parametrize("target", ["gfx1100", "gfx1150"])
def test_behind_a_change_of_exec(target: str, change: str) -> None:
    """What was written before it and behind it may be read."""
    code, use = f"v_mov_b32 v4, v1; {change}", "v_mov_b32 v5, v2; v_add_nc_u32 v6, v4, v5"
    isa = lift(kernel(target, code, wave_size=64), "k").isa
    waits = lane_masks.behind(isa, isa.assemble(code.replace("; ", "\n")).instructions.code, 0)
    assert bool(waits) == ("exec" in change)
    findings = [
        check_hazards(lift(kernel(target, "; ".join(lines), wave_size=64), "k"), unneeded=False).findings
        for lines in ((code, use), (code, *waits, use))
    ]
    assert bool(findings[0]) == bool(waits)
    assert not findings[1]


@pytest.mark.parametrize("writer", ["s_mov_b64 s[8:9], 1", "v_cmp_eq_u32_e64 s[8:9], v4, v5"])
@pytest.mark.parametrize(
    ("between", "needed"),
    [
        ("s_nop 0", True),
        ("v_add_nc_u32 v6, v1, v2", True),
        ("s_mov_b32 s12, s13", True),
        ("s_waitcnt_depctr 0xffff", True),
        ("v_add_nc_u32 v6, s12, v2", False),
        ("v_cndmask_b32_e64 v6, v1, v2, s[10:11]", False),
        ("v_cndmask_b32_e64 v6, v1, v2, s[8:9]", True),
        ("s_waitcnt_depctr 0xfffe", False),
    ],
)
def test_what_a_mask_has_been_read_behind(writer: str, between: str, needed: bool) -> None:
    """As LLVM has it: a vector instruction that reads another SGPR is enough, before the mask is overwritten."""
    lines = ["v_cndmask_b32_e64 v3, v1, v2, s[8:9]", between, writer, "v_mov_b32 v7, s8"]
    lifted = lift(kernel("gfx1100", "; ".join(lines), wave_size=64), "k")
    names = [str(one.hazard) for one in check_hazards(lifted, unneeded=False).findings]
    assert any("lane mask" in name for name in names) == needed
