"""Guards of hooks: hooks do the same with and without them, and cost less where they need not run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier import lift
from luthier.devices import open_device
from luthier.devices.in_process import HereRun
from luthier.emulator import EmulatedDevice
from luthier.errors import HookError
from luthier.hazards.wait_states import check_hazards
from luthier.isa.targets import target_named
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
SOURCE = """
__device__ uint64_t large = 0;
/// Lanes with a value that is large; many instructions, so that it is called where several points have it.
LUTHIER_HOOK_ANNOTATE count(uint32_t value, uint32_t step) {
  uint32_t found = 0;
  for (uint32_t bit = 0; bit < 8; ++bit)
    found += value >= 48 && (value * 2654435761u >> (4 * bit) & 15) < 14 + step;
  const uint64_t lanes = __ballot(value >= 48 && found < 100);
  if (lanes)
    luthier::sAtomicAdd<uint64_t>(&large, __builtin_popcountll(lanes));
}
"""
WANTED = {
    "nothing": ["{all}"],
    "VCC": ["v_cndmask_b32_e32 v3, v3, v2, {vcc}"],
    "VCC and SCC": ["v_cndmask_b32_e32 v3, v3, v2, {vcc}", "s_cselect_b32 s8, 7, 9", "vadd v3, s8, v3"],
}


def made(target: str, wanted: str, wave_size: int) -> CodeObject:
    """Return a kernel that adds to numbers of lanes, and stores what comes of it."""
    vcc, carry = ("vcc", "") if wave_size == 64 else ("vcc_lo", "")
    lines = [
        "v_and_b32_e32 v0, 63, v0",
        "v_lshlrev_b32_e32 v1, 2, v0",
        "v_mov_b32_e32 v2, v0",
        "v_mov_b32_e32 v3, 5",
        f"v_cmp_lt_u32_e32 {vcc}, 20, v0{carry}",
        "s_cmp_eq_u32 s0, s0",
        *["v_xor_b32_e32 v2, 1, v2"] * 6,
        *(line.format(vcc=vcc, all="vadd v3, 1, v3") for line in WANTED[wanted]),
        "vadd v3, v3, v2",
        *("load2 s[4:5], s[0:1], 0x0", "wait_scalar", "global_store v1, v3, s[4:5]", "s_endpgm"),
    ]
    return assembled(kernel_text(function("k", lines), target, wave_size=wave_size), target, wave_size=wave_size)


def run(object: CodeObject, module: ToolModule, target: str, limit: int | None) -> tuple[bytes, int, int, CodeObject]:
    """Return what the kernel stores, lanes that hooks have counted, executed instructions, and the patched object.

    Args:
        limit: from which number on the guard lets hooks run; None: there is no guard.
    """

    def instrument(task: InstrumentationTask) -> None:
        test = [] if limit is None else [f"v_cmp_le_u32_e64 {{vcc}}, {limit}, v2"]
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("v_xor"):
                task.insert_hook_after(
                    instruction, module.count, task.operand(instruction, "vdst"), instruction.index, only_if=test
                )

    patched = patch_object(object, instrument, strict=True)
    device = open_device(f"emu:{target}")
    assert isinstance(device, EmulatedDevice)
    out, loaded = np.zeros(64, np.uint32), device.load(patched.data)
    loaded.kernel("k").launch(out, grid=1, block=64)
    (count,) = HereRun(loaded, patched).variables("large")
    return out.tobytes(), int(count.read(np.uint64)[0]), device.stats.instructions, load_object(patched.data)


@pytest.mark.rows(1)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("target", TARGETS)
def test_hooks_do_the_same(make_module: Callable[..., ToolModule], target: str, wanted: str, wide: bool) -> None:
    """Where it lets hooks run, where it does not in any lane, and without it; VCC and SCC stay as they are."""
    sizes = target_named(target).wave_sizes
    wave_size = sizes[-1] if wide else sizes[0]
    module = make_module(SOURCE, *TARGETS, both_wave_sizes=True)
    object = made(target, wanted, wave_size)
    device, plain = open_device(f"emu:{target}"), np.zeros(64, np.uint32)
    device.load(object.data).kernel("k").launch(plain, grid=1, block=64)
    results = {limit: run(object, module, target, limit) for limit in (None, 48, 64)}
    assert {stored for stored, *_ in results.values()} == {plain.tobytes()}
    assert results[None][1] == results[48][1] == 6 * 16
    for stored, _, _, patched in results.values():
        assert stored
        assert not check_hazards(lift(patched, "k"), unneeded=False).findings
    assert results[64][1] == 0
    assert results[64][2] < 0.7 * results[None][2]


@pytest.mark.parametrize(
    "text",
    [
        "v_mov_b32_e32 v2, 0",
        "v_cmp_le_u32_e64 s[10:11], 3, v2",
        "v_cmpx_le_u32_e64 {vcc}, 3, v2",
        "v_cmp_le_u32_e64 {vcc}, 3",
        "v_mov_b32_e32 v5, 0\nv_cmp_le_u32_e64 {vcc}, 3, v5",
    ],
)
def test_what_is_no_comparison(make_module: Callable[..., ToolModule], text: str) -> None:
    module = make_module(SOURCE, *TARGETS, both_wave_sizes=True)
    task = InstrumentationTask(lift(made("gfx90a", "nothing", 64), "k"))
    with pytest.raises(HookError, match=r"not a comparison|does not assemble"):
        task.insert_hook_before(next(task.instructions), module.count, 1, 2, only_if=[text])


def test_registers_for_one_tool() -> None:
    """Neither the kernel nor another tool uses them, until none are left."""
    task = InstrumentationTask(lift(made("gfx90a", "nothing", 64), "k"))
    given = [task.spare_sgprs(count) for count in (1, 4, 1, 2)]
    units = [unit for one in given if one is not None for unit in one.units]
    assert len(set(units)) == len(units) == 8
    assert min(units) > 5  # the kernel's last one is s5
    assert given[1] is not None
    assert given[1].first % 2 == 0
    while task.spare_sgprs(2) is not None:
        pass
    assert task.spare_sgprs(2) is None


def test_unknown_code_leaves_no_registers() -> None:
    lines = ["s_load_dwordx2 s[6:7], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "s_swappc_b64 s[30:31], s[6:7]", "s_endpgm"]
    lifted = lift(assembled(kernel_text(function("k", lines), "gfx90a"), "gfx90a"), "k")
    assert lifted.unknown
    assert InstrumentationTask(lifted).spare_sgprs(1) is None
