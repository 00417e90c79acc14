"""Exceptional numbers by hooks against the emulated device, which looks at every result itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from luthier import open_device
from luthier.emulator.inspection.sighted import Sighted

from .conftest import TARGETS, rows

SOURCE = """
#include <hip/hip_runtime.h>
extern "C" __global__ void mixed(const float *a, const float *b, float *c, double *d, _Float16 *h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n)
    return;
  float x = a[i], y = b[i], sum = x;
  for (int k = 0; k < 3; ++k)
    sum = sum * y + x;
  double product = static_cast<double>(x) * 1e300 * static_cast<double>(y) * 1e200;
  _Float16 half = static_cast<_Float16>(x) * static_cast<_Float16>(y);
  c[i] = x / y + sqrtf(x) * fminf(sum, y) + ldexpf(x, static_cast<int>(y) & 255);
  d[i] = sqrt(product) + static_cast<double>(sum) + fmax(product, 1.0);
  h[i] = half * half + static_cast<_Float16>(x / y);
}
typedef _Float16 Halves __attribute__((ext_vector_type(2)));
typedef float Pair __attribute__((ext_vector_type(2)));
extern "C" __global__ void packed(const float *a, const float *b, Halves *h, Pair *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (2 * i + 1 >= n)
    return;
  Pair x = {a[2 * i], a[2 * i + 1]}, y = {b[2 * i], b[2 * i + 1]};
  Halves u = __builtin_bit_cast(Halves, __builtin_amdgcn_cvt_pkrtz(x.x, x.y)),
         v = __builtin_bit_cast(Halves, __builtin_amdgcn_cvt_pkrtz(y.x, y.y));
  h[i] = u * v + u;
  p[i] = x * y + x;
}
"""
VALUES = np.array([0, 1, -1, np.inf, -np.inf, np.nan, 1e30, -1e30, 3e38, 1e-40, 2, 1e4, 7e4], np.float32)
A, B = (one.ravel().astype(np.float32) for one in np.meshgrid(VALUES, VALUES))
RESULTS = {"mixed": (np.float32, np.float64, np.float16), "packed": (np.uint32, np.uint64)}
KINDS = {"NaN": "nan", "infinity": "infinity"}


@pytest.mark.covering(1)
@pytest.mark.filterwarnings("ignore::luthier.emulator.inspection.checks.CheckWarning")
@pytest.mark.parametrize("kernel", RESULTS)
@pytest.mark.parametrize("target", TARGETS)
def test_as_the_device_finds_them(bench: Any, shipped: Any, target: str, kernel: str) -> None:
    """The same instructions, kinds and lanes, but for instructions that are listed as not looked at."""
    buffers = [np.zeros(len(A), kind) for kind in RESULTS[kernel]]
    made = bench(SOURCE, kernel, target, A, B, *buffers, len(A), grid=3)
    tool = shipped("fp_check", top=0)
    tables = made.under(tool)
    device = open_device(f"emu:{target.split()[0]}", check="fp")
    device.load(made.object.data).kernel(kernel).launch(A, B, *buffers, len(A), grid=3, block=64)
    left_out = {row["address"] for row in rows(tables["not measured"])} if "not measured" in tables else set()
    expected = {
        (hex(one.address), KINDS[str(one).split()[0]]): one.count
        for one in device.findings
        if isinstance(one, Sighted) and hex(one.address) not in left_out
    }
    found = {(row["address"], row["kind"]): row["lanes"] for row in rows(tables["exceptional numbers"])}
    assert found == expected
    assert {kind for _, kind in found} == set(KINDS.values())
    assert len(found) > len(left_out)


def test_origins_and_what_passes_them_on(bench: Any, shipped: Any) -> None:
    """An operand that the instruction overwrites counts, too."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void made(const float *a, float *c) {
      float sum = a[threadIdx.x];
      asm volatile("v_add_f32 %0, %0, %0\\nv_add_f32 %0, %0, %0" : "+v"(sum));
      c[threadIdx.x] = sum;
    }
    """
    values = np.ones(64, np.float32)
    values[:3] = np.nan
    values[3:8] = 1e38
    values[8:10] = 3e38
    tables = bench(source, "made", "gfx90a", values, values.copy()).under(shipped("fp_check", flow=True))
    found = [(row["kind"], row["lanes"]) for row in rows(tables["exceptional numbers"])]
    first = [("infinity", 2), ("nan-flow", 3)]
    assert found == [*first, ("infinity", 5), ("nan-flow", 3), ("infinity-flow", 2)]


def test_elements_of_packed_numbers(bench: Any, shipped: Any) -> None:
    """A NaN in one element does not hide that the other one's is new; lanes are counted once."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void pairs(const double *a, const double *b, double *c) {
      double sum;
      asm volatile("v_pk_mul_f32 %0, %1, %2" : "=v"(sum) : "v"(a[threadIdx.x]), "v"(b[threadIdx.x]));
      c[threadIdx.x] = sum;
    }
    """
    a, b = np.ones((64, 2), np.float32), np.ones((64, 2), np.float32)
    a[0], b[0] = (np.nan, np.inf), (1, 0)
    a[1:4], b[1:4] = (3e38, 3e38), (2, 2)
    a[4:6], b[4:6] = (3e38, np.inf), (2, 0)
    tables = bench(source, "pairs", "gfx90a", a, b, a.copy()).under(shipped("fp_check", flow=True))
    found = {row["kind"]: row["lanes"] for row in rows(tables["exceptional numbers"])}
    assert found == {"nan": 3, "infinity": 5, "nan-flow": 1}


def test_without_exceptional_numbers(bench: Any, shipped: Any) -> None:
    values = np.ones(128, np.float32)
    buffers = [np.zeros(128, kind) for kind in RESULTS["mixed"]]
    source = SOURCE.replace("1e300", "1e30").replace("1e200", "1e20")
    made = bench(source, "mixed", "gfx90a", values, values, *buffers, 128, grid=2)
    assert made.under(shipped("fp_check", flow=True))["exceptional numbers"].rows == []


def test_what_is_not_looked_at_is_told(bench: Any, shipped: Any) -> None:
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void others(const float *a, float *c) {
      float x = a[threadIdx.x];
      asm volatile("v_add_f32_dpp %0, %0, %0 row_shr:1" : "+v"(x));
      asm volatile("v_fma_mix_f32 %0, %0, %0, %0" : "+v"(x));
      c[threadIdx.x] = x;
    }
    """
    values = np.ones(64, np.float32)
    tables = bench(source, "others", "gfx90a", values, values.copy()).under(shipped("fp_check"), strict=False)
    reasons = {row["instruction"].split()[0]: row["reason"] for row in rows(tables["not measured"])}
    assert reasons == {
        "v_add_f32_dpp": "it reads other lanes, or parts of registers",
        "v_fma_mix_f32": "instructions of this kind are not looked at",
    }
