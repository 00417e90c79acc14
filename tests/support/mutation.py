"""Mutants of a kernel: one wait or one gap between instructions at a time, removed or weakened by one.

All in the code object's bytes, so that nothing is assembled again and every other instruction stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from luthier.isa import InstructionFlag, Isa
from luthier.isa.waits import wait_model
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.model import Instruction
from luthier.objects import CodeObject

ALU_FIELDS = {
    "S_WAITCNT_DEPCTR": ((0, 1), (1, 1), (2, 3), (8, 1), (9, 3), (12, 4)),
    "S_WAIT_ALU": ((0, 1), (1, 1), (2, 3), (8, 1), (9, 3), (12, 4)),
}
"""Lowest bits and sizes of what they wait for: sa_sdst, va_vcc, vm_vsrc, va_ssrc, va_sdst, va_vdst."""
_PLACED = int(InstructionFlag.BRANCH | InstructionFlag.CALL | InstructionFlag.TERMINATOR | InstructionFlag.RETURN)


@dataclass(frozen=True)
class Mutant:
    """An object with one instruction changed."""

    data: bytes
    address: int
    """Of the instruction in the original."""
    kind: str
    """``wait``, ``nop`` or ``ALU wait``."""
    what: str
    """In words."""
    removed: bool
    """All of it; else it is weaker by one."""
    states: int = 0
    """Of a shorter ``s_nop``: wait states that are left."""
    word: bytes = b""
    """What stands there, where nothing else is changed."""

    def lifted(self, original: LiftedRepresentation) -> LiftedRepresentation:
        """The kernel with it; where one word is another one, all that is known of control stays."""
        if not self.word:
            return lift(self.data, original.kernel.name)
        code, index = original.code, original.columns.address.index(self.address)
        one = original.isa.decode(self.word, self.address)
        begin, end = code.operand_start[index : index + 2].tolist()
        opcode, flags, starts = code.opcode.copy(), code.flags.copy(), code.operand_start.copy()
        opcode[index], flags[index] = one.opcode[0], one.flags[0]
        starts[index + 1 :] += len(one.operand_kind) - (end - begin)
        changed = replace(
            code,
            opcode=opcode,
            flags=flags,
            operand_start=starts,
            operand_kind=np.concatenate([code.operand_kind[:begin], one.operand_kind, code.operand_kind[end:]]),
            operand_value=np.concatenate([code.operand_value[:begin], one.operand_value, code.operand_value[end:]]),
        )
        return replace(original, code=changed, columns=Columns(changed), _effects={})


def mutants(object: CodeObject, lifted: LiftedRepresentation) -> Iterator[Mutant]:
    """All of a kernel."""
    isa = Isa.of(object.target, lifted.kernel.wave_size)
    waits = wait_model(object.target.target).fields
    for instruction in lifted.instructions:
        if instruction.block < 0:
            continue
        pseudo = instruction.opcode.pseudo
        if pseudo == "S_NOP":
            yield from _nops(object, lifted, instruction)
        elif pseudo == "V_NOP":
            yield _changed(object, instruction, object.target.target.s_nop, "nop", "no vector instruction", True)
        elif pseudo in ALU_FIELDS:
            yield from _alu_waits(object, instruction)
        elif pseudo in waits:
            yield from _waits(object, lifted, instruction, isa)


def _changed(
    object: CodeObject, instruction: Instruction, word: bytes, kind: str, what: str, removed: bool, states: int = 0
) -> Mutant:
    at = instruction.offset
    data = object.data[:at] + word + object.data[at + len(word) :]
    return Mutant(data, instruction.address, kind, what, removed, states, word if len(word) == 4 else b"")


def _with_immediate(instruction: Instruction, immediate: int) -> bytes:
    """The instruction with other 16 bits, those that SOPP and SOPK have lowest."""
    return (int.from_bytes(instruction.bytes, "little") & ~0xFFFF | immediate & 0xFFFF).to_bytes(4, "little")


def _waits(object: CodeObject, lifted: LiftedRepresentation, instruction: Instruction, isa: Isa) -> Iterator[Mutant]:
    model = wait_model(object.target.target)
    values = lifted.columns.values(instruction.index)
    limits = {limit.counter: limit.value for limit in model.limits(isa, instruction.opcode, values)}
    yield _changed(object, instruction, object.target.target.s_nop, "wait", "removed", True)
    for counter, pieces in model.fields[instruction.opcode.pseudo]:
        value = limits.get(model.counter_index[counter])
        if value is None or not pieces:
            continue
        immediate, rest = values[instruction.opcode.operand_index["simm16"]], value + 1
        for low, bits in pieces:
            immediate = immediate & ~(((1 << bits) - 1) << low) | (rest & ((1 << bits) - 1)) << low
            rest >>= bits
        what = f"{counter} {value + 1} for {value}"
        yield _changed(object, instruction, _with_immediate(instruction, immediate), "wait", what, False)


def _alu_waits(object: CodeObject, instruction: Instruction) -> Iterator[Mutant]:
    yield _changed(object, instruction, object.target.target.s_nop, "ALU wait", "removed", True)
    immediate = int.from_bytes(instruction.bytes[:2], "little")
    for low, bits in ALU_FIELDS[instruction.opcode.pseudo]:
        value, full = immediate >> low & (1 << bits) - 1, (1 << bits) - 1
        if value < full:
            other = immediate & ~(full << low) | value + 1 << low
            what = f"bits {low} to {low + bits - 1}: {value + 1} for {value}"
            yield _changed(object, instruction, _with_immediate(instruction, other), "ALU wait", what, False)


def _nops(object: CodeObject, lifted: LiftedRepresentation, instruction: Instruction) -> Iterator[Mutant]:
    """One wait state less, and none: then it stands at the end of its block instead."""
    states = (int.from_bytes(instruction.bytes, "little") & 15) + 1
    if states > 1:
        word = _with_immediate(instruction, states - 2)
        yield _changed(object, instruction, word, "nop", f"{states - 1} for {states}", False, states - 1)
    last = lifted.blocks[instruction.block].last
    behind = []
    for index in range(instruction.index + 1, last + 1):
        one = lifted.instructions[index]
        # What depends on where it is, or counts instructions behind it, stays.
        if one.flags & _PLACED or one.opcode.pseudo.startswith(("S_GETPC", "S_CLAUSE", "S_ENDPGM", "S_SENDMSG")):
            break
        behind.append(one.bytes)
    if behind:
        at, moved = instruction.offset, b"".join([*behind, instruction.bytes])
        data = object.data[:at] + moved + object.data[at + len(moved) :]
        yield Mutant(data, instruction.address, "nop", "removed", True)
