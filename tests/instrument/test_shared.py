"""Large payloads that are placed once and called: the results of repeated ones, in less code."""

from __future__ import annotations

import resource
import time

import pytest
from assembly import assembled, function, kernel_text
from luthier import immediate, open_device
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.patch import patch_object
from luthier.patch.outcome import KernelReport
from luthier.patch.payloads import assignment as binder
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from random_kernels import WAVES, random_kernel

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1200", "gfx1201"]
"""Of each family."""

HOOKS = """
__device__ uint64_t sum = 0;
__device__ uint64_t ran = 0;

/// A number of the point's own, a vector and a scalar register, and a body of many instructions.
LUTHIER_HOOK_ANNOTATE large(uint32_t site, uint32_t lane, uint32_t scalar) {
  uint64_t x = (uint64_t(lane) << 32 | scalar) * 0x9E3779B97F4A7C15ull;
  for (int round = 0; round < 3; ++round)
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  if (x != 12345)
    atomicAdd((unsigned long long *)&ran, (unsigned long long)site);
  if (x & 1)
    atomicAdd((unsigned long long *)&sum, (unsigned long long)x);
}

/// Writes a register, and is skipped by waves without lanes.
LUTHIER_HOOK_ANNOTATE turn(uint32_t site, uint32_t lane, uint32_t scalar) {
  uint32_t x = luthier::readReg<uint32_t>(luthier::VGPR1), before = x;
  for (uint32_t round = 0; round < 7; ++round)
    x = (x ^ (lane >> round)) * (2 * scalar + 1) + round;
  for (uint32_t round = 7; round-- > 0;) {
    uint32_t odd = 2 * scalar + 1, inverse = odd;
    for (int k = 0; k < 5; ++k) inverse *= 2 - odd * inverse;
    x = ((x - round) * inverse) ^ (lane >> round);
  }
  luthier::writeReg<uint32_t>(luthier::VGPR1, x);
  if (x == before)
    atomicAdd((unsigned long long *)&ran, (unsigned long long)site);
}

/// Once a wave, whatever lanes are active.
LUTHIER_HOOK_ANNOTATE wave(uint32_t site, uint32_t lane, uint32_t scalar) {
  uint64_t x = scalar;
  for (uint32_t round = 0; round < 9; ++round)
    x = (x ^ x >> 13) * 0xBF58476D1CE4E5B9ull + round;
  luthier::sAtomicAdd<uint64_t>(&ran, x == 1 ? 0 : site);
}
"""


class Everywhere(Tool):
    """One hook before every instruction."""

    def __init__(self, hooks, name: str) -> None:
        super().__init__()
        self.hook = hooks.hook(name)
        self.once = name == "wave"

    def instrument(self, task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            registers = (reg(f"v{instruction.index % 4}"), reg(("s20", "exec_lo", "scc", "s6")[instruction.index % 4]))
            task.insert_hook_before(instruction, self.hook, immediate(instruction.index), *registers)

    def expected(self, task, counts):
        each = counts.executions if self.once else counts.active_lanes
        return {"ran": sum(index * many for index, many in enumerate(each.tolist()))}


def patched(object: CodeObject, tool: Tool) -> tuple[bytes, KernelReport]:
    made = patch_object(object, tool.instrument, ["k"], strict=True)
    return made.data, made.report.kernels[0]


def plan_for(object: CodeObject) -> LaunchPlan:
    size = object.kernels["k"].wave_size
    return LaunchPlan("k", (WAVES, 1, 1), (size, 1, 1), ({"buffer": "uint32", "count": WAVES * size, "fill": "zero"},))


def sums(data: bytes, plan: LaunchPlan, target: str) -> list[bytes]:
    """The tool's variables after a launch."""
    module = open_device(f"emu:{target}", threads=1).load(data)
    module.kernel("k").launch(*plan.materialise(), grid=plan.grid, block=plan.block)
    return [module.variable(name).read() for name in ("sum", "ran")]


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("target", "seed", "hook"),
    [(target, seed, hook) for seed, target in enumerate(TARGETS) for hook in ("large", "turn", "wave")],
)
def test_called_payloads_do_what_repeated_ones_do(hooks, monkeypatch, target: str, seed: int, hook: str) -> None:
    object = random_kernel(2000 + seed, target, calls=True, saturated=seed % 2 == 0)
    tool, plan = Everywhere(hooks, hook), plan_for(object)
    verdict = verify_kernel(object, tool, plan)
    assert verdict.problems == ()
    data, report = patched(object, tool)
    assert 0 < report.shared < report.calls <= report.insertions
    monkeypatch.setattr(binder, "LARGE", 1 << 30)
    repeated, other = patched(object, tool)
    assert (other.shared, other.calls) == (0, 0)
    assert report.patched_bytes < other.patched_bytes / 2
    assert sums(data, plan, target) == sums(repeated, plan, target)
    again = lift(load_object(data), "k")  # payloads are functions of the kernel
    assert len(again.functions) == report.shared + len(lift(object, "k").functions)


