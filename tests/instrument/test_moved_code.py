"""Code that depends on where it is: arithmetic on the program counter, relocations in instructions, and calls that do
not return."""

from __future__ import annotations

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from luthier import open_device, patch_object
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.objects import CodeObject, load_object
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify import verify_kernel
from luthier.verify.launch_plan import LaunchPlan

TARGETS = ["gfx90a", "gfx1030", "gfx1100", "gfx1201"]
LANES = 64
OUT = {"buffer": "uint32", "count": LANES, "fill": "zero"}
PLAN = LaunchPlan("k", (1, 1, 1), (LANES, 1, 1), (OUT,))
COUNT = """
__device__ uint64_t runs;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&runs, 1); }
"""
AGAIN = """
__device__ uint64_t more;
LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&more, 1); }
"""
SEE = """
__device__ uint64_t seen;
LUTHIER_HOOK_ANNOTATE see(uint32_t value) {
  atomicAdd(reinterpret_cast<unsigned long long *>(&seen), static_cast<unsigned long long>(value));
}
"""


def kernel(target: str, body: list[str], functions: dict[str, list[str]] | None = None) -> CodeObject:
    """A kernel that stores s20 for each lane. `body` has s[8:9] for addresses of functions, and s30 on for calls."""
    family = target_named(target)
    load = "s_load_b64" if family.major >= 11 else "s_load_dwordx2"
    wait = "s_wait_kmcnt 0x0" if family.major >= 12 else "s_waitcnt lgkmcnt(0)"
    store = "global_store_b32" if family.major >= 11 else "global_store_dword"
    lines = [f"{load} s[4:5], s[0:1], 0x0", wait, "s_movk_i32 s20, 0", *body]
    lines += ["v_and_b32_e32 v0, 0x3ff, v0", "v_lshlrev_b32_e32 v0, 2, v0", "v_mov_b32_e32 v1, s20"]
    lines += [f"{store} v0, v1, s[4:5]", "s_endpgm"]
    code = function("k", lines)
    for name, own in (functions or {}).items():
        code += "\n".join([f".p2align 8\n.type {name},@function\n{name}:", *own, f".size {name}, .-{name}\n"])
    return assembled(kernel_text(code, target, sgprs=96, vgprs=8), target)


def counter_and_address(target: str, pair: str, name: str, before: list[str] = ()) -> list[str]:
    """The address of a function, with some instructions between reading the program counter and the additions."""
    low, high = (f"s{number}" for number in pair[2:-1].split(":"))
    extend = [f"s_sext_i32_i16 {high}, {high}"] if target_named(target).major >= 12 else []
    return [
        f"s_getpc_b64 {pair}",
        ".Lcounter:",
        *before,
        *extend,
        f"s_add_u32 {low}, {low}, {name}-.Lcounter",
        f"s_addc_u32 {high}, {high}, ({name}-.Lcounter)>>32",
    ]


def word(target: str, pair: str) -> list[str]:
    """s10: the instruction that a program counter points to."""
    wait = "s_wait_kmcnt 0x0" if target_named(target).major >= 12 else "s_waitcnt lgkmcnt(0)"
    return [f"{'s_load_b32' if target_named(target).major >= 11 else 's_load_dword'} s10, {pair}, 0x0", wait]


def raw(target: str) -> CodeObject:
    """A call by an address, whose program counter is also read from, before anything is added."""
    body = counter_and_address(target, "s[8:9]", "f", word(target, "s[8:9]"))
    body += ["s_swappc_b64 s[30:31], s[8:9]", "s_add_u32 s20, s20, s10"]
    return kernel(target, body, {"f": ["s_add_u32 s20, s20, 7", "s_setpc_b64 s[30:31]"]})


