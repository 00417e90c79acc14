"""Kernels whose metadata are incomplete, absent or false: patched, they compute and count correctly, or are refused."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from covering import covering
from crowded import LDS, PRIVATE, crowded, full
from effort import EVERYTHING
from luthier import open_device, patch_object
from luthier.emulator.running.start import Geometry, pack_arguments
from luthier.errors import DeviceError, HookError, ObjectError
from luthier.isa.targets import target_named
from luthier.lifting import lift
from luthier.module import ToolModule
from luthier.objects import CodeObject, ObjectEditor, load_object
from luthier.objects.disagreements import disagreements
from luthier.objects.metadata import KERNELS
from luthier.patch import PatchedObject, RefusedError
from luthier.patch.registers.budget import used_agprs
from luthier.payload.launch_state import HIDDEN_V4, HIDDEN_V5
from luthier.tool.task import InstrumentationTask, reg
from luthier.verify.launch_plan import default_plan

from .test_frames import registers_of

TARGETS = ["gfx90a", "gfx942", "gfx1100", "gfx1201"]
HOOKS = """
__device__ uint64_t waves = 0, lanes = 0, noise = 0, seen = 0;

LUTHIER_HOOK_ANNOTATE count() { luthier::sAtomicAdd<uint64_t>(&waves, 1); }

/// Many vector registers.
LUTHIER_HOOK_ANNOTATE wide(uint32_t register_) {
  uint32_t part[28], sum = 0;
  for (uint32_t i = 0; i < 28; ++i) part[i] = register_ * (i + 3) ^ (register_ >> i);
  for (uint32_t i = 0; i < 28; ++i) sum = sum * 3 + part[(i * 5) % 28] * part[(i * 11) % 28];
  atomicAdd(reinterpret_cast<unsigned long long *>(&noise), static_cast<unsigned long long>(sum));
  atomicAdd(reinterpret_cast<unsigned long long *>(&lanes), 1ull);
}

/// What a kernel gets at launch.
LUTHIER_HOOK_ANNOTATE state() {
  uint64_t value = threadIdx.x + 1000ull * blockIdx.x + 7000ull * blockDim.x;
  value += reinterpret_cast<const uint16_t *>(luthier::implicitArgPtr())[32];
  atomicAdd(reinterpret_cast<unsigned long long *>(&seen), static_cast<unsigned long long>(value));
}

LUTHIER_HOOK_ANNOTATE given(uint64_t value) { luthier::sAtomicAdd<uint64_t>(&seen, value); }
LUTHIER_HOOK_ANNOTATE accumulator() {
  uint32_t value = luthier::readReg<uint32_t>(luthier::AGPR5);
  atomicAdd(reinterpret_cast<unsigned long long *>(&seen), static_cast<unsigned long long>(value));
}
"""


def edited(object: CodeObject, change: Callable[[dict[str, Any]], object]) -> CodeObject:
    """The object with its only kernel's metadata changed."""
    metadata = copy.deepcopy(object.metadata)
    (row,) = metadata[KERNELS]
    change(row)
    editor = ObjectEditor(object)
    editor.set_metadata(metadata)
    return load_object(editor.finish())


def test_rows_with_one_descriptor(hooks: ToolModule) -> None:
    """Only one of the kernels can be what it leads to: the first is patched, the other one refused."""
    object = accumulators("gfx90a", 4)
    metadata = copy.deepcopy(object.metadata)
    metadata[KERNELS].append({**metadata[KERNELS][0], ".name": "twin"})
    editor = ObjectEditor(object)
    editor.set_metadata(metadata)
    object = load_object(editor.finish())
    patched = patch_object(object, everywhere(hooks.count))
    (refusal,) = patched.report.refused_kernels
    assert refusal.kernel == "twin"
    assert "its descriptor k.kd belongs to k, too, which is already patched" in refusal.message
    assert outcome(object, patched.data)[1].variable("waves").read(int) == patched.report.kernels[0].insertions
    alone = patch_object(object, everywhere(hooks.count), ["twin"], strict=True)
    assert outcome(object, alone.data)[1].variable("waves").read(int) == alone.report.kernels[0].insertions


