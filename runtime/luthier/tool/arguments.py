"""Hook arguments other than constants and registers: launch state, computed values, and per-point immediates."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from luthier.errors import HookError
from luthier.isa import Isa, OperandKind, RegisterRange
from luthier.isa.registers import EXEC, M0, SCC, SGPRS, TTMPS, VCC, is_vector
from luthier.lifting import Instruction, LiftedRepresentation
from luthier.lifting.instructions.memory import MemoryAccess
from luthier.payload.expressions import Expression, Inputs, constant, joined


class LaunchOperand(Struct, frozen=True):
    """A hook argument with a value from the kernel's launch. Methods of `InstrumentationTask` return them."""

    intrinsic: str
    offset: int | None = None
    """Offset of a kernel argument in bytes; None for other launch state."""
    size: int = 4
    """Size in bytes."""


class Immediate(Struct, frozen=True):
    """A number that may differ from point to point. `immediate` returns them."""

    value: int | float


def immediate(value: int | float) -> Immediate:
    """Return a constant that may differ from point to point.

    All points share one compiled payload, and each point first loads its number into a scalar register. In contrast, a
    plain number is compiled into the payload, so each number needs a payload of its own.
    """
    return Immediate(value)


class SiteValue(Struct, frozen=True):
    """A hook argument that is computed where the hook runs. Methods of `InstrumentationTask` return them."""

    expression: Expression
    sources: tuple[int, ...]
    """Register unit, or number, of each of the expression's inputs."""
    what: str
    """Description for errors."""
    registers: int = 0
    """Bit set of the units that must still hold the values that the instruction reads."""
    index: int | None = None
    """Index of the instruction that the value belongs to; None if it is the same at any point."""


_READABLE = frozenset((*SGPRS, *VCC, *TTMPS, M0, *EXEC, SCC))
"""Scalar units that hooks can read."""


class _OperandExpressions:
    """The operands of one instruction as expressions, with the inputs of these expressions."""

    def __init__(self, lifted: LiftedRepresentation, instruction: Instruction) -> None:
        self.inputs = Inputs()
        self.instruction = instruction
        self.target = lifted.target
        self._lifted = lifted

    def error(self, reason: str) -> HookError:
        return HookError(
            f"{self.instruction.text!r}: {reason}",
            kernel=self._lifted.kernel.name,
            offset=self.instruction.address,
        )

    def parts(self, name: str) -> list[Expression]:
        """Return the 32-bit parts of an operand; none if it is absent or SGPR_NULL."""
        operand = self.instruction.operand(name)
        if operand is None:
            return []
        kind, number = operand
        if kind != OperandKind.REGISTER:
            return [constant(0, 32)] if number == 0 else [self.inputs.immediate(number)]
        return self.register(number)

    def register(self, number: int) -> list[Expression]:
        """Return the 32-bit parts of an LLVM register; none for SGPR_NULL."""
        register = self._lifted.isa.register(number)
        if register.first_unit < 0:
            if "NULL" in register.name or number == 0:
                return []
            raise self.error(f"hooks cannot read {register.text}")
        units = RegisterRange(register.first_unit, register.unit_count).units
        self.check(units, register.text)
        return [self.inputs.unit(unit, uniform=not is_vector(unit)) for unit in units]

    def check(self, units: range, name: str) -> None:
        """Raise an error if hooks cannot read a register."""
        if not all(is_vector(unit) or unit in _READABLE for unit in units):
            raise self.error(f"hooks cannot read {name}")

    def number(self, name: str) -> int:
        """Return an immediate operand, or 0 if it is absent or a register."""
        operand = self.instruction.operand(name)
        return 0 if operand is None or operand[0] == OperandKind.REGISTER else operand[1]

    def word(self, name: str) -> Expression:
        """Return a 32-bit operand, or 0 if it is absent."""
        parts = self.parts(name)
        if len(parts) > 1:
            raise self.error(f"{name} has {len(parts)} registers, expected 1")
        return parts[0] if parts else constant(0, 32)

    def pair(self, name: str) -> Expression:
        """Return a 64-bit operand."""
        parts = self.parts(name)
        if len(parts) != 2:
            raise self.error(f"{name} has {len(parts)} registers, expected 2")
        return joined(parts)

    def scaled(self, offset: Expression, access: MemoryAccess) -> Expression:
        """Return a register's offset in bytes. With ``scale_offset``, the register counts accesses."""
        if not self.number("cpol") & _SCALE_OFFSET:
            return offset
        return offset * constant(access.size or 0, offset.bits)

    def plus(self, base: Expression, offset: int) -> Expression:
        """Return a base plus an offset, which becomes a per-point immediate."""
        if offset == 0:
            return base
        distance = self.inputs.immediate(abs(offset)).to(base.bits)
        return base + distance if offset > 0 else base - distance