def several(target: str) -> CodeObject:
    """One of two functions, whose addresses are made of one program counter that is read from as well."""
    load = word(target, "s[12:13]")
    extend = ["s_sext_i32_i16 s13, s13"] if target_named(target).major >= 12 else []
    body = ["s_movk_i32 s14, 3", ".Lloop:", "s_getpc_b64 s[12:13]", ".Lcounter:", *extend, *load]
    body += ["s_bitcmp1_b32 s14, 0", "s_cbranch_scc1 .Lodd"]
    for name, on in (("f", ["s_branch .Lcall", ".Lodd:"]), ("g", [])):
        body += [f"s_add_u32 s8, s12, {name}-.Lcounter", f"s_addc_u32 s9, s13, ({name}-.Lcounter)>>32", *on]
    body += [".Lcall:", "s_swappc_b64 s[30:31], s[8:9]", "s_add_u32 s20, s20, s10", "s_sub_u32 s14, s14, 1"]
    body += ["s_cmp_lg_u32 s14, 0", "s_cbranch_scc1 .Lloop"]
    add = {"f": 7, "g": 100}
    return kernel(target, body, {name: [f"s_add_u32 s20, s20, {n}", "s_setpc_b64 s[30:31]"] for name, n in add.items()})


def computed(target: str) -> CodeObject:
    """As `several`, but nothing is read: the two distances are in registers."""
    extend = ["s_sext_i32_i16 s13, s13"] if target_named(target).major >= 12 else []
    body = ["s_movk_i32 s14, 3", ".Lloop:", "s_mov_b32 s10, f-.Lcounter", "s_bitcmp1_b32 s14, 0"]
    body += ["s_cbranch_scc1 .Lon", "s_mov_b32 s10, g-.Lcounter", ".Lon:", "s_getpc_b64 s[12:13]", ".Lcounter:"]
    body += [*extend, "s_bitcmp1_b32 s14, 0", "s_cbranch_scc1 .Lodd"]
    for name, on in (("f", ["s_branch .Lcall", ".Lodd:"]), ("g", [])):
        body += [f"s_mov_b32 s10, {name}-.Lcounter", "s_add_u32 s8, s12, s10", "s_addc_u32 s9, s13, 0", *on]
    body += [".Lcall:", "s_swappc_b64 s[30:31], s[8:9]", "s_sub_u32 s14, s14, 1"]
    body += ["s_cmp_lg_u32 s14, 0", "s_cbranch_scc1 .Lloop"]
    add = {"f": 7, "g": 100}
    return kernel(target, body, {name: [f"s_add_u32 s20, s20, {n}", "s_setpc_b64 s[30:31]"] for name, n in add.items()})


def run(target: str, data: bytes, variable: str = "") -> tuple[list[int], int, int]:
    """What is in the buffer, instructions of the wave or waves, and what a variable holds."""
    device, out = open_device(f"emu:{target}", threads=1), np.zeros(LANES, np.uint32)
    loaded = device.load(data)
    loaded.kernel("k").launch(out, grid=(1, 1, 1), block=(LANES, 1, 1))
    held = int(loaded.variable(variable).read(np.uint64)[0]) if variable else 0
    return out.tolist(), device.stats.instructions, held


def everywhere(hook: object, *arguments: object):
    def insert(task: InstrumentationTask) -> None:
        for one in task.instructions:
            task.insert_hook_before(one, hook, *arguments)

    return insert


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", [raw, several, computed])
def test_program_counters_are_those_of_the_original(make, make_module, target: str) -> None:
    """So are jumps to what is made of them, for a second tool as for the first."""
    first, second = make_module(COUNT, *TARGETS), make_module(AGAIN, *TARGETS)
    object = make(target)
    out, instructions, _ = run(target, object.data)
    assert out[0]
    once = patch_object(object, everywhere(first.count), strict=True)
    patched = run(target, once.data, "runs")
    assert (patched[0], patched[2]) == (out, instructions)
    twice = patch_object(load_object(once.data), everywhere(second.count), strict=True)
    again = run(target, twice.data, "more")
    assert (again[0], again[2]) == (out, patched[1])
    assert run(target, twice.data, "runs")[2] == instructions


