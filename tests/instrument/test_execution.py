"""Patched kernels beside the originals on the emulated device: equal outputs, and correct values in hooks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier.devices import open_device
from luthier.errors import BuildError, HookError
from luthier.isa import InstructionFlag
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.patch import RefusedError, patch_object
from luthier.patch.registers import choices
from luthier.patch.registers.binding import RegisterBudget
from luthier.tool import ExecutionCounts, Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import KernelVerdict, verify_kernel
from luthier.verify.launch_plan import LaunchPlan, read_plans

from luthier_build.compile import compile_device
from luthier_build.toolchain import Toolchain
from luthier_build.workspace import build_folder

pytestmark = pytest.mark.rows()

ROOT = Path(__file__).parents[2]
TARGETS = ["gfx90a", "gfx942", "gfx1100"]
EVERY_TARGET = ["gfx906", "gfx908", *TARGETS, "gfx950", "gfx1030", "gfx1150", "gfx1200", "gfx1201"]
APPS = ["vector_add", "reduction", "divergent_loop", "function_call"]
PLANS = read_plans(ROOT / "examples" / "apps" / "launch.toml")

SOURCE = """
__device__ uint64_t total = 7;
__managed__ uint64_t managed_total = 5;
__device__ uint32_t order = 0;
__device__ uint64_t values[4] = {1, 2, 3, 4};
__device__ uint64_t *third = &values[2];

LUTHIER_HOOK_ANNOTATE count_wave() { luthier::sAtomicAdd<uint64_t>(&total, 1); }

LUTHIER_HOOK_ANNOTATE count_lanes() {
  luthier::sAtomicAdd<uint64_t>(&total, __builtin_popcountll(__builtin_amdgcn_read_exec()));
}

/// Divergent, with compares and loops inside: clobbers SCC and VCC and narrows EXEC.
LUTHIER_HOOK_ANNOTATE sum(uint32_t value) {
  if (value & 1)
    atomicAdd(reinterpret_cast<unsigned long long *>(&managed_total), value);
  else if (value > 2)
    atomicAdd(reinterpret_cast<unsigned long long *>(&managed_total), value);
  else
    atomicAdd(reinterpret_cast<unsigned long long *>(&managed_total), value);
}

__device__ uint64_t noise = 0;

/// Takes many vector registers.
LUTHIER_HOOK_ANNOTATE churn(uint32_t x) {
  uint64_t a = x * 0x9E3779B97F4A7C15ull + __lane_id(), b = a * a + x, c = (a ^ b) * (b + 1), d = c * a + b * b;
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), a ^ (b >> 3) ^ (c << 5) ^ (d >> 7));
}

LUTHIER_HOOK_ANNOTATE add_pair(uint64_t value) { luthier::sAtomicAdd<uint64_t>(&total, value); }

LUTHIER_HOOK_ANNOTATE push(uint32_t digit) {
  if (__lane_id() == 0) order = order * 10 + digit;
}

LUTHIER_HOOK_ANNOTATE through_pointer() { luthier::sAtomicAdd<uint64_t>(third, 10); }

