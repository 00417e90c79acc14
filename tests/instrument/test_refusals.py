"""Hooks and kernels that cannot be instrumented are left out and reported, and the rest is unaffected."""

from __future__ import annotations

import json
import random

import pytest
from crowded import FULL_LDS
from luthier.errors import HookError, LiftError, PatchError
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.objects.editor import ObjectEditor
from luthier.patch import RefusedError, patch_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel, verify_object
from luthier.verify.launch_plan import LaunchPlan
from msgspec.structs import replace

HOOKS = """
__device__ uint64_t total = 0;
__device__ uint64_t noise = 0;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&total, 1); }

LUTHIER_HOOK_ANNOTATE needs(uint32_t x) {
  uint64_t a = x * 0x9E3779B97F4A7C15ull + __lane_id(), b = a * a + x, c = (a ^ b) * (b + 1), d = c * a + b * b;
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), a ^ (b >> 3) ^ (c << 5) ^ (d >> 7));
}

LUTHIER_HOOK_ANNOTATE stops() { __builtin_trap(); }
"""
HEADER = "#include <hip/hip_runtime.h>\n#include <stdint.h>\n"
LAST = 63
CROWDED = (
    HEADER
    + """
extern "C" __global__ __launch_bounds__(1024) void crowded(uint32_t *out) {
  uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, v = i;
  @lds@
  asm volatile("@set@s_nop 1\\n@sum@" : "+v"(v) :: @clobbered@);
  out[i] = v;
}
extern "C" __global__ void simple(uint32_t *out) { out[threadIdx.x] = blockIdx.x; }
extern "C" __global__ void returns(uint32_t *out) { out[0] = 1; asm volatile("s_rfe_b64 s[0:1]"); }
"""
)
CROWDED = CROWDED.replace("@set@", "".join(f"v_mov_b32_e32 v{n}, {n}\\n" for n in range(8, LAST)))
CROWDED = CROWDED.replace("@sum@", "".join(f"v_add_u32_e32 %0, v{n}, %0\\n" for n in range(8, LAST)))
CROWDED = CROWDED.replace("@clobbered@", ", ".join(f'"v{n}"' for n in range(8, LAST)))
PLAN = LaunchPlan("crowded", (1, 1, 1), (128, 1, 1), ({"buffer": "uint32", "count": 128, "fill": "zero"},))


@pytest.fixture(scope="module")
def module(make_module):
    return make_module(HOOKS, "gfx906")


def with_dynamic_stack(compile_object, lds: str) -> CodeObject:
    object = load_object(compile_object(CROWDED.replace("@lds@", lds), "gfx906"))
    kernel = object.kernels["crowded"]
    editor = ObjectEditor(object)
    editor.write(kernel.descriptor_address, replace(kernel.descriptor, uses_dynamic_stack=1).encode())
    return load_object(editor.finish())


@pytest.fixture(scope="module")
def crowded(compile_object):
    """Its kernel `crowded` is said to have a dynamic stack, and has all LDS, so that nothing can be spilled."""
    return with_dynamic_stack(compile_object, FULL_LDS)


class Mixed(Tool):
    """A counter everywhere; at random points hooks that are refused for every reason, before and behind it."""

    def __init__(self, module, seed: int | None, places: set[tuple[int, int]] | None = None) -> None:
        super().__init__()
        self.module, self.seed = module, seed
        self.places = places
        self.made = 0

    def instrument(self, task: InstrumentationTask) -> None:
        numbers = random.Random(self.seed)
        hooks = self.module
        for instruction in task.instructions:
            choices = [
                (hooks.stops,),
                (hooks.needs, reg("v200")),
                (hooks.needs, reg(f"v{numbers.randrange(8, LAST)}")),  # refused where too few registers are free
            ]
            for position in range(2):
                if position:
                    task.insert_hook_before(instruction, hooks.count)
                if self.seed is not None and numbers.random() < 0.3:
                    hook, *arguments = numbers.choice(choices)
                    if self.places is None or (instruction.index, position) in self.places:
                        task.insert_hook_before(instruction, hook, *arguments)
                    self.made += 1


@pytest.mark.rows(4)
@pytest.mark.parametrize("lds", ["full", "free"])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_refused_leaves_no_trace(compile_object, module, seed: int, lds: str) -> None:
    """The object is, byte for byte, as if what was refused had never been inserted."""
    crowded = with_dynamic_stack(compile_object, FULL_LDS if lds == "full" else "")
    tasks: list[InstrumentationTask] = []

    def insert(task: InstrumentationTask) -> None:
        Mixed(module, seed).instrument(task)
        tasks.append(task)

    patched = patch_object(crowded, insert, ["crowded"])
    (report,) = patched.report.kernels
    kinds = {refusal.kind for refusal in report.refusals}
    assert kinds == {"hook", "no such register", *(["too few registers"] if lds == "full" else [])}
    assert (report.in_lds > 0) == (lds == "free")
    refused = {refusal.insertion for refusal in report.refusals}
    assert report.insertions + len(refused) == len(tasks[0].insertions)
    assert all(tasks[0].insertions[number].hook is not module.count for number in refused)

    def insert_the_rest(task: InstrumentationTask) -> None:
        task.insertions += [one for number, one in enumerate(tasks[0].insertions) if number not in refused]

    rest = patch_object(crowded, insert_the_rest, ["crowded"], strict=True)
    assert rest.data == patched.data
    assert rest.report.kernels[0].refusals == ()


