"""gfx1250 on the emulated device: what GFX12 shares runs, what is new or different is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.arch.gfx1250.gates import GATES
from luthier.devices import open_device
from luthier.emulator.binding.plans import operation_name
from luthier.emulator.inspection.coverage import coverage
from luthier.emulator.inspection.samples import samples
from luthier.emulator.operations import operations_of
from luthier.errors import EmulationError
from luthier.isa import Isa
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from numpy.typing import NDArray

TARGET = "gfx1250"
SOURCE = """
#include <stdint.h>

extern "C" __attribute__((global)) void add(const uint8_t *a, const uint8_t *b, uint8_t *c, int n) {
  int i = __builtin_amdgcn_workitem_id_x();
  if (i < n)
    c[i] = a[i] + b[i];
}

__attribute__((shared)) uint8_t staged[64];

extern "C" __attribute__((global)) void mix(const uint8_t *a, uint8_t *c) {
  int i = __builtin_amdgcn_workitem_id_x();
  staged[i] = a[i];
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
  unsigned sum = 0;
#pragma clang loop unroll(disable) vectorize(disable)
  for (int k = 0; k <= i; k++) {
    if (staged[k] & 1)
      sum += staged[k] * k;
    else
      sum ^= staged[k];
  }
  c[i] = sum;
}
"""
BYTES = {"buffer": "uint8", "count": 64, "fill": "random"}
RESULT = {"buffer": "uint8", "count": 64, "fill": "zero"}
PLANS = {
    "add": LaunchPlan("add", (1, 1, 1), (64, 1, 1), (BYTES, BYTES, RESULT, 50)),
    "mix": LaunchPlan("mix", (1, 1, 1), (64, 1, 1), (BYTES, RESULT)),
}
CODE = """\
s_load_b64 s[4:5], s[0:1], 0x0
v_lshlrev_b32 v1, 3, v0
s_wait_kmcnt 0x0
{body}
s_endpgm"""
Compile = Callable[..., CodeObject]


@pytest.fixture(scope="module")
def object(compile_object) -> CodeObject:
    return load_object(compile_object(SOURCE, TARGET, "-O1"))


def made(body: str, vgprs: int = 32) -> CodeObject:
    return assembled(kernel_text(function("k", CODE.format(body=body).splitlines()), TARGET, vgprs=vgprs), TARGET)


def stored(body: str, lanes: int = 32) -> NDArray[np.uint64]:
    """Return the contents of a buffer at s[4:5] + v1, 64 bits for each lane, after a kernel."""
    out = np.zeros(lanes, np.uint64)
    open_device(f"emu:{TARGET}").load(made(body)).kernel("k").launch(out, grid=1, block=lanes)
    return out


def launched(data: CodeObject | bytes, plan: LaunchPlan):
    module = open_device(f"emu:{TARGET}").load(data)
    arguments = plan.materialise()
    stats = module.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block)
    return arguments, module, stats


# What runs ------------------------------------------------------------------------------------------------------------


def test_compiled_kernels(object: CodeObject) -> None:
    a, b, c, n = launched(object, PLANS["add"])[0]
    expected = a + b
    expected[n:] = 0
    np.testing.assert_array_equal(c, expected)
    a, c = launched(object, PLANS["mix"])[0]
    sums = np.zeros(64, np.uint32)
    for k, value in enumerate(a.astype(np.uint32)):
        sums[k:] = sums[k:] + value * k if value & 1 else sums[k:] ^ value
    np.testing.assert_array_equal(c, sums.astype(np.uint8))


@pytest.mark.parametrize("name", PLANS)
def test_hooks_count_the_truth(object: CodeObject, counter, name: str) -> None:
    for per_wave in (False, True):
        verdict = verify_kernel(object, counter(per_wave=per_wave), PLANS[name], strict=True)
        assert verdict.problems == ()
        assert verdict.expected["counter"] == verdict.counters["counter"] > 30
        assert verdict.compared_bytes > 0


@pytest.mark.parametrize(
    "budget",
    [CounterBudget(), CounterBudget(sgprs=3), CounterBudget(sgprs=0, vgprs=0)],
    ids=["sgprs", "vgpr", "memory"],
)
@pytest.mark.parametrize("name", PLANS)
def test_counters_in_registers_are_the_truth(object: CodeObject, name: str, budget: CounterBudget) -> None:
    tasks = []

    def instrument(task: InstrumentationTask) -> None:
        task.counter_budget = budget
        task.count(task.instructions)
        task.count(task.instructions, per="lane")
        tasks.append(task)

    patched = patch_object(object, instrument, [name], strict=True)
    before, _, stats = launched(object, PLANS[name])
    after, module, _ = launched(patched.data, PLANS[name])
    np.testing.assert_array_equal(before[-1] if name == "mix" else before[2], after[-1] if name == "mix" else after[2])
    counts = patched.counters[name].read(module, stats.waves)
    places = np.searchsorted(tasks[0].lifted.code.addresses, stats.by_address.addresses)
    for counted, truth in (
        (counts.executions, stats.by_address.executions),
        (counts.active_lanes, stats.by_address.active_lanes),
    ):
        expected = np.zeros(len(tasks[0].lifted.code.addresses), np.int64)
        expected[places] = truth
        np.testing.assert_array_equal(counted, expected)


def test_counters_stay_out_of_vgprs_whose_numbers_change() -> None:
    """An addition to a lane of a VGPR would go elsewhere where upper bits of VGPR numbers are set."""

    def count(task: InstrumentationTask) -> None:
        task.counter_budget = CounterBudget(sgprs=3)
        task.count(task.instructions)
        task.count(task.instructions, per="lane")

    def text(bits: int) -> str:
        branch = (
            f"s_set_vgpr_msb {bits}\n v_mov_b32 v2, v1\n s_cbranch_scc0 1f\n v_mov_b32 v3, v1\n 1: s_set_vgpr_msb 0"
        )
        patched = load_object(patch_object(made(branch, 320), count, ["k"], strict=True).data)
        isa = Isa.of(TARGET)
        pieces = [isa.decode(patched.read(start, size), start) for start, size in patched.text_ranges]
        return "\n".join(line for piece in pieces for line in isa.texts(piece))

    assert "v_readlane_b32" in text(0)
    assert "v_readlane_b32" not in text(0x40)


def test_offsets_to_scalar_addresses_are_signed() -> None:
    """The last lane first, from the end of the buffer."""
    body = """
      s_add_nc_u64 s[6:7], s[4:5], 248
      v_sub_nc_u32 v2, 0, v1
      v_mov_b32 v4, v0
      v_mov_b32 v5, 0
      global_store_b64 v2, v[4:5], s[6:7]
    """
    np.testing.assert_array_equal(stored(body), np.arange(32, dtype=np.uint64)[::-1])


PUT = "\n  global_store_b64 v1, v[2:3], s[4:5]"


@pytest.mark.rows(6)
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("s_mov_b64 s[6:7], 0x123456789abcdef0\n v_mov_b64 v[2:3], s[6:7]", 0x123456789ABCDEF0),
        (
            "s_mov_b64 s[6:7], 5\n s_add_nc_u64 s[6:7], s[6:7], 0xffffffff00000000\n v_mov_b64 v[2:3], s[6:7]",
            -(1 << 32) + 5,
        ),
        ("v_mov_b64 v[2:3], 0x123456789abcdef0", 0x123456789ABCDEF0),
        ("v_mov_b64 v[2:3], 0x12345678", 0x12345678),
        ("v_mov_b64 v[2:3], -7", -7),
        ("v_mov_b64 v[4:5], 1.0\n v_add_f64 v[2:3], 0x3ff8000000000001, v[4:5]", 0x4004000000000000),
        ("v_mov_b64 v[4:5], -1\n v_add_nc_u64 v[2:3], v[4:5], v[4:5]", -2),
        ("v_mov_b64 v[4:5], 3\n v_sub_nc_u64 v[2:3], 0, v[4:5]", -3),
        ("v_mov_b64 v[4:5], 7\n v_mov_b32 v6, -1\n v_mad_nc_u64_u32 v[2:3], v6, 3, v[4:5]", 7 + 3 * 0xFFFFFFFF),
        ("s_set_vgpr_msb 0\n s_set_vgpr_msb 0x4100\n v_mov_b64 v[2:3], 9\n s_wait_xcnt 0x0", 9),
        ("s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 25, 1), 1\n v_mov_b64 v[2:3], 9", 9),
        (
            "v_mov_b64 v[2:3], 9\n global_store_b64 v1, v[2:3], s[4:5] scope:SCOPE_SYS nv\n v_mov_b64 v[2:3], 0\n"
            "global_load_b64 v[2:3], v1, s[4:5] th:TH_LOAD_NT nv",
            9,
        ),
        ("v_dual_mov_b32 v2, 5 :: v_dual_mov_b32 v3, 6", 6 << 32 | 5),
        (
            "s_get_pc_i64 s[6:7]\nhere:\n s_add_nc_u64 s[6:7], s[6:7], there-here\n s_swap_pc_i64 s[8:9], s[6:7]\n"
            "s_branch done\nthere:\n v_mov_b64 v[2:3], 11\n s_set_pc_i64 s[8:9]\ndone:",
            11,
        ),
        (
            "s_add_pc_i64 there-here\nhere:\n s_branch done\nthere:\n v_mov_b64 v[2:3], 13\ndone:",
            13,
        ),
        ("s_call_i64 s[8:9], there\n s_branch done\nthere:\n v_mov_b64 v[2:3], 12\n s_set_pc_i64 s[8:9]\ndone:", 12),
    ],
)
def test_what_is_known_runs(body: str, expected: int) -> None:
    np.testing.assert_array_equal(stored(body + PUT), np.full(32, expected & (1 << 64) - 1, np.uint64))


SCALED = {
    "global_load_b32 v2, v0, s[4:5] offset:8 scale_offset": (4, 8),
    "global_load_b64 v[2:3], v0, s[4:5] scale_offset": (8, 0),
    "global_load_b96 v[2:4], v0, s[4:5] scale_offset": (12, 0),
    "global_load_u16 v2, v0, s[4:5] offset:2 scale_offset": (2, 2),
    "flat_load_b32 v2, v0, s[4:5] offset:8 scale_offset": (4, 8),
    "flat_load_b32 v2, v0, s[4:5] offset:8": (1, 8),
    "s_load_b32 s6, s[4:5], s7 offset:4 scale_offset\n s_wait_kmcnt 0x0\n v_mov_b32 v2, s6": (0, 16),
}


@pytest.mark.rows(5)
@pytest.mark.parametrize("text", SCALED)
def test_offsets_that_count_accesses(text: str) -> None:
    """``scale_offset`` multiplies the register by the bytes that a lane accesses."""
    each, first = SCALED[text]
    data = np.random.default_rng(5).integers(0, 256, 1024, np.uint8)
    body = f"s_mov_b32 s7, 3\n {text}\n global_store_b32 v0, v2, s[4:5] offset:512 scale_offset"
    seen = data.copy()
    open_device(f"emu:{TARGET}").load(made(body)).kernel("k").launch(seen, grid=1, block=32)
    out = seen[512 : 512 + 128].view(np.uint32)
    size = 2 if "u16" in text else 4
    places = first + each * np.arange(32)
    expected = [int.from_bytes(data[place : place + size].tobytes(), "little") for place in places]
    np.testing.assert_array_equal(out, expected)


def test_packed_floats_read_one_scalar() -> None:
    """A pair of SGPRs gives its first one for both elements; VGPRs are selected as on CDNA."""
    body = """
      s_mov_b32 s6, 2.0
      s_mov_b32 s7, 4.0
      v_cvt_f32_u32 v4, v0
      v_add_f32 v5, 1.0, v4
      v_pk_mul_f32 v[2:3], s[6:7], v[4:5] op_sel:[0,1] op_sel_hi:[0,0] neg_hi:[0,1]
    """
    actual = stored(body + PUT).view(np.float32).reshape(32, 2)
    lanes = np.arange(32, dtype=np.float32)
    np.testing.assert_array_equal(actual, np.stack([2 * (lanes + 1), -2 * lanes], axis=-1))


def test_registers_beyond_v255() -> None:
    """Each operand position has its own upper bits, which persist until they are set again, also across branches."""
    body = """
      s_set_vgpr_msb 0x80          ; the result in v512 up
      v_mov_b32 v2, v0
      v_add_nc_u32 v3, 100, v0
      s_set_vgpr_msb 0x8041        ; src0 in v256 up, the result too
      v_mov_b32 v7, 5
      s_set_vgpr_msb 0x4189        ; src0 256, src1 512, the result 512
      v_add_nc_u32 v4, v7, v2
      s_cmp_eq_u32 s0, s0
      s_cbranch_scc1 1f
      s_set_vgpr_msb 0
    1:
      v_mul_lo_u32 v5, v7, v3
      s_set_vgpr_msb 0x8902        ; src0 512
      v_mov_b32 v2, v4
      v_mov_b32 v3, v5
      s_set_vgpr_msb 0x200
    """
    source = kernel_text(function("k", CODE.format(body=body + PUT).splitlines()), TARGET, vgprs=520)
    out = np.zeros(32, np.uint64)
    open_device(f"emu:{TARGET}").load(assembled(source, TARGET)).kernel("k").launch(out, grid=1, block=32)
    lanes = np.arange(32, dtype=np.uint64)
    np.testing.assert_array_equal(out, lanes + 5 | (5 * (lanes + 100)) << 32)
    with pytest.raises(EmulationError, match="s_set_vgpr_msb 0x80: VGPRs beyond"):
        stored("s_set_vgpr_msb 0x80")
    for write in (
        "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 0, 4), 0",
        "s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 4, 4), s6",
    ):
        late = source.replace("s_set_vgpr_msb 0x200", write)
        with pytest.raises(EmulationError, match="a write of MODE where the upper bits"):
            open_device(f"emu:{TARGET}").load(assembled(late, TARGET)).kernel("k").launch(out, grid=1, block=32)


SHARED_SCRATCH = """
extern "C" __attribute__((global)) void share(unsigned *out, unsigned long *places, unsigned other) {
  unsigned lane = __builtin_amdgcn_workitem_id_x();
  volatile unsigned own[4] = {lane, lane * lane, 7, 9};
  places[lane] = (unsigned long)&own[1];
  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup");
  __builtin_amdgcn_s_barrier();
  volatile unsigned *place = (volatile unsigned *)places[lane ^ other];
  out[lane] = *place + (__builtin_amdgcn_is_private((void *)place) ? 1000 : 0) + own[2];
}
"""


def test_scratch_by_flat_addresses(compile_object) -> None:
    """A lane's scratch has a global address, which other lanes of the wave may use; that of another wave is a fault."""
    module = open_device(f"emu:{TARGET}").load(load_object(compile_object(SHARED_SCRATCH, TARGET, "-O1")))
    kernel = module.kernel("share")
    out, places = np.zeros(64, np.uint32), np.zeros(64, np.uint64)
    kernel.launch(out, places, 5, grid=1, block=64)
    lanes = np.arange(64)
    np.testing.assert_array_equal(out, (lanes ^ 5) ** 2 + 1007)
    assert len(set(places.tolist())) == 64
    with pytest.raises(EmulationError, match="outside the lane's scratch"):
        kernel.launch(out, places, 32, grid=1, block=64)


