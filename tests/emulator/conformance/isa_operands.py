"""Decoded operands, and the effect of modifiers on them and on results."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import isa_numbers as n
from isa_state import VCC, State
from luthier.isa import InstructionArray, Isa, Opcode
from luthier.isa.instructions import InstructionFlag, OperandKind

SCC_UNIT = 128
NEG, ABS, OP_SEL, OP_SEL_HI, SEXT = 1, 2, 4, 8, 16
"""Bits of LLVM's source modifiers; ABS is NEG_HI and OP_SEL_HI of source 0 the destination's selection in VOP3."""


class Unmodelled(ValueError):
    """An operand or form that this model has no rule for."""


@dataclass(frozen=True)
class Operand:
    """One operand of a decoded instruction."""

    name: str
    kind: str
    """v, a, s, imm or none."""
    index: int = 0
    """First register, or the immediate."""
    count: int = 1
    high: bool | None = None
    """Of a 16-bit half: whether it is the upper one."""


NOTHING = Operand("", "none")


@dataclass
class Instruction:
    """A decoded instruction, operands by name."""

    opcode: Opcode
    name: str
    """Base mnemonic."""
    operands: dict[str, Operand]
    text: str = ""
    text_of_code: str = ""
    """Its pseudo-code."""
    vcc_used: bool = False
    values: dict[str, int] = field(default_factory=dict)
    """Immediates by name."""

    def modifiers(self, source: int) -> int:
        bits = self.values.get(f"src{source}_modifiers", 0)
        constant = self.operands.get(f"src{source}", NOTHING).kind == "imm"
        if constant and not bits & OP_SEL_HI and self.name.startswith(("v_fma_mix", "v_mad_mix")):
            return bits & ~OP_SEL | OP_SEL_HI  # of 16 bits all the same (LLVM, VOP3P_Mix_Profile)
        return bits


def view(isa: Isa, code: InstructionArray, index: int, name: str) -> Instruction:
    opcode = isa.opcode(int(code.opcode[index]))
    operands: dict[str, Operand] = {}
    values: dict[str, int] = {}
    for info, (kind, value) in zip(opcode.operands, code.operands(index), strict=True):
        if kind == OperandKind.REGISTER and value:
            register = isa.register(value)
            unit, count = register.first_unit, register.unit_count
            high = register.text.endswith(".h") if register.half else None
            if unit >= 1280:
                operand = Operand(info.name, "a", unit - 1280, count, high)
            elif unit >= 256:
                operand = Operand(info.name, "v", unit - 256, count, high)
            elif count == 0 or unit > SCC_UNIT:
                operand = Operand(info.name, "none", unit, count)
            else:
                operand = Operand(info.name, "s", unit, count, high)
        elif kind == OperandKind.REGISTER:
            operand = Operand(info.name, "none")
        else:
            operand = Operand(info.name, "imm", value)
            values[info.name] = value
        operands[info.name] = operand
    used = {isa.register(number).first_unit for number in opcode.implicit_uses}
    return Instruction(opcode, name, operands, isa.text(code, index), "", VCC in used, values)


@dataclass
class Expected:
    """A state, and where it is not told which NaN."""

    state: State
    loose: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    """(v or s, register, lane, low bit, width)"""


def float_width(text: str, source: int) -> tuple[str, int] | None:
    """The float format in which a text reads a source."""
    match = re.search(rf"\bS{source}(?:\.u32)?(?:\[[^\]]*\])?\.(bf|f)(16|32|64)\b", text)
    return (match.group(1), int(match.group(2))) if match else None


def source_widths(text: str, source: int) -> set[int]:
    """Widths of the types in which a text reads a source without a bit range."""
    return {int(w) for w in re.findall(rf"\bS{source}\.(?:bf|f|u|i|b)(\d+)", text)}


def is_half(text: str, source: int) -> bool:
    """Whether a source is 16 bits."""
    return source_widths(text, source) == {16} and not re.search(rf"\bS{source}\[", text)


def is_packed(text: str) -> bool:
    """Whether a text does the same with two elements of its sources."""
    return any(
        re.search(rf"S[012]\[{high}\]", text) and re.search(rf"(tmp|D0)\[{high}\]", text)
        for high in ("31 : 16", "63 : 32")
    )


FLOAT_RESULT = re.compile(r"\bD0(\[[^]]*\])?\.f(16|32|64)\b")


THROUGH_TMP = re.compile(r"v_pk_(?!mov|cvt).*_f(?:16|32)|v_(?:fma|mad)_legacy_f16")
"""Operations whose texts put their results together in a variable."""


def result_width(name: str, text: str) -> int:
    """Bits of an operation's float results; 0 where they are none."""
    match = FLOAT_RESULT.search(text)
    if match is None and THROUGH_TMP.fullmatch(name):
        match = re.search(r"\btmp(\[[^]]*\])?\.f(16|32)\b", text) or re.search(r"(_)f(16|32)$", name)
    return int(match.group(2)) if match else 0


KEEPS_HIGH = {"v_mad_f16", "v_mad_u16", "v_mad_i16", "v_fma_f16", "v_div_fixup_f16"}
"""GFX9's 16-bit operations that leave the upper half alone; their ``legacy`` forms and all others write zeros."""


def keeps_high(ins: Instruction) -> bool:
    partial = "VGPR[laneId][VDST.u32][" in ins.text_of_code or "vdst_in" in ins.operands
    partial |= bool(ins.opcode.flags & InstructionFlag.PACKED)
    return ins.name in KEEPS_HIGH or partial