@pytest.mark.parametrize("taken", ["variable", "inner", "undefined", "k"])
def test_names_that_something_else_has(hooks: ToolModule, taken: str) -> None:
    """A kernel's name in metadata need be no symbol of it: whose symbol that is stays where it was."""
    lines = function("inner", ["s_nop 0", "s_endpgm"]) + function("k", ["s_nop 0", "s_endpgm"])
    data = ".data\n.globl variable\n.type variable,@object\nvariable: .long 7\n.size variable, 4\n.text\n"
    object = assembled(kernel_text(data + lines, "gfx90a"), "gfx90a")
    if taken == "undefined":
        editor = ObjectEditor(object)
        editor.import_symbol(taken)
        object = load_object(editor.finish())
    object = edited(object, lambda row: row.update({".name": taken}))
    patched = load_object(patch_object(object, everywhere(hooks.count)).data)
    assert patched.kernels[taken].entry != object.kernels[taken].entry
    before, after = ({one.name: one for one in found.symbols} for found in (object, patched))
    moved = {name for name, one in before.items() if after[name][1:] != one[1:]} - {"_DYNAMIC"}
    assert moved == {taken} & {"k"}
    variable = object.symbol("variable")
    assert variable is not None
    assert patched.read(variable.address, 4) == b"\x07\0\0\0"


# AGPRs ------------------------------------------------------------------------------------------------------------


def accumulators(target: str, agprs: int, *, named: int | None = None, vgprs: int = 12) -> CodeObject:
    """A kernel that fills the first `named` of its AGPRs, and stores what it then finds in them."""
    named = agprs if named is None else named
    lines = ["s_load_dwordx2 s[4:5], s[0:1], 0x0", "v_and_b32_e32 v0, 0x3ff, v0", "s_waitcnt lgkmcnt(0)"]
    for n in range(named):
        lines += [f"v_add_u32_e32 v1, {77 * n + 1}, v0", "s_nop 1", f"v_accvgpr_write_b32 a{n}, v1", "s_nop 1"]
    lines += ["v_lshlrev_b32_e32 v2, 2, v0", "v_mov_b32_e32 v3, v0"]
    for n in range(named):
        lines += ["s_nop 2", f"v_accvgpr_read_b32 v1, a{n}", "s_nop 2", "v_mad_u32_u24 v3, v3, 5, v1"]
    lines += ["global_store_dword v2, v3, s[4:5]", "s_endpgm"]
    return assembled(kernel_text(function("k", lines), target, vgprs=vgprs, agprs=agprs), target)


def outcome(object: CodeObject, data: bytes) -> tuple[list[int], Any]:
    module = open_device(f"emu:{object.target.target.name}").load(data)
    out = np.zeros(64, np.uint32)
    module.kernel("k").launch(out, grid=1, block=64)
    return out.tolist(), module


def everywhere(hook: Any, *arguments: Any) -> Callable[[InstrumentationTask], None]:
    def insert(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, hook, *arguments)

    return insert


@pytest.mark.rows(4)
@pytest.mark.parametrize("count", [None, 0, 1, 41, 2**32 - 1])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
def test_agprs_of_which_metadata_do_not_know(hooks: ToolModule, target: str, count: int | None) -> None:
    """Payloads need more VGPRs, so the AGPRs behind these move, and stay as many."""

    def change(row: dict[str, Any]) -> None:
        row.pop(".agpr_count")
        if count is not None:
            row[".agpr_count"] = count

    object = edited(accumulators(target, 40), change)
    expected, _ = outcome(object, object.data)
    patched = patch_object(object, everywhere(hooks.wide, reg("v0")), strict=True)
    assert outcome(object, patched.data)[0] == expected
    before, after = (load_object(data).kernels["k"] for data in (object.data, patched.data))
    assert after.descriptor.accum_offset > before.descriptor.accum_offset
    assert after.descriptor.agprs >= 40
    assert used_agprs(lift(object, "k")) == 40
    assert before.agpr_count == (before.descriptor.agprs if count is None else count)


def test_agprs_that_nothing_names_are_not_kept(hooks: ToolModule) -> None:
    """Rounding gives a kernel AGPRs; these cost nothing when VGPRs become more."""
    object = accumulators("gfx90a", 20, named=2)
    assert object.kernels["k"].descriptor.agprs == 20
    patched = load_object(patch_object(object, everywhere(hooks.wide, reg("v0")), strict=True).data).kernels["k"]
    (task_vgprs, first) = patched.descriptor.vgprs, (patched.descriptor.accum_offset + 1) * 4
    assert first + 2 <= task_vgprs < first + 2 + 8
    assert outcome(object, object.data)[0]


def test_agprs_that_only_hooks_name_are_kept(hooks: ToolModule) -> None:
    object = edited(accumulators("gfx90a", 20, named=2), lambda row: row.pop(".agpr_count"))

    def insert(task: InstrumentationTask) -> None:
        everywhere(hooks.wide, reg("v0"))(task)
        everywhere(hooks.accumulator)(task)

    patched = patch_object(object, insert, strict=True)
    assert load_object(patched.data).kernels["k"].descriptor.agprs >= 6
    assert outcome(object, patched.data)[0] == outcome(object, object.data)[0]


