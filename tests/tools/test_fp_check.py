"""Exceptional numbers by hooks against the emulated device, which looks at every result itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from luthier import Table, open_device
from luthier.emulator.inspection import checks
from shipped import tool_of

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
KINDS = ("nan", "infinity", "nan-flow", "infinity-flow")


@pytest.fixture(autouse=True)
def flows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let devices find flows, too."""
    monkeypatch.setattr(checks, "kinds_of_check", {"fp": frozenset(KINDS)}.__getitem__)


def found_by_both(made: Any, tool: Any) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int], set[str]]:
    """Return lanes by address and kind as the tool and as the device find them, and instructions that are left out."""
    tables = made.under(tool, strict=False)
    device = open_device(f"emu:{made.target}", check="fp")
    device.load(made.object.data).kernel(made.kernel).launch(*made.arguments, grid=made.grid, block=made.block)
    left_out = {row["address"]: row["instruction"] for row in rows(tables.get("not measured", Table("", (), ())))}
    expected = {(hex(one.offset), one.kind): one.count for one in device.findings if hex(one.offset) not in left_out}
    actual = {(row["address"], row["kind"]): row["lanes"] for row in rows(tables["exceptional numbers"])}
    return actual, expected, set(left_out.values())


@pytest.mark.rows(1)
@pytest.mark.filterwarnings("ignore::luthier.emulator.inspection.checks.CheckWarning")
@pytest.mark.parametrize("kernel", RESULTS)
@pytest.mark.parametrize("target", TARGETS)
def test_as_the_device_finds_them(bench: Any, shipped: Any, target: str, kernel: str) -> None:
    """The same instructions, kinds and lanes, but for instructions that are listed as not looked at."""
    buffers = [np.zeros(len(A), kind) for kind in RESULTS[kernel]]
    made = bench(SOURCE, kernel, target, A, B, *buffers, len(A), grid=3)
    actual, expected, left_out = found_by_both(made, shipped("fp_check", top=0, flow=True))
    assert actual == expected
    assert {kind for _, kind in actual} == set(KINDS)
    assert not left_out


@pytest.mark.rows(1)
@pytest.mark.filterwarnings("ignore::luthier.emulator.inspection.checks.CheckWarning")
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_only_where_it_began(bench: Any, shipped: Any, target: str) -> None:
    """Without flows, instructions that only pass numbers on need not be looked at: nothing else is found."""
    buffers = [np.zeros(len(A), kind) for kind in RESULTS["mixed"]]
    made = bench(SOURCE, "mixed", target, A, B, *buffers, len(A), grid=3)
    actual, expected, _ = found_by_both(made, shipped("fp_check", top=0))
    assert actual == {key: many for key, many in expected.items() if not key[1].endswith("-flow")}


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
    actual = [(row["kind"], row["lanes"]) for row in rows(tables["exceptional numbers"])]
    first = [("infinity", 2), ("nan-flow", 3)]
    assert actual == [*first, ("infinity", 5), ("nan-flow", 3), ("infinity-flow", 2)]


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
    actual = {row["kind"]: row["lanes"] for row in rows(tables["exceptional numbers"])}
    assert actual == {"nan": 3, "infinity": 5, "nan-flow": 1}


def test_without_exceptional_numbers(bench: Any, shipped: Any) -> None:
    values = np.ones(128, np.float32)
    buffers = [np.zeros(128, kind) for kind in RESULTS["mixed"]]
    source = SOURCE.replace("1e300", "1e30").replace("1e200", "1e20")
    made = bench(source, "mixed", "gfx90a", values, values, *buffers, 128, grid=2)
    assert made.under(shipped("fp_check", flow=True))["exceptional numbers"].rows == []


