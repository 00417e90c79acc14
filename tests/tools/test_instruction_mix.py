"""The instruction mix against the emulated device's own counts, and operations against products of matrices."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.emulator.inspection.coverage import samples
from luthier.isa import Isa
from luthier.lifting.instructions.operations import MATRIX_NAME
from luthier.verify.launch_plan import read_plans

from .conftest import ALL, TARGETS, rows

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples/apps/launch.toml")
PRODUCT = """
#include <hip/hip_runtime.h>
extern "C" __global__ void product(const TYPE *a, const TYPE *b, TYPE *c, int n) {
  const int row = blockIdx.x, column = threadIdx.x;
  if (column >= n)
    return;
  TYPE sum = 0;
  for (int k = 0; k < n; ++k)
    sum = FMA(a[row * n + k], b[k * n + column], sum);
  c[row * n + column] = sum;
}
"""
MATRIX = """
#include <hip/hip_runtime.h>
typedef _Float16 half4 __attribute__((ext_vector_type(4)));
typedef float float16 __attribute__((ext_vector_type(16)));
typedef float float4_t __attribute__((ext_vector_type(4)));
extern "C" __global__ void matrices(float *out, int turns) {
  float16 sum = {};
  half4 ones = {1, 1, 1, 1};
  for (int turn = 0; turn < turns; ++turn)
    sum = __builtin_amdgcn_mfma_f32_32x32x8f16(ones, ones, sum, 0, 0, 0);
  float4_t small = {};
  small = __builtin_amdgcn_mfma_f32_4x4x4f16(ones, ones, small, 0, 0, 0);
  out[threadIdx.x] = sum[0] + small[0];
}
"""
FIRST = {
    **dict.fromkeys(("buffer_gl", "buffer_wb", "buffer_inv", "global_inv", "global_wb"), "other"),  # caches
    "global_": "vector memory",
    "flat_": "vector memory",
    "buffer_": "vector memory",
    "ds_": "LDS",
    "s_load": "scalar memory",
    "s_buffer": "scalar memory",
    "s_cbranch": "branch",
    "s_branch": "branch",
    "s_swappc": "branch",
    "s_setpc": "branch",
    "s_wait": "wait",
    "s_nop": "wait",
    "s_delay": "wait",
    "s_clause": "wait",
    "s_": "scalar ALU",
    "v_": "vector ALU",
}


def operations(tables: Any, kernel: str) -> dict[tuple[str, str], int]:
    title = f"{kernel}: operations"
    return {(row["unit"], row["type"]): row["operations"] for row in rows(tables[title])} if title in tables else {}


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["divergent_loop", "reduction", "function_call", "vector_add"])
def test_classes_are_the_devices_own(bench: Any, shipped: Any, name: str, target: str) -> None:
    plan = PLANS[name]
    source = ROOT / "examples/apps" / f"{name}.hip"
    kernel = bench(source, name, target, *plan.materialise(), grid=plan.grid[0], block=plan.block[0])
    kernel.launch(kernel.object.data)
    expected: Counter[str] = Counter()
    for mnemonic, count in kernel.device.stats.opcodes.items():
        expected[next(kind for first, kind in FIRST.items() if mnemonic.startswith(first))] += count
    tables = kernel.under(shipped("instruction_mix"))
    *mix, total = rows(tables[name])
    # A return or a call is a jump by register: its class is its own matter.
    assert {row["class"]: row["executed"] for row in mix} == +expected
    assert total["executed"] == expected.total()


@pytest.mark.rows(1)
@pytest.mark.parametrize(("type", "dtype"), [("float", np.float32), ("double", np.float64)])
@pytest.mark.parametrize("target", TARGETS)
def test_product_of_matrices(bench: Any, shipped: Any, target: str, type: str, dtype: Any) -> None:
    """2·n³ for a product, by the type of its numbers, whatever lanes are idle."""
    n, fma = 23, {"float": "__builtin_fmaf", "double": "__builtin_fma"}[type]
    a, b = np.random.default_rng(1).random((2, n * n)).astype(dtype)
    kernel = bench(
        PRODUCT.replace("TYPE", type).replace("FMA", fma), "product", target, a, b, np.zeros_like(a), n, grid=n
    )
    tables = kernel.under(shipped("instruction_mix"))
    assert operations(tables, "product") == {("vector", {"float": "f32", "double": "f64"}[type]): 2 * n**3}


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942"])
def test_matrix_instructions(bench: Any, shipped: Any, target: str) -> None:
    """2·M·N·K for each block, and for each wave, however many lanes are active."""
    turns, waves = 5, 3
    kernel = bench(MATRIX, "matrices", target, np.zeros(64, np.float32), turns, grid=waves)
    counts = operations(kernel.under(shipped("instruction_mix")), "matrices")
    assert counts["matrix", "f16"] == waves * (turns * 2 * 32 * 32 * 8 + 2 * 4 * 4 * 4 * 16)
    assert rows(kernel.under(shipped("instruction_mix", operations=False))["matrices"])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_every_matrix_instruction_is_understood(target: str) -> None:
    """All of LLVM's have a type and a number of operations, and every block makes its own result."""
    isa = Isa.of(ALL[target], ALL[target].wave_sizes[0])
    names = {isa.opcode(number).mnemonic for number in samples(isa)}
    matrix = [name for name in names if name.startswith(("v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_"))]
    assert matrix
    assert [name for name in matrix if MATRIX_NAME.match(name) is None and "ld_scale" not in name] == []
