"""Instructions to try, made from an opcode's sample, and register contents with edge values."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from isa_documents import base_name, text_of
from isa_memory import immediate as memory_immediate
from isa_memory import is_memory, prepare
from isa_operands import SEXT, Instruction, float_width, is_packed, result_width, source_widths, view
from isa_state import EXEC, M0, MODE, MODES, ROWS, VCC, State
from luthier.emulator.inspection.coverage import samples
from luthier.errors import LuthierError
from luthier.isa import InstructionArray, Isa
from luthier.isa.instructions import InstructionFlag, OperandKind
from msgspec.structs import replace
from numpy.typing import NDArray

VECTOR_PLACES = {
    "vdst": 16, "vdstX": 16, "vdstY": 49, "vdata": 16, "old": 16, "src0": 64, "src0X": 64, "src0Y": 69, "src1": 100,
    "vsrc1X": 102, "vsrc1Y": 107, "src2": 120, "src2X": 16, "src2Y": 49, "addr": 4, "vaddr": 4, "data0": 100,
    "data1": 120, "vdata_in": 16, "vdst_in": 16, "vdst1": 64, "src0_out": 64, "src0_in": 64, "addr_in": 4,
}  # fmt: skip
SCALAR_PLACES = {
    "sdst": 24, "sdata": 24, "src0": 40, "src0X": 40, "src0Y": 43, "src1": 56, "src2": 72, "sbase": 4, "srsrc": 8,
    "soffset": 12, "saddr": 4, "sdst_in": 24, "soff": 12, "vdst": 24,
}  # fmt: skip
DPP_CONTROLS = {
    9: (0x1B, 0x4E, 0x101, 0x107, 0x111, 0x118, 0x121, 0x12B, 0x130, 0x134, 0x138, 0x13C, 0x140, 0x141, 0x142, 0x143),
    10: (0x1B, 0x4E, 0x101, 0x107, 0x111, 0x118, 0x121, 0x12B, 0x140, 0x141, 0x150, 0x15B, 0x161, 0x16A),
}


@dataclass(frozen=True)
class Plan:
    """How one trial of an opcode differs from the plain one."""

    scalar: int = -1
    """Which source comes from an SGPR."""
    constant: int = -1
    """Which source is a constant."""
    overlap: int = -1
    """Which source shares the destination's registers."""
    modifiers: bool = False
    """Random neg, abs, op_sel, clamp."""


FLOAT_NAME = re.compile(r"f(16|32|64)")
MEMORY = InstructionFlag.DS | InstructionFlag.FLAT | InstructionFlag.VMEM | InstructionFlag.SMEM
PLAIN = Plan()
PLANS = (PLAIN, Plan(scalar=0, overlap=1, modifiers=True), Plan(constant=1, modifiers=True))


def seed_of(*parts: object) -> int:
    return zlib.crc32(repr(parts).encode())


def choose_register(isa: Isa, name: str, cls: str, plan: Plan, count: int, half: int) -> int | None:
    """A register of the class for the operand's place."""
    allowed = set(isa.registers_in_class(cls))
    source = int(name[3]) if re.fullmatch(r"src\d", name) else -1
    wants_scalar = source >= 0 and source == plan.scalar
    units = []
    if not wants_scalar and name in VECTOR_PLACES:
        vector = VECTOR_PLACES["vdst"] if source >= 0 and source == plan.overlap else VECTOR_PLACES[name]
        units += [256 + vector, 1280 + vector]
    if name in SCALAR_PLACES:
        units.append(SCALAR_PLACES[name])
    for unit in units:
        number = isa.register_at(unit, count)
        if number is not None and number in allowed:
            return number
        if half >= 0:  # a 16-bit half
            for candidate in allowed:
                register = isa.register(candidate)
                if register.first_unit == unit and register.half and register.text.endswith(".h") == bool(half):
                    return candidate
    return None


def class_size(isa: Isa, cls: str) -> tuple[int, bool]:
    """Units of a class's registers, and whether they are halves."""
    for number in isa.registers_in_class(cls):
        register = isa.register(number)
        if 256 <= register.first_unit < 1536 or register.first_unit < 100:
            return register.unit_count, register.half
    return 1, False