HALF_VALUES = np.array([0, 1, -2, 6e4, -6e4, np.inf, -np.inf, np.nan], np.float16)
DPP = ("row_shr:1 row_mask:0xf bank_mask:0xf", "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf bound_ctrl:0")
MASKED = "row_shl:2 row_mask:0x3 bank_mask:0x5"
GFX9 = (
    *(f"v_add_f32_dpp {{d}}, {{a}}, {{b}} {one}" for one in (*DPP, MASKED)),
    "v_mul_f32_dpp {d}, {d}, {b} row_ror:3 row_mask:0xf bank_mask:0xf",
    f"v_max_f16_dpp {{d}}, {{a}}, {{b}} {DPP[0]}",
    f"v_rcp_f32_dpp {{d}}, {{a}} {DPP[1]}",
    "v_add_f16_sdwa {d}, {a}, {b} dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0",
    "v_mul_f16_sdwa {d}, {d}, {b} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1",
    "v_cvt_f32_f16_sdwa {d}, {a} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1",
    "v_mul_f32_sdwa {d}, {a}, {b} dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1 src1_sel:DWORD",
    "v_fma_f16 {d}, {a}, {b}, {c} op_sel:[1,0,1,1]",
    "v_fma_f16 {d}, {a}, {d}, {c} op_sel:[0,1,0,0]",
)
EVERYWHERE = (
    "v_pk_fma_f16 {d}, {a}, {b}, {c}",
    "v_pk_mul_f16 {d}, {a}, {b} op_sel:[1,0] op_sel_hi:[0,1]",
    "v_pk_add_f16 {d}, {d}, {b} op_sel:[0,1] op_sel_hi:[0,0] neg_lo:[1,0]",
    "v_fma_mix_f32 {d}, {a}, {b}, {c}",
    "v_fma_mix_f32 {d}, {a}, -{b}, |{d}| op_sel:[1,0,0] op_sel_hi:[1,0,1]",
    "v_fma_mixlo_f16 {d}, {a}, {b}, {c} op_sel_hi:[0,1,0]",
    "v_fma_mixhi_f16 {d}, {a}, {d}, {c} op_sel:[0,1,0] op_sel_hi:[0,1,1]",
    "v_dot2_f32_f16 {d}, {a}, {b}, {c}",
    "v_dot2_f32_f16 {d}, {a}, {b}, {d}",
    "v_cvt_f16_u16 {d}, {a}",
    "v_cubema_f32 {d}, {a}, {b}, {c}",
    "v_frexp_mant_f32 {d}, {a}",
    "v_ldexp_f32 {d}, {a}, {b}",
)
GFX11 = (
    *(f"v_add_f32_dpp {{d}}, {{a}}, {{b}} {one}" for one in (*DPP, MASKED)),
    "v_add_f32_dpp {d}, {a}, {b} dpp8:[7,6,5,4,3,2,1,0]",
    "v_fma_f32_e64_dpp {d}, {d}, {b}, {c} row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_fma_mix_f32_e64_dpp {d}, {a}, {b}, {c} row_shr:1 row_mask:0xf bank_mask:0xf",
    "v_dual_mul_f32 v40, {a}, v42 :: v_dual_add_f32 v41, {b}, v43",
    "v_dual_fmac_f32 v40, {a}, v42 :: v_dual_mul_f32 v43, {b}, v41",
    "v_dual_mov_b32 v42, {a} :: v_dual_fmaak_f32 v41, {b}, v43, 0x7f800000",
    "v_dual_min_f32 v40, 2.0, v41 :: v_dual_sub_f32 v41, v40, v40",
    "v_dot2_bf16_bf16 {d}, {a}, {b}, {c}",
    "v_dot2_f16_f16 {d}, {a}, {b}, {d}",
    "v_dot2_f32_bf16 {d}, {a}, {b}, {c}",
)
GFX10 = tuple(one for one in (*GFX9[:-2], *GFX11[3:4]))
BFLOAT = ("v_cvt_pk_bf16_f32 {d}, {a}, {b}", "v_cvt_pk_bf16_f32 {d}, {d}, {b}", "v_dot2_f32_bf16 {d}, {a}, {b}, {c}")
SCALAR = ("s_mul_f32 s40, s41, s42", "s_fmac_f16 s40, s41, s42", "s_cvt_f16_f32 s43, s42", "v_s_rcp_f32 s44, s45")
OTHERS = {
    "gfx90a": (*EVERYWHERE, *GFX9),
    "gfx942": (*EVERYWHERE, *GFX9),
    "gfx950": (*EVERYWHERE, *GFX9, *BFLOAT),
    "gfx1030": (*EVERYWHERE, *GFX10),
    "gfx1100": (*EVERYWHERE, *GFX11),
    "gfx1201": (*EVERYWHERE, *(one.replace("_min_f32", "_min_num_f32") for one in GFX11), *SCALAR),
}
"""Instructions by target: packed otherwise than they lie, with SDWA or DPP, dual, mixed, scalar and of bfloats."""
FIXED = "".join(f"v_mov_b32 v{40 + at}, %{1 + at}\\nv_readlane_b32 s{40 + at}, %{1 + at}, {at}\\n" for at in range(3))
"""Numbers in registers that some instructions name."""


