"""Live vector registers in LDS, where a kernel leaves no free ones and cannot have private memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from crowded import LANES, PLAN, WIDE, full
from luthier import open_device, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import DeviceError, PatchError
from luthier.isa.targets import TARGETS as ALL
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.payload.lds import LdsLayout
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from msgspec.structs import replace

from .test_frames import SITES, Everywhere

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
HOOKS = (
    WIDE
    + """
__device__ uint64_t waves = 0, mine = 0;

/// Runs with lanes that are not active.
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&waves, 1); }

/// Reads and writes M0, and puts back what was there by way of a VGPR.
LUTHIER_HOOK_ANNOTATE rewrite(uint32_t site) {
  uint32_t m0 = luthier::readReg<uint32_t>(luthier::M0), value = luthier::readReg<uint32_t>(luthier::VGPR0);
  uint32_t part[24], sum = 0;
  for (uint32_t i = 0; i < 24; ++i) part[i] = value * (i + site) ^ (m0 >> i);
  for (uint32_t i = 0; i < 24; ++i) sum = sum * 3 + part[(i * 5) % 24] * part[(i * 11) % 24];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  luthier::writeReg<uint32_t>(luthier::M0, m0);
}

static __shared__ uint64_t own[16];

LUTHIER_HOOK_ANNOTATE enter() {
  for (uint32_t i = 0; i < 16; ++i) own[i] = 0;
}
/// Has LDS of its own, whose last value it leaves.
LUTHIER_HOOK_ANNOTATE shared(uint32_t site, uint32_t register_) {
  uint32_t part[24], sum = 0;
  for (uint32_t i = 0; i < 24; ++i) part[i] = register_ * (i + site) ^ (register_ >> i);
  for (uint32_t i = 0; i < 24; ++i) sum = sum * 3 + part[(i * 5) % 24] * part[(i * 11) % 24];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  atomicAdd(reinterpret_cast<unsigned long long *>(&own[site]), 1ull);
  atomicAdd(reinterpret_cast<unsigned long long *>(&mine), 1ull);
}
"""
)
OWN_LDS = ["none", "static", "dynamic"]
DYNAMIC = 1031
"""Bytes: no multiple of 4."""
BLOCKS = {"line": ((3, 1, 1), (160, 1, 1)), "cube": ((3, 1, 1), (5, 8, 4))}


class Spilling(Everywhere):
    """One hook before every instruction, in a kernel whose stack has no known size."""

    def arguments(self, index: int) -> tuple:
        index %= SITES
        return {"count": (), "rewrite": (index,)}.get(self.name, (index, reg("v0")))

    def instrument(self, task: InstrumentationTask) -> None:
        task.most_stack = None
        if self.name == "shared":
            task.insert_hook_at_kernel_entry(self.hook.module.hook("enter"))
        super().instrument(task)

    def expected(self, task, counts):
        if self.name == "count":
            return {"waves": int(counts.executions.sum())}
        name = {"wide": "lanes", "shared": "mine"}.get(self.name)
        return {name: int(counts.active_lanes.sum())} if name else {}


@pytest.mark.rows(1)
@pytest.mark.parametrize("m0", [False, True], ids=["", "m0"])
@pytest.mark.parametrize("lds", OWN_LDS)
@pytest.mark.parametrize("hook", ["wide", "count", "rewrite", "shared"])
@pytest.mark.parametrize("target", TARGETS)
def test_no_site_is_refused(compile_object, hooks, target: str, hook: str, lds: str, m0: bool) -> None:
    object = full(compile_object, target, lds, m0=m0)
    block = "cube" if m0 else "line"
    grid, lanes = BLOCKS[block]
    plan = replace(PLAN, grid=grid, block=lanes, dynamic_lds=DYNAMIC if lds == "dynamic" else 0)
    verdict = verify_kernel(object, Spilling(hooks, hook), plan)
    assert verdict.problems == ()
    assert verdict.hazards == ()
    assert verdict.refused == 0
    assert verdict.patch is not None
    assert verdict.patch.in_lds > 0
    assert verdict.patch.spilling == 0
    before, after = verdict.patch.lds
    assert after > before


@pytest.mark.rows(1)
@pytest.mark.parametrize("lds", OWN_LDS)
@pytest.mark.parametrize("block", list(BLOCKS))
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1201"])
def test_waves_have_parts_of_their_own(compile_object, hooks, target: str, block: str, lds: str) -> None:
    """Between where the kernel's own LDS ends and where that of hooks begins."""
    object = full(compile_object, target, lds)

    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(hooks.hook("enter"))
        for instruction in list(task.instructions)[::30]:
            task.insert_hook_before(instruction, hooks.hook("shared"), 1, reg("v0"))

    patched = patch_object(object, insert, strict=True)
    dynamic = DYNAMIC if lds == "dynamic" else 0
    begin = object.kernels["crowded"].group_segment_fixed_size + dynamic
    hooks_part = LdsLayout.of(hooks.contents_for(object.target).lds).reserved
    end = load_object(patched.data).kernels["crowded"].group_segment_fixed_size + dynamic - hooks_part
    touched: dict[tuple[int, int], set[int]] = {}
    size = 4 * object.kernels["crowded"].wave_size

    def see(step: WaveStep) -> None:
        match = re.search(r"offset:(\d+)", step.text)
        first = step.registers.m0 + int(match[1] if match else 0)
        assert begin <= first
        assert first + size <= end
        wave = int(np.ravel(step.workgroup)[0]), step.wave
        touched.setdefault(wave, set()).update(range(first, first + size))

    code = InstrumentationTask(lift(load_object(patched.data), "crowded")).instructions
    stops = [one.address for one in code if "addtid" in one.mnemonic]
    kernel = open_device(f"emu:{target}").load(patched.data).kernel("crowded")
    grid, lanes = BLOCKS[block]
    out = np.zeros(3 * LANES, np.uint32)
    kernel.launch(out, grid=grid, block=lanes, dynamic_lds=dynamic, trace=see, breakpoints=stops)
    waves = -(-LANES // object.kernels["crowded"].wave_size)
    assert len(touched) == 3 * waves
    for group in range(3):
        parts = [touched[group, wave] for wave in range(waves)]
        assert sum(map(len, parts)) == len(set[int]().union(*parts))


def test_launches_with_more_lds_than_is_left_fail(compile_object, hooks) -> None:
    object = full(compile_object, "gfx90a", "dynamic")
    patched = patch_object(object, Spilling(hooks, "wide").instrument, strict=True)
    kernel = open_device("emu:gfx90a").load(patched.data).kernel("crowded")
    out = np.zeros(LANES, np.uint32)
    with pytest.raises(DeviceError, match="bytes of LDS"):
        kernel.launch(out, grid=1, block=LANES, dynamic_lds=ALL["gfx90a"].lds_bytes - 1000)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("lds", "lanes", "reason"), [("none", 1024, "there is room for 15"), ("full", 256, "there is no room for it")]
)
def test_what_has_no_room_is_refused(compile_object, hooks, lds: str, lanes: int, reason: str) -> None:
    """A register of a wave takes so much for every wave of the largest work-group."""
    object = full(compile_object, "gfx906", lds, lanes)
    with pytest.raises(PatchError, match=f"known only when it runs, and in LDS {reason}"):
        patch_object(object, Spilling(hooks, "wide").instrument, strict=True)


@pytest.mark.parametrize("target", ["gfx950", "gfx1010", "gfx1250"])
def test_targets_that_cannot(target: str) -> None:
    """M0 reaches 64 KiB, which is not all there; gfx10.1 would want waits elsewhere."""
    assert not ALL[target].lds_by_lane