LUTHIER_HOOK_ANNOTATE sequence() {
  uint64_t before = luthier::sAtomicAdd<uint64_t>(&total, 1);
  luthier::sAtomicAdd<uint64_t>(&values[0], before);
}
"""


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(SOURCE)


class Inserting(Tool):
    """A tool made of one function."""

    def __init__(self, insert: Callable[[InstrumentationTask], None], expect=None) -> None:
        super().__init__()
        self.instrument = insert
        if expect is not None:
            self.expected = expect


def launch(object: CodeObject, data: bytes, plan: LaunchPlan):
    """Arguments after a launch, and the module."""
    device = open_device(f"emu:{object.target.target.name}")
    loaded = device.load(data)
    arguments = plan.materialise()
    loaded.kernel(plan.kernel).launch(*arguments, grid=plan.grid, block=plan.block)
    return arguments, loaded


def assert_equal(verdict: KernelVerdict) -> None:
    assert verdict.problems == ()
    assert verdict.compared_bytes > 0


@pytest.mark.rows(1)
@pytest.mark.parametrize("per_wave", [False, True])
@pytest.mark.parametrize("target", EVERY_TARGET)
@pytest.mark.parametrize("name", APPS)
def test_instr_count_is_the_truth(app, counter: type[Tool], name: str, target: str, per_wave: bool) -> None:
    verdict = verify_kernel(load_object(app(name, target)), counter(per_wave=per_wave), PLANS[name])
    assert_equal(verdict)
    assert verdict.expected["counter"] == verdict.counters["counter"] > 100
    if per_wave:
        assert verdict.counters["counter"] == verdict.instructions[0]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", APPS)
def test_hooks_before_and_after_everything_change_nothing(app, module, name: str, target: str) -> None:
    """A divergent hook with a register argument at every place: SCC, VCC, EXEC and every live register survive."""

    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.sum, reg("exec_lo"))
            if not instruction.flags & (InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL):
                task.insert_hook_after(instruction, module.count_lanes)

    def expect(task: InstrumentationTask, counts: ExecutionCounts):
        after = [
            instruction.index
            for instruction in task.instructions
            if not instruction.flags & (InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL)
            and "exec" not in instruction.text
            and not instruction.mnemonic.startswith("v_cmpx")
        ]
        unsure = sum(1 for _ in task.instructions) != len(after)
        return {} if unsure else {"total": 7 + int(counts.active_lanes[after].sum())}

    assert_equal(verify_kernel(load_object(app(name, target)), Inserting(insert, expect), PLANS[name]))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_vector_register_argument_is_the_value_of_each_active_lane(app, module, target: str) -> None:
    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                task.insert_hook_before(instruction, module.sum, task.operand(instruction, "vdata"))

    object, plan = load_object(app("divergent_loop", target)), PLANS["divergent_loop"]
    patched = patch_object(object, insert)
    arguments, loaded = launch(object, patched.data, plan)
    assert int(arguments[1].sum()) > 1000
    assert int(loaded.variable("managed_total").read(np.uint64)[0]) == 5 + int(arguments[1].sum())


@pytest.mark.parametrize("target", TARGETS)
def test_a_scalar_register_argument(app, module, target: str) -> None:
    """EXEC as a 64-bit argument at the kernel's first instruction, where it is what the launch set."""

    def insert(task: InstrumentationTask) -> None:
        first = next(i for i in task.instructions if i.address == task.lifted.kernel.entry)
        pair = reg("exec") if task.lifted.wave_size == 64 else None
        if pair is not None:
            task.insert_hook_before(first, module.add_pair, pair)

    object, plan = load_object(app("vector_add", target)), PLANS["vector_add"]
    if object.kernels["vector_add"].wave_size == 32:
        pytest.skip("EXEC is 32 bits")
    _, loaded = launch(object, patch_object(object, insert).data, plan)
    waves = 4 * 256 // 64
    assert int(loaded.variable("total").read(np.uint64)[0]) == (7 + waves * (2**64 - 1)) % 2**64


@pytest.mark.parametrize("target", TARGETS)
def test_hooks_at_one_point_run_in_order(app, module, target: str) -> None:
    def insert(task: InstrumentationTask) -> None:
        first = next(i for i in task.instructions if i.address == task.lifted.kernel.entry)
        for digit in (1, 2, 3):
            task.insert_hook_before(first, module.push, digit)
        task.insert_hook_after(first, module.push, 4)

    object = load_object(app("vector_add", target))
    plan = LaunchPlan("vector_add", (1, 1, 1), (32, 1, 1), PLANS["vector_add"].arguments)
    _, loaded = launch(object, patch_object(object, insert).data, plan)
    assert int(loaded.variable("order").read(np.uint32)[0]) == 1234


@pytest.mark.parametrize("target", TARGETS)
def test_hooks_see_registers_the_application_is_done_with(app, module, target: str) -> None:
    """A stored register is dead after the store, but payloads must leave it to the hooks that follow."""

    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                stored = task.operand(instruction, "vdata")
                assert stored.first not in task.lifted.liveness.live_after(instruction.index).active
                for _ in range(3):
                    task.insert_hook_after(instruction, module.churn, reg("exec_lo"))
                    task.insert_hook_after(instruction, module.sum, stored)

    object, plan = load_object(app("divergent_loop", target)), PLANS["divergent_loop"]
    arguments, loaded = launch(object, patch_object(object, insert).data, plan)
    assert int(loaded.variable("managed_total").read(np.uint64)[0]) == 5 + 3 * int(arguments[1].sum())