def others(instructions: Any) -> str:
    """Return a kernel with some instructions, whose results are stored."""
    names = {"d": "%0", "a": "%1", "b": "%2", "c": "%3"}
    clobbers = ", ".join(f'"{file}{at}"' for file in "vs" for at in range(40, 48))
    code = "".join(
        f"""{{
    unsigned d = b[n - 1 - i];
    asm volatile("{FIXED}s_mov_b32 s45, 0\\nv_mov_b32 v43, %3\\n{one.format(**names)}"
                 : "+v"(d) : "v"(a[i]), "v"(b[i]), "v"(c[i]) : {clobbers});
    out[{number} * n + i] = d;
  }}
  """
        for number, one in enumerate(instructions)
    )
    return f"""
    #include <hip/hip_runtime.h>
    extern "C" __global__ void others(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out, int n) {{
      const int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n)
        return;
      {code}
    }}
    """


@pytest.mark.rows(1)
@pytest.mark.filterwarnings("ignore::luthier.emulator.inspection.checks.CheckWarning")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("target", OTHERS)
def test_other_instructions(bench: Any, make_module: Any, target: str, seed: int) -> None:
    """Numbers in parts of registers, of other lanes, of two instructions in one, and of two types."""
    choose = np.random.default_rng(seed)
    single, pairs = choose.choice(VALUES, (3, 150)), choose.choice(HALF_VALUES, (3, 300))
    words = np.where(choose.random((3, 150)) < 0.5, single.view(np.uint32), pairs.view(np.uint32))
    out = np.zeros(150 * len(OTHERS[target]), np.uint32)
    made = bench(others(OTHERS[target]), "others", target, *words, out, 150, grid=3)
    tool = tool_of(make_module, "fp_check", (target,), top=0, flow=True)
    actual, expected, left_out = found_by_both(made, tool)
    assert actual == expected
    assert not left_out
    assert len({address for address, _ in actual}) > len(OTHERS[target]) / 2


PRODUCTS = {
    "gfx90a": (
        ("v_mfma_f32_32x32x8f16", 16, 2, 2, "f16"),
        ("v_mfma_f32_32x32x1f32", 32, 1, 1, "f32"),
        ("v_mfma_f32_16x16x16bf16_1k", 4, 2, 2, "bf16"),
        ("v_mfma_f32_4x4x4f16", 4, 2, 2, "f16"),
        ("v_mfma_f64_16x16x4f64", 8, 2, 2, "f64"),
    ),
    "gfx942": (
        ("v_mfma_f32_16x16x32_fp8_bf8", 4, 2, 2, "fp8"),
        ("v_mfma_f32_16x16x8_xf32", 4, 2, 2, "f32"),
        ("v_smfmac_f32_16x16x32_f16", 4, 2, 4, "f16"),
        ("v_smfmac_f32_32x32x32_bf8_bf8", 16, 2, 4, "fp8"),
    ),
    "gfx950": (
        ("v_mfma_f32_16x16x32_bf16", 4, 4, 4, "bf16"),
        ("v_mfma_f32_16x16x32_bf8_fp8", 4, 2, 2, "fp8"),
        ("v_smfmac_f32_16x16x64_f16", 4, 4, 8, "f16"),
    ),
    "gfx1100": (
        ("v_wmma_f32_16x16x16_f16", 8, 8, 8, "f16"),
        ("v_wmma_bf16_16x16x16_bf16", 8, 8, 8, "bf16"),
        ("v_wmma_f16_16x16x16_f16", 8, 8, 8, "f16"),
    ),
    "gfx1201": (
        ("v_wmma_f32_16x16x16_bf16", 8, 4, 4, "bf16"),
        ("v_wmma_f16_16x16x16_f16", 4, 4, 4, "f16"),
        ("v_wmma_f32_16x16x16_fp8_bf8", 8, 2, 2, "fp8"),
        ("v_swmmac_f32_16x16x32_f16", 8, 4, 8, "f16"),
        ("v_swmmac_f32_16x16x32_bf8_fp8", 8, 2, 4, "fp8"),
    ),
}
"""Products of matrices: registers of D, A and B, and type of A and B."""
WORDS = {
    "f16": (0x3C003C00, 0x7BFF7BFF, 0x7C00FE00),
    "bf16": (0x3F803F80, 0x7F7F7F7F, 0x7F80FFC0),
    "f32": (0x3F800000, 0x7F7FFFFF, 0x7FC00000),
    "f64": (0x3FF00000, 0x7FEFFFFF, 0x7FF80000),
    "fp8": (0x30303030, 0x7B7B7B7B, 0x807F7C80),
}
"""Registers with ones, with large numbers, and with NaN and infinities."""


