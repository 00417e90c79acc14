"""Edits of an application's own instructions: additions, removals, replacements and changes of operands.

Added code runs as part of the application: no registers are saved. Waits and wait states are added between it and the
application's instructions (`luthier.patch.boundary.edits`). Its author is responsible for its effects on registers, and
for waits among its own instructions. Edits that would break control flow, addresses or modes are refused.
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
    """Instructions added before or after an instruction, or replacing it."""

    at: int
    """Instruction index."""
    place: EditPlace
    code: bytes
    """Empty if the instruction is only removed."""


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
"""Mnemonics that can be neither added nor changed: control, the program counter, modes, messages, barriers."""
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
    """Return the edit that adds assembly before or after an instruction, or replaces it.

    Raises:
        PatchError: the text does not assemble, or is refused there.
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
        value: a register, or an immediate in LLVM's encoding.

    Raises:
        PatchError: there is no such operand, it cannot have the value, or LLVM encodes the original differently.
    """
    isa, index, old = lifted.isa, instruction.index, instruction.bytes
    position = instruction.opcode.operand_index.get(which) if isinstance(which, str) else which
    decoded = isa.decode(old)
    if position is None or len(decoded) != 1 or not 0 <= position < len(decoded.operand_value):
        names = ", ".join(instruction.opcode.operand_index) or "none"
        raise _error(lifted, index, f"{instruction.text!r} has no operand {which!r}; it has {names}")
    if isa.encode(decoded)[0] != old:
        raise _error(lifted, index, f"LLVM encodes {instruction.text!r} differently: replace it with assembly text")
    kinds, values = decoded.operand_kind.copy(), decoded.operand_value.copy()
    if isinstance(value, RegisterRange):
        register = isa.register_at(value.first, value.count)
        if register is None:
            raise _error(lifted, index, f"{value} cannot be an operand")
        kinds[position], values[position] = int(OperandKind.REGISTER), register
    else:
        kinds[position], values[position] = int(OperandKind.IMMEDIATE), value
    for other, described in enumerate(instruction.opcode.operands):
        if described.tied_to == position:
            kinds[other], values[other] = kinds[position], values[position]
    try:
        code, _ = isa.encode(replace(decoded, operand_kind=kinds, operand_value=values))
    except DecodeError as problem:
        raise _error(lifted, index, f"{instruction.text!r} cannot have operand {value}: {problem.message}") from None
    new = isa.decode(code)
    if not (len(new) == 1 and new.opcode[0] == decoded.opcode[0] and np.array_equal(new.operand_value, values)):
        raise _error(lifted, index, f"operand {which} of {instruction.text!r} cannot be {value}")
    return _checked(lifted, Edit(index, "instead", code))


def _checked(lifted: LiftedRepresentation, edit: Edit) -> Edit:
    """Return the edit, with waits where it needs them.

    Raises:
        PatchError: the edit is not safe.
    """
    index = edit.at
    block = lifted.blocks[lifted.block_of[index]]
    at = index + 1 if edit.place == "after" else index
    if edit.place == "after" and index == block.last and block.exit != "fallthrough":
        raise _error(lifted, index, "nothing can be added after an instruction that transfers control")
    for point in {index, at}:
        if point in lifted.restrictions or point in lifted.index_mode or point in lifted.skipped:
            raise _error(lifted, index, "no instruction can be changed in a mode that alters the meaning of others")
        if point in lifted.vgpr_bits:
            raise _error(lifted, index, "no instruction can be changed where upper bits of VGPR numbers are set")
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
        raise _error(lifted, index, "undecodable words cannot be changed")
    opcode = lifted.isa.opcode(lifted.columns.opcode[index])
    if int(opcode.flags) & _CONTROL or _FORBIDDEN.match(opcode.mnemonic):
        raise _error(lifted, index, f"{opcode.mnemonic} cannot be removed or replaced")
    parts = {part for reference in lifted.pc_references for part in (reference.getpc, reference.low, reference.high)}
    if index in parts or any(jump.index == index for jump in lifted.direct_jumps):
        raise _error(lifted, index, "an instruction that is part of a PC-relative address cannot be changed")


def _check_added(lifted: LiftedRepresentation, index: int, code: InstructionArray, number: int) -> None:
    target, descriptor = lifted.target, lifted.kernel.descriptor
    if code.opcode[number] < 0:
        raise _error(lifted, index, f"the added bytes are not an instruction of {target.name}")
    opcode = lifted.isa.opcode(int(code.opcode[number]))
    if int(opcode.flags) & _CONTROL or _FORBIDDEN.match(opcode.mnemonic):
        raise _error(lifted, index, f"{opcode.mnemonic} cannot be added")
    for kind, value in code.operands(number):
        if kind != OperandKind.REGISTER:
            continue
        register = lifted.isa.register(value)
        first, last = register.first_unit, register.first_unit + register.unit_count - 1
        if first == UNTRACKED or first < 0:
            continue
        limits = ((SGPRS, target.sgpr_limit), (VGPRS, target.named_vgprs), (AGPRS, descriptor.agprs))
        if any(first in file and last - file.start >= limit for file, limit in limits):
            raise _error(lifted, index, f"{register.text} is outside the kernel's registers")


def _weakens_waits(lifted: LiftedRepresentation, index: int, code: InstructionArray) -> bool:
    """Return whether later waits would miscount because the edit removes an instruction that they count."""
    old = lifted.isa.opcode(lifted.columns.opcode[index])
    if not int(old.flags) & _COUNTED:
        return False
    return old.mnemonic not in [lifted.isa.opcode(int(number)).mnemonic for number in code.opcode]


class Edited:
    """Effects of edits on the registers of a kernel.

    Attributes:
        reads, writes: point -> bit set of the units that instructions added there read and write.
        added: point -> bit set of the units that instructions added there write, without replacements.
        replaced: instruction -> the bytes that replace it.
        units: bit set of all units read or written.
        counted: whether wait counters count any of the added instructions.
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
                # The values that the replaced instruction wrote, EXEC among them, are no longer known.
                self.writes[point] = self.writes.get(point, 0) | lifted.effects(edit.at).writes

    def seen_by_liveness(self, lifted: LiftedRepresentation) -> LiftedRepresentation:
        """Return the kernel for liveness analysis, with the edits' reads, writes and replaced instructions."""
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
    """Return the number of registers of a file that a kernel needs to use a set of units."""
    return (units >> file.start & (1 << len(file)) - 1).bit_length()