CALL = [
    "s_getpc_b64 s[30:31]",
    "s_add_u32 s30, s30, called@rel32@lo+4",
    "s_addc_u32 s31, s31, called@rel32@hi+12",
    "s_swappc_b64 s[30:31], s[30:31]",
]
LATER = {
    "after another call": [*CALL, "{use}", "s_nop 7", *CALL],
    "in other lanes": [
        "v_cmp_lt_u32_e64 s[8:9], 15, v0",
        "s_and_saveexec_b64 s[10:11], s[8:9]",
        "s_xor_b64 exec, exec, s[10:11]",
        "s_nop 7",
        "s_mov_b64 exec, s[10:11]",
        *CALL,
        "s_and_b64 exec, exec, s[8:9]",
        "{use}",
        "s_mov_b64 exec, s[10:11]",
    ],
}
"""Code around calls of a function with a hook: where the application reads the register, and where another hook is."""


@pytest.mark.parametrize("later", LATER)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_hooks_see_registers_the_application_reads_elsewhere(module, target: str, later: str) -> None:
    """It reads them in other lanes than the hook, or not after every call of the function that the hook is in."""
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64},))
    for register in ("vcc_lo", "s12", "v5", "v11"):
        lines = [
            "s_load_dwordx2 s[4:5], s[0:1], 0x0",
            "v_lshlrev_b32_e32 v1, 2, v0",
            "v_mov_b32_e32 v3, v0",
            f"{'v_mov_b32_e32' if register in ('v5', 'v11') else 's_mov_b32'} {register}, 0x55",
            "s_waitcnt lgkmcnt(0)",
            *(line.format(use=f"v_add_u32_e32 v3, {register}, v3") for line in LATER[later]),
            "global_store_dword v1, v3, s[4:5]",
            "s_endpgm",
            ".p2align 8",
            ".type called,@function",
            "called:",
            "v_xor_b32_e32 v3, 1, v3",
            "s_setpc_b64 s[30:31]",
        ]
        object = assembled(kernel_text(function("k", lines), target, vgprs=12, sgprs=40), target)

        def insert(task: InstrumentationTask, register: str = register) -> None:
            for instruction in task.instructions:
                if instruction.text == "s_nop 7":
                    task.insert_hook_before(instruction, module.churn, reg("v0"))
                elif instruction.mnemonic.startswith("v_xor"):
                    task.insert_hook_before(instruction, module.sum, reg(register))

        _, loaded = launch(object, patch_object(object, insert, strict=True).data, plan)
        calls = LATER[later].count(CALL[-1])
        assert int(loaded.variable("managed_total").read(np.uint64)[0]) == 5 + 64 * calls * 0x55, register


def test_a_register_the_kernel_does_not_have_is_refused(app, module) -> None:
    object = load_object(app("vector_add", "gfx942"))

    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, module.sum, reg("v200"))

    with pytest.raises(RefusedError, match="uses v200, but the kernel has 8 of them"):
        patch_object(object, insert)
    with pytest.raises(HookError, match="uses v200, but the kernel has 8 of them"):
        patch_object(object, insert, strict=True)


@pytest.mark.parametrize("target", TARGETS)
def test_variables_keep_their_initial_values_and_addresses(app, module, target: str) -> None:
    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, module.through_pointer)

    object, plan = load_object(app("vector_add", target)), PLANS["vector_add"]
    _, loaded = launch(object, patch_object(object, insert).data, plan)
    waves = 4 * 256 // object.kernels["vector_add"].wave_size
    assert loaded.variable("values").read(np.uint64).tolist() == [1, 2, 3 + 10 * waves, 4]
    assert loaded.variable("managed_total").read(np.uint64).tolist() == [5]


@pytest.mark.parametrize("target", TARGETS)
def test_a_wave_level_atomic_returns_the_old_value(app, module, target: str) -> None:
    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, module.sequence)

    object, plan = load_object(app("vector_add", target)), PLANS["vector_add"]
    _, loaded = launch(object, patch_object(object, insert).data, plan)
    waves = 4 * 256 // object.kernels["vector_add"].wave_size
    assert int(loaded.variable("total").read(np.uint64)[0]) == 7 + waves
    assert int(loaded.variable("values").read(np.uint64)[0]) == 1 + sum(range(7, 7 + waves))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_hook_can_write_registers(app, make_module, target: str) -> None:
    """Every stored value becomes three times itself plus one, through writeReg of the register that is stored."""
    object, plan = load_object(app("divergent_loop", target)), PLANS["divergent_loop"]
    number = []

    def find(task: InstrumentationTask) -> None:
        number.extend(
            task.operand(i, "vdata").first - 256 for i in task.instructions if i.mnemonic.startswith("global_store")
        )

    patch_object(object, find)
    assert len(set(number)) == 1
    writing = make_module(
        f"""
LUTHIER_HOOK_ANNOTATE change() {{
  luthier::writeReg<uint32_t>(luthier::VGPR{number[0]}, luthier::readReg<uint32_t>(luthier::VGPR{number[0]}) * 3 + 1);
}}
""",
        target,
    )

    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("global_store"):
                task.insert_hook_before(instruction, writing.change)

    before, _ = launch(object, object.data, plan)
    after, _ = launch(object, patch_object(object, insert).data, plan)
    np.testing.assert_array_equal(after[1], before[1] * 3 + 1)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", APPS)
