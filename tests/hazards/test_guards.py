"""Comparisons of hooks' guards stand among the application's instructions: what they read must be there."""

from __future__ import annotations

import pytest
from luthier import load_object
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

HOOKS = """
__device__ uint64_t sum;
LUTHIER_HOOK_ANNOTATE add(uint32_t value) { luthier::sAtomicAdd<uint64_t>(&sum, value & 1); }
"""
MOVES = "v_mov_b32 v6, v1; v_mov_b32 v7, v2"
WMMA = "v_wmma_f32_16x16x32_f16 v[8:15], v[16:23], v[24:31], 0"
CASES = {
    "transcendental": ("gfx1100", "v_rcp_f32 v3, v1", "v3", True),
    "transcendental, others behind it": ("gfx1100", f"v_rcp_f32 v3, v1; {MOVES}", "v3", True),
    "transcendental, enough behind it": ("gfx1100", "v_rcp_f32 v3, v1" + 3 * f"; {MOVES}", "v3", False),
    "another register": ("gfx1100", "v_rcp_f32 v3, v1", "v2", False),
    "on one of two paths": ("gfx1100", "s_cbranch_scc1 a; v_rcp_f32 v3, v1; a: ; v_mov_b32 v4, v1", "v3", True),
    "around a loop": ("gfx1100", "a: ; v_mov_b32 v4, v3; v_rcp_f32 v3, v1; s_cbranch_scc1 a", "v3", True),
    "GFX11.5 waits itself": ("gfx1150", "v_rcp_f32 v3, v1", "v3", False),
    "matrix product": ("gfx1250", WMMA, "v8", True),
}


@pytest.mark.parametrize("case", CASES)
def test_what_guards_read_is_there(make_module, case: str) -> None:
    target, code, register, waits = CASES[case]
    module = make_module(HOOKS, target, both_wave_sizes=True)
    for wave_size in (32, 64) if target != "gfx1250" else (32,):
        object = kernel(target, f"{code}; s_nop 0", wave_size=wave_size)
        before = len(check_hazards(lift(object, "k"), unneeded=False).findings)
        waiting = {}
        for guarded in (False, True):

            def at_the_end(task: InstrumentationTask, guarded: bool = guarded) -> None:
                only_if = [f"v_cmp_class_f32 {{vcc}}, {register}, 3"] if guarded else None
                one = next(one for one in task.instructions if one.text == "s_nop 0")
                task.insert_hook_before(one, module.add, reg("v1"), only_if=only_if)

            patched = load_object(patch_object(object, at_the_end, ["k"], strict=True).data)
            lifted = lift(patched, "k")
            assert len(check_hazards(lifted, unneeded=False).findings) <= before
            texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
            waiting[guarded] = sum(text.startswith(("s_waitcnt_depctr", "v_nop")) for text in texts)
        assert (waiting[True] > waiting[False]) == waits


def test_both_sides_of_a_change_of_exec(make_module) -> None:
    """Two registers, of which one was written before it and one behind it, are compared."""
    module = make_module(HOOKS, "gfx1100", both_wave_sizes=True)
    code = "v_mov_b32 v4, v1; s_mov_b64 exec, s[8:9]; v_mov_b32 v5, v2; s_nop 0"
    object = kernel("gfx1100", code, wave_size=64)

    def at_the_end(task: InstrumentationTask) -> None:
        one = next(one for one in task.instructions if one.text == "s_nop 0")
        task.insert_hook_before(one, module.add, reg("v1"), only_if=["v_cmp_eq_u32 {vcc}, v4, v5"])

    patched = load_object(patch_object(object, at_the_end, ["k"], strict=True).data)
    assert not check_hazards(lift(patched, "k"), unneeded=False).findings