def build(isa: Isa, number: int, plan: Plan, random: np.random.Generator) -> InstructionArray | None:
    """The opcode with other registers and immediates, as the decoder sees it; None if it cannot be encoded so."""
    code, index = samples(isa)[number]
    opcode = isa.opcode(number)
    first, last = int(code.operand_start[index]), int(code.operand_start[index + 1])
    kinds, values = code.operand_kind[first:last].copy(), code.operand_value[first:last].copy()
    major = isa.target.target.major
    text = text_of(base_name(opcode.mnemonic), major) or ""
    if "div_scale" in opcode.mnemonic:
        plan = PLAIN
    for position, operand in enumerate(opcode.operands):
        if operand.tied_to >= 0:
            continue
        if operand.register_class is not None:
            source = int(operand.name[3]) if re.fullmatch(r"src\d", operand.name) else -1
            plain = opcode.flags & (InstructionFlag.SDWA | InstructionFlag.DPP) or "_pk_" in opcode.mnemonic
            if source >= 0 and source == plan.constant and not plain:
                kinds[position] = OperandKind.IMMEDIATE
                values[position] = constant_for(text, source, random)
                continue
            size, half = class_size(isa, operand.register_class)
            chosen = choose_register(
                isa, operand.name, operand.register_class, plan, size, int(random.integers(0, 2)) if half else -1
            )
            if chosen is not None:
                kinds[position], values[position] = OperandKind.REGISTER, chosen
        else:
            values[position] = immediate(
                base_name(opcode.mnemonic),
                operand.name,
                int(values[position]),
                major,
                opcode.flags,
                text,
                plan,
                random,
                isa,
            )
    for position, operand in enumerate(opcode.operands):
        if operand.tied_to >= 0:
            kinds[position], values[position] = kinds[operand.tied_to], values[operand.tied_to]
    instruction = replace(
        code,
        offset=np.zeros(1, np.int64),
        size=np.zeros(1, np.int32),
        opcode=np.array([number], np.int32),
        flags=code.flags[index : index + 1],
        target=code.target[index : index + 1],
        operand_start=np.array([0, last - first], np.int32),
        operand_kind=kinds,
        operand_value=values,
    )
    try:
        data, _ = isa.encode(instruction)
    except LuthierError:
        data = b""
    decoded = isa.decode(data)
    if len(decoded) != 1 or int(decoded.opcode[0]) != number:
        if plan != PLAIN:
            return build(isa, number, PLAIN, random)
        # Encodings that only a decoder knows: as they are.
        decoded = isa.decode(code.bytes_of(index))
    return decoded if int(decoded.opcode[0]) == number else None


def immediate(
    own: str, name: str, old: int, major: int, flags: int, text: str, plan: Plan, random: np.random.Generator, isa: Isa
) -> int:
    pick = lambda *choices: int(random.choice(choices))  # noqa: E731
    if name == "dpp_ctrl" and "64" in text and isa.target.target.unified_vgprs:
        return 0x150 + int(random.integers(0, 16))
    if name == "dpp_ctrl":
        controls = DPP_CONTROLS[9 if major == 9 else 10]
        return pick(*controls)
    if name in ("row_mask", "bank_mask"):
        return pick(15, 15, 15, int(random.integers(0, 16))) if "laneId] =" not in text else 15
    if name == "bound_ctrl":
        return pick(0, 1) if "laneId] =" not in text else 1
    if name == "fi":
        return (pick(0xE9, 0xEA) if old >= 0xE9 else pick(0, 1)) if major >= 10 else old
    if name == "dpp8":
        return int(random.integers(0, 1 << 24))
    if name.endswith("_sel") and name[:3] in ("src", "dst") and is_packed(text):
        return 6
    if name in ("src0_sel", "src1_sel"):
        return pick(0, 1, 2, 3, 4, 5, 6)
    if name == "dst_sel":
        return pick(0, 1, 2, 3, 4, 5, 6)
    if name == "dst_unused":
        return pick(0, 1, 2)
    if name == "simm16" and re.search(r"\bPC\b", text):
        return 2  # over the piece's first ending
    if name in ("simm16", "imm"):
        return int(random.integers(0, 1 << (16 if name == "simm16" else 32)))
    if name == "byte_sel":
        return pick(0, 1, 2, 3)
    if name == "bitop3":
        return int(random.integers(0, 256))
    if name.endswith("_modifiers"):
        if "lanesel" in text or "permlane" in text or "[SRC1.u32][3 : 0]" in text:
            return 4  # fi:1, as the text reads inactive lanes
        return modifiers(int(name[3]), old, flags, text, plan, random)
    if name == "clamp":
        scalar_half = "S1.f16;\nD0[15" in text
        return pick(0, 1) if plan.modifiers and not scalar_half and result_width(own, text) else 0
    if name == "omod":
        return pick(0, 1, 2, 3) if plan.modifiers else 0
    if flags & MEMORY:
        offset = memory_immediate(name, random)
        return old if offset is None else offset
    if name in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        return old
    return old