def test_spilled_sgprs_come_back(
    app, counter: type[Tool], monkeypatch: pytest.MonkeyPatch, name: str, target: str
) -> None:
    """With hardly an SGPR to spare, live ones are kept in lanes of a VGPR."""
    bound = []
    real = choices.bind

    def few(template, sources, live, budget, wave_size, **options):
        few_of_them = RegisterBudget(8, budget.vgprs, 8, budget.vgpr_limit)
        scarce = real(template, sources, live, few_of_them, wave_size, **options)
        bound.append(scarce)
        return scarce or real(template, sources, live, budget, wave_size, **options)

    monkeypatch.setattr(choices, "bind", few)
    assert_equal(verify_kernel(load_object(app(name, target)), counter(), PLANS[name]))
    assert any(scarce is not None and scarce.spilled_sgprs for scarce in bound)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_branches_of_a_long_kernel_arrive(counter: type[Tool], tmp_path: Path, target: str) -> None:
    """More than 128 KiB of instrumented code in one loop: branches go over islands."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import run

        sys.modules["run"] = run
        from bench_patch import big_kernel_source, compile_kernel
    finally:
        sys.path.pop(0)
    object = compile_kernel(big_kernel_source(), tmp_path, target)
    plan = LaunchPlan(
        "big",
        (2, 1, 1),
        (128, 1, 1),
        ({"buffer": "uint32", "count": 1024, "fill": "random"}, {"buffer": "uint32", "count": 256, "fill": "zero"}, 3),
    )
    verdict = verify_kernel(object, counter(), plan)
    assert_equal(verdict)
    assert verdict.patch is not None
    assert verdict.patch.patched_bytes > 2 * 131072


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("name", APPS)
def test_kernels_with_preloaded_arguments_keep_both_entries(app, counter: type[Tool], name: str, target: str) -> None:
    object = load_object(app(name, target, "-mllvm", "-amdgpu-kernarg-preload-count=6"))
    assert object.kernels[name].descriptor.kernarg_preload_length > 0
    verdict = verify_kernel(object, counter(), PLANS[name])
    assert_equal(verdict)
    patched = load_object(patch_object(object, counter().instrument).data)
    kernel = patched.kernels[name]
    symbol = patched.symbol(name)
    assert symbol is not None
    assert symbol.address == kernel.entry
    assert kernel.entry % 256 == 0


CALLS = """
#include <hip/hip_runtime.h>
extern "C" __device__ __attribute__((noinline, used, visibility("default"))) int twice(int x) {
  return x * 2 + (x > 50 ? x % 7 : 1);
}
extern "C" __device__ __attribute__((noinline, used, visibility("default"))) int thrice(int x) {
  return twice(x) + x / 3;
}
typedef int (*Function)(int);
__constant__ Function writable[2] = {twice, thrice};
static __device__ const Function fixed[2] = {twice, thrice};
extern "C" __global__ void through_got(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = thrice(in[i]);
}
extern "C" __global__ void through_table(const int *in, int *out, int n, int which) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = fixed[which](in[i]);
}
extern "C" __global__ void through_writable_table(const int *in, int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = writable[n & 1](in[i]);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "unknown"), [("through_got", 0), ("through_table", 0), ("through_writable_table", 1)])
def test_called_functions_are_the_instrumented_ones(
    compile_object, counter: type[Tool], name: str, unknown: int, target: str
) -> None:
    object = load_object(compile_object(CALLS, target, "-fgpu-default-stream=legacy", "-fvisibility=default"))
    buffers = {"buffer": "int32", "count": 128, "fill": "random"}, {"buffer": "int32", "count": 128, "fill": "zero"}
    plan = LaunchPlan(name, (2, 1, 1), (64, 1, 1), (*buffers, 99, *([1] if name == "through_table" else [])))
    verdict = verify_kernel(object, counter(), plan)
    assert_equal(verdict)
    assert verdict.patch is not None
    assert verdict.patch.unknown_calls == unknown
    if not unknown:  # every executed instruction is of the patched copies: none is left uncounted
        assert verify_kernel(object, counter(per_wave=True), plan).counters["counter"] == verdict.instructions[0]


