"""Arguments of hooks besides constants and registers: values of operands, conditions, numbers of a point's own."""

from __future__ import annotations

import contextlib
import tracemalloc

import numpy as np
import pytest
from assembled_cases import assemble
from luthier import ToolModule, immediate, open_device, patch_object, reg
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import EmulationError, HookError
from luthier.isa import Isa
from luthier.lifting import lift
from luthier.objects import CodeObject
from luthier.payload.cache import template_for
from luthier.tool.task import InstrumentationTask

pytestmark = pytest.mark.rows()

TARGETS = ["gfx906", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"]
WIDTHS = {16: "uint16_t", 32: "uint32_t", 64: "uint64_t"}

HOOKS = "__device__ uint64_t seen[4096 * 64];\n__device__ uint64_t taken[256];\n" + "".join(
    f"LUTHIER_HOOK_ANNOTATE see{bits}({kind} value, uint32_t row) {{ seen[row * 64 + __lane_id()] = value; }}\n"
    for bits, kind in WIDTHS.items()
)
HOOKS += """
LUTHIER_HOOK_ANNOTATE branch(bool condition, uint32_t row) {
  luthier::sAtomicAdd<uint64_t>(&taken[row], condition ? 1 : 0);
}
LUTHIER_HOOK_ANNOTATE truth(bool value, uint32_t row) { seen[row * 64 + __lane_id()] = value; }
LUTHIER_HOOK_ANNOTATE given(uint32_t row, uint8_t small, int64_t large, float real, double wide, bool flag) {
  seen[row * 8] = small; seen[row * 8 + 1] = large; seen[row * 8 + 2] = __float_as_uint(real);
  seen[row * 8 + 3] = __double_as_longlong(wide); seen[row * 8 + 4] = flag;
}
LUTHIER_HOOK_ANNOTATE mode(uint32_t given, uint32_t row) {
  seen[row * 2] = given; seen[row * 2 + 1] = luthier::readReg<uint32_t>(luthier::MODE);
}
LUTHIER_HOOK_ANNOTATE two(uint64_t one, uint64_t other) { seen[0] = one + other; }
"""


def build(target: str, body: str, *, agprs: int = 0) -> CodeObject:
    return assemble(target, f"{body}\n", vgprs=64, sgprs=90, agprs=agprs)


def launch(target: str, data: bytes, trace=None):
    loaded = open_device(f"emu:{target}", threads=1).load(data)
    lanes = Isa.of(target).wave_size
    loaded.kernel("k").launch(np.zeros(4096, np.uint32), grid=1, block=lanes, trace=trace)
    return loaded


CONSTANTS = ["0", "1", "64", "-1", "-16", "0.5", "-0.5", "1.0", "-4.0", "0.15915494", "0x12345678", "0xfffffff0"]


def moves(target: str) -> list[str]:
    """Instructions whose result is their first source, of every class and width of operands."""
    lines = [f"v_mov_b32_e32 v8, {constant}" for constant in CONSTANTS]
    lines += [f"s_mov_b32 s8, {constant}" for constant in CONSTANTS]
    # A literal of a 64-bit operand: 32 bits, and what it is extended by depends on the operand.
    lines += [
        f"s_mov_b64 s[8:9], {constant}" for constant in CONSTANTS if "." not in constant and constant[:3] != "0xf"
    ]
    lines += [f"v_add_f64 v[8:9], {constant}, 0" for constant in ("0.5", "-0.5", "1.0", "-4.0", "2.0")]
    lines += [f"v_mov_b32_e32 v8, {source}" for source in ("v0", "v1", "s4", "vcc_lo", "exec_lo", "m0")]
    lines += ["s_mov_b32 s8, s5", "s_mov_b64 s[8:9], s[4:5]", "s_mov_b64 s[8:9], vcc", "s_mov_b64 s[8:9], exec"]
    if target in ("gfx90a", "gfx942"):
        lines += ["v_accvgpr_write_b32 a2, v0", "v_accvgpr_read_b32 v8, a2"]
    if target == "gfx942":
        lines += ["v_mov_b64_e32 v[8:9], v[0:1]", "v_mov_b64_e32 v[8:9], -5", "v_mov_b64_e32 v[8:9], s[4:5]"]
    if not target.startswith("gfx9"):
        lines += ["v_add_f64 v[8:9], 0x3ff80000, 0"]
    if target == "gfx1100":
        lines += ["v_mov_b16_e32 v8.l, v1.h", "v_mov_b16_e32 v8.h, v1.l", "v_mov_b16_e32 v8.l, 1.0"]
        lines += ["v_mov_b16_e32 v8.h, 0x1234"]
    return lines


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_values_of_operands(target: str, module: ToolModule) -> None:
    """What a move's source has before it is what its result has behind it."""
    lines = moves(target)
    object = build(
        target,
        "\n".join(["s_mov_b32 m0, 0x77", "s_mov_b32 vcc_lo, 0x4321", "s_nop 7", *lines]),
        agprs=4 * (target in ("gfx90a", "gfx942")),
    )
    rows: list[str] = []

    def width(value) -> int:
        return 32 * value.count if hasattr(value, "count") else value.expression.bits

    def everywhere(task: InstrumentationTask) -> None:
        instructions = list(task.instructions)
        first = [instruction.text for instruction in instructions].index("s_nop 7")
        for instruction in instructions[first + 1 : -1]:
            source = task.operand(instruction, "src0")
            result = task.operand(instruction, 0)
            row = len(rows)
            task.insert_hook_before(instruction, module.hook(f"see{width(source)}"), source, immediate(row))
            task.insert_hook_after(instruction, module.hook(f"see{width(result)}"), result, immediate(row + 1))
            rows.extend([instruction.text] * 2)

    patched = patch_object(object, everywhere, strict=True)
    assert len(rows) == 2 * len(lines)
    loaded = launch(target, patched.data)
    seen = np.frombuffer(loaded.variable("seen").read(), np.uint64).reshape(-1, 64)[:, : Isa.of(target).wave_size]
    for row in range(0, len(rows), 2):
        assert np.array_equal(seen[row], seen[row + 1]), (rows[row], hex(seen[row][0]), hex(seen[row + 1][0]))


BRANCHES = ["scc0", "scc1", "vccz", "vccnz", "execz", "execnz"]


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
def test_conditions_of_branches(target: str, module: ToolModule) -> None:
    """A branch is taken as often as its predicate says it will be."""
    wide = Isa.of(target).wave_size == 64
    mask, size = ("exec", "b64") if wide else ("exec_lo", "b32")
    vcc = "vcc" if wide else "vcc_lo"
    body = [f"s_mov_{size} s[20:21], exec" if wide else "s_mov_b32 s20, exec_lo", "s_movk_i32 s10, 9", "loop:"]
    for number, name in enumerate(BRANCHES):
        body += [
            f"s_and_b32 s11, s10, {1 << number % 3}",
            "s_cselect_b32 s12, -1, 0",
            f"s_mov_b32 {vcc if not wide else 'vcc_lo'}, s12",
            *(["s_mov_b32 vcc_hi, 0"] if wide else []),
            f"s_mov_b32 {mask if not wide else 'exec_lo'}, s12",
            *(["s_mov_b32 exec_hi, s12"] if wide else []),
            "s_cmp_lg_u32 s12, 0",
            f"s_cbranch_{name} over{number}",
            "s_nop 1",
            f"over{number}:",
        ]
    restore = "s_mov_b64 exec, s[20:21]" if wide else "s_mov_b32 exec_lo, s20"
    body += [restore, "s_sub_u32 s10, s10, 1", "s_cmp_lg_u32 s10, 0", "s_cbranch_scc1 loop", "s_cmp_eq_u32 s10, 0"]
    body += ["s_cmov_b32 s13, 1"]
    object = build(target, "\n".join(body))
    rows: list[tuple[int, int]] = []

    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.is_conditional:
                task.insert_hook_before(instruction, module.branch, task.predicate(instruction), immediate(len(rows)))
                rows.append((instruction.address, task.lifted.columns.target[instruction.index]))
            elif instruction.mnemonic == "s_cmov_b32":
                task.insert_hook_before(instruction, module.branch, task.predicate(instruction), immediate(100))
            elif instruction.mnemonic == "s_nop":
                task.insert_hook_before(instruction, module.branch, task.predicate(instruction), immediate(101))

    patched = patch_object(object, everywhere, strict=True)
    went: dict[tuple[int, int], int] = {}
    last: list[int] = []

    def trace(step: WaveStep) -> None:
        for before in last:
            went[before, step.address] = went.get((before, step.address), 0) + 1
        last[:] = [step.address]

    launch(target, object.data, trace)
    taken = np.frombuffer(launch(target, patched.data).variable("taken").read(), np.uint64)
    assert len(rows) == len(BRANCHES) + 1
    assert taken[: len(rows)].tolist() == [went.get(row, 0) for row in rows]
    assert taken[100] == 1
    falls = sum(count for (before, to), count in went.items() for row in rows if before == row[0] and to != row[1])
    assert taken[101] == falls - 1  # the last branch falls to no s_nop


@pytest.mark.rows(4)
@pytest.mark.parametrize("target", TARGETS)
def test_numbers_of_a_points_own(target: str, module: ToolModule) -> None:
    """All points share one template, and each gets its numbers, whatever they are."""
    object = build(target, "\n".join(["s_nop 0"] * 24))
    numbers = np.random.default_rng(1)
    wanted = []
    templates = set()

    def everywhere(task: InstrumentationTask) -> None:
        for row, instruction in enumerate(task.instructions):
            small, large = int(numbers.integers(256)), int(numbers.integers(-(1 << 63), -(1 << 40)))
            real, flag = float(np.float32(numbers.normal())), bool(numbers.integers(2))
            values = [row, small, large, real, real / 3, flag]
            task.insert_hook_before(instruction, module.given, *map(immediate, values))
            call = task.insertions[-1].call
            templates.add(template_for(call.hook, call.arguments, object.target, task.lifted.wave_size))
            bits = [np.array([real], np.float32).view(np.uint32)[0], np.array([real / 3]).view(np.uint64)[0]]
            wanted.append([small, large % 2**64, *map(int, bits), int(flag)])

    loaded = launch(target, patch_object(object, everywhere, strict=True).data)
    seen = np.frombuffer(loaded.variable("seen").read(), np.uint64).reshape(-1, 8)
    assert seen[: len(wanted), :5].tolist() == wanted
    assert len(templates) == 1


def test_numbers_take_no_room(module: ToolModule) -> None:
    """A number is no register: nothing grows with it."""
    object = build("gfx90a", "s_nop 0\n" * 8)

    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            task.insert_hook_before(instruction, module.two, immediate(2**63 - 1), immediate(2**64 - 1))

    tracemalloc.start()
    patch_object(object, everywhere, strict=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 26


@pytest.mark.parametrize("target", TARGETS)
def test_whatever_is_not_zero_is_true(target: str, module: ToolModule) -> None:
    """A register becomes a `bool` as an integer does in C."""
    lines = [f"s_mov_b32 s10, {value}\nv_and_b32_e32 v8, s10, v0" for value in (0, 1, 2, 0x80000000, 6)]
    object = build(target, "\n".join([*lines, "s_nop 0"]))

    def everywhere(task: InstrumentationTask) -> None:
        row = 0
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("v_and_b32"):
                task.insert_hook_after(instruction, module.truth, reg("s10"), immediate(row))
                task.insert_hook_after(instruction, module.truth, reg("v8"), immediate(row + 1))
                row += 2

    lanes = np.arange(Isa.of(target).wave_size)
    loaded = launch(target, patch_object(object, everywhere, strict=True).data)
    seen = np.frombuffer(loaded.variable("seen").read(), np.uint64).reshape(-1, 64)[:, : len(lanes)]
    for row, value in enumerate((0, 1, 2, 0x80000000, 6)):
        assert (seen[2 * row] == (value != 0)).all()
        np.testing.assert_array_equal(seen[2 * row + 1], (lanes & value) != 0)


@pytest.mark.rows(3)
@pytest.mark.parametrize("target", TARGETS)
def test_mode(target: str, module: ToolModule) -> None:
    """Hooks see MODE as the kernel has set it, right behind the instruction that does."""
    changes = [f"s_setreg_imm32_b32 hwreg(1, {first}, 4), {value}" for first, value in ((0, 5), (4, 3), (0, 10))]
    object = build(target, "\n".join(["s_nop 0", *changes]))
    where: list[int] = []

    def everywhere(task: InstrumentationTask) -> None:
        for row, instruction in enumerate(task.instructions):
            task.insert_hook_before(instruction, module.mode, reg("mode"), immediate(row))
            where.append(instruction.address)

    patched = patch_object(object, everywhere, strict=True)
    modes: dict[int, int] = {}
    launch(target, object.data, lambda step: modes.__setitem__(step.address, step.registers.mode))
    seen = np.frombuffer(launch(target, patched.data).variable("seen").read(), np.uint64).reshape(-1, 2)
    wanted = [modes[address] for address in where]
    assert len(set(wanted)) == 4
    for column in (0, 1):
        assert (seen[: len(wanted), column] & 0xFF).tolist() == [mode & 0xFF for mode in wanted]


def test_what_is_refused(module: ToolModule) -> None:
    """Values that are not there, or not at that point: errors that say so, at once."""
    body = """
  global_load_dwordx2 v[2:3], v[2:3], off
  s_waitcnt vmcnt(0)
  global_load_dword v4, v[2:3], off
  ds_append v1
  ds_swizzle_b32 v1, v1 offset:0x8055
  ds_read2_b32 v[8:9], v1 offset1:4
  ds_read_b32 v8, v1 gds
  s_mov_b64 s[8:9], src_private_base
"""
    task = InstrumentationTask(lift(build("gfx906", body), "k"))
    by_name = {instruction.mnemonic: instruction for instruction in task.instructions}
    pair, load = by_name["global_load_dwordx2"], by_name["global_load_dword"]
    with pytest.raises(
        HookError, match=r"computed from v\[2:3\], which the instruction overwrites; insert the hook bef"
    ):
        task.insert_hook_after(pair, module.see64, task.effective_address(pair), 0)
    task.insert_hook_after(load, module.see64, task.effective_address(load), 0)
    with pytest.raises(HookError, match="belongs to another instruction than the hook"):
        task.insert_hook_before(load, module.see64, task.effective_address(pair), 0)
    with pytest.raises(HookError, match="belong to several instructions"):
        task.insert_hook_before(load, module.two, task.effective_address(pair), task.effective_address(load))
    with pytest.raises(HookError, match="an effective address has 64 bits and does not fit i32"):
        task.insert_hook_before(load, module.see32, task.effective_address(load), 0)
    for name, reason in {
        "ds_append": "its address is not in one register",
        "ds_swizzle_b32": "it accesses no memory",
        "ds_read_b32": "addresses in GDS",
        "s_waitcnt": "it accesses no memory",
    }.items():
        with pytest.raises(HookError, match=reason):
            task.effective_address(by_name[name])
    with pytest.raises(HookError, match="no address number 2"):
        task.effective_address(by_name["ds_read2_b32"], 2)
    with pytest.raises(HookError, match="accesses no memory"):
        task.access_size(by_name["s_waitcnt"])
    with pytest.raises(HookError, match="hooks cannot read"):
        task.operand(by_name["s_mov_b64"], "src0")
    for which in ("vsrc", -1, 99):
        with pytest.raises(HookError, match="it has no operand"):
            task.operand(load, which)
    for value in (300, -1, 1.5):
        with pytest.raises(HookError):
            task.insert_hook_before(load, module.given, 0, immediate(value), 0, 0.0, 0.0, False)
    assert task.access_size(pair) == 8
    task.insert_hook_before(load, module.see32, reg("v0"), immediate(3))


SPECIAL = {"swizzled": (1 << 31, 0), "with the lane's number": (0, 1 << 23), "plain": (0, 0)}


@pytest.mark.rows(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", SPECIAL)
def test_descriptors_that_no_address_is_told_of(target: str, kind: str, module: ToolModule) -> None:
    """Swizzled addresses, as stacks have them, are all ones: never a wrong number."""
    second, fourth = SPECIAL[kind]
    load = "buffer_load_dword v8, v1, s[8:11], 0 offen"
    if target in ("gfx1100", "gfx1201"):
        load = f"buffer_load_b32 v8, v1, s[8:11], {'null' if target == 'gfx1201' else '0'} offen"
    words = [
        "s_mov_b32 s8, s4",
        f"s_or_b32 s9, s5, {second:#x}",
        "s_movk_i32 s10, 0x1000",
        f"s_mov_b32 s11, {fourth:#x}",
    ]

    def everywhere(task: InstrumentationTask) -> None:
        for instruction in task.instructions:
            if instruction.mnemonic.startswith("buffer_load"):
                task.insert_hook_before(instruction, module.see64, task.effective_address(instruction), 0)

    patched = patch_object(build(target, "\n".join([*words, load])), everywhere, strict=True)
    loaded = open_device(f"emu:{target}", threads=1).load(patched.data)
    with contextlib.suppress(EmulationError):  # where the emulated device takes it for the stack
        loaded.kernel("k").launch(np.zeros(4096, np.uint32), grid=1, block=Isa.of(target).wave_size)
    seen = np.frombuffer(loaded.variable("seen").read(), np.uint64)[: Isa.of(target).wave_size]
    assert (seen == np.uint64(2**64 - 1)).all() == (kind != "plain")
