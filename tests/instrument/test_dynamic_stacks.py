"""Hooks with private memory in kernels whose stack has no known size: recursion, calls by pointers, `alloca`."""

from __future__ import annotations

import pytest
from luthier import patch_object
from luthier.errors import HookError
from luthier.objects import load_object
from luthier.tool.task import InstrumentationTask
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

from .test_frames import HOOKS as HOOKS
from .test_frames import TARGETS, Everywhere

SOURCE = """#include <hip/hip_runtime.h>
#include <stdint.h>
#define KERNEL extern "C" __global__ void
__device__ __attribute__((noinline)) uint32_t sum(const uint32_t *values, uint32_t count) {
  uint32_t own[4] = {count, count * 3, values[0], values[count & 3]};
  return count == 0 ? own[2] : own[count & 3] + sum(own, count - 1) * 5;
}
KERNEL recursive(uint32_t *out) {
  uint32_t i = threadIdx.x, values[4] = {i, i * i, 7, i ^ 5};
  out[i] = sum(values, i & 7);
}
KERNEL allocating(uint32_t *out) {
  uint32_t i = threadIdx.x, many = __builtin_amdgcn_readfirstlane(out[0]) + 5;
  volatile uint32_t *values = (volatile uint32_t *)__builtin_alloca(4 * many);
  for (uint32_t k = 0; k < many; ++k)
    values[k] = i * k + 1;
  uint32_t result = 0;
  for (uint32_t k = 0; k < many; ++k)
    result = result * 3 + values[(k * 3 + i) % many];
  out[i] = result;
}
typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t one(uint32_t x) {
  volatile uint32_t own[3] = {x, 1, 2};
  return own[x % 3];
}
__device__ __attribute__((noinline)) uint32_t other(uint32_t x) { return x * x; }
__device__ Function functions[2] = {one, other};
KERNEL pointing(uint32_t *out) {
  uint32_t i = threadIdx.x;
  volatile uint32_t own[2] = {functions[i & 1](i), i};
  out[i] = own[i & 1] + functions[0](i + 1);
}
"""
KERNELS = ("recursive", "allocating", "pointing")


@pytest.mark.rows(1)
@pytest.mark.parametrize("hook", ["stack", "deep", "rewrite"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("target", TARGETS)
def test_hooks_have_frames_above_the_stack(
    compile_object, hooks, target: str, level: str, kernel: str, hook: str
) -> None:
    object = load_object(compile_object(SOURCE, target, level))
    assert object.kernels[kernel].descriptor.uses_dynamic_stack
    plan = LaunchPlan(kernel, (1, 1, 1), (32, 1, 1), ({"buffer": "uint32", "count": 32, "fill": "zero"},))  # one wave
    verdict = verify_kernel(object, Everywhere(hooks, hook), plan)
    assert verdict.problems == ()
    assert verdict.refused == 0


def test_frames_are_where_the_stack_ends_that_somebody_has_promised(compile_object, hooks) -> None:
    object = load_object(compile_object(SOURCE, "gfx90a", "-O2"))
    own = object.kernels["recursive"].private_segment_fixed_size

    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(next(iter(task.instructions)), hooks.hook("stack"), 1)

    def size(most_stack: int | None) -> int:
        patched = load_object(patch_object(object, insert, ["recursive"], most_stack=most_stack, strict=True).data)
        return patched.kernels["recursive"].private_segment_fixed_size

    assert size(4096) - size(1024) == 3072
    assert size(1024) > own + 1024
    for most_stack, reason in ((None, "known only when it runs"), (1 << 20, "leaves none of the"), (-16, "-16 bytes")):
        with pytest.raises(HookError, match=reason):
            size(most_stack)