# What metadata have of every kind -----------------------------------------------------------------------------------

MOST = 2**32 - 1
ABSENT = "absent"
TRUE = "true"
NUMBERS = {
    ".vgpr_count": (1, 512),
    ".agpr_count": (1, 300),
    ".sgpr_count": (1, 200),
    ".kernarg_segment_size": (4, 4096),
    ".kernarg_segment_align": (1, 4096),
    ".group_segment_fixed_size": (4, 65536),
    ".private_segment_fixed_size": (4, 65536),
    ".wavefront_size": (16, 1024),
    ".max_flat_workgroup_size": (64, 4096),
}
"""Entry -> what is too small, and what too large."""
HIDDEN = ("absent hidden", "moved", "narrow", "far")
"""What is done to hidden arguments."""
FACTORS: dict[str, tuple[Any, ...]] = {
    **{key: (TRUE, ABSENT, 0, *values, MOST) for key, values in NUMBERS.items()},
    ".uses_dynamic_stack": (TRUE, ABSENT, True, False),
    ".reqd_workgroup_size": (TRUE, (0, 0, 0), (1, 1, 1), (160, 1, 1), (1024, 4, 1), (MOST,) * 3),
    ".args": (TRUE, ABSENT, *HIDDEN),
    "kind": ("count", "state", "wide", "agprs", "private", "lds"),
    "target": tuple(TARGETS),
}
ROWS = covering(FACTORS, most=None if EVERYTHING else 10)


def damage(row: dict[str, Any], case: dict[str, Any]) -> None:
    """Make a kernel's metadata what the case says."""
    for key in (*NUMBERS, ".uses_dynamic_stack", ".reqd_workgroup_size"):
        if case[key] == ABSENT:
            row.pop(key, None)
        elif case[key] != TRUE:
            row[key] = list(case[key]) if isinstance(case[key], tuple) else case[key]
    hidden = [one for one in row[".args"] if one[".value_kind"].startswith("hidden_")]
    if case[".args"] == ABSENT:
        del row[".args"]
    elif case[".args"] == "absent hidden":
        row[".args"] = [one for one in row[".args"] if one not in hidden]
    for argument in hidden:
        if case[".args"] == "moved":
            argument[".offset"] += 8 * (argument[".value_kind"] != "hidden_block_count_x")
        elif case[".args"] == "narrow":
            argument[".size"] = 1
        elif case[".args"] == "far":
            argument[".offset"] += 1 << 30


@pytest.fixture(scope="module")
def original(compile_object) -> Callable[[str, str], CodeObject]:
    """`original(kind, target)`: a kernel with all of its metadata."""

    @functools.cache
    def make(kind: str, target: str) -> CodeObject:
        matrices = target_named(target).has_agprs
        if kind == "lds":
            return full(compile_object, target, "static")
        if kind == "agprs" and matrices:
            source = crowded(target, 256, 98).replace("bounds__(1024)", "bounds__(256)")
        elif kind in ("agprs", "private"):
            source = crowded(target, *registers_of(target), PRIVATE)
        else:
            source = crowded(target, 24, 60, PRIVATE + LDS["static"], matrices=24 if matrices else 0)
        return load_object(compile_object(source, target))

    return make


@dataclass
class Ran:
    out: list[int]
    counters: dict[str, int]


def ran(object: CodeObject, data: bytes, arguments: bytes, lanes: int) -> Ran:
    device = open_device(f"emu:{object.target.target.name}")
    module = device.load(data)
    out = device.allocate(4 * 3 * 160)
    segment = out.address.to_bytes(8, "little") + arguments[8:]
    module.kernel("crowded").launch(segment, grid=3, block=lanes)
    variables = {
        name: int.from_bytes(module.variable(name).read()[:8], "little")
        for name in ("waves", "lanes", "seen")
        if load_object(data).symbol(name) is not None
    }
    return Ran(np.frombuffer(out.read(), np.uint32).tolist(), variables)


def instrumented(object: CodeObject, kind: str, hooks: ToolModule) -> PatchedObject:
    hook = hooks.hook({"count": "count", "state": "state"}.get(kind, "wide"))

    def insert(task: InstrumentationTask) -> None:
        task.hoist = kind == "count"
        for instruction in list(task.instructions)[:: {"count": 1, "state": 25, "wide": 25}.get(kind, 100)]:
            task.insert_hook_before(instruction, hook, *([reg("v0")] if hook.name == "wide" else []))

    return patch_object(object, insert, hoist=kind == "count")