# What does not --------------------------------------------------------------------------------------------------------

REFUSED = {
    "s_getreg_b32 s6, hwreg(HW_REG_IB_STS2, 6, 5)": "hardware register 28",
    "s_getreg_b32 s6, hwreg(HW_REG_WAVE_MODE)": "hardware register 1",
    "s_setreg_imm32_b32 hwreg(HW_REG_WAVE_MODE, 12, 8), 1": "hardware register 1",
    "s_setreg_b32 hwreg(HW_REG_WAVE_MODE, 0, 32), s6": "hardware register 1",
    "s_mov_b64 s[6:7], src_private_base": "SRC_PRIVATE_BASE",
    "s_barrier_signal_isfirst -3": "which wave is first",
    "v_cvt_pk_fp8_f32 v2, v3, v4 clamp": "clamp",
    "v_pk_add_bf16 v2, v3, v4 clamp": "clamp",
    "v_cvt_pk_bf8_f16 v2, -v3": "of which half",
    "v_add_nc_u64 v[2:3], v[4:5], v[6:7] clamp": "clamp",
    "v_mad_nc_u64_u32 v[2:3], v4, v5, v[6:7] clamp": "clamp",
    "s_sendmsg sendmsg(MSG_HS_TESSFACTOR)": "not GFX12's",
    "v_swmmac_f32_16x16x32_f16 v[0:7], v[8:11], v[12:19], v32": "not GFX12's",
    "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]": "not GFX12's",
    "s_sendmsg_rtn_b32 s6, sendmsg(MSG_RTN_GET_CLUSTER_BARRIER_STATE)": "s_sendmsg_rtn_b32",
}