@pytest.mark.parametrize("target", TARGETS)
def test_a_jump_to_an_unknown_target_continues_in_the_original(counter: type[Tool], target: str) -> None:
    extend = ["s_sext_i32_i16 s9, s9"] if target_named(target).major >= 12 else []
    body = [
        "s_getpc_b64 s[8:9]",
        ".Lcounter:",
        *extend,
        "s_lshl_b32 s10, s20, 2",
        "s_add_u32 s10, s10, .Lone-.Lcounter",
    ]
    body += ["s_add_u32 s8, s8, s10", "s_addc_u32 s9, s9, 0", "s_setpc_b64 s[8:9]"]
    body += [".Lone:", "s_branch .Lfirst", "s_branch .Lsecond"]
    body += [".Lfirst:", "s_add_u32 s20, s20, 3", ".Lsecond:", "s_add_u32 s20, s20, 5"]
    object = kernel(target, body)
    assert len(lift(object, "k").unknown) == 1
    patched = patch_object(object, counter(per_wave=True).instrument, strict=True)
    assert len(patched.report.kernels[0].unresolved) == 1
    verdict = verify_kernel(object, counter(per_wave=True), PLAN)
    assert verdict.problems == ()
    assert not verdict.complete


@pytest.mark.parametrize("target", TARGETS)
def test_hooks_that_are_given_program_counters(make_module, target: str) -> None:
    """Patched kernels whose hooks do arithmetic with what is not an address yet can be patched again."""
    see, count = make_module(SEE, *TARGETS).see, make_module(COUNT, *TARGETS).count
    object = kernel(
        target,
        [*counter_and_address(target, "s[8:9]", "f"), "s_swappc_b64 s[30:31], s[8:9]"],
        {"f": ["s_add_u32 s20, s20, 7", "s_setpc_b64 s[30:31]"]},
    )
    once = load_object(patch_object(object, everywhere(see, reg("s8")), strict=True).data)
    lifted = lift(once, "k")
    assert "value" in [one.kind for one in lifted.pc_references]
    assert not lifted.unknown
    out, instructions, _ = run(target, once.data)
    assert out == [7] * LANES
    twice = patch_object(once, everywhere(count), strict=True)
    assert run(target, twice.data, "runs")[::2] == (out, instructions)


@pytest.mark.parametrize("target", TARGETS)
def test_addresses_that_the_loader_writes_into_code(make_module, target: str) -> None:
    """Counters get to memory by absolute addresses in the code, and still do when that is patched in turn."""
    loop = [".Lloop:", "s_add_u32 s20, s20, 7", "s_cmp_lt_u32 s20, 30", "s_cbranch_scc1 .Lloop"]
    object = kernel(target, loop)

    def count(task: InstrumentationTask) -> None:
        task.count(task.instructions)

    first = patch_object(object, count, strict=True)
    once = load_object(first.data)
    assert lift(once, "k").kernel.entry <= max(one.offset for one in once.relocations)
    second = patch_object(once, everywhere(make_module(COUNT, *TARGETS).count), strict=True)
    (counters,) = first.counters.values()
    found = []
    for data in (first.data, second.data):
        device, out = open_device(f"emu:{target}", threads=1), np.zeros(LANES, np.uint32)
        loaded = device.load(data)
        loaded.kernel("k").launch(out, grid=(1, 1, 1), block=(LANES, 1, 1))
        assert out.tolist() == [35] * LANES
        found.append(counters.read(loaded, device.stats.waves).executions.tolist())
    assert found[0] == found[1]
    assert max(found[0]) == 5 * device.stats.waves


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("last", ["s_trap 2", "s_call_b64 s[34:35], h"])
def test_functions_that_end_with_what_never_comes_back(make_module, target: str, last: str) -> None:
    """Where a function ends tells so in the original; in the patched kernel something else follows."""
    body = ["s_cmp_eq_u32 s20, 1", "s_cbranch_scc0 .Lon", "s_call_b64 s[30:31], f", ".Lon:", "s_add_u32 s20, s20, 7"]
    object = kernel(target, body, {"f": [last], "h": ["s_endpgm"], "g": ["s_setpc_b64 s[30:31]"]})
    module = make_module(COUNT, *TARGETS)
    once = patch_object(object, everywhere(module.count), strict=True)
    assert run(target, once.data, "runs")[::2] == ([7] * LANES, run(target, object.data)[1])
    before, after = lift(object, "k"), lift(load_object(once.data), "k")
    assert len(after.functions) == len(before.functions)
    ends = [[block.exit for block in one.blocks if not block.successors] for one in before.functions]
    assert ends[1] == [last[2:6]]
    assert [function.blocks[-1].successors == () for function in after.functions] == [True] * len(ends)
