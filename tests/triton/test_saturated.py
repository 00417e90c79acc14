"""Tiles that take every vector register there is, some of them spilled by the compiler: a large hook at every
instruction, and none is refused."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.module import ToolModule
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg

from .conftest import Compile
from .test_matmul import matmul, tl

HOOKS = """
__device__ uint64_t total = 0, noise = 0, waves = 0;

__device__ uint32_t fibonacci(uint32_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

/// A stack array, recursion, and 28 vector registers at least.
LUTHIER_HOOK_ANNOTATE deep(uint32_t register_) {
  volatile uint32_t array[3] = {3, 1, 0};
  uint32_t part[28], sum = 0;
  for (uint32_t i = 0; i < 28; ++i) part[i] = register_ * (i + 1) ^ (register_ >> i);
  for (uint32_t i = 0; i < 28; ++i) sum = sum * 3 + part[(i * 5) % 28] * part[(i * 11) % 28];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  uint32_t value = fibonacci(array[register_ & 1]) - array[1 + (register_ & 1)];
  atomicAdd(reinterpret_cast<unsigned long long *>(&total), static_cast<unsigned long long>(value));
}

/// Runs with lanes that are not active.
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&waves, 1); }
"""
TARGETS = ("gfx1100", "gfx1201")


class Everywhere(Tool):
    """One hook before every instruction."""

    def __init__(self, module: ToolModule, name: str) -> None:
        super().__init__()
        self.hook = module.hook(name)

    def instrument(self, task: InstrumentationTask) -> None:
        given = (reg("v0"),) if self.hook.name == "deep" else ()
        for instruction in task.instructions:
            task.insert_hook_before(instruction, self.hook, *given)

    def expected(self, task, counts):
        if self.hook.name == "deep":
            return {"total": int(counts.active_lanes.sum())}
        return {"waves": int(counts.executions.sum())}


@pytest.mark.rows(1)
@pytest.mark.parametrize("hook", ["deep", "count"])
@pytest.mark.parametrize(("columns", "warps"), [(128, 2), (256, 4)])
@pytest.mark.parametrize("target", TARGETS)
def test_no_site_is_refused(compile_kernel: Compile, make_module, target: str, columns: int, warps: int, hook: str):
    generator = np.random.default_rng(9)
    shape = m, n, k = 128, columns, 32
    a, b = (generator.uniform(-1, 1, size).astype(np.float16) for size in ((m, k), (k, n)))
    given = [a, b, np.zeros((m, n), np.float32), *shape]
    constants = {**dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), shape, strict=True)), "ZERO": 0.0}
    constants |= {"ACCUMULATOR": tl.float32, "PRECISION": "ieee"}
    compiled = compile_kernel(matmul, target, given, constants, num_warps=warps)
    kernel = compiled.object.kernels[compiled.name]
    assert kernel.vgpr_count == 256
    assert kernel.private_segment_fixed_size > 0
    tool = Everywhere(make_module(HOOKS, *TARGETS), hook)
    (report,) = patch_object(compiled.object, tool.instrument, strict=True).report.kernels
    assert report.refusals == ()
    assert report.insertions == report.instructions
    assert report.spilling > 0 or hook == "count"
    verdict = compiled.verify(tool, *given)
    assert verdict.problems == ()
    assert verdict.refused == 0