def _flat(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    if operands.parts("saddr"):
        address = operands.pair("saddr")
        if operands.parts("vaddr"):
            signed = operands.target.signed_vector_offset
            address = address + operands.scaled(operands.word("vaddr").to(64, signed=signed), access)
    else:
        address = operands.pair("vaddr")
    return operands.plus(address, operands.number("offset"))


def _scratch(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    lanes = operands.scaled(operands.word("vaddr"), access)
    return operands.plus(lanes + operands.word("saddr"), operands.number("offset"))


def _lds(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    if operands.number("gds"):
        raise operands.error("hooks cannot use addresses in GDS")
    return operands.plus(operands.word("addr"), operands.number("offset") & 0xFFFF)


_FORM = re.compile(r"_(OFFEN|IDXEN|BOTHEN|ADDR64)(?:_|$)")
_ADD_TID = 1 << 23


class _Descriptor(NamedTuple):
    """Fields of a buffer descriptor."""

    base: Expression
    stride: Expression
    special: Expression
    """Not 0 if the hardware computes addresses in another way."""


def _descriptor(operands: _OperandExpressions, name: str) -> _Descriptor:
    words, target = operands.parts(name), operands.target
    if len(words) != 4:
        raise operands.error(f"buffer descriptor {name} has {len(words)} registers, expected 4")
    base = joined([words[0], words[1] & (1 << target.buffer_base_bits - 32) - 1])
    if target.buffer_swizzle is None:
        return _Descriptor(base, words[3] >> 12 & 0x3FFF, words[3] >> 26)
    stride = words[1] >> 16 & 0x3FFF
    if target.buffer_stride_scale:
        scale = words[3] >> 18 & 3
        shift = scale.equals(0).chooses(constant(0, 32), scale.equals(3).chooses(constant(5, 32), scale + 1))
        stride = Expression("shl", 32, (stride, shift))
    return _Descriptor(base, stride, words[1] & target.buffer_swizzle | words[3] & _ADD_TID)


def _buffer(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    descriptor = _descriptor(operands, "srsrc")
    form = _FORM.search(operands.instruction.opcode.pseudo)
    kind = form[1] if form else ""
    if kind == "ADDR64":
        raise operands.error("buffers with 64-bit addresses (addr64) are not supported")
    lanes = operands.parts("vaddr")
    if len(lanes) != (expected := {"": 0, "BOTHEN": 2}.get(kind, 1)):
        raise operands.error(f"vaddr has {len(lanes)} registers, expected {expected}")
    within = operands.plus(lanes[-1] if kind in ("OFFEN", "BOTHEN") else constant(0, 32), operands.number("offset"))
    address = descriptor.base + operands.word("soffset").to(64) + within.to(64)
    if kind in ("IDXEN", "BOTHEN"):
        address = address + lanes[0].to(64) * descriptor.stride.to(64)
    return descriptor.special.equals(0).chooses(address, constant(-1, 64))


def _scalar_offset(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    soffset = operands.instruction.operand("soffset")
    immediate = operands.number("offset")
    if soffset is not None and soffset[0] != OperandKind.REGISTER:  # an immediate in one form of GFX9
        immediate += soffset[1]
        register = constant(0, 64)
    else:
        register = operands.scaled(operands.word("soffset").to(64), access)
    return operands.plus(register, immediate)


def _scalar(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    address = operands.pair("sbase") + _scalar_offset(operands, access)
    return address & -min(access.size or 4, 4)


def _scalar_buffer(operands: _OperandExpressions, access: MemoryAccess) -> Expression:
    step = min(access.size or 4, 4)
    return (_descriptor(operands, "sbase").base & -4) + (_scalar_offset(operands, access) & -step)


_ADDRESS: dict[str, Callable[[_OperandExpressions, MemoryAccess], Expression]] = {
    "global": _flat,
    "flat": _flat,
    "scratch": _scratch,
    "lds": _lds,
    "buffer": _buffer,
    "scalar": _scalar,
    "scalar buffer": _scalar_buffer,
}
_SCALE_OFFSET = 1 << 11
"""Bit of the cache policy: the offset in a register counts elements (LLVM, ``CPol::SCAL``)."""
_SCALING = ("global", "flat", "scratch", "scalar")
"""Spaces in which an element is known to be the access of one lane."""


def effective_address(lifted: LiftedRepresentation, instruction: Instruction, which: int = 0) -> SiteValue:
    """See `InstrumentationTask.effective_address`."""
    operands = _OperandExpressions(lifted, instruction)
    access = instruction.memory
    if access is None:
        raise operands.error("it accesses no memory")
    if access.unaddressable:
        raise operands.error(f"its address cannot be computed: {access.unaddressable}")
    if not 0 <= which < access.count:
        raise operands.error(f"it has no address number {which}; it has {access.count}")
    if operands.number("cpol") & _SCALE_OFFSET and not (access.size and access.space in _SCALING):
        raise operands.error("its address cannot be computed: the unit of scale_offset is not known")
    if access.count == 1:
        address = _ADDRESS[access.space](operands, access)
    else:
        address = operands.plus(operands.word("addr"), access.scale * operands.number(f"offset{which}"))
        if operands.number("gds"):
            raise operands.error("hooks cannot use addresses in GDS")
    return _value(operands, address, "an effective address")


def _value(operands: _OperandExpressions, expression: Expression, what: str) -> SiteValue:
    """Return an expression as a site value, with its inputs."""
    inputs = operands.inputs
    return SiteValue(expression, tuple(inputs.sources), what, inputs.registers, operands.instruction.index)


_CONDITIONS: dict[str, tuple[tuple[int, ...], bool]] = {
    "S_CBRANCH_SCC0": ((SCC,), False),
    "S_CBRANCH_SCC1": ((SCC,), True),
    "S_CBRANCH_VCCZ": (VCC, False),
    "S_CBRANCH_VCCNZ": (VCC, True),
    "S_CBRANCH_EXECZ": (EXEC, False),
    "S_CBRANCH_EXECNZ": (EXEC, True),
    **dict.fromkeys(("S_CMOV_B32", "S_CMOV_B64", "S_CMOVK_I32"), ((SCC,), True)),
}
"""LLVM opcode -> units it tests, and whether it takes effect if they are not 0."""


def predicate(lifted: LiftedRepresentation, instruction: Instruction) -> SiteValue:
    """See `InstrumentationTask.predicate`."""
    operands = _OperandExpressions(lifted, instruction)
    pseudo = instruction.opcode.pseudo
    condition = _CONDITIONS.get(pseudo)
    if condition is None:
        if instruction.is_conditional:
            raise operands.error("hooks cannot read its condition")
        return _value(operands, constant(1, 1), "a predicate")
    units, wanted = condition
    if len(units) == 2 and lifted.wave_size == 32:
        units = units[:1]
    bits = operands.inputs.unit(units[0], uniform=True)
    for unit in units[1:]:
        bits = bits | operands.inputs.unit(unit, uniform=True)
    is_set = bits if units[0] == SCC else bits.is_not_zero()  # SCC is read as 0 or 1
    return _value(operands, (is_set if wanted else is_set ^ 1).to(1), "a predicate")


def operand(lifted: LiftedRepresentation, instruction: Instruction, which: str | int) -> RegisterRange | SiteValue:
    """See `InstrumentationTask.operand`."""
    operands = _OperandExpressions(lifted, instruction)
    described = instruction.opcode.operands
    position = instruction.opcode.operand_index.get(which) if isinstance(which, str) else which
    if position is None or not 0 <= position < min(len(described), len(instruction.operands)):
        names = ", ".join(instruction.opcode.operand_index)
        raise operands.error(f"it has no operand {which!r}; it has {names}")
    kind, number = instruction.operands[position]
    what = f"operand {described[position].name or position}"
    if kind == OperandKind.EXPRESSION:
        raise operands.error(f"{what} is an address that is not known before linking")
    if kind != OperandKind.REGISTER:
        bits = _width(lifted.isa, described[position].register_class)
        value = operands.inputs.immediate(number, bits)
        return SiteValue(value, tuple(operands.inputs.sources), what)
    register = lifted.isa.register(number)
    if not register.half:
        if register.first_unit < 0:
            raise operands.error(f"hooks cannot read {what} ({register.text})")
        registers = RegisterRange(register.first_unit, register.unit_count)
        operands.check(registers.units, what)
        return registers
    (whole,) = operands.register(number)
    half = whole >> 16 if register.name.endswith("_HI16") else whole
    return SiteValue(half.to(16), tuple(operands.inputs.sources), what)


@functools.lru_cache(maxsize=256)
def _width(isa: Isa, register_class: str | None) -> int:
    """Return the width in bits of an immediate operand: that of the widest register that the operand could be."""
    registers = isa.registers_in_class(register_class) if register_class is not None else []
    widths = [
        16 if isa.register_is_half[number] else 32 * int(isa.register_unit_count[number])
        for number in registers
        if (first := int(isa.register_first_unit[number])) in SGPRS or is_vector(first)
    ]
    return max(widths, default=32)
