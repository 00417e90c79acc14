"""Changes of an application's own instructions: added, removed, replaced, with other operands.

What is added runs as part of the application: nothing is saved around it. It gets waits and wait states where it meets
the application's instructions (`luthier.patch.boundary.edits`); its author answers for what it does to registers, and
for those among its own instructions. What would break control flow, addresses or modes is refused.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import DecodeError, PatchError
from luthier.isa import InstructionArray, InstructionFlag, OperandKind, RegisterRange
from luthier.isa.registers import AGPRS, SGPRS, UNTRACKED, VGPRS
from luthier.lifting import Effects, Instruction, LiftedRepresentation
from luthier.lifting.instructions.effects import Columns

EditPlace = Literal["before", "after", "instead"]


class Edit(Struct, frozen=True):
    """Instructions added before or after one, or put in its place."""

    at: int
    """Instruction index."""
    place: EditPlace
    code: bytes
    """Empty where an instruction is only removed."""


_CONTROL = int(
    InstructionFlag.BRANCH
    | InstructionFlag.CALL
    | InstructionFlag.RETURN
    | InstructionFlag.TERMINATOR
    | InstructionFlag.INDIRECT
)
_FORBIDDEN = re.compile(
    r"s_(?:getpc|get_pc|setpc|swappc|call|endpgm|trap|rfe|cbranch|branch|subvector|code_end|clause|sendmsg|alloc_vgpr"
    r"|set_gpr_idx|setvskip|set_vgpr_msb|setreg|round_mode|denorm_mode|setkill|add_pc|barrier|wakeup|ttracedata)"
    r"|.*movrel|v_illegal"
)
"""Mnemonics that may neither be added nor changed: control, the program counter, modes, messages, barriers."""
_COUNTED = int(
    InstructionFlag.SMEM
    | InstructionFlag.VMEM
    | InstructionFlag.FLAT
    | InstructionFlag.DS
    | InstructionFlag.EXPORT
    | InstructionFlag.INTERPOLATION
)
"""Instructions that wait counters count."""


def _error(lifted: LiftedRepresentation, index: int, reason: str) -> PatchError:
    return PatchError(reason, kernel=lifted.kernel.name, offset=lifted.columns.address[index])


def adding(lifted: LiftedRepresentation, index: int, place: EditPlace, text: str) -> Edit:
    """Return the edit that adds assembly before or after an instruction, or puts it in its place.

    Raises:
        PatchError: it does not assemble, or cannot be there.
    """
    isa = lifted.isa
    try:
        assembly = isa.assemble(text)
    except DecodeError as problem:
        raise _error(lifted, index, f"{text!r} does not assemble: {problem.message}") from None
    if assembly.fixups or assembly.labels:
        raise _error(lifted, index, f"{text!r}: labels and symbols cannot be added")
    return _checked(lifted, Edit(index, place, assembly.instructions.code))


def changing(
    lifted: LiftedRepresentation, instruction: Instruction, which: str | int, value: RegisterRange | int
) -> Edit:
    """Return the edit that changes one operand of an instruction.

    Args:
        which: LLVM's name of the operand, or its position.
        value: a register, or an immediate as LLVM holds it.

    Raises:
        PatchError: it has no such operand, does not take the value, or cannot be encoded anew as it is.
    """
    isa, index, old = lifted.isa, instruction.index, instruction.bytes
    position = instruction.opcode.operand_index.get(which) if isinstance(which, str) else which
    one = isa.decode(old)
    if position is None or len(one) != 1 or not 0 <= position < len(one.operand_value):
        raise _error(lifted, index, f"{instruction.text!r} has no operand {which!r}")
    if isa.encode(one)[0] != old:
        raise _error(lifted, index, f"{instruction.text!r} cannot be encoded anew as it is; replace it by text")
    kinds, values = one.operand_kind.copy(), one.operand_value.copy()
    if isinstance(value, RegisterRange):
        found = isa.register_at(value.first, value.count)
        if found is None:
            raise _error(lifted, index, f"{value} cannot be an operand")
        kinds[position], values[position] = int(OperandKind.REGISTER), found
    else:
        kinds[position], values[position] = int(OperandKind.IMMEDIATE), value
    for other, described in enumerate(instruction.opcode.operands):
        if described.tied_to == position:
            kinds[other], values[other] = kinds[position], values[position]
    try:
        code, _ = isa.encode(replace(one, operand_kind=kinds, operand_value=values))
    except DecodeError as problem:
        raise _error(lifted, index, f"{instruction.text!r} does not take {value}: {problem.message}") from None
    again = isa.decode(code)
    same = len(again) == 1 and again.opcode[0] == one.opcode[0] and np.array_equal(again.operand_value, values)
    if not same:
        raise _error(lifted, index, f"{instruction.text!r} does not take {value} as {which}")
    return _checked(lifted, Edit(index, "instead", code))


def _checked(lifted: LiftedRepresentation, edit: Edit) -> Edit:
    """Return the edit if it is safe.

    Raises:
        PatchError: why it is not.
    """
    index = edit.at
    block = lifted.blocks[lifted.block_of[index]]
    at = index + 1 if edit.place == "after" else index
    if edit.place == "after" and index == block.last and block.exit != "fallthrough":
        raise _error(lifted, index, "nothing can be added after an instruction that passes control on")
    for place in {index, at}:
        if place in lifted.restrictions or place in lifted.index_mode or place in lifted.skipped:
            raise _error(lifted, index, "no instruction can be changed where a mode says what others mean")
        if place in lifted.vgpr_bits:
            raise _error(lifted, index, "no instruction can be changed where VGPR numbers have upper bits")
    if edit.place == "instead":
        _check_removed(lifted, index)
    code = lifted.isa.decode(edit.code)
    for number in range(len(code)):
        _check_added(lifted, index, code, number)
    if edit.place == "instead" and _weakens_waits(lifted, index, code):
        waits = lifted.isa.assemble("\n".join(lifted.target.wait_for_everything)).instructions.code
        edit = replace(edit, code=edit.code + waits)
    return edit


def _check_removed(lifted: LiftedRepresentation, index: int) -> None:
    if lifted.columns.opcode[index] < 0:
        raise _error(lifted, index, "words that are no known instruction cannot be changed")
    opcode = lifted.isa.opcode(lifted.columns.opcode[index])
    if int(opcode.flags) & _CONTROL or _FORBIDDEN.match(opcode.mnemonic):
        raise _error(lifted, index, f"{opcode.mnemonic} cannot be removed or replaced")
    parts = {part for one in lifted.pc_references for part in (one.getpc, one.low, one.high)}
    if index in parts or any(jump.index == index for jump in lifted.direct_jumps):
        raise _error(lifted, index, "an instruction that makes an address of the program counter cannot be changed")


def _check_added(lifted: LiftedRepresentation, index: int, code: InstructionArray, number: int) -> None:
    if code.opcode[number] < 0:
        raise _error(lifted, index, "what is to be added is no instruction of the target")
    opcode = lifted.isa.opcode(int(code.opcode[number]))
    if int(opcode.flags) & _CONTROL or _FORBIDDEN.match(opcode.mnemonic):
        raise _error(lifted, index, f"{opcode.mnemonic} cannot be added")
    target, descriptor = lifted.target, lifted.kernel.descriptor
    for kind, value in code.operands(number):
        if kind != OperandKind.REGISTER:
            continue
        register = lifted.isa.register(value)
        first, last = register.first_unit, register.first_unit + register.unit_count - 1
        if first == UNTRACKED or first < 0:
            continue
        limits = ((SGPRS, target.sgpr_limit), (VGPRS, target.named_vgprs), (AGPRS, descriptor.agprs))
        if any(first in file and last - file.start >= limit for file, limit in limits):
            raise _error(lifted, index, f"{register.text} is none of the kernel's registers")


def _weakens_waits(lifted: LiftedRepresentation, index: int, code: InstructionArray) -> bool:
    """Return whether later counted waits would no longer wait for what they are meant to."""
    old = lifted.isa.opcode(lifted.columns.opcode[index])
    if not int(old.flags) & _COUNTED:
        return False
    return old.mnemonic not in [lifted.isa.opcode(int(number)).mnemonic for number in code.opcode]


class Edited:
    """Effects of edits on the registers of a kernel.

    Attributes:
        reads, writes: point -> bit set of the units that instructions added there read and write.
        added: point -> those that are written by what takes no instruction's place.
        replaced: instruction -> the bytes in its place.
        units: bit set of all of those.
        counted: whether wait counters count any of what is added.
    """

    def __init__(self, lifted: LiftedRepresentation, edits: list[Edit]) -> None:
        self.reads: dict[int, int] = {}
        self.writes: dict[int, int] = {}
        self.added: dict[int, int] = {}
        self.replaced: dict[int, bytes] = {}
        self.units = 0
        self.counted = any((lifted.isa.decode(edit.code).flags & _COUNTED).any() for edit in edits)
        for edit in edits:
            point = edit.at + (edit.place == "after")
            for effects in effects_of(lifted, edit.code):
                self.reads[point] = self.reads.get(point, 0) | effects.reads
                self.writes[point] = self.writes.get(point, 0) | effects.writes
                self.units |= effects.reads | effects.writes
                if edit.place != "instead":
                    self.added[point] = self.added.get(point, 0) | effects.writes
            if edit.place == "instead":
                self.replaced[edit.at] = edit.code
                # What it wrote is not known any more, nor the lanes that it left active.
                self.writes[point] = self.writes.get(point, 0) | lifted.effects(edit.at).writes

    def seen_by_liveness(self, lifted: LiftedRepresentation) -> LiftedRepresentation:
        """Return the kernel with the edits' reads, writes and replaced instructions, as liveness is to see it."""
        if self.reads:
            lifted = lifted.also_reading(self.reads)
        if self.writes:
            lifted = lifted.also_changing(self.writes)
        return lifted.without_kills(self.replaced) if self.replaced else lifted


def effects_of(lifted: LiftedRepresentation, code: bytes) -> list[Effects]:
    """Return the effects of each instruction of some code."""
    columns = Columns(lifted.isa.decode(code))
    return [lifted.effect_table.of(columns, number) for number in range(len(columns.code))]


def highest(units: int, file: range) -> int:
    """Return how many registers of a file a set of units needs."""
    return (units >> file.start & (1 << len(file)) - 1).bit_length()