def modifiers(source: int, old: int, flags: int, text: str, plan: Plan, random: np.random.Generator) -> int:
    if flags & InstructionFlag.PACKED:
        if "D0[15 : 0].f16)" in text:
            return 0  # v_pk_fmac_f16: its encodings with modifiers are the decoder's alone
        if not is_packed(text):
            default = old if "OPSEL" in text else old | 8
            return default | (int(random.integers(0, 2)) if "NEG[" in text else 0)
        if not plan.modifiers:
            return 8
        chosen = int(random.integers(0, 16))
        return chosen if float_width(text, source) else chosen & 12
    chosen = 0
    if flags & InstructionFlag.SDWA:
        if float_width(text, source) is None:
            return SEXT * int(random.integers(0, 2))
        return int(random.integers(0, 4))
    if plan.modifiers and float_width(text, source) is not None and f"S{source}[15 : 0]" not in text:
        chosen |= int(random.integers(0, 4))
    if plan.modifiers and not flags & InstructionFlag.DPP and source != plan.constant:
        widths = source_widths(text, source)
        if widths == {16} and f"S{source}[" not in text:
            chosen |= 4 * int(random.integers(0, 2))
    return chosen


def constant_for(text: str, source: int, random: np.random.Generator) -> int:
    """An inline constant or literal as LLVM holds it."""
    form = float_width(text, source)
    if form is not None and random.random() < 0.6:
        unit = {("f", 16): 0x3C00, ("f", 32): 0x3F800000, ("f", 64): 0x3FF0000000000000}.get(form)
        if unit is not None:
            half = {16: 0x3800, 32: 0x3F000000, 64: 0x3FE0000000000000}[form[1]]
            sign = 1 << (form[1] - 1)
            pattern = int(random.choice(np.array([unit, half, unit | sign, half | sign], np.uint64)))
            return pattern - (1 << 64) if pattern >> 63 else pattern
    return int(random.choice([0, 1, 5, 63, 64, -1, -7, -16]))


MODE_FIXED = re.compile(r"v_(fma|mad)_mix|v_(dual_)?dot\d")
"""Operations whose denormals are tried as they are kept only: their texts choose widths as they run."""


def mode_for(ins: Instruction, random: np.random.Generator) -> int:
    """A value of MODE that suits the instruction: float operations are tried under all of `MODES`."""
    if not FLOAT_NAME.search(ins.name) or ins.opcode.flags & MEMORY or MODE_FIXED.search(ins.text):
        return MODE
    if ins.values.get("omod") and random.random() < 0.7:
        return int(random.choice(MODES[1:-1]))
    return int(random.choice(MODES)) if random.random() < 0.6 else MODE


# Contents -----------------------------------------------------------------------------------------------------------