def products(instructions: Any) -> str:
    """Return a kernel with products of matrices, each in place and with D and C apart."""
    counts = {count for _, *each, _ in instructions for count in each}
    types = "".join(f"typedef unsigned R{one} __attribute__((ext_vector_type({one})));\n" for one in counts)
    code = "".join(
        f"""{{
    R{d} sum;
    R{a} left;
    R{b} right;
    for (int r = 0; r < {d}; ++r)
      sum[r] = c[({2 * number} * 32 + r) * 64 + lane];
    for (int r = 0; r < {a}; ++r)
      left[r] = c[({2 * number + 1} * 32 + r) * 64 + lane];
    for (int r = 0; r < {b}; ++r)
      right[r] = c[({2 * number + 1} * 32 + 8 + r) * 64 + lane];
    unsigned index = 0x44444444;
    asm volatile("{name} %0, %1, %2, {"%3" if "smfmac" in name or "swmmac" in name else "%0"}\\n"
                 "s_nop 15\\ns_nop 15"
                 : "+{"a" if d == 32 else "v"}"(sum)
                 : "v"(left{"[0]" * (a == 1)}), "v"(right{"[0]" * (b == 1)}), "v"(index));
    unsigned all = 0;
    for (int r = 0; r < {d}; ++r)
      all += sum[r];
    out[{number} * 64 + lane] = all;
  }}
  """
        for number, (name, d, a, b, _) in enumerate(instructions)
    )
    return f"""
    #include <hip/hip_runtime.h>
    {types}
    extern "C" __global__ __launch_bounds__(64) void products(const unsigned *c, unsigned *out) {{
      const int lane = threadIdx.x;
      {code}
    }}
    """


@pytest.mark.rows(1)
@pytest.mark.filterwarnings("ignore::luthier.emulator.inspection.checks.CheckWarning")
@pytest.mark.parametrize("what", ["ordinary", "large", "few", "many"])
@pytest.mark.parametrize("target", PRODUCTS)
def test_products_of_matrices(bench: Any, make_module: Any, target: str, what: str) -> None:
    """Lanes are the device's; they are new only where no number of the operands was exceptional."""
    choose, given = np.random.default_rng(3), []
    for name, *_, kind in PRODUCTS[target]:
        result = name.split("_")[2]
        for type in (result, kind):
            usual, large, wild = WORDS[type]
            share = {"ordinary": (0, 0), "large": (0.3, 0), "few": (0, 0.003), "many": (0, 0.1)}[what]
            chosen = choose.random(32 * 64)
            given.append(np.where(chosen < share[0], large, np.where(chosen > 1 - share[1], wild, usual)))
    words, out = np.concatenate(given).astype(np.uint32), np.zeros(64 * len(PRODUCTS[target]), np.uint32)
    lanes = 64 if target.startswith("gfx9") else 32
    made = bench(products(PRODUCTS[target]), "products", target, words, out, block=lanes)
    tool = tool_of(make_module, "fp_check", (target,), top=0, flow=True)
    actual, expected, left_out = found_by_both(made, tool)
    assert not left_out
    totals = [
        {
            (at, kind): one.get((at, kind), 0) + one.get((at, f"{kind}-flow"), 0)
            for at, whole in one
            for kind in (whole.removesuffix("-flow"),)
        }
        for one in (actual, expected)
    ]
    assert totals[0] == totals[1]
    new = {key: many for key, many in actual.items() if not key[1].endswith("-flow")}
    assert new.items() <= expected.items()
    assert bool(actual) == (what != "ordinary")
    if what == "large":
        assert new


