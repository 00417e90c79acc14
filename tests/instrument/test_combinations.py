"""Hooks that read and write registers in every combination, several at a point, against a model in Python.

One wave of a small kernel fills its registers, runs three instructions with the hooks around them, and stores every
register. A case that fails prints its seed and its hooks.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass

import numpy as np
import pytest
from assembly import assembled, function, kernel_text
from effort import EMULATED, EVERYTHING
from hook_model import AGPR, EXEC, M0, SCC, SUPPORT, VCC, VGPR, WORD, HookModel, Places, Step, Wave, made_up, name_of
from luthier.devices import open_device
from luthier.errors import HookError
from luthier.isa.targets import TargetId, target_named
from luthier.module import ToolModule
from luthier.objects import CodeObject
from luthier.patch import patch_object
from luthier.payload.cache import template_for
from luthier.tool.task import InstrumentationTask

SOME = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1150", "gfx1200", "gfx1201")
TARGETS = EMULATED if EVERYTHING else SOME
CASES = -(-(2000 if EVERYTHING else 80) // len(TARGETS))
"""For each target."""
HOOKS = 300 if EVERYTHING else 30
PLACES = Places(
    vectors=tuple(range(VGPR + 2, VGPR + 12)),
    scalars=tuple(range(20, 28)),
    accumulators=tuple(range(AGPR, AGPR + 4)),
    fixed=(VCC, VCC + 1, EXEC, EXEC + 1),
)
LATE = range(VGPR + 8, VGPR + 12)
"""Vector registers that the kernel writes after the hooks, in the lanes that are active then."""
OTHERS = range(VGPR + 12, VGPR + 14)
"""Vector registers that only the other arm of the branch reads: the lanes at the hooks do not need them."""
VGPRS = 14
NOISE = """
__device__ uint32_t noise = 0;
/// Takes vector and scalar registers, narrows EXEC, and gives nothing back.
LUTHIER_HOOK_ANNOTATE disturb() {
  uint32_t a = 0x9E3779B1u * (__lane_id() + 1), b = a * a + 3, c = (a ^ b) * (b + 1);
  if (a & 2)
    noise = a ^ b ^ (c >> 7);
  else if (b & 4)
    noise = c;
}
"""


def factor(unit: int) -> int:
    return 0x1235 + 0x11 * (unit & 0xFF)


def seed_of(unit: int) -> int:
    return (0x9E3779B1 * (unit + 1)) & 0xFFFFFFFF


@dataclass(frozen=True)
class Shape:
    """What the kernel around the hooks is like."""

    mask: int
    """EXEC at the hooks."""
    branch: bool
    """The hooks are in one arm of a branch, behind which the lanes of before come back; else EXEC is just moved."""
    stored: frozenset[int]
    """Registers it stores; the others are dead behind the hooks."""


def tracked(target: str) -> list[int]:
    """Units that the kernel fills."""
    description = target_named(target)
    units = [*PLACES.scalars, VCC, VCC + 1, M0, *PLACES.vectors, *OTHERS]
    if description.has_agprs:
        units += PLACES.accumulators
    return units


def kernel_source(target: str, shape: Shape) -> str:
    description = target_named(target)
    major, wide = description.major, description.default_wave_size == 64
    b = "b64" if wide else "b32"
    exec_, old, mask = ("exec", "s[10:11]", "s[8:9]") if wide else ("exec_lo", "s10", "s8")
    text = {unit: f"a{unit - AGPR}" if unit >= AGPR else f"v{unit - VGPR}" for unit in tracked(target) if unit >= VGPR}
    text |= {unit: f"s{unit}" for unit in PLACES.scalars} | {VCC: "vcc_lo", VCC + 1: "vcc_hi", M0: "m0"}
    lines = ["load2 s[4:5], s[0:1], 0x0", "wait_scalar", "v_mbcnt_lo_u32_b32 v0, -1, 0"]
    lines += ["v_mbcnt_hi_u32_b32 v0, -1, v0"] if wide else []
    for unit in sorted(tracked(target), reverse=True):  # AGPRs go over v2
        if unit < VGPR:
            lines.append(f"s_mov_b32 {text[unit]}, {seed_of(unit):#x}")
            continue
        place = text[unit] if unit < AGPR else "v2"
        lines.append(f"v_mul_u32_u24_e32 {place}, {factor(unit):#x}, v0")
        lines.append(f"v_xor_b32_e32 {place}, {seed_of(unit):#x}, {place}")
        lines += [f"v_accvgpr_write_b32 {text[unit]}, v2"] if unit >= AGPR else []
    lines += ["v_lshlrev_b32_e32 v1, 2, v0"]
    lines += [f"s_mov_b32 s8, {shape.mask & 0xFFFFFFFF:#x}", f"s_mov_b32 s9, {shape.mask >> 32:#x}"]
    lines += [f"s_and_saveexec_{b} {old}, {mask}" if shape.branch else f"s_mov_{b} {exec_}, {mask}"]
    lines += ["s_cmp_eq_u32 s20, s20" if seed_of(SCC) & 1 else "s_cmp_lg_u32 s20, s20"]
    lines += ["s_nop 1", "v_xor_b32_e32 v2, v3, v2", "s_nop 2"]
    lines += ["s_cselect_b32 s30, 1, 0"]
    for unit in LATE:
        lines.append(f"v_xor_b32_e32 {text[unit]}, {seed_of(unit):#x}, v3")
    lines += ["s_mov_b32 s31, exec_lo", "s_mov_b32 s32, exec_hi"]
    if shape.branch:
        lines += [f"s_andn2_{b} {exec_}, {old}, {mask}" if major < 11 else f"s_and_not1_{b} {exec_}, {old}, {mask}"]
        lines += [f"v_xor_b32_e32 v3, {text[unit]}, v3" for unit in OTHERS]
    lines += [f"s_mov_{b} {exec_}, {old if shape.branch else '-1'}"]
    # Scalars are stored through a vector register that is stored before.
    stored = [unit for unit in text if unit in shape.stored and unit >= VGPR]
    values = [(unit, text[unit]) for unit in stored if unit < AGPR]
    values += [(unit, text[unit]) for unit in stored if unit >= AGPR]
    values += [(unit, text[unit]) for unit in text if unit in shape.stored and unit < VGPR]
    values += [(SCC, "s30"), (EXEC, "s31"), *([(EXEC + 1, "s32")] if wide else [])]
    for unit, place in values:
        if unit >= AGPR:
            lines.append(f"v_accvgpr_read_b32 v2, {place}")
        elif unit < VGPR:
            lines.append(f"v_mov_b32_e32 v2, {place}")
        lines.append(f"global_store v1, {place if VGPR <= unit < AGPR else 'v2'}, s[4:5]")
        lines.append(f"vadd v1, {4 * description.default_wave_size:#x}, v1")
    agprs = len(PLACES.accumulators) if description.has_agprs else 0
    return kernel_text(function("k", [*lines, "s_endpgm"]), target, sgprs=60, vgprs=VGPRS, agprs=agprs)


def stored_units(target: str, shape: Shape) -> list[int]:
    """In the order in which the kernel stores them."""
    units = [unit for unit in tracked(target) if unit in shape.stored]
    wide = target_named(target).default_wave_size == 64
    order = [unit for unit in units if unit >= VGPR] + [unit for unit in units if unit < VGPR]
    return [*order, SCC, EXEC, *([EXEC + 1] if wide else [])]


@dataclass(frozen=True)
class Placed:
    """A hook at one of the three instructions."""

    instruction: int
    after: bool
    hook: HookModel | None
    """None: the one that disturbs."""


def expected(target: str, shape: Shape, placed: list[Placed]) -> dict[int, list[int]]:
    """What is stored of each unit."""
    size = target_named(target).default_wave_size
    wave = Wave(size)
    lanes = np.arange(size, dtype=np.uint64)
    for unit in tracked(target):
        if unit >= VGPR:
            wave.units[unit] = (lanes * np.uint64(factor(unit)) ^ np.uint64(seed_of(unit))) & WORD
        else:
            wave.scalars[unit] = seed_of(unit)
    full = (1 << size) - 1
    wave.scalars |= {SCC: seed_of(SCC) & 1, EXEC: shape.mask & full & 0xFFFFFFFF, EXEC + 1: 0}
    if size == 64:
        wave.scalars[EXEC + 1] = shape.mask >> 32
    for instruction in range(3):
        for after in (False, True):
            if after and instruction == 1:
                wave.put(VGPR + 2, wave.seen(VGPR + 3) ^ wave.seen(VGPR + 2), wave.active)
            for placement in placed:
                if (placement.instruction, placement.after) == (instruction, after) and placement.hook is not None:
                    placement.hook.run(wave)
    for unit in LATE:
        wave.put(unit, wave.seen(VGPR + 3) ^ np.uint64(seed_of(unit)), wave.active)
    if shape.branch:
        other = np.array([not shape.mask >> lane & 1 for lane in range(size)])
        for unit in OTHERS:
            wave.put(VGPR + 3, wave.seen(unit) ^ wave.seen(VGPR + 3), other)
    return {unit: [int(value) for value in wave.seen(unit)] for unit in stored_units(target, shape)}


@functools.cache
def kernel(target: str, shape: Shape) -> CodeObject:
    return assembled(kernel_source(target, shape), target)


def run(object: CodeObject, data: bytes, count: int) -> list[list[int]]:
    target = object.target.target
    device = open_device(f"emu:{target.name}", threads=1)
    size = target.default_wave_size
    out = device.allocate(4 * size * count)
    device.load(data).kernel("k").launch(out, grid=1, block=size)
    return out.read(np.uint32).reshape(count, size).tolist()


def shapes(random_: random.Random, target: str, count: int) -> list[Shape]:
    size = target_named(target).default_wave_size
    made = []
    for number in range(count):
        mask = random_.choice((random_.getrandbits(size) | 1, (1 << size) - 1, 1 << random_.randrange(size)))
        units = set(tracked(target)) - set(OTHERS)
        stored = frozenset(unit for unit in sorted(units) if number % 3 or random_.random() < 0.6)
        made.append(Shape(mask, bool(number & 1), stored))
    return made


def placed_hooks(random_: random.Random, hooks: list[HookModel]) -> list[Placed]:
    """One to three hooks, at one point or at several, with others in between that disturb."""
    placed: list[Placed] = []
    instruction, after = random_.randrange(3), random_.random() < 0.5
    for hook in random_.sample(hooks, random_.randint(1, 3)):
        if random_.random() < 0.3:
            instruction, after = random_.randrange(3), random_.random() < 0.5
        placed.append(Placed(instruction, after, hook))
        if random_.random() < 0.4:
            placed.append(Placed(instruction, after, None))
    if random_.random() < 0.5:
        placed += [Placed(number, after, None) for number in range(3) for after in (False, True)]
    return placed


def usable(hook: HookModel, target: str) -> bool:
    """Whether the target has the registers."""
    description = target_named(target)
    if not description.has_agprs and any(unit >= AGPR for unit in hook.reaches):
        return False
    return description.default_wave_size == 64 or EXEC + 1 not in hook.reaches


SEED = 20250


@functools.cache
def hook_models() -> list[HookModel]:
    random_ = random.Random(SEED)
    return [made_up(f"hook_{number}", random_, PLACES) for number in range(HOOKS)]


@pytest.fixture(scope="module")
def module(make_module) -> ToolModule:
    return make_module(SUPPORT + NOISE + "".join(model.source() for model in hook_models()), *TARGETS)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_registers_are_what_the_model_says(module: ToolModule, target: str) -> None:
    hooks = [hook for hook in hook_models() if usable(hook, target)]
    random_ = random.Random(f"{SEED} {target}")
    around = shapes(random_, target, 24 if EVERYTHING else 6)
    for number in range(CASES):
        shape = around[number % len(around)]
        check(kernel(target, shape), module, target, shape, placed_hooks(random_, hooks), f"case {number}")


def check(object: CodeObject, module: ToolModule, target: str, shape: Shape, placed: list[Placed], what: str) -> None:
    """Run the kernel with these hooks and compare."""

    def insert(task: InstrumentationTask) -> None:
        instructions = [i for i in task.instructions if i.text in ("s_nop 1", "v_xor_b32_e32 v2, v3, v2", "s_nop 2")]
        assert len(instructions) == 3
        for where in placed:
            put = task.insert_hook_after if where.after else task.insert_hook_before
            put(instructions[where.instruction], module.hook(where.hook.name) if where.hook else module.disturb)

    wanted = expected(target, shape, placed)
    original = expected(target, shape, [])
    assert dict(zip(original, run(object, object.data, len(original)), strict=True)) == original
    patched = patch_object(object, insert).data
    values = dict(zip(wanted, run(object, patched, len(wanted)), strict=True))
    wrong = {name_of(unit): (values[unit], wanted[unit]) for unit in wanted if values[unit] != wanted[unit]}
    if wrong:
        hooks = {one.hook.name: one.hook.source() for one in placed if one.hook}
        where = "\n".join(
            f"{'after' if one.after else 'before'} {one.instruction}: {one.hook.name if one.hook else 'disturb'}"
            for one in placed
        )
        report = "\n".join(f"{name}: {a} instead of {b}" for name, (a, b) in wrong.items())
        raise AssertionError(f"{target}, seed {SEED}, {what}, {shape}\n{where}\n{''.join(hooks.values())}\n{report}")


class Loop(HookModel):
    """Its inputs are taken right before a loop, which each lane leaves after a number of turns of its own."""

    TEXT = """
