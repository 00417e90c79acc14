"""The launch state in hooks: it is correct everywhere, whatever the kernel enables itself, and the kernel's own
registers are unchanged."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from effort import EVERYTHING
from luthier import ToolModule, lift, open_device, patch_object
from luthier.errors import HookError
from luthier.isa.registers import AGPRS, VGPRS, mask_of
from luthier.isa.targets import TargetId
from luthier.objects import CodeObject, load_object
from luthier.patch.registers.budget import budget_of
from luthier.patch.registers.copies import LANES, PRIVATE
from luthier.patch.registers.launch_state import plan_state
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask
from msgspec.structs import replace

from luthier_build.compile import compile_application, compile_device
from luthier_build.settings import load_settings
from luthier_build.workspace import build_folder

pytestmark = pytest.mark.rows()

TARGETS = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1150", "gfx1201"]
THIN = ["gfx90a", "gfx1201"]

VALUES = {
    **{f"t{axis}": f"threadIdx.{axis}" for axis in "xyz"},
    **{f"b{axis}": f"blockIdx.{axis}" for axis in "xyz"},
    **{f"d{axis}": f"blockDim.{axis}" for axis in "xyz"},
    **{f"g{axis}": f"gridDim.{axis}" for axis in "xyz"},
    "argument": "reinterpret_cast<const uint32_t *>((uint64_t)__builtin_amdgcn_kernarg_segment_ptr())[2]",
    "packet": "reinterpret_cast<const uint32_t *>((uint64_t)__builtin_amdgcn_dispatch_ptr())[3]",
    "same": "reinterpret_cast<const uint64_t *>((uint64_t)__builtin_amdgcn_dispatch_ptr())[5] - "
    "(uint64_t)__builtin_amdgcn_kernarg_segment_ptr()",
    "queue": "(uint64_t)__builtin_amdgcn_queue_ptr()",
    "id": "dispatch_id_()",
}
"""Name of a hook -> what it sees."""

HOOKS = (
    """
