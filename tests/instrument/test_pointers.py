"""Calls by pointers that nobody can resolve: they reach the kernel's own copies of the functions."""

from __future__ import annotations

import numpy as np
import pytest
from luthier import open_device, patch_object
from luthier.launch_plan import LaunchPlan
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.tool import Tool
from luthier.verify import verify_kernel

SOURCE = """#include <hip/hip_runtime.h>
#include <stdint.h>
#define OUT extern "C" __global__ void
struct Shape {
  uint32_t size;
  __device__ Shape(uint32_t size) : size(size) {}
  __device__ virtual uint32_t area(uint32_t x) const = 0;
  __device__ virtual uint32_t twice(uint32_t x) const { return 2 * area(x); }
};
struct Square : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override { return size * size + x; }
};
struct Ring : Shape {
  using Shape::Shape;
  __device__ uint32_t area(uint32_t x) const override {
    uint32_t sum = 0;
    for (uint32_t k = 0; k < (x & 3); k++)
      sum += size * k;
    return sum;
  }
  __device__ uint32_t twice(uint32_t x) const override { return x & 1 ? 7 : Shape::twice(x); }
};
OUT objects(uint32_t *out, const uint32_t *in) {
  uint32_t i = threadIdx.x;
  Square square(in[i] & 7);
  Ring ring(in[i] & 15);
  Shape *volatile shape = in[i] & 1 ? (Shape *)&square : (Shape *)&ring;
  out[i] = shape->twice(in[i]) + shape->area(i);
}

typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t f0(uint32_t x) { return x * 3 + 1; }
__device__ __attribute__((noinline)) uint32_t f1(uint32_t x) { return x & 1 ? x ^ 0x55 : x * x; }
__device__ __attribute__((noinline)) uint32_t f2(uint32_t x) {
  for (uint32_t k = 0; k < (x & 3); k++)
    x += x >> 3;
  return x;
}
__device__ Function writable[4] = {f0, f1, f2, f0};
OUT table(uint32_t *out, const uint32_t *in) {
  uint32_t i = threadIdx.x;
  out[i] = writable[in[i] & 3](in[i]);
}
OUT exchanged(uint32_t *out, const uint32_t *in) { // which changes the table, and so the pointers in it
  uint32_t i = threadIdx.x;
  Function was = writable[i & 3];
  uint32_t result = was(in[i]) + f1(i);
  __syncthreads();
  if (i == 0)
    writable[0] = f1, writable[1] = f2;
  __syncthreads();
  out[i] = result + (writable[0] == f1 ? 1000 : 0) + writable[i & 3](i);
}
OUT given(uint32_t *out, const uint32_t *in, Function function) {
  uint32_t i = threadIdx.x;
  out[i] = in[i] & 4 ? function(in[i]) : i;
}
OUT told(uint64_t *out) {
  out[0] = (uint64_t)f0, out[1] = (uint64_t)writable[2], out[2] = f1(threadIdx.x);
}
"""
TARGETS = ["gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
IN = {"buffer": "uint32", "count": 64, "fill": "random"}
OUT = {"buffer": "uint32", "count": 64, "fill": "zero"}
KERNELS = ("objects", "table", "exchanged")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
@pytest.mark.parametrize("per_wave", [True, False])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.covering(1)
def test_what_pointers_lead_to_is_instrumented(
    compile_object, counter: type[Tool], target: str, level: str, kernel: str, per_wave: bool
) -> None:
    object = load_object(compile_object(SOURCE, target, level))
    plan = LaunchPlan(kernel, (1, 1, 1), (64, 1, 1), (OUT, IN))
    verdict = verify_kernel(object, counter(per_wave=per_wave), plan)
    assert verdict.problems == ()
    assert verdict.complete
    if per_wave:
        assert verdict.counters["counter"] == verdict.instructions[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.covering(1)
def test_pointers_are_those_of_the_original(compile_object, counter: type[Tool], target: str, level: str) -> None:
    """Whatever kernel says what they are, whatever kernel is given them."""
    object = load_object(compile_object(SOURCE, target, level))
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    inputs = np.arange(64, dtype=np.uint32) * 7
    results, instructions, counted = [], [], []
    for data in (object.data, patched.data):
        device = open_device(f"emu:{target}", threads=1)
        module = device.load(data)
        pointers, out = np.zeros(3, np.uint64), np.zeros(64, np.uint32)
        module.kernel("told").launch(pointers, grid=(1, 1, 1), block=(1, 1, 1))
        for pointer in pointers[:2]:
            before = int.from_bytes(module.variable("counter").read(), "little") if data is patched.data else 0
            module.kernel("given").launch(out, inputs, pointer, grid=(1, 1, 1), block=(64, 1, 1))
            results.append(out.tolist())
            if data is object.data:
                instructions.append(device.stats.instructions)
            else:
                counted.append(int.from_bytes(module.variable("counter").read(), "little") - before)
    assert results[:2] == results[2:]
    assert results[0] != results[1]
    assert counted == instructions
    symbols = {one.name: one.address for one in object.symbols if one.type == "func"}
    (f0,) = (address for name, address in symbols.items() if "f0" in name)
    (f2,) = (address for name, address in symbols.items() if "f2" in name)
    assert int(pointers[0]) - int(pointers[1]) == f0 - f2


def test_a_patched_kernel_can_be_lifted_again(compile_object, counter: type[Tool]) -> None:
    object = load_object(compile_object(SOURCE, "gfx90a", "-O2"))
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    again = load_object(patched.data)
    for kernel in object.kernels:
        assert len(lift(again, kernel).unknown) >= len(lift(object, kernel).unknown)