def dpp_source(control: int, lane: int, lanes: int) -> int | None:
    """The lane that DPP16 reads, None outside."""
    row, at = lane // 16 * 16, lane % 16
    count = control % 16
    if control < 0x100:
        return lane // 4 * 4 + (control >> 2 * (lane % 4) & 3)
    kind = control & 0x1F0
    if kind == 0x100:
        return row + at + count if at + count < 16 else None
    if kind == 0x110:
        return row + at - count if at - count >= 0 else None
    if kind == 0x120:
        return row + (at - count) % 16
    special = {
        0x130: lane + 1 if lane + 1 < lanes else None,
        0x134: (lane + 1) % lanes,
        0x138: lane - 1 if lane > 0 else None,
        0x13C: (lane - 1) % lanes,
        0x140: row + 15 - at,
        0x141: lane // 8 * 8 + 7 - lane % 8,
        0x142: row - 1 if row else None,
        0x143: 31 if lane >= 32 else None,
    }
    if control in special:
        return special[control]
    if kind == 0x150:
        return row + count
    if kind == 0x160:
        return row + (at ^ count)
    raise Unmodelled(f"DPP control {control:#x}")


def sdwa_source(value: int, select: int, extend: bool) -> int:
    if select == 6:
        return value & 0xFFFFFFFF
    low, size = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
    part = value >> low & ((1 << size) - 1)
    if extend and part >> (size - 1):
        part |= 0xFFFFFFFF << size & 0xFFFFFFFF
    return part


def sdwa_result(value: int, select: int, unused: int, old: int) -> int:
    if select == 6:
        return value & 0xFFFFFFFF
    low, size = (8 * select, 8) if select < 4 else (16 * (select - 4), 16)
    field = ((1 << size) - 1) << low
    placed = value << low & field
    if unused == 2:
        return old & ~field & 0xFFFFFFFF | placed
    if unused == 1 and value >> (size - 1) & 1:
        placed |= 0xFFFFFFFF << (low + size) & 0xFFFFFFFF
    return placed


NEVER_FLUSHED = re.compile(r"v_cmpx?_class_.*|v_div_scale_.*|v_pack_b32_f16|v_cvt_scalef32_.*")
"""Operations that look at denormals whatever MODE says (v_div_scale: its text here flushes for itself)."""
NEVER_SCALED = ("v_dot2_f16_f16", "v_dot2_bf16_bf16")
"""OMOD is "not supported" for these by RDNA3's and RDNA4's documents."""


def denormals(mode: int, width: int) -> int:
    """FP_DENORM for a width: bit 0 keeps denormal sources, bit 1 keeps denormal results."""
    return mode >> 4 & 3 if width == 32 else mode >> 6 & 3


def flushed(v: n.V) -> n.V:
    return v._replace(bits=v.bits & v.format.sign) if n.is_denormal(v) else v


def flushed_source(bits: int, width: int, mode: int, total: int = 0) -> int:
    """A float source, or all elements of one of `total` bits, as MODE lets it in."""
    if denormals(mode, width) & 1:
        return bits
    element = (1 << width) - 1
    lows = range(0, total or width, width)
    return sum(flushed(n.V(bits >> low & element, "f", width)).bits << low for low in lows)


@dataclass(frozen=True)
class Finish:
    """What happens to a float result on its way to the register (ISA documents, "Output Operand Modifiers")."""

    mode: int
    major: int
    flushes: bool = True
    """Whether the operation obeys the denormal mode."""
    omod: int = 0
    clamp: bool = False

    def scales(self, width: int) -> bool:
        """Whether OMOD counts: on GFX12 always, before only without IEEE and without denormal results."""
        return bool(self.omod) and (self.major >= 12 or not (self.mode >> 9 & 1 or denormals(self.mode, width) & 2))

    def one(self, v: n.V) -> n.V:
        if self.flushes and not denormals(self.mode, v.width) & 2:
            v = flushed(v)
        if self.scales(v.width):
            rounding = self.mode & 3 if v.width == 32 else self.mode >> 2 & 3
            factor = n.from_float({1: 2.0, 2: 4.0, 3: 0.5}[self.omod], v.width)
            if n.is_nan(v):
                v = n.quieted(v)
            else:
                v = flushed(n.multiply(flushed(v), factor, rounding))
                v = v._replace(bits=0) if n.is_zero(v) else v
        if self.clamp:
            unit = n.from_float(1.0, v.width)
            if n.is_nan(v):
                dx10 = self.major >= 12 or self.mode >> 8 & 1
                v = v._replace(bits=0) if dx10 else v
            elif n.is_negative(v):
                v = v._replace(bits=0)
            elif (n.compare(v, unit) or 0) > 0:
                v = unit
        return v

    def result(self, bits: int, mask: int, width: int, loose: n.Loose) -> tuple[int, n.Loose]:
        """All elements of a width under the mask; where a NaN may be any NaN, one that stays still may."""
        result = 0
        for low in range((mask & -mask).bit_length() - 1, mask.bit_length(), width):
            v = self.one(n.V(bits >> low & ((1 << width) - 1), "f", width))
            result |= v.bits << low
        if self.clamp or self.scales(width):
            loose = tuple(
                (low, size)
                for low, size in loose
                if size > 0 and n.is_nan(n.V(result >> low & ((1 << size) - 1), "f", size))
            )
        return result, loose