def integer_edges(bits: int) -> list[int]:
    top, full = 1 << (bits - 1), (1 << bits) - 1
    edges = [0, 1, 2, 3, 5, 7, 8, 15, 31, 32, 33, 63, 64, 127, 128, 255, top - 1, top, top + 1, full, full - 1]
    return [edge & full for edge in [*edges, full // 3, full // 5 * 2]]


def float_edges(kind: str, bits: int) -> list[int]:
    fraction, exponent = {("f", 16): (10, 5), ("f", 32): (23, 8), ("f", 64): (52, 11), ("bf", 16): (7, 8)}[kind, bits]
    infinity = ((1 << exponent) - 1) << fraction
    bias = ((1 << (exponent - 1)) - 1) << fraction
    unit = 1 << fraction
    magnitudes = [
        *(0, 1, 2, unit - 1, unit, unit + 1, bias - 1, bias, bias + 1, bias | unit >> 1, bias + unit, bias - unit),
        *(bias + unit + (unit >> 1), bias + 2 * unit + (unit >> 2), bias + (5 * unit) + 3, bias - 3 * unit),
        *(bias + fraction * unit + unit // 2 + 1, infinity - 1, infinity - unit, infinity, infinity | 1),
        infinity | unit >> 1 | 5,
    ]
    return [*magnitudes, *(m | 1 << (bits - 1) for m in magnitudes)]


def contents(kind: tuple[str, int], count: int, random: np.random.Generator) -> NDArray[np.uint64]:
    """Values of a type: half of them edges; floats else around 1 or anywhere."""
    family, bits = kind
    mask = np.uint64((1 << bits) - 1)
    wild = random.integers(0, 1 << 64, count, dtype=np.uint64) & mask
    if family in ("f", "bf"):
        edges = float_edges(family, bits)
        fraction = {("f", 16): 10, ("f", 32): 23, ("f", 64): 52, ("bf", 16): 7}[family, bits]
        bias = {("f", 16): 15, ("f", 32): 127, ("f", 64): 1023, ("bf", 16): 127}[family, bits]
        near = random.integers(bias - 5, bias + 6, count, dtype=np.uint64) << np.uint64(fraction)
        near |= wild & np.uint64((1 << fraction) - 1)
        near |= random.integers(0, 2, count, dtype=np.uint64) << np.uint64(bits - 1)
        wild = np.where(random.random(count) < 0.7, near, wild)
    else:
        edges = integer_edges(bits)
    return np.where(random.random(count) < 0.5, random.choice(np.array(edges, np.uint64), count), wild)


def register_contents(text: str, source: int, registers: int, count: int, random: np.random.Generator) -> Any:
    """[registers, count] dwords for a source, by how the text reads it."""
    form = float_width(text, source)
    widths = source_widths(text, source)
    if form is None:
        parts = {int(w) for w in re.findall(rf"S{source}\[[^\]]*\]\.[a-z]*(\d+)", text)} - {24}
        bits = min(parts) if parts and not widths else max([*widths, 32]) if widths else 32
        if bits not in (8, 16, 32, 64):
            bits = 32
        if widths == {16}:
            bits = 16
        form = ("u", bits)
    total = registers * 32
    bits = form[1]
    rows = np.zeros((registers, count), np.uint32)
    for low in range(0, total, bits):
        values = contents(form, count, random)
        if bits == 64:
            rows[low // 32] = values & np.uint64(0xFFFFFFFF)
            if low // 32 + 1 < registers:
                rows[low // 32 + 1] = values >> np.uint64(32)
        else:
            rows[low // 32] |= (values << np.uint64(low % 32)).astype(np.uint32)
    return rows


def initial(
    isa: Isa, ins: Instruction, text: str, random: np.random.Generator, address: int, mode: int = MODE
) -> State:
    """Registers for a trial: everything random, sources with values that suit the instruction; memory, which is at
    `address`, for those that use it."""
    lanes = isa.wave_size
    state = State(
        random.integers(0, 1 << 32, (ROWS, lanes), dtype=np.uint32),
        random.integers(0, 1 << 32, (ROWS, lanes), dtype=np.uint32),
        random.integers(0, 1 << 32, 128, dtype=np.uint32),
        int(random.integers(0, 2)),
        mode,
    )
    if not isa.target.target.has_agprs or not any(operand.kind == "a" for operand in ins.operands.values()):
        state.agprs[:] = 0
    for name, operand in ins.operands.items():
        digit = re.fullmatch(r"v?src(\d)[XY]?", name)
        source = int(digit.group(1)) if digit else -1
        if name == "vdst" and re.search(r"\bD0", text) and operand.kind == "v":
            rows = register_contents(text.replace("D0", "S9"), 9, operand.count, lanes, random)
            state.vgprs[operand.index : operand.index + operand.count] = rows
        if source < 0 or operand.kind not in ("v", "a", "s"):
            continue
        if operand.kind == "s":
            if operand.index + operand.count <= 106:
                rows = register_contents(text, source, operand.count, 1, random)
                state.sgprs[operand.index : operand.index + operand.count] = rows[:, 0]
        else:
            bank = state.vgprs if operand.kind == "v" else state.agprs
            bank[operand.index : operand.index + operand.count] = register_contents(
                text, source, operand.count, lanes, random
            )
    if ins.name.startswith("v_div_scale"):
        prepare_division(ins, state, random)
    state.sgprs[M0] = 0
    if is_memory(ins):
        prepare(state, ins, address, random, wide=isa.target.target.buffer_base_bits > 48)
    mask, more = (int(random.integers(0, 1 << 64, dtype=np.uint64)) for _ in range(2))
    mask |= more if lanes == 32 else 0
    if random.random() < 0.06:
        mask = 0
    if "for pass in 0 : 1 do" in text or "for lane in 0 : 31 do" in text:
        mask = (1 << 64) - 1  # the swaps' texts leave EXEC aside
    state.put_wide(EXEC, 2, mask & ((1 << lanes) - 1))
    if lanes == 32:
        state.put_wide(VCC + 1, 1, int(random.integers(0, 1 << 32)))
    state.sgprs[108:124] = 0
    state.sgprs[125] = 0
    return state


def prepare_division(ins: Instruction, state: State, random: np.random.Generator) -> None:
    """Source 0 of v_div_scale is one of the others, which are finite: that is what it is defined for."""
    first, *rest = (ins.operands[f"src{index}"] for index in range(3))
    for operand in rest:
        if operand.kind == "v":
            top = state.vgprs[operand.index + operand.count - 1]
            top[(top >> 20 & 0x7F8) == 0x7F8] &= np.uint32(0xBFFFFFFF)
    if first.kind == "v" and rest[0].kind == "v":
        pick = random.integers(0, 2, state.vgprs.shape[1]).astype(bool)
        for part in range(first.count):
            rows = [state.vgprs[operand.index + part] for operand in rest if operand.kind == "v"]
            state.vgprs[first.index + part] = np.where(pick, rows[0], rows[-1])


def instruction(isa: Isa, decoded: InstructionArray) -> Instruction:
    opcode = isa.opcode(int(decoded.opcode[0]))
    return view(isa, decoded, 0, base_name(opcode.mnemonic))