@pytest.mark.rows(5)
@pytest.mark.parametrize("text", REFUSED)
def test_refusals_name_the_instruction(text: str) -> None:
    refused = made(f"here:\n  {text}")
    kernel = open_device(f"emu:{TARGET}").load(refused).kernel("k")
    (address,) = kernel.refused()
    assert REFUSED[text] in kernel.refused()[address]
    with pytest.raises(EmulationError) as caught:
        kernel.launch(np.zeros(32, np.uint64), grid=1, block=32)
    mnemonic = text.rsplit("\n", 1)[-1].split()[0]
    assert caught.value.offset == address
    assert f"({mnemonic}" in str(caught.value)
    assert REFUSED[text] in str(caught.value)


def test_own_opcodes_are_named() -> None:
    """Except for opcodes that LLVM shares with GFX12, only known opcodes run."""
    covered = coverage(TARGET)
    run = {name for names in (covered.exact, covered.bounded) for opcodes in names.values() for name in opcodes}
    isa = Isa.of("gfx1200", 32)
    shared = {isa.opcode(number).name for number in samples(isa)}
    own = {name for name in run - shared if not name.startswith("V_DUAL_") and "gfx1250" in name}
    decoder = Isa.of(TARGET)
    named = {decoder.opcode(number).name: operation_name(decoder.opcode(number)) for number in samples(decoder)}
    assert len(run & shared) > 2000
    known = {name for name, operation in operations_of(125).items() if 125 in operation.since}
    assert {named[name] for name in own} <= GATES.same | known | {"v_bitop3_b16", "v_bitop3_b32"}