extern "C" __device__ uint64_t dispatch_id_() __asm("llvm.amdgcn.dispatch.id");
__device__ unsigned long long mix(unsigned long long x) {
  x = (x + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9ull;
  return x >> 16;
}
"""
    + "".join(
        f"""
__device__ unsigned long long {name}_sum, {name}_count;
LUTHIER_HOOK_ANNOTATE {name}() {{ atomicAdd(&{name}_count, 1ull); atomicAdd(&{name}_sum, mix({value})); }}
"""
        for name, value in VALUES.items()
    )
    + """
__device__ unsigned long long given_sum, given_count;
LUTHIER_HOOK_ANNOTATE given(uint32_t group, uint64_t item, uint32_t argument, bool small) {
  atomicAdd(&given_count, 1ull);
  atomicAdd(&given_sum, mix(group + 1000 * item + argument + small));
}
__device__ uint32_t dimensions;
LUTHIER_HOOK_ANNOTATE hidden() { dimensions = reinterpret_cast<const uint16_t *>(luthier::implicitArgPtr())[32]; }
LUTHIER_HOOK_ANNOTATE truth(bool group) {
  atomicAdd(&given_count, 1ull);
  atomicAdd(&given_sum, group ? 1ull : 0ull);
}
LUTHIER_HOOK_ANNOTATE real(float value) { given_sum = value; }
"""
)


def mix(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        x = (values.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ x >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return x >> np.uint64(16)


@dataclass(frozen=True)
class Application:
    """A kernel that asks for some of what there is."""

    items: str = ""
    """Axes of threadIdx."""
    groups: str = ""
    """Axes of blockIdx."""
    sizes: bool = False
    """blockDim, from hidden arguments or from the packet."""
    packet: bool = False
    scratch: bool = False
    version: int = 6
    """Of the code object."""
    preload: int = 0
    """Arguments that are preloaded, where the target can."""

    def source(self) -> str:
        asked = [f"threadIdx.{axis}" for axis in self.items] + [f"blockIdx.{axis}" for axis in self.groups]
        asked += ["blockDim.x"] if self.sizes else []
        asked += ["reinterpret_cast<const uint32_t *>((uint64_t)__builtin_amdgcn_dispatch_ptr())[4]"] * self.packet
        lines = [f"v = v * 31 + {value};" for value in asked]
        if self.scratch:
            lines.append("volatile uint32_t stack[8] = {}; stack[v & 7] = v; v += stack[v & 3];")
        return f"""
#include <hip/hip_runtime.h>
extern "C" __global__ void k(uint32_t *out, uint32_t a, uint32_t b) {{
  uint32_t v = a;
  {" ".join(lines)}
  for (uint32_t i = 0; i < b; ++i) v = v * 7 + i;
  atomicAdd(out + (v & 63), v);
}}
"""

    def flags(self, target: str) -> list[str]:
        preload = ["-mllvm", f"-amdgpu-kernarg-preload-count={self.preload}"] if self.preload else []
        # Atomic operations once a lane: every lane is active at every instruction.
        plain = ["-mllvm", "-amdgpu-atomic-optimizer-strategy=None"]
        return [f"-mcode-object-version={self.version}", "-fno-discard-value-names", *plain, *preload]


def build(application: Application, target: str, folder: Path) -> CodeObject:
    (folder / "k.hip").write_text(application.source())
    output = compile_application(folder / "k.hip", target, folder / "k.hsaco", flags=application.flags(target))
    return load_object(output)


@dataclass(frozen=True)
class Shape:
    """Work-groups, and work-items in each."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]


ARGUMENT, ROUNDS = 12345, 3


def run(object: CodeObject, data: bytes, shape: Shape):
    loaded = open_device(f"emu:{object.target.target.name}").load(data)
    out = np.zeros(64, np.uint32)
    loaded.kernel("k").launch(out, ARGUMENT, ROUNDS, grid=shape.grid, block=shape.block)
    return out, loaded


def truth(name: str, shape: Shape, queue: int) -> np.ndarray:
    """[work-items of the grid] what the hook must see."""
    sizes = [g * b for g, b in zip(shape.grid, shape.block, strict=True)]
    where = np.indices(sizes[::-1]).reshape(3, -1)[::-1]
    axis = "xyz".find(name[-1])
    whole = {
        "argument": ARGUMENT,
        "packet": sizes[0],
        "same": 0,
        "queue": queue,
        "id": 1,
        **{f"d{a}": shape.block[n] for n, a in enumerate("xyz")},
        **{f"g{a}": shape.grid[n] for n, a in enumerate("xyz")},
    }
    if name in whole:
        return np.full(where.shape[1], whole[name], np.uint64)
    return where[axis] % shape.block[axis] if name[0] == "t" else where[axis] // shape.block[axis]


def check(
    module: ToolModule,
    object: CodeObject,
    names: list[str],
    shape: Shape,
    first: Callable[[InstrumentationTask], None] = lambda task: None,
) -> None:
    """Hooks of these names at every instruction of the kernel."""

    def everywhere(task: InstrumentationTask) -> None:
        first(task)
        for instruction in task.instructions:
            for name in names:
                task.insert_hook_before(instruction, module.hook(name))

    original, _ = run(object, object.data, shape)
    patched = patch_object(object, everywhere, strict=True)
    out, loaded = run(object, patched.data, shape)
    assert np.array_equal(out, original)
    for name in names:
        count, total = (loaded.variable(f"{name}_{what}").read(int) for what in ("count", "sum"))
        lanes = int(np.prod(shape.grid) * np.prod(shape.block))
        assert count
        assert count % lanes == 0  # all lanes are active at every instruction
        queue = loaded.device.queue if name == "queue" else 0
        expected = int(mix(truth(name, shape, queue)).sum(dtype=np.uint64)) * (count // lanes) % 2**64
        assert total == expected, name


FLAT = Shape((3, 1, 1), (96, 1, 1))
DEEP = Shape((2, 3, 2), (8, 5, 3))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", THIN)
@pytest.mark.parametrize("name", VALUES)
def test_a_kernel_that_asks_for_nothing(module: ToolModule, tmp_path: Path, target: str, name: str) -> None:
    check(module, build(Application(), target, tmp_path), [name], DEEP)


def some_application(randomness: random.Random) -> Application:
    return Application(
        "xyz"[: randomness.randrange(4)],
        "".join(axis for axis in "xyz" if randomness.random() < 0.5),
        randomness.random() < 0.4,
        randomness.random() < 0.3,
        randomness.random() < 0.3,
        randomness.choice((4, 5, 6)),
        randomness.choice((0, 0, 1, 3)),
    )


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(24 if EVERYTHING else 2))
def test_combinations(module: ToolModule, tmp_path: Path, target: str, seed: int) -> None:
    """What the kernel asks for, what hooks ask for, and the sizes of launches, all by chance."""
    randomness = random.Random(f"{target} {seed}")
    application = some_application(randomness)
    if not TargetId.parse(target).target.kernarg_preload:
        application = dataclasses.replace(application, preload=0)
    names = randomness.sample(list(VALUES), randomness.randrange(1, 7))
    if TargetId.parse(target).target.architected_sgprs and "y" in application.groups and "z" not in application.groups:
        application = dataclasses.replace(application, groups=application.groups + "z")
    shape = Shape(
        tuple(randomness.randrange(1, 4) for _ in range(3)),
        randomness.choice([(64, 1, 1), (100, 1, 1), (8, 5, 3), (1, 33, 2), (4, 4, 4)]),
    )
    check(module, build(application, target, tmp_path), names, shape)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", THIN)
def test_arguments_of_hooks(module: ToolModule, tmp_path: Path, target: str) -> None:
    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            arguments = task.workgroup_id(0), task.workitem_id(1), task.kernel_argument("a"), True
            task.insert_hook_before(instruction, module.given, *arguments)

    object = build(Application("x", "z"), target, tmp_path)
    original, _ = run(object, object.data, DEEP)
    out, loaded = run(object, patch_object(object, everywhere, strict=True).data, DEEP)
    assert np.array_equal(out, original)
    seen = truth("bx", DEEP, 0) + 1000 * truth("ty", DEEP, 0) + ARGUMENT + 1
    count = loaded.variable("given_count").read(int)
    assert count
    assert count % len(seen) == 0
    assert loaded.variable("given_sum").read(int) == int(mix(seen).sum(dtype=np.uint64)) * count // len(seen) % 2**64


def test_whatever_is_not_zero_is_true(module: ToolModule, tmp_path: Path) -> None:
    def once(task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(module.truth, task.workgroup_id(0))

    object = build(Application(), "gfx90a", tmp_path)
    shape = Shape((4, 1, 1), (64, 1, 1))
    _, loaded = run(object, patch_object(object, once, strict=True).data, shape)
    assert loaded.variable("given_count").read(int) == 4 * 64
    assert loaded.variable("given_sum").read(int) == 3 * 64


def test_arguments_that_there_are_not(module: ToolModule, tmp_path: Path) -> None:
    task = InstrumentationTask(lift(build(Application(), "gfx90a", tmp_path), "k"))
    first = next(task.instructions)
    for wrong in (lambda: task.kernel_argument("c"), lambda: task.kernel_argument(3), lambda: task.kernel_argument(-1)):
        with pytest.raises(HookError, match=r"there is no argument .*; the kernel has out.*, a, b"):
            wrong()
    with pytest.raises(HookError, match="there is no dimension 3"):
        task.workgroup_id(3)
    with pytest.raises(HookError, match=r"argument 3 of hook given.*: the value is 8 bytes and does not fit i32"):
        task.insert_hook_before(first, module.given, 0, 0, task.kernel_argument(0), True)
    with pytest.raises(HookError, match=r"argument 1 of hook real.*: the value is an integer and does not fit float"):
        task.insert_hook_before(first, module.real, task.workgroup_id(0))


def test_work_group_ids_that_share_a_register(module: ToolModule, tmp_path: Path) -> None:
    """On GFX12 a kernel that asks for y alone takes all bits of the register: z would get into them."""
    object = build(Application("", "y"), "gfx1201", tmp_path)
    check(module, object, ["bx", "by"], DEEP)

    def two(task: InstrumentationTask) -> None:
        task.insert_hook_before(next(task.instructions), module.bz)
        task.insert_hook_before(next(task.instructions), module.bx)

    report = patch_object(object, two).report
    (refusal,) = report.kernels[0].refusals
    assert "hook bz uses blockIdx.z, which this kernel cannot have: it reads y" in refusal.message
    assert report.kernels[0].insertions == 1
    check(module, build(Application("", "yz"), "gfx1201", tmp_path), ["by", "bz"], DEEP)
    check(module, build(Application("", "z"), "gfx1201", tmp_path), ["by", "bz"], DEEP)


EVERY_SGPR = """
#include <hip/hip_runtime.h>
extern "C" __global__ void k(uint32_t *out, uint32_t a, uint32_t b) {
  uint32_t v = a * 31 + threadIdx.x + 100 * blockIdx.y;
  CLOBBER
  for (uint32_t i = 0; i < b; ++i) v = v * 7 + i;
  atomicAdd(out + (v & 63), v);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_uses_every_sgpr(module: ToolModule, tmp_path: Path, target: str) -> None:
    """Launch state is in lanes of a VGPR then; what the kernel itself spills stays where it is."""
    limit = TargetId.parse(target).target.sgpr_limit
    lines = "".join(f"s_mov_b32 s{n}, {n}\\n" for n in range(limit))
    names = ", ".join(f'"s{n}"' for n in range(limit))
    source = EVERY_SGPR.replace("CLOBBER", f'asm volatile("{lines}" ::: {names});')
    (tmp_path / "k.hip").write_text(source)
    flags = Application().flags(target)
    object = load_object(compile_application(tmp_path / "k.hip", target, tmp_path / "k.hsaco", flags=flags))
    lifted = lift(object, "k")
    plan = plan_state(lifted, budget_of(lifted), {"dispatch_ptr", "workgroup_id_x"}, 0)
    assert any(place in LANES for place in plan.places.values())
    check(module, object, ["bx", "tx", "ty", "packet", "argument", "id", "queue"], DEEP)


EVERY_VGPR = """
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__(BLOCK) void k(uint32_t *out, uint32_t a, uint32_t b) {
  uint32_t v = a * 31 + threadIdx.x + 100 * blockIdx.y;
  asm volatile("FILL" : "+v"(v) :: CLOBBERED);
  atomicAdd(out + (v & 63), v);
}
"""
"""Kernel that writes every VGPR, and then adds up what is in them."""


def with_every_vgpr(target: str, block: int, folder: Path) -> CodeObject:
    fitting = TargetId.parse(target).target.vgpr_file_size(64) // (block // 64 // 4)
    many = min(fitting, 256)
    names = [f"v{number}" for number in range(3, many)]
    fill = "".join(f"v_xor_b32_e32 {name}, {3 + 64 * at}, %0\\n" for at, name in enumerate(names))
    fill += "".join(f"v_mad_u32_u24 %0, %0, 3, {name}\\n" for name in names)
    clobbered = ", ".join(f'"{name}"' for name in names)
    source = EVERY_VGPR.replace("BLOCK", str(block)).replace("FILL", fill).replace("CLOBBERED", clobbered)
    (folder / "k.hip").write_text(source)
    flags = Application().flags(target)
    return load_object(compile_application(folder / "k.hip", target, folder / "k.hsaco", flags=flags))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("block", [256, 1024])
def test_a_kernel_that_uses_every_vgpr(module: ToolModule, tmp_path: Path, target: str, block: int) -> None:
    """Work-item ids are in AGPRs or private memory then, where all VGPRs are live, too."""
    object = with_every_vgpr(target, block, tmp_path)
    lifted = lift(object, "k")
    budget = budget_of(lifted)
    assert lifted.kernel.descriptor.architected_vgprs == budget.vgpr_limit
    states = {"workitem_id"} if lifted.target.packed_work_item_ids else {f"workitem_id_{axis}" for axis in "xyz"}
    places = plan_state(lifted, budget, states, mask_of(VGPRS[:3]), no_frame="", frame=64).places.values()
    assert all(place in (AGPRS if budget.agpr_slots else PRIVATE) for place in places)
    check(module, object, ["tx", "tz"], DEEP)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", THIN)
def test_no_room_for_work_item_ids(module: ToolModule, tmp_path: Path, target: str) -> None:
    """A budget that forbids spills leaves no place for them."""

    def once(task: InstrumentationTask) -> None:
        task.budget(on_excess="refuse")
        task.insert_hook_before(next(task.instructions), module.hook("tz"))

    with pytest.raises(HookError, match=r"threadIdx.*no VGPR .* no private memory for it: the tool.s budget"):
        patch_object(with_every_vgpr(target, 256, tmp_path), once, strict=True)


CALLS = """
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) uint32_t deep(uint32_t v, uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) v = v * 5 + blockIdx.z + threadIdx.y;
  return v;
}
extern "C" __global__ void k(uint32_t *out, uint32_t a, uint32_t b) {
  uint32_t v = deep(a, b) + deep(a + 1, b);
  atomicAdd(out + (v & 63), v);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_in_functions(module: ToolModule, tmp_path: Path, target: str) -> None:
    (tmp_path / "k.hip").write_text(CALLS)
    flags = Application().flags(target)
    object = load_object(compile_application(tmp_path / "k.hip", target, tmp_path / "k.hsaco", flags=flags))
    assert len(lift(object, "k").functions) == 2
    check(module, object, ["tx", "tz", "bx", "by", "argument", "dz", "id"], DEEP)


def test_more_pointers_than_there_is_room_for(module: ToolModule, tmp_path: Path) -> None:
    """A kernel may have sixteen SGPRs filled in. Arguments are preloaded no more where that makes room."""
    object = build(Application("xyz", "xyz", packet=True, scratch=True, version=4), "gfx906", tmp_path)
    inputs = object.kernels["k"].descriptor.sgpr_inputs
    free = 16 - max(first + count for name, (first, count) in inputs.items() if not name.startswith("workgroup_id")
                    and name != "private_segment_wavefront_offset")  # fmt: skip
    assert free >= 4
    check(module, object, ["id", "queue"], DEEP)
    preloading = build(Application("x", "x", preload=8), "gfx942", tmp_path)
    assert preloading.kernels["k"].descriptor.kernarg_preload_length
    lifted = lift(preloading, "k")
    descriptor = replace(lifted.kernel.descriptor, kernarg_preload_length=12, user_sgpr_count=14)
    full = replace(lifted, kernel=replace(lifted.kernel, descriptor=descriptor))
    plan = plan_state(full, budget_of(full), {"queue_ptr", "dispatch_ptr"}, 0)
    assert plan.changes["kernarg_preload_length"] == 0
    assert not plan.missing
    descriptor = replace(descriptor, kernarg_preload_length=0, enable_sgpr_private_segment_buffer=1)
    descriptor = replace(descriptor, enable_sgpr_flat_scratch_init=1, enable_sgpr_private_segment_size=1)
    descriptor = replace(descriptor, enable_sgpr_dispatch_id=1, enable_sgpr_dispatch_ptr=1)  # 4 + 2 + 2 + 2 + 2 + 1
    full = replace(lifted, kernel=replace(lifted.kernel, descriptor=replace(descriptor, user_sgpr_count=16)))
    states = {"queue_ptr", "dispatch_ptr", "dispatch_id", "kernarg_segment_ptr"}
    assert not plan_state(full, budget_of(full), states, 0).missing


POINTERS = """
#include <hip/hip_runtime.h>
__device__ __attribute__((noinline)) uint32_t one(uint32_t v) { return v * 5 + 1; }
__device__ uint32_t (*volatile pointer)(uint32_t) = one;
extern "C" __global__ void k(uint32_t *out, uint32_t a, uint32_t b) {
  uint32_t v = pointer(a + threadIdx.x) + blockIdx.x;
  atomicAdd(out + (v & 63), v);
}
"""


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_calls_that_cannot_be_followed(module: ToolModule, tmp_path: Path, target: str) -> None:
    """What is called may use all registers that the kernel has: launch state is kept above them."""
    (tmp_path / "k.hip").write_text(POINTERS)
    flags = Application().flags(target)
    object = load_object(compile_application(tmp_path / "k.hip", target, tmp_path / "k.hsaco", flags=flags))
    lifted = lift(object, "k")
    assert lifted.unknown
    budget = budget_of(lifted)
    plan = plan_state(lifted, budget, {"dispatch_ptr", "workgroup_id_y"}, 0)
    assert not plan.missing
    own = mask_of((*range(budget.sgprs), *range(VGPRS.start, VGPRS.start + budget.vgprs)))
    assert not plan.reserved & own
    check(module, object, ["bx", "tx", "ty", "packet", "argument"], DEEP)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", THIN)
def test_hidden_arguments(module: ToolModule, tmp_path: Path, target: str) -> None:
    """The kernel's own, at the layout that the hook was compiled for; else refused."""

    def once(task: InstrumentationTask) -> None:
        task.insert_hook_before(next(task.instructions), module.hidden)

    object = build(Application("x", sizes=True), target, tmp_path)
    assert any(argument.value_kind == "hidden_grid_dims" for argument in object.kernels["k"].arguments)
    for shape, dimensions in ((FLAT, 1), (DEEP, 3)):
        original, _ = run(object, object.data, shape)
        out, loaded = run(object, patch_object(object, once, strict=True).data, shape)
        assert np.array_equal(out, original)
        assert loaded.variable("dimensions").read(int) == dimensions
    for other in (Application("x"), Application("x", sizes=True, version=4)):
        with pytest.raises(
            HookError, match=r"hook hidden uses the kernel's hidden arguments, which this kernel cannot"
        ):
            patch_object(build(other, target, tmp_path), once, strict=True)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", THIN)
@pytest.mark.parametrize("budget", [CounterBudget(), CounterBudget(sgprs=4), CounterBudget(sgprs=0, vgprs=0)])
def test_beside_counters_in_registers(module: ToolModule, tmp_path: Path, target: str, budget: CounterBudget) -> None:
    """Both want registers that the kernel never uses, and both run something when it starts."""
    object = build(Application("x", "y"), target, tmp_path)
    names = ["tz", "bx", "bz", "packet", "id"] if target == "gfx90a" else ["tz", "bx", "by", "packet", "id"]

    def alone(task: InstrumentationTask) -> None:
        task.counter_budget = budget
        task.count(task.instructions)

    def both(task: InstrumentationTask) -> None:
        alone(task)
        for instruction in task.instructions:
            for name in names:
                task.insert_hook_before(instruction, module.hook(name))

    counts = []
    for instrument in (alone, both):
        patched = patch_object(object, instrument, strict=True)
        _, loaded = run(object, patched.data, DEEP)
        counts.append(patched.counters["k"].read(loaded).executions)
    assert counts[0].any()
    assert np.array_equal(*counts)
    check(module, object, names, DEEP, alone)


def test_hooks_of_older_code_objects(tmp_path: Path) -> None:
    """Before V5, sizes are looked for in the dispatch packet, and hidden arguments are others."""
    (tmp_path / "device.hip").write_text(
        "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n" + HOOKS
    )
    settings = load_settings({"package": "tool", "targets": ["gfx90a"], "code-object-version": 4, "modules": {}})
    with build_folder(tmp_path / "build") as held:
        built = compile_device([tmp_path / "device.hip"], ["gfx90a"], settings, folder=held, report=lambda line: None)
    module = ToolModule.load(built.bundle)
    object = build(Application("x", sizes=True), "gfx90a", tmp_path)
    check(module, object, ["dx", "dz", "gy", "tx", "by"], DEEP)

    def once(task: InstrumentationTask) -> None:
        task.insert_hook_before(next(task.instructions), module.hidden)

    with pytest.raises(HookError, match="hidden arguments, which this kernel cannot have"):
        patch_object(object, once, strict=True)