@pytest.fixture(scope="module")
def truth(original, hooks) -> Callable[[str, str, int], tuple[Ran, Ran]]:
    """`truth(kind, target, lanes)`: runs of the kernel as it was compiled, and of that instrumented."""

    @functools.cache
    def run(kind: str, target: str, lanes: int) -> tuple[Ran, Ran]:
        object = original(kind, target)
        arguments = segment_of(object, lanes)
        patched = instrumented(object, kind, hooks)
        assert not patched.report.refusals
        return ran(object, object.data, arguments, lanes), ran(object, patched.data, arguments, lanes)

    return run


def segment_of(object: CodeObject, lanes: int) -> bytes:
    """The kernel's arguments, hidden ones too, with a null pointer for its own."""
    return pack_arguments(object.kernels["crowded"], [0], Geometry((3, 1, 1), (lanes, 1, 1)), 0)


def name_of(case: dict[str, Any]) -> str:
    return f"{case['kind']}-{case['target']}-{ROWS.index(case)}"


@pytest.mark.rows(1)
@pytest.mark.parametrize("case", ROWS, ids=name_of)
def test_metadata_that_lie(original, truth, hooks: ToolModule, case: dict[str, Any]) -> None:
    kind, target = case["kind"], case["target"]
    true = original(kind, target)
    object = edited(true, lambda row: damage(row, case))
    lanes = min(160, object.kernels["crowded"].largest_workgroup)
    arguments = segment_of(true, lanes)
    (before, counted) = truth(kind, target, lanes)
    assert ran(object, object.data, arguments, lanes) == before
    if kind == "state" and case[".args"] != TRUE:
        with pytest.raises(RefusedError, match="hidden arguments, which this kernel cannot have"):
            instrumented(object, kind, hooks)
        return
    patched = instrumented(object, kind, hooks)
    after = ran(object, patched.data, arguments, lanes)
    assert after.out == before.out
    # Live registers find less room where a work-group may be larger, or the stack may be.
    grown = object.kernels["crowded"].largest_workgroup > true.kernels["crowded"].largest_workgroup
    if refusals := patched.report.refusals:
        unknown = case[".uses_dynamic_stack"] is True
        assert (kind == "lds" and grown) or (kind in ("agprs", "private") and unknown)
        assert {one.kind for one in refusals} == {"too few registers"}
    else:
        assert after.counters == counted.counters


# What hooks are given ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({".offset": 1 << 30}, "lies beyond the kernel's arguments"),
        ({".size": 1 << 20}, "lies beyond the kernel's arguments"),
        ({".offset": 4}, "lies beyond the kernel's arguments"),
        ({".size": 0}, "the value is 0 bytes and does not fit"),
    ],
    ids=str,
)
def test_arguments_that_lie_elsewhere(hooks: ToolModule, change: dict[str, int], problem: str) -> None:
    object = edited(accumulators("gfx90a", 4), lambda row: row[".args"][0].update(change))

    def insert(task: InstrumentationTask) -> None:
        task.insert_hook_before(0, hooks.given, task.kernel_argument("out"))

    with pytest.raises(HookError, match=problem):
        patch_object(object, insert, strict=True)


def test_hidden_arguments_are_where_compilers_put_them(compile_object) -> None:
    """As hooks look for them, with services and without, since code object V5 and before."""
    source = """
    #include <hip/hip_runtime.h>
    extern "C" __global__ void k(unsigned *out) {
      out[blockIdx.x * blockDim.x + threadIdx.x] = gridDim.y;
      auto own = reinterpret_cast<const unsigned *>((uint64_t)__builtin_amdgcn_implicitarg_ptr());
      out[0] = own[threadIdx.x];
    }
    """
    for version, places in ((4, HIDDEN_V4), (5, HIDDEN_V5), (6, HIDDEN_V5)):
        object = load_object(compile_object(source, "gfx90a", f"-mcode-object-version={version}"))
        hidden = [one for one in object.kernels["k"].arguments if one.hidden]
        assert len(hidden) > 3
        known = [one for one in hidden if one.value_kind != "hidden_none"]
        assert {one.value_kind: (one.offset - hidden[0].offset, one.size) for one in known}.items() <= places.items()


# Launches, and what is told -----------------------------------------------------------------------------------------


