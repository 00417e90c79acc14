"""Mutants of a kernel: one wait or one gap between instructions at a time, removed or weakened.

All in the code object's bytes, so that nothing is assembled again and every other instruction stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from luthier.cache.memory import BoundedCache
from luthier.hazards.wait_counters.model import wait_model
from luthier.isa import InstructionFlag, Isa
from luthier.lifting import LiftedRepresentation, lift
from luthier.lifting.instructions.effects import Columns
from luthier.lifting.model import MOST_EFFECTS, Instruction
from luthier.objects import CodeObject
from msgspec.structs import replace

ALU_FIELDS = {
    "S_WAITCNT_DEPCTR": ((0, 1), (1, 1), (2, 3), (8, 1), (9, 3), (12, 4)),
    "S_WAIT_ALU": ((0, 1), (1, 1), (2, 3), (8, 1), (9, 3), (12, 4)),
}
"""Lowest bits and sizes of what they wait for: sa_sdst, va_vcc, vm_vsrc, va_ssrc, va_sdst, va_vdst."""
REMOVED = "removed"
_PLACED = int(InstructionFlag.BRANCH | InstructionFlag.CALL | InstructionFlag.TERMINATOR | InstructionFlag.RETURN)


@dataclass(frozen=True)
class Mutant:
    """A kernel with one instruction changed."""

    address: int
    """Address of the instruction in the original."""
    offset: int
    """In the object."""
    block: int
    before: bytes
    """The bytes of the original that are changed, from the instruction on."""
    data: bytes
    """Bytes that replace them: as many instructions, of as many bytes."""
    kind: str
    """``wait``, ``nop`` or ``ALU wait``."""
    what: str
    """In words."""
    states: int | None = None
    """Wait states that are left of a shorter ``s_nop``."""

    @property
    def removed(self) -> bool:
        """Return whether all of it is removed; else it is weaker."""
        return self.what == REMOVED

    def object(self, original: CodeObject) -> bytes:
        """Return the original with the mutation."""
        return original.data[: self.offset] + self.data + original.data[self.offset + len(self.data) :]

    def lifted(self, original: LiftedRepresentation) -> LiftedRepresentation:
        """Return the kernel with the mutation: all that is known of control stays."""
        if len(self.data) > 4 and (original.index_mode or original.skipped or original.vgpr_bits):
            return lift(self.object(original.object), original.kernel.name)
        code = original.code.replaced(original.isa.decode(self.data, self.address))
        return replace(original, code=code, columns=Columns(code), _effects=BoundedCache(MOST_EFFECTS), _flow=None)


def mutants(object: CodeObject, lifted: LiftedRepresentation) -> Iterator[Mutant]:
    """Yield all mutants of a kernel."""
    isa = Isa.of(object.target, lifted.kernel.wave_size)
    waits = wait_model(object.target.target).fields
    for instruction in lifted.instructions:
        if instruction.block < 0:
            continue
        pseudo = instruction.opcode.pseudo
        if pseudo == "S_NOP":
            yield from _nops(object, lifted, instruction)
        elif pseudo == "V_NOP" and len(instruction.bytes) == 4:
            yield _changed(object, instruction, object.target.target.s_nop, "nop", "no vector instruction")
        elif pseudo in ALU_FIELDS:
            yield from _alu_waits(object, instruction)
        elif pseudo in waits:
            yield from _waits(object, lifted, instruction, isa)


def _changed(
    object: CodeObject, instruction: Instruction, word: bytes, kind: str, what: str, states: int | None = None
) -> Mutant:
    at = instruction.offset
    before = object.data[at : at + len(word)]
    return Mutant(instruction.address, at, instruction.block, before, word, kind, what, states)


def _with_immediate(instruction: Instruction, immediate: int) -> bytes:
    """Return the instruction with other 16 bits, those that SOPP and SOPK have lowest."""
    return (int.from_bytes(instruction.bytes, "little") & ~0xFFFF | immediate & 0xFFFF).to_bytes(4, "little")


def _waits(object: CodeObject, lifted: LiftedRepresentation, instruction: Instruction, isa: Isa) -> Iterator[Mutant]:
    model = wait_model(object.target.target)
    values = lifted.columns.values(instruction.index)
    limits = {limit.counter: limit.value for limit in model.limits(isa, instruction.opcode, values)}
    yield _changed(object, instruction, object.target.target.s_nop, "wait", REMOVED)
    for counter, pieces in model.fields[instruction.opcode.pseudo]:
        value = limits.get(model.counter_index[counter])
        if value is None or not pieces:
            continue
        immediate, rest = values[instruction.opcode.operand_index["simm16"]], value + 1
        for low, bits in pieces:
            immediate = immediate & ~(((1 << bits) - 1) << low) | (rest & ((1 << bits) - 1)) << low
            rest >>= bits
        what = f"{counter} {value + 1} for {value}"
        yield _changed(object, instruction, _with_immediate(instruction, immediate), "wait", what)


def _alu_waits(object: CodeObject, instruction: Instruction) -> Iterator[Mutant]:
    yield _changed(object, instruction, object.target.target.s_nop, "ALU wait", REMOVED)
    immediate = int.from_bytes(instruction.bytes[:2], "little")
    for low, bits in ALU_FIELDS[instruction.opcode.pseudo]:
        value, full = immediate >> low & (1 << bits) - 1, (1 << bits) - 1
        if value < full:
            other = immediate & ~(full << low) | value + 1 << low
            what = f"bits {low} to {low + bits - 1}: {value + 1} for {value}"
            yield _changed(object, instruction, _with_immediate(instruction, other), "ALU wait", what)


def _nops(object: CodeObject, lifted: LiftedRepresentation, instruction: Instruction) -> Iterator[Mutant]:
    """Yield mutants with fewer wait states, and with none.

    In the latter the s_nop stands at the end of its block instead.
    """
    states = (int.from_bytes(instruction.bytes, "little") & 15) + 1
    for fewer in range(1, states):
        word = _with_immediate(instruction, fewer - 1)
        yield _changed(object, instruction, word, "nop", f"{fewer} for {states}", fewer)
    last = lifted.blocks[instruction.block].last
    behind = []
    for index in range(instruction.index + 1, last + 1):
        after = lifted.instructions[index]
        # What depends on where it is, or counts instructions behind it, stays.
        if after.flags & _PLACED or after.opcode.pseudo.startswith(("S_GETPC", "S_CLAUSE", "S_ENDPGM", "S_SENDMSG")):
            break
        behind.append(after.bytes)
    if behind:
        yield _changed(object, instruction, b"".join([*behind, instruction.bytes]), "nop", REMOVED, 0)
