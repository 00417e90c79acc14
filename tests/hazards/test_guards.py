"""Comparisons of hooks' guards among the application's instructions: their operands must be ready (cases:
../filetests/spliced/guards.test)."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier import load_object
from luthier.errors import HookError
from luthier.hazards.wait_counters import check_waits
from luthier.hazards.wait_states import check_hazards
from luthier.lifting import lift
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask, reg
from wait_kernels import kernel

HOOKS = (Path(__file__).parents[1] / "filetests/spliced/guards.hip").read_text()


BEFORE = [
    "v_xor_b32 v3, s8, v3; s_mov_b32 s8, 7; s_nop 0",
    "v_xor_b32 v3, s8, v3; v_readfirstlane_b32 s8, v1; s_nop 0",
    "v_cndmask_b32 v3, v1, v2, {vcc}; s_mov_b32 vcc_lo, 7; s_nop 0",
    "v_xor_b32 v3, vcc_lo, v3; v_cmp_eq_u32 {vcc}, v1, v2; s_nop 0; v_cndmask_b32 v3, v1, v2, {vcc}",
    "global_load_dword v2, v1, s[4:5]; s_nop 0",
    "ds_read_b32 v2, v1; s_nop 0",
    # What is loaded to s[6:7] is never used: VCC could be kept there.
    "v_cmp_eq_u32 {vcc}, v1, v3; s_load_dwordx4 s[4:7], s[0:1], 0x0; s_nop 0; v_cndmask_b32 v3, v1, v3, {vcc}",
]
"""Code that guards may not follow at once, each with a place for one."""
GUARDS = [
    "v_cmp_eq_u32 {vcc}, 7, v2",
    "v_cmp_eq_u32 {vcc}, s8, v1",
    "v_cmp_eq_u32 {vcc}, vcc_lo, v1",
    "s_mov_b32 {vcc_lo}, 0x44778000\nv_cmp_eq_u32 {vcc}, {vcc_lo}, v1",
]


@pytest.mark.parametrize(
    ("target", "wave_size"), [("gfx90a", 64), ("gfx1010", 32), ("gfx1100", 64), ("gfx1201", 32), ("gfx1201", 64)]
)
def test_guards_wait_for_the_application(make_module, target: str, wave_size: int) -> None:
    """For scalars, masks and memory; the application does it only behind them."""
    module = make_module(HOOKS, target, both_wave_sizes=True)
    wait = "s_wait_loadcnt_dscnt 0x0; s_wait_kmcnt 0x0" if target == "gfx1201" else "s_waitcnt vmcnt(0) lgkmcnt(0)"
    code = "; ".join(f"{one}; {wait}" for one in BEFORE)
    # All SGPRs up to the loaded ones hold something.
    code = f"s_mov_b64 s[2:3], 0; s_mov_b32 s8, 1; {code}; v_xor_b32 v3, s0, v3; v_xor_b32 v3, s1, v3"
    code = code.format(vcc="vcc" if wave_size == 64 else "vcc_lo") + "; v_xor_b32 v3, s2, v3; v_xor_b32 v3, s3, v3"
    object = kernel(target, code, wave_size=wave_size)
    before = len(check_hazards(lift(object, "k"), unneeded=False).findings)
    for guard in GUARDS:

        def at_places(task: InstrumentationTask, guard: str = guard) -> None:
            for instruction in task.instructions:
                if instruction.text == "s_nop 0":
                    task.insert_hook_before(instruction, module.add, reg("v3"), only_if=[guard])

        lifted = lift(load_object(patch_object(object, at_places, ["k"], strict=True).data), "k")
        assert len(check_hazards(lifted, unneeded=False).findings) <= before, guard
        assert not check_waits(lifted, unneeded=False).findings, guard
        texts = [lifted.isa.text(lifted.code, index) for index in range(len(lifted.code))]
        assert sum(text.startswith("s_cbranch_vccz") for text in texts) == len(BEFORE)


def test_the_vcc_of_a_guard_is_the_applications(make_module) -> None:
    """A test that is not the first one would see the result of the one before it."""
    module = make_module(HOOKS, "gfx90a", both_wave_sizes=True)
    task = InstrumentationTask(lift(kernel("gfx90a", "s_nop 0"), "k"))
    own = "s_mov_b32 {vcc_lo}, 0x44778000\nv_cmp_eq_u32 {vcc}, {vcc_lo}, v1"
    for first in (own, "v_cmp_eq_u32 {vcc}, vcc_lo, v1"):
        task.insert_hook_before(0, module.add, reg("v1"), only_if=[first, own])
        for second in ("v_cmp_eq_u32 {vcc}, {vcc_lo}, v1", "s_mov_b32 {vcc_lo}, 7\nv_cmp_eq_u64 {vcc}, {vcc}, v[2:3]"):
            with pytest.raises(HookError, match="the previous test"):
                task.insert_hook_before(0, module.add, reg("v1"), only_if=[first, second])