LUTHIER_HOOK_ANNOTATE loop() {
  uint32_t x = luthier::readReg<uint32_t>(luthier::VGPR2), n = luthier::readReg<uint32_t>(luthier::VGPR3) & 7;
  do
    x = (x << 1) ^ (x >> 3) ^ n;
  while (n--);
  luthier::writeReg<uint32_t>(luthier::VGPR2, x);
}
"""

    def run(self, wave: Wave) -> None:
        x, n = wave.seen(VGPR + 2).tolist(), wave.seen(VGPR + 3).tolist()
        for lane in range(wave.size):
            for turn in range(n[lane] & 7, -1, -1):
                x[lane] = (x[lane] << 1 ^ x[lane] >> 3 ^ turn) & 0xFFFFFFFF
        wave.put(VGPR + 2, np.array(x, np.uint64), wave.active)


LOOP = Loop("loop", ())


def read(into: int, unit: int) -> Step:
    return Step("read", unit, into=into)


def write(unit: int, a: int, b: int = -1) -> Step:
    return Step("write", unit, a=a, b=b)


def constant(into: int, value: int) -> Step:
    return Step("constant", into=into, constant=value)


V2, V3, V8 = VGPR + 2, VGPR + 3, VGPR + 8
WRITTEN_OUT = [
    HookModel("swap", (read(0, V2), read(1, V3), write(V2, 1), write(V3, 0))),
    HookModel("swap_scalars", (read(0, 20), read(1, 21), write(20, 1), write(21, 0))),
    HookModel("pass_on", (read(0, V2), constant(1, 7), write(V2, 1), write(V3, 0))),
    HookModel("scalar_to_vector", (read(0, 20), constant(1, 7), write(V2, 0), write(20, 1))),
    HookModel("exec_last", (constant(0, 7), constant(1, 1), write(V2, 0), write(EXEC, 1))),
    HookModel("exec_and_mask", (read(0, EXEC), read(1, 20), write(EXEC, 1), write(20, 0))),
    HookModel("flip_scc", (read(0, SCC), constant(1, 1), Step("xor", into=2, a=0, b=1), write(SCC, 2))),
    HookModel("vcc_half", (read(0, VCC + 1), read(1, M0), write(VCC, 0), write(M0, 0), write(20, 1))),
    HookModel("first_lane", (read(0, V2), write(20, 0), write(SCC, 0), write(M0, 0))),
    HookModel(
        "overlapping_pairs",
        (
            *(Step("read", VGPR + unit, 2, into=into) for into, unit in enumerate((3, 6, 7, 4))),
            *(Step("write", VGPR + unit, 2, a=a) for unit, a in ((4, 1), (7, 2), (6, 3), (3, 0))),
        ),
    ),
    HookModel("if_scalar_is_odd", (read(0, 20), constant(1, 5), write(21, 1, b=0))),
    HookModel("if_vector_is_odd", (read(0, V3), constant(1, 5), write(21, 1, b=0), write(V8, 1, b=0))),
]
"""What went wrong once, or is easily got wrong."""


@pytest.fixture(scope="module")
def written_out(make_module) -> ToolModule:
    return make_module(SUPPORT + NOISE + Loop.TEXT + "".join(hook.source() for hook in WRITTEN_OUT), *TARGETS)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_single_hooks(written_out: ToolModule, target: str) -> None:
    units = frozenset(tracked(target)) - set(OTHERS)
    shape = Shape(0x0F0F33550F0F3355 & (1 << target_named(target).default_wave_size) - 1, True, units)
    for number, hook in enumerate([LOOP, *WRITTEN_OUT]):
        placed = [Placed(0, True, hook), Placed(1, False, None)]
        check(kernel(target, shape), written_out, target, shape, placed, f"hook {number}")


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("luthier::writeReg<uint32_t>(luthier::MODE, 3)", "hooks cannot write MODE"),
        ("sink = luthier::readReg<uint64_t>(luthier::FLAT_SCRATCH)", "hooks can neither read nor write FLAT_SCRATCH"),
        ("luthier::writeReg<uint32_t>(luthier::TTMP0, 3)", "hooks can neither read nor write trap temporaries"),
        ("luthier::writeReg<uint64_t>(luthier::SCC, 3)", "2 registers from unit 128 on exceed SCC"),
        ("sink = luthier::readReg<uint64_t>(luthier::SGPR105)", "2 registers from unit 105 on exceed SGPRs"),
        ("sink = luthier::readReg<uint32_t>(200)", "no register unit 200"),
    ],
)
def test_what_is_no_register_of_hooks(make_module, statement: str, message: str) -> None:
    hooks = "__device__ uint64_t sink;\n"
    hooks += f"LUTHIER_HOOK_ANNOTATE bad() {{ {statement}; }}\n"
    target = TargetId.parse("gfx90a")
    with pytest.raises(HookError, match=message):
        template_for(make_module(hooks, "gfx90a").hook("bad"), (), target, 64)