BOTH = """
#include <stdint.h>
typedef __bf16 bf16x2 __attribute__((ext_vector_type(2)));

extern "C" __attribute__((global)) void buffers(const uint32_t *a, uint32_t *c, int bytes) {
  int i = __builtin_amdgcn_workitem_id_x();
#if __gfx1250__
  int flags = 0;
#else
  int flags = 3 << 28 | 20 << 12;
#endif
  __amdgpu_buffer_rsrc_t from = __builtin_amdgcn_make_buffer_rsrc((void *)a, 0, bytes, flags);
  __amdgpu_buffer_rsrc_t to = __builtin_amdgcn_make_buffer_rsrc(c, 0, bytes, flags);
  unsigned one = __builtin_amdgcn_raw_buffer_load_b32(from, i * 8, 4, 0);
  auto two = __builtin_amdgcn_raw_buffer_load_b64(from, i * 4, 0, 0);
  unsigned byte = __builtin_amdgcn_raw_buffer_load_b8(from, i, 0, 0);
  __builtin_amdgcn_raw_buffer_store_b32(one ^ two[0] * 3 + two[1] + byte, to, i * 4, 8, 0);
}

extern "C" __attribute__((global)) void bfloats(const bf16x2 *a, const bf16x2 *b, bf16x2 *c) {
  int i = __builtin_amdgcn_workitem_id_x();
  bf16x2 x = a[i], y = b[i];
  bf16x2 sum = x + y;
  c[i] = sum * y - x;
}
"""


def test_compiled_buffers_and_bfloats_are_those_of_gfx1201(compile_object) -> None:
    results = []
    for target in (TARGET, "gfx1201"):
        module = open_device(f"emu:{target}").load(load_object(compile_object(BOTH, target, "-O2")))
        random = np.random.default_rng(9)
        data, out = random.integers(0, 1 << 32, 128, np.uint32), np.zeros(128, np.uint32)
        module.kernel("buffers").launch(data, out, 300, grid=1, block=64)
        numbers = (random.normal(size=(2, 128)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        products = np.zeros(128, np.uint16)
        module.kernel("bfloats").launch(*numbers, products, grid=1, block=64)
        results.append((out, products))
    assert results[0][0].any()
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