@pytest.mark.parametrize("operands", ["s[2:3], called@rel64+4", "called@rel64+4, s[2:3]"])
@pytest.mark.parametrize("behind", [False, True])
def test_calls_by_a_literal_of_64_bits(counter: type[Tool], behind: bool, operands: str) -> None:
    """GFX1250 makes an address by one addition, whose literal moves with the code as a whole."""
    main = function(
        "k",
        [
            "s_load_b64 s[4:5], s[0:1], 0x0",
            "v_lshlrev_b32_e32 v1, 2, v0",
            "s_get_pc_i64 s[2:3]",
            f"s_add_nc_u64 s[2:3], {operands}",
            "s_mov_b64 s[6:7], s[2:3]",
            "s_swap_pc_i64 s[30:31], s[6:7]",
            "s_swap_pc_i64 s[30:31], s[2:3]",
            "s_wait_kmcnt 0x0",
            "global_store_b32 v1, v0, s[4:5]",
            "s_endpgm",
        ],
    )
    called = function("called", ["v_add_nc_u32_e32 v0, 3, v0", "s_set_pc_i64 s[30:31]"])
    text = "\n".join([".hidden called", *([main, called] if behind else [called, main])])
    object = assembled(kernel_text(text, "gfx1250"), "gfx1250")
    lifted = lift(object, "k")
    assert [one.name for one in lifted.functions] == ["k", "called"]
    assert [(one.kind, one.target) for one in lifted.pc_references] == [("code", lifted.functions[1].entry)]
    plan = LaunchPlan("k", (1, 1, 1), (32, 1, 1), ({"buffer": "uint32", "count": 32},))
    verdict = verify_kernel(object, counter(per_wave=True), plan)
    assert_equal(verdict)
    assert verdict.counters["counter"] == verdict.instructions[0] == 14


@pytest.mark.parametrize("size", ["64", "0x1000", "s[8:9]"])
def test_calls_by_another_sum_are_unknown(size: str) -> None:
    lines = ["s_get_pc_i64 s[2:3]", f"s_add_nc_u64 s[2:3], s[2:3], {size}", "s_swap_pc_i64 s[30:31], s[2:3]"]
    object = assembled(kernel_text(function("k", [*lines, "s_endpgm"]), "gfx1250"), "gfx1250")
    assert len(lift(object, "k").unknown) == 1


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_patched_object_can_be_patched_again(app, counter: type[Tool], module, target: str) -> None:
    """The second tool counts the first one's payloads too: they are instructions of the object like any other."""
    object, plan = load_object(app("reduction", target)), PLANS["reduction"]
    once = load_object(patch_object(object, counter(per_wave=True).instrument).data)

    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.count_wave)

    def expect(task: InstrumentationTask, counts: ExecutionCounts):
        return {"total": 7 + int(counts.executions.sum())}

    verdict = verify_kernel(once, Inserting(insert, expect), plan)
    assert_equal(verdict)
    twice = patch_object(once, insert)
    _, loaded = launch(object, twice.data, plan)
    first = verify_kernel(object, counter(per_wave=True), plan)
    assert int(loaded.variable("counter").read(np.uint64)[0]) == first.counters["counter"]


@pytest.mark.thorough
def test_a_tool_built_by_the_clang_of_an_older_hipcc(app, tmp_path: Path) -> None:
    """Bitcode of clang 15 goes through the runtime's newer LLVM like any other."""
    try:
        toolchain = Toolchain.find({"LUTHIER_CLANG": "clang-15", "PATH": "/usr/bin:/bin"})
        assert toolchain.llvm_include
    except BuildError as problem:
        pytest.skip(f"no clang 15: {problem}")
    source = ROOT / "examples/tools/instr_count/luthier_instr_count/device.hip"
    with build_folder(tmp_path / "build") as folder:
        compiled = compile_device([source], ["gfx90a"], toolchain=toolchain, folder=folder, report=lambda line: None)
    older = ToolModule.load(compiled.bundle)

    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.is_vector:
                task.insert_hook_before(instruction, older.count_vector, False)
            else:
                task.insert_hook_before(instruction, older.count_scalar)

    def expect(task: InstrumentationTask, counts: ExecutionCounts):
        column = {True: counts.active_lanes, False: counts.executions}
        return {"counter": sum(int(column[i.is_vector][i.index]) for i in task.instructions)}

    for name in APPS:
        assert_equal(verify_kernel(load_object(app(name, "gfx90a")), Inserting(insert, expect), PLANS[name]))