def test_sizes_of_memory_are_said_where_nothing_was(original, hooks: ToolModule) -> None:
    """A runtime may take none to be 0: then private memory of hooks would be nowhere."""
    keys = ".private_segment_fixed_size", ".group_segment_fixed_size"
    object = edited(original("private", "gfx1100"), lambda row: [row.pop(key) for key in keys])
    patched = load_object(instrumented(object, "private", hooks).data)
    (row,) = patched.metadata[KERNELS]
    descriptor = patched.kernels["crowded"].descriptor
    assert row[keys[0]] == descriptor.private_segment_fixed_size > 0
    assert row.get(keys[1], 0) == descriptor.group_segment_fixed_size


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({".kernarg_segment_size": 0, ".args": []}, "takes 0 arguments"),
        ({".args": [{".offset": 0, ".size": 0, ".value_kind": "by_value"}]}, "0 bytes and cannot hold"),
        ({".args": [{".offset": MOST, ".size": MOST, ".value_kind": "by_value"}]}, "bytes of arguments; at most"),
        ({".max_flat_workgroup_size": 1}, "the kernel allows at most 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_launches_that_metadata_make_impossible(change: dict[str, Any], problem: str) -> None:
    object = edited(accumulators("gfx90a", 4), lambda row: row.update(change))
    kernel = open_device("emu:gfx90a").load(object).kernel("k")
    with pytest.raises(DeviceError, match=problem):
        kernel.launch(12345, grid=1, block=64)


def test_hidden_arguments_that_cannot_hold_their_value() -> None:
    narrow = {".offset": 8, ".size": 1, ".value_kind": "hidden_block_count_x"}
    object = edited(accumulators("gfx90a", 4), lambda row: row[".args"].append(narrow))
    kernel = open_device("emu:gfx90a").load(object).kernel("k")
    with pytest.raises(DeviceError, match="hidden_block_count_x has 1 bytes and cannot hold 300"):
        kernel.launch(np.zeros(64, np.uint32), grid=300, block=64)


def test_disagreements_are_listed() -> None:
    case = dict.fromkeys(FACTORS, TRUE) | {
        ".agpr_count": 300,
        ".wavefront_size": 1024,
        ".private_segment_fixed_size": 4,
    }
    case |= {".max_flat_workgroup_size": 4096, ".reqd_workgroup_size": (0, 0, 0), ".uses_dynamic_stack": True}
    case |= {".kernarg_segment_size": 4, ".sgpr_count": 200, ".vgpr_count": 512, ".group_segment_fixed_size": 4}
    true = accumulators("gfx90a", 4)
    assert disagreements(true.kernels["k"]) == ()
    listed = {
        one.entry: (one.says, one.counts)
        for one in disagreements(edited(true, lambda row: damage(row, case)).kernels["k"])
    }
    assert listed == {
        ".group_segment_fixed_size": (4, 0),
        ".private_segment_fixed_size": (4, 0),
        ".wavefront_size": (1024, 64),
        ".vgpr_count": (512, 16),
        ".agpr_count": (300, 4),
        ".sgpr_count": (200, 112),
        ".kernarg_segment_size": (4, 8),
        ".uses_dynamic_stack": (True, True),
        ".max_flat_workgroup_size": (4096, 1024),
        ".reqd_workgroup_size": (0, 1024),
    }


TYPED = [*NUMBERS, ".uses_dynamic_stack", ".reqd_workgroup_size", ".args", ".symbol"]


@pytest.mark.parametrize("value", ["text", 1.5, [1], {}, -1, 2**32], ids=str)
@pytest.mark.parametrize("key", TYPED)
def test_entries_of_wrong_types_are_errors(key: str, value: Any) -> None:
    with pytest.raises(ObjectError):
        edited(accumulators("gfx90a", 4), lambda row: row.update({key: value}))


@pytest.mark.parametrize("key", [".offset", ".size", ".value_kind"])
def test_arguments_without_what_they_need_are_errors(key: str) -> None:
    with pytest.raises(ObjectError, match=f"lacks the entry {key} of an argument .*kernel k"):
        edited(accumulators("gfx90a", 4), lambda row: row[".args"][0].pop(key))


@pytest.mark.parametrize("required", [None, (0, 0, 0), (32, 4, 1), (MOST,) * 3])
def test_plans_made_up_of_metadata(required: tuple[int, ...] | None) -> None:
    change = {".reqd_workgroup_size": list(required)} if required else {}
    object = edited(accumulators("gfx90a", 4), lambda row: row.update({".max_flat_workgroup_size": 64, **change}))
    plan = default_plan(object.kernels["k"])
    assert plan.block == ((32, 4, 1) if required == (32, 4, 1) else (64, 1, 1))