MEASURED = {
    "v_mul_f32 {d}, {a}, {b}": np.float32,
    "v_fma_f32 {d}, {a}, {b}, {c}": np.float32,
    "v_mul_f16 {d}, {a}, {b}": np.float16,
    "v_pk_mul_f16 {d}, {a}, {b}": np.float16,
    "v_ldexp_f32 {d}, {a}, 3": np.float32,
}
"""Instructions, and what their results are of."""
ROOM = {"% in f16": (2.0**-14, 65520), "% in e5m2": (2.0**-14, 61440), "% in bf16": (2.0**-126, 255.5 * 2.0**120)}
"""From the smallest normal number of a format to where rounding makes infinity."""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_exponents(bench: Any, shipped: Any, target: str) -> None:
    """Counts, extremes and shares are those of the results, which the kernel stores."""
    choose = np.random.default_rng(5)
    single = (choose.choice([-1.0, 1.0], (3, 150)) * 2.0 ** choose.uniform(-45, 45, (3, 150))).astype(np.float32)
    single[:, :30] = choose.choice([0, np.inf, np.nan, 1e-40, 3e38, 464, 6.6e4, 61440], (3, 30))
    pairs = (2.0 ** choose.uniform(-12, 8, (3, 300))).astype(np.float16).view(np.uint32)
    words = np.where(choose.random((3, 150)) < 0.7, single.view(np.uint32), pairs)
    for text, kind in MEASURED.items():
        if kind == np.float16 and target != "gfx90a" and "pk" not in text:
            continue  # elsewhere half of the register stays
        made = bench(others([text]), "others", target, *words, np.zeros(150, np.uint32), 150, grid=3)
        tables = made.under(shipped("fp_check", exponents=True))
        results = np.frombuffer(made.launch(made.object.data)[1][3], np.uint32).view(kind).astype(np.float64)
        if kind == np.float16 and "pk" not in text:
            results = results[::2]
        numbers = np.abs(results[np.isfinite(results) & (results != 0)])
        (row,) = rows(tables["exponents"])
        assert row["results"] == len(results)
        assert (row["zero"], row["infinite"]) == ((results == 0).sum(), np.isinf(results).sum())
        assert (row["NaN"], row["smallest"], row["largest"]) == (np.isnan(results).sum(), numbers.min(), numbers.max())
        finite = np.isfinite(results).sum()
        fitting = {name: row["zero"] + ((numbers >= low) & (numbers < end)).sum() for name, (low, end) in ROOM.items()}
        fitting["% in e4m3"] = row["zero"] + ((numbers >= 2.0**-6) & (numbers <= 464)).sum()
        assert {name: row[name] for name in fitting} == {k: round(100 * n / finite, 2) for k, n in fitting.items()}
        actual = {one["exponent"]: one["results"] for one in rows(tables["exponent histogram"])}
        exact, many = np.unique(np.floor(np.log2(numbers)).clip(-33, 32), return_counts=True)
        names = {-33: "below -32", 32: "32 and above"}
        assert actual == {names.get(int(one), str(int(one))): times for one, times in zip(exact, many, strict=True)}


def test_exponents_of_products(bench: Any, make_module: Any) -> None:
    """Every element of a product of matrices is counted."""
    words, out = np.full(4096, WORDS["f16"][0], np.uint32), np.zeros(64, np.uint32)
    made = bench(products(PRODUCTS["gfx90a"][:1]), "products", "gfx90a", words, out)
    tables = made.under(tool_of(make_module, "fp_check", ("gfx90a",), exponents=True))
    assert sum(one["results"] for one in rows(tables["exponents"])) == 32 * 32


def test_what_is_not_looked_at_is_told(bench: Any, shipped: Any) -> None:
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void others(const float *a, float *c) {
      float x = a[threadIdx.x];
      asm volatile("v_add_f16_sdwa %0, %0, %0 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE" : "+v"(x));
      asm volatile("v_cvt_f32_fp8 %0, %0" : "+v"(x));
      c[threadIdx.x] = x;
    }
    """
    values = np.ones(64, np.float32)
    tables = bench(source, "others", "gfx942", values, values.copy()).under(shipped("fp_check"), strict=False)
    reasons = {row["instruction"].split()[0]: row["reason"] for row in rows(tables["not measured"])}
    assert reasons == {
        "v_add_f16_sdwa": "it writes a part of its result",
        "v_cvt_f32_fp8_e32": "instructions of this kind are not examined",
    }
