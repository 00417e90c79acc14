"""Hooks with `__shared__` variables: after all LDS of the kernel, whatever a launch asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import InstrumentationTask, ToolModule, lift, load_object, open_device, patch_object
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import DeviceError, LuthierError
from luthier.isa.targets import TARGETS as ALL
from luthier.patch.outcome import RefusedError
from luthier.payload.cache import template_for
from luthier.payload.calls import Lowering
from luthier.payload.lds import LdsLayout, lower_lds

TARGETS = ("gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
HOOKS = """
struct Slots { unsigned short odd; unsigned count[32]; };
static __shared__ __attribute__((aligned(64))) Slots slots;
static __shared__ double sums[32];
__device__ unsigned long long counts[64], totals[64];
__device__ unsigned lowest = ~0u;

static __device__ unsigned wave() { return threadIdx.x / warpSize; }
static __device__ bool first() { return __lane_id() == __ffsll(__ballot(1)) - 1; }

LUTHIER_HOOK_ANNOTATE enter() {
  slots.count[wave()] = 0;
  sums[wave()] = 0;
  atomicMin(&lowest, (unsigned)(size_t)(__attribute__((address_space(3))) void *)&slots);
}
LUTHIER_HOOK_ANNOTATE count(unsigned weight) {
  if (first()) {
    const unsigned row = 8 * blockIdx.x + wave();
    double *generic = weight & 1 ? &sums[wave()] : sums + wave();
    *generic += weight;
    counts[row] = ++slots.count[wave()];
    totals[row] = (unsigned long long)*generic;
  }
}
"""
SUMS = """
#include <hip/hip_runtime.h>
extern "C" __global__ void sums(const unsigned *in, unsigned *out, unsigned n) {
  EXTERN __shared__ unsigned tile[SIZE];
  const unsigned i = threadIdx.x, at = blockIdx.x * blockDim.x + i;
  tile[i] = at < n ? in[at] : 0;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half; half /= 2) {
    if (i < half) tile[i] += tile[i + half];
    __syncthreads();
  }
  if (i == 0) out[blockIdx.x] = tile[0];
}
"""
BLOCK, GROUPS, ITEMS = 256, 4, 1000


def source(size: int) -> str:
    """A kernel with this number of words of static LDS; 0: with dynamic LDS."""
    return SUMS.replace("EXTERN", "" if size else "extern").replace("SIZE", str(size or ""))


def run(data: bytes, target: str, dynamic: int, **more: Any) -> tuple[Any, list[int]]:
    values = np.arange(ITEMS, dtype=np.uint32) * 7 + 3
    device = open_device(f"emu:{target}")
    module = device.load(data)
    read, out = device.allocate(values.nbytes), device.allocate(4 * GROUPS)
    read.write(values)
    module.kernel("sums").launch(read, out, ITEMS, grid=GROUPS, block=BLOCK, dynamic_lds=dynamic, **more)
    return module, np.frombuffer(out.read(), np.uint32).tolist()


def expected() -> list[int]:
    values = np.zeros(BLOCK * GROUPS, np.uint32)
    values[:ITEMS] = np.arange(ITEMS) * 7 + 3
    return values.reshape(GROUPS, BLOCK).sum(axis=1).tolist()


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("size", "dynamic"), [(256, 0), (300, 0), (0, 1024), (0, 1031), (0, 4096)])
def test_a_counter_a_wave(
    compile_object: Callable[..., Path], make_module: Callable[..., ToolModule], target: str, size: int, dynamic: int
) -> None:
    """What waves count in LDS is what the device counted, and the kernel's sums are the host's."""
    module = make_module(HOOKS, *TARGETS)
    object = load_object(compile_object(source(size), target))
    points: dict[int, int] = {}

    def instrument(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(module.enter)
        for number, instruction in enumerate(task.instructions):
            if instruction.is_vector:
                points[instruction.address] = number
                task.insert_hook_before(instruction, module.count, number)

    patched = patch_object(object, instrument, strict=True)
    (report,) = patched.report.kernels
    has = object.kernels["sums"].group_segment_fixed_size
    reserved = LdsLayout.of(module.contents_for(object.target).lds).reserved
    assert has == 4 * size
    assert report.lds == (has, has + reserved)
    after = load_object(patched.data).kernels["sums"]
    assert after.group_segment_fixed_size == has + reserved
    assert (
        dict(zip(patched.report.cost().columns, patched.report.cost().rows[0], strict=True))["patched LDS"]
        == report.lds[1]
    )

    counts: Counter[tuple[int, int]] = Counter()
    totals: Counter[tuple[int, int]] = Counter()

    def see(step: WaveStep) -> None:
        if step.address in points and step.registers.exec:
            wave = int(np.ravel(step.workgroup)[0]), step.wave
            counts[wave] += 1
            totals[wave] += points[step.address]

    _, before = run(object.data, target, dynamic, trace=see)
    loaded, output = run(patched.data, target, dynamic)
    assert before == output == expected()
    for name, seen in (("counts", counts), ("totals", totals)):
        values = np.frombuffer(loaded.variable(name).read(), np.uint64).reshape(8, 8)
        assert {(group, wave): int(values[group, wave]) for group, wave in seen} == dict(seen)
        assert int(values.sum()) == sum(seen.values())
    lowest = loaded.variable("lowest").read(int)
    assert lowest >= has + dynamic
    assert lowest % 64 == 0


def test_more_than_there_is(compile_object: Callable[..., Path], make_module: Callable[..., ToolModule]) -> None:
    module = make_module(HOOKS, *TARGETS)
    words = ALL["gfx90a"].lds_bytes // 4
    object = load_object(compile_object(source(words - 16), "gfx90a"))
    with pytest.raises(RefusedError, match=f"has {4 * words - 64} bytes, hooks need .* more, .* at most 65536"):
        patch_object(object, lambda task: task.insert_hook_at_kernel_entry(module.enter))
    dynamic = load_object(compile_object(source(0), "gfx90a"))
    patched = patch_object(dynamic, lambda task: task.insert_hook_at_kernel_entry(module.enter), strict=True)
    assert run(dynamic.data, "gfx90a", 4 * words)[1] == expected()
    with pytest.raises(DeviceError, match="bytes of LDS"):
        run(patched.data, "gfx90a", 4 * words)


def test_two_tools(compile_object: Callable[..., Path], make_module: Callable[..., ToolModule]) -> None:
    """One of them has LDS, the other is told."""
    first = make_module(HOOKS, *TARGETS)
    second = make_module(
        "static __shared__ int own;\n__device__ int at;\nLUTHIER_HOOK_ANNOTATE mine() { at = own++; }\n", "gfx90a"
    )
    object = load_object(compile_object(source(256), "gfx90a"))

    def instrument(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(first.enter)
        task.insert_hook_at_kernel_entry(second.mine)

    (report,) = patch_object(object, instrument).report.kernels
    (refusal,) = report.refusals
    assert "another tool's hooks use it" in refusal.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("extern __shared__ int some[];\nLUTHIER_HOOK_ANNOTATE hook() { some[0] = 1; }", "size known only at launch"),
        (
            "static __shared__ int some[4];\n__device__ int depth(int n) { some[n] += n; return n ? depth(n - 1) + n * "
            "depth(n - 2) : 0; }\n__device__ int at;\nLUTHIER_HOOK_ANNOTATE hook() { at = depth(at) + some[1]; }",
            "which cannot be inlined",
        ),
    ],
)
def test_refused(
    compile_object: Callable[..., Path], make_module: Callable[..., ToolModule], code: str, reason: str
) -> None:
    module = make_module(code, "gfx90a")
    task = InstrumentationTask(lift(load_object(compile_object(source(256), "gfx90a")), "sums"))
    task.insert_hook_at_kernel_entry(module.hook("hook"))
    with pytest.raises(LuthierError, match=reason):
        template_for(module.hook("hook"), (), task.lifted.object.target, 64)


def test_constant_expressions_become_instructions() -> None:
    """At the beginning, innermost first, so that also a phi may have them."""
    body = (
        "  store i32 1, ptr addrspace(3) getelementptr inbounds (i8, ptr addrspace(3) @a.b, i64 4), align 4\n"
        '  %x = phi ptr [ addrspacecast (ptr addrspace(3) getelementptr (i8, ptr addrspace(3) @"q q", i64 8) to ptr), '
        "%e ]\n"
        "  store i32 2, ptr addrspace(3) @a.bc, align 4\n"
    )
    lowering = Lowering(ALL["gfx90a"], 64)
    layout = LdsLayout.of({"a.b": (12, 4), "q q": (16, 16), "unused": (4, 4)})
    assert layout == LdsLayout({"a.b": 0, "q q": 16, "unused": 32}, 64, 16)
    text, lines = lower_lds(body, layout, lowering)
    assert "(" not in text.replace("addrspace(3)", "")
    assert "@a.bc" in text
    assert "@a.b," not in text
    operations = [line.split(" = ")[1].split()[0] for line in lines if " = " in line]
    assert operations[-4:] == ["inttoptr", "getelementptr", "getelementptr", "addrspacecast"]
    assert ("dispatch_ptr", 0) in lowering.states
    assert lower_lds("  ret void\n", layout, lowering) == ("  ret void\n", [])
