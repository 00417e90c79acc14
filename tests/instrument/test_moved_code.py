"""Code that depends on where it is: arithmetic on the program counter, relocations in instructions, and calls that do
not return."""

from __future__ import annotations

import numpy as np
import pytest
from assembled_cases import assemble, run
from luthier import open_device, patch_object
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, load_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

TARGETS = ["gfx90a", "gfx1030", "gfx1100", "gfx1201"]
LANES = 64
OUT = {"buffer": "uint32", "count": LANES, "fill": "zero"}
PLAN = LaunchPlan("k", (1, 1, 1), (LANES, 1, 1), (OUT,))
HOOKS = """
__device__ uint64_t runs;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&runs, 1); }
"""
SEE = """
__device__ uint64_t seen;
LUTHIER_HOOK_ANNOTATE see(uint32_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(&seen), static_cast<unsigned long long>(value));
}
"""


def kernel(target: str, body: str, functions: str = "") -> CodeObject:
    """Return a kernel that stores s20 for each lane."""
    body = body.replace("; ", "\n")
    return assemble(target, f"s_movk_i32 s20, 0\n{body}\nv_mov_b32_e32 v2, s20\nput v2, 0\n{functions}", sgprs=96)


def everywhere(hook: object, *arguments: object):
    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hook, *arguments)

    return insert


@pytest.mark.parametrize("target", TARGETS)
def test_a_jump_to_an_unknown_target_continues_in_the_original(counter: type[Tool], target: str) -> None:
    body = "s_getpc_b64 s[8:9]; .Lcounter: extend s9; s_lshl_b32 s10, s20, 2; s_add_u32 s10, s10, .Lone-.Lcounter; "
    body += "s_add_u32 s8, s8, s10; s_addc_u32 s9, s9, 0; s_setpc_b64 s[8:9]; .Lone: s_branch .La; s_branch .Lb; "
    object = kernel(target, body + ".La: s_add_u32 s20, s20, 3; .Lb: s_add_u32 s20, s20, 5")
    assert len(lift(object, "k").unknown) == 1
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    assert len(patched.report.kernels[0].unresolved) == 1
    verdict = verify_kernel(object, counter(per_wave=True), PLAN)
    assert verdict.problems == ()
    assert not verdict.complete


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_hooks_that_are_given_program_counters(module: ToolModule, make_module, target: str) -> None:
    """Patched kernels whose hooks do arithmetic with what is not an address yet can be patched again."""
    object = kernel(target, "call 8, 9, f", "func f\ns_add_u32 s20, s20, 7\ns_setpc_b64 s[30:31]\n")
    once = load_object(patch_object(object, everywhere(make_module(SEE, *TARGETS).see, reg("s8")), strict=True).data)
    lifted = lift(once, "k")
    assert "value" in [one.kind for one in lifted.pc_references]
    assert not lifted.unknown
    out, _, instructions = run(target, once.data)
    assert out[0].tolist() == [7] * LANES
    again, variables, _ = run(
        target, patch_object(once, everywhere(module.count), strict=True).data, variables=["runs"]
    )
    assert (again[0].tolist(), variables["runs"]) == ([7] * LANES, instructions)


@pytest.mark.parametrize("target", TARGETS)
def test_addresses_that_the_loader_writes_into_code(module: ToolModule, target: str) -> None:
    """Counters get to memory by absolute addresses in the code, and still do when that is patched in turn."""
    object = kernel(target, ".Lloop: s_add_u32 s20, s20, 7; s_cmp_lt_u32 s20, 30; s_cbranch_scc1 .Lloop")

    def count(task: InstrumentationTask) -> None:
        task.count(task.instructions)

    first = patch_object(object, count, strict=True)
    once = load_object(first.data)
    assert lift(once, "k").kernel.entry <= max(one.offset for one in once.relocations)
    second = patch_object(once, everywhere(module.count), strict=True)
    (counters,) = first.counters.values()
    executions = []
    for data in (first.data, second.data):
        device, out = open_device(f"emu:{target}", threads=1), np.zeros(LANES, np.uint32)
        loaded = device.load(data)
        loaded.kernel("k").launch(out, grid=(1, 1, 1), block=(LANES, 1, 1))
        assert out.tolist() == [35] * LANES
        executions.append(counters.read(loaded, device.stats.waves).executions.tolist())
    assert executions[0] == executions[1]
    assert max(executions[0]) == 5 * device.stats.waves


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("last", ["s_trap 2", "s_call_b64 s[34:35], h"])
def test_functions_that_end_with_what_never_comes_back(module: ToolModule, target: str, last: str) -> None:
    """Where a function ends tells so in the original; in the patched kernel something else follows."""
    body = "s_cmp_eq_u32 s20, 1; s_cbranch_scc0 .Lon; s_call_b64 s[30:31], f; .Lon: s_add_u32 s20, s20, 7"
    object = kernel(target, body, f"func f\n{last}\nfunc h\ns_endpgm\nfunc g\ns_setpc_b64 s[30:31]\n")
    once = patch_object(object, everywhere(module.count), strict=True)
    out, variables, _ = run(target, once.data, variables=["runs"])
    assert (out[0].tolist(), variables["runs"]) == ([7] * LANES, run(target, object.data)[2])
    before, after = lift(object, "k"), lift(load_object(once.data), "k")
    assert len(after.functions) == len(before.functions)
    ends = [[block.exit for block in one.blocks if not block.successors] for one in before.functions]
    assert ends[1] == [last[2:6]]
    assert [function.blocks[-1].successors == () for function in after.functions] == [True] * len(ends)