def test_the_rest_runs_and_counts(crowded, module) -> None:
    class Counts(Mixed):
        def expected(self, task, counts):
            return {}

    verdict = verify_kernel(crowded, Counts(module, 3), PLAN)
    assert verdict.problems == ()
    assert verdict.counters["total"] == verdict.instructions[0]
    assert verdict.refused > 0


def test_counts_leave_out_refused_sites(crowded, module) -> None:
    class Some(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for number, instruction in enumerate(task.instructions):
                if number == 5:
                    task.insert_hook_before(instruction, module.stops)
                else:
                    task.insert_hook_before(instruction, module.count)

        def expected(self, task, counts):
            return {"total": int(counts.executions.sum())}

    verdict = verify_kernel(crowded, Some(), PLAN)
    assert verdict.problems == ()
    assert verdict.expected["total"] == verdict.instructions[0] - 2
    assert verdict.refused == 2
    with pytest.raises(HookError):
        verify_kernel(crowded, Some(), PLAN, strict=True)


def test_a_kernel_that_cannot_be_lifted_is_one_kernel(crowded, module) -> None:
    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, module.count)

    report = patch_object(crowded, insert).report
    assert {row.kernel for row in report.kernels} == {"crowded", "simple"}
    (refusal,) = report.refused_kernels
    assert (refusal.kernel, refusal.kind, refusal.hook) == ("returns", "lifting", None)
    assert refusal.address is not None
    for arguments in ({"strict": True}, {"kernels": ["returns"]}):
        with pytest.raises(LiftError, match="s_rfe_b64"):
            patch_object(crowded, insert, **arguments)


def test_verifying_goes_on_after_a_kernel_that_cannot_be_patched(crowded, module) -> None:
    class First(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            task.insert_hook_before(task.lifted.blocks[0].first, module.count)

        def expected(self, task, counts):
            return {"total": int(counts.executions[task.lifted.blocks[0].first])}

    buffer = ({"buffer": "uint32", "count": 128, "fill": "zero"},)
    plans = {name: LaunchPlan(name, (1, 1, 1), (128, 1, 1), buffer) for name in crowded.kernels}
    verdicts = {verdict.kernel: verdict for verdict in verify_object(crowded, First(), plans=plans)}
    assert {name for name, verdict in verdicts.items() if verdict.equal} == {"crowded", "simple"}
    (problem,) = verdicts["returns"].problems
    assert problem.startswith("not verified: s_rfe_b64")


def test_nothing_at_all_is_an_error(crowded, module) -> None:
    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.stops)

    with pytest.raises(RefusedError, match="nothing could be instrumented: hook: ") as caught:
        patch_object(crowded, insert)
    report = caught.value.report
    assert isinstance(caught.value, PatchError)
    assert {row.kernel: row.sites for row in report.kernels} == {"crowded": 0, "simple": 0}
    assert all(row.requested_sites == len(row.refusals) == row.instructions for row in report.kernels)
    assert json.dumps(report.to_json())


def test_code_behind_unknown_calls_is_reported(compile_object, make_module) -> None:
    """What runs there is in no count, so the counters are not said to be those of the kernel."""
    source = (
        HEADER
        + """
typedef uint32_t (*Function)(uint32_t);
__device__ __attribute__((noinline)) uint32_t twice(uint32_t x) {
  asm volatile("s_cmp_lg_u64 exec, exec\\ns_cbranch_scc0 1\\ns_rfe_b64 s[40:41]" ::: "scc"); // never, but who knows
  return x * 2;
}
__device__ Function volatile pointer = twice;
extern "C" __global__ void calls(uint32_t *out) { out[threadIdx.x] = pointer(threadIdx.x); }
"""
    )
    counts = make_module(HOOKS, "gfx942")

    class Everything(Tool):
        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                task.insert_hook_before(instruction, counts.count)

        def expected(self, task, counts):
            return {"total": int(counts.executions.sum())}

    plan = LaunchPlan("calls", (1, 1, 1), (64, 1, 1), ({"buffer": "uint32", "count": 64, "fill": "zero"},))
    object = load_object(compile_object(source, "gfx942"))
    (verdict,) = verify_object(object, Everything(), plans={"calls": plan})
    assert verdict.problems == ()
    assert verdict.not_lifted > 0
    assert not verdict.complete
    assert verdict.counters["total"] == verdict.instructions[0] - verdict.not_lifted
    assert verdict.to_json()["not_lifted"] == verdict.not_lifted
    (call,) = verdict.patch.unresolved
    assert call.text.startswith("s_swappc_b64")
    assert (call.function, call.known_targets) == ("calls", ())
    calls = [one for one in InstrumentationTask(lift(object, "calls")).instructions if one.address == call.address]
    assert [one.text for one in calls] == [call.text]
    assert "comes from memory" in call.reason
    assert "1 possible targets cannot be lifted, such as _Z5twicej: s_rfe_b64" in call.reason