def test_what_does_not_pay_is_repeated(hooks) -> None:
    object = random_kernel(2001, "gfx90a")

    def at(count: int) -> KernelReport:
        def instrument(task: InstrumentationTask) -> None:
            for instruction in list(task.instructions)[4 : 4 + count]:
                task.insert_hook_before(instruction, hooks.large, immediate(1), reg("v0"), reg("s20"))

        return patch_object(object, instrument, ["k"]).report.kernels[0]

    assert (at(1).shared, at(1).calls) == (0, 0)
    assert at(3).calls in (0, 2, 3)
    assert at(12).calls >= 8


def long_kernel(target: str, instructions: int) -> CodeObject:
    """Straight code behind a loop's beginning, so that a branch must come back over all of it."""
    lines = ["load2 s[4:5], s[0:1], 0x0", "wait_scalar", "v_mbcnt_lo_u32_b32 v0, -1, 0"]
    lines += [
        "v_lshlrev_b32_e32 v1, 2, v0",
        "v_mov_b32_e32 v3, v0",
        "s_movk_i32 s20, 2",
        "again:",
        f".rept {instructions}",
        "vadd v3, s20, v3",
        ".endr",
    ]
    lines += ["s_sub_u32 s20, s20, 1", "s_cmp_eq_u32 s20, 0", "s_cbranch_scc0 again"]
    lines += ["global_store v1, v3, s[4:5]", "s_endpgm"]
    return assembled(kernel_text(function("k", lines), target, sgprs=32, vgprs=8), target)


@pytest.mark.thorough
def test_a_hundred_thousand_sites(hooks, capsys) -> None:
    """Bounded size, memory and time; every call arrives, over islands."""
    sites = 25_000
    object = long_kernel("gfx90a", sites)

    def instrument(task: InstrumentationTask) -> None:
        for _ in range(4):
            for instruction in task.instructions:
                task.insert_hook_before(instruction, hooks.large, immediate(instruction.index), reg("v0"), reg("s20"))

    begin, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    data, report = (made := patch_object(object, instrument, ["k"])).data, made.report.kernels[0]
    seconds = time.process_time() - begin
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    with capsys.disabled():
        print(f"\n{report.insertions / seconds:.0f} hooks/s, {report.patched_bytes} bytes, {memory >> 10} MiB")
    assert report.insertions > 100_000
    assert report.calls > 0.99 * report.insertions
    assert report.patched_bytes < 28 * report.insertions
    assert memory < 1 << 20
    plan = LaunchPlan("k", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "zero"},))
    _, ran = sums(data, plan, "gfx90a")
    indices = [one.index for one in InstrumentationTask(lift(object, "k")).instructions]
    loop = {*indices[6 : 6 + sites + 3]}
    expected = sum(index * (2 if index in loop else 1) for index in indices) * 64 * 4
    assert int.from_bytes(ran, "little") == expected
