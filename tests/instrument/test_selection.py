"""Choosing instructions and work-groups."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from assembled_cases import assemble
from luthier import ToolModule, immediate, open_device, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import HookError, ObjectError
from luthier.isa import Isa
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.tool.task import InstrumentationTask

TARGETS = ["gfx906", "gfx942", "gfx1030", "gfx1201"]
HOOKS = """
__device__ uint64_t waves[64];
__device__ uint64_t lanes = 0;
LUTHIER_HOOK_ANNOTATE wave(uint32_t row) { luthier::sAtomicAdd<uint64_t>(&waves[row], 1); }
LUTHIER_HOOK_ANNOTATE lane() { atomicAdd((unsigned long long *)&lanes, 1ull); }
LUTHIER_HOOK_ANNOTATE change() {
  luthier::writeReg<uint32_t>(luthier::VGPR1, luthier::readReg<uint32_t>(luthier::VGPR1) + 1000);
}
"""
KERNELS = """
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) void put(unsigned *out, unsigned value) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}
__device__ __attribute__((noinline)) unsigned get(unsigned *out) { return out[threadIdx.x] * 3; }
extern "C" __global__ void k(unsigned *out) { put(out, get(out) + blockIdx.y); }
"""


def kernel(compile_object, target: str) -> CodeObject:
    return load_object(compile_object(KERNELS, target))


def test_instructions(compile_object, module: ToolModule) -> None:
    task = InstrumentationTask(lift(kernel(compile_object, "gfx942"), "k"))
    every = list(task.instructions)
    assert [one.index for one in task.select()] == [one.index for one in every]
    stores = task.select(lambda instruction: instruction.is_store and instruction.memory.space in ("global", "flat"))
    assert [one.index for one in stores] == [
        one.index for one in every if one.mnemonic.startswith(("global_store", "flat_store"))
    ]
    assert stores
    owner = {one.index: task.lifted.functions[task.lifted.blocks[one.block].function].name for one in every}
    for patterns, names in (
        (["put"], {"_Z3putPjj"}),
        (["!put*", "!k"], {"_Z3getPj"}),
        (["get", "k"], {"_Z3getPj", "k"}),
    ):
        assert {owner[one.index] for one in task.select(functions=patterns)} == names
    assert [one.index for one in task.select(every=5)] == [one.index for one in every[::5]]
    half = [one.index for one in task.select(share=0.5, seed=3)]
    assert (
        half
        == [one.index for one in task.select(share=0.5, seed=3)]
        != [one.index for one in task.select(share=0.5, seed=4)]
    )
    assert 0.2 * len(every) < len(half) < 0.8 * len(every)
    assert task.select(share=0.0) == []
    for wrong in ({"every": 0}, {"share": 1.5}, {"share": -0.1}):
        with pytest.raises(HookError, match="every must be at least 1"):
            task.select(**wrong)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_every_few_work_groups(compile_object, module: ToolModule, target: str) -> None:
    """Hooks run in the work-groups that were asked for, whether they run once a wave or in lanes."""
    object = kernel(compile_object, target)
    grid, block = (7, 3), 64
    kinds = [(1, 0), (3, 0), (3, 2), (8, 1), (100, 50)]

    def instrument(task: InstrumentationTask) -> None:
        for row, (every, first) in enumerate(kinds):
            task.sample_workgroups(every, first)
            task.insert_hook_at_kernel_entry(module.wave, immediate(row))
        task.sample_workgroups(4, 1)
        task.insert_hook_at_kernel_exit(module.lane)

    patched = patch_object(object, instrument, strict=True)
    loaded = open_device(f"emu:{target}").load(patched.data)
    loaded.kernel("k").launch(np.arange(7 * 64, dtype=np.uint32), grid=grid, block=block)
    ids = [x + y for x in range(grid[0]) for y in range(grid[1])]
    each = -(-block // Isa.of(target).wave_size)
    waves = np.frombuffer(loaded.variable("waves").read(), np.uint64)[: len(kinds)].tolist()
    assert waves == [each * sum(one % every == first for one in ids) for every, first in kinds]
    assert loaded.variable("lanes").read(int) == block * sum(one % 4 == 1 for one in ids)


@pytest.mark.parametrize("target", TARGETS)
def test_hooks_that_write_in_some_work_groups(module: ToolModule, target: str) -> None:
    lanes = Isa.of(target).wave_size
    body = "v_lshlrev_b32_e32 v2, 2, v0\n v_mov_b32_e32 v1, 0\n global_store v2, v1, s[4:5]\n"
    object = assemble(target, body, vgprs=8, sgprs=30)

    def instrument(task: InstrumentationTask) -> None:
        task.sample_workgroups(3, 1)
        (store,) = task.select(lambda instruction: instruction.is_store)
        task.insert_hook_before(store, module.change)

    loaded = open_device(f"emu:{target}", threads=1).load(patch_object(object, instrument, strict=True).data)
    seen = []

    def trace(step: WaveStep) -> None:
        if "_store_" in step.text:
            seen.append((step.workgroup, set(step.registers.vgpr(1).tolist())))

    loaded.kernel("k").launch(np.zeros(64, np.uint32), grid=7, block=lanes, trace=trace)
    assert sorted(seen) == [(group, {1000 if group % 3 == 1 else 0}) for group in range(7)]


def test_no_such_work_groups(compile_object) -> None:
    task = InstrumentationTask(lift(kernel(compile_object, "gfx942"), "k"))
    for every, first in ((0, 0), (3, 3), (3, -1), (1 << 31, 0)):
        with pytest.raises(HookError, match="needs 0 <= first < every"):
            task.sample_workgroups(every, first)


def test_source_lines(compile_object) -> None:
    object = load_object(compile_object(KERNELS, "gfx942", "-g"))
    task = InstrumentationTask(lift(object, "k"))
    name = Path(object.source.at(object.kernels["k"].entry).file).name
    lines = {one.index: {frame.line for frame in one.source.frames} for one in task.instructions if one.source}
    assert len(lines) == len(list(task.instructions))
    text = KERNELS.splitlines()
    put, get, own = (next(i for i, line in enumerate(text, 1) if part in line) for part in ("void put", "get(", "k("))
    for asked, numbers in (
        (f"{name}:{put}-{put + 1}", {put, put + 1}),
        (f":{get}", {get}),
        (["*.hip:3", f":{own}"], {3, own}),
    ):
        expected = [index for index, of in lines.items() if of & numbers]
        assert expected
        assert [one.index for one in task.select(source=asked)] == expected
    stores = task.select(lambda instruction: instruction.is_store, source=f"{name}:{put + 1}")
    assert [one.mnemonic for one in stores] == ["flat_store_dword"]
    assert task.select(source=f":{get}")
    assert not task.select(source=f":{get}", functions=["put"])
    assert not task.select(source=["nowhere.hip", f"{name}:99999"])
    without = InstrumentationTask(lift(kernel(compile_object, "gfx942"), "k"))
    with pytest.raises(ObjectError, match="compile with -g"):
        without.select(source=":3")
