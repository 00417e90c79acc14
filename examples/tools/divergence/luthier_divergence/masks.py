"""Analysis of divergent branches: the instruction that set EXEC as the branch tests it, and its mask.

A compiler turns an ``if`` into an instruction that clears lanes of EXEC and a branch that skips the body if none is
left. The lanes that continue are known before that instruction, from EXEC and its mask; if it computes the mask itself
(``v_cmpx``), at the branch, provided that EXEC was copied before.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from luthier import Instruction, InstrumentationTask, reg
from luthier.errors import HookError
from luthier.isa import OperandKind
from luthier.isa.registers import EXEC
from luthier.tool.task import HookArgument


class How(IntEnum):
    """Effect on EXEC; the numbers are those of the device side."""

    AND = 0
    AND_NOT = 1
    MASK_AND_NOT = 2
    XOR = 3
    SAVED = 4
    VOTE = 5


@dataclass(frozen=True)
class Mask:
    """The point at which lanes diverge, and the mask there."""

    at: Instruction
    """The hook goes before it."""
    value: HookArgument
    how: How


_BY_NAME = {
    "s_and_saveexec": How.AND,
    "s_and_not0_saveexec": How.AND_NOT,
    "s_andn1_saveexec": How.AND_NOT,
    "s_andn2_saveexec": How.MASK_AND_NOT,
    "s_and_not1_saveexec": How.MASK_AND_NOT,
    "s_xor_saveexec": How.XOR,
}
"""Effects of operations on one mask, as in the ISA documents on S_AND_SAVEEXEC_B64 and its relatives."""
_OF_TWO = {"s_and": How.AND, "s_andn2": How.AND_NOT, "s_and_not1": How.AND_NOT, "s_xor": How.XOR}
"""Effects of operations on two operands, one of which is EXEC."""


def writes_exec(instruction: Instruction) -> bool:
    """Return whether an instruction may change the active lanes."""
    return any(instruction.effects.writes >> unit & 1 for unit in EXEC)


def mask_of(task: InstrumentationTask, branch: Instruction) -> Mask | str | None:
    """Return where the lanes of a conditional branch diverge, or why that is not known.

    None if all lanes of a wave take the same direction (branches on SCC).
    """
    pseudo = branch.opcode.pseudo
    wide = task.lifted.wave_size == 64
    if "EXEC" in pseudo:
        return _narrowing(task, branch, wide)
    if "VCC" in pseudo:
        return Mask(branch, reg("vcc" if wide else "vcc_lo"), How.VOTE)
    return None


def _narrowing(task: InstrumentationTask, branch: Instruction, wide: bool) -> Mask | str:
    block = task.lifted.blocks[branch.block]
    before = [task.lifted.instructions[index] for index in range(block.first, branch.index)]
    for position in range(len(before) - 1, -1, -1):
        if writes_exec(before[position]):
            break
    else:
        return "EXEC does not change before it in its block"
    writer = before[position]
    base, _, bits = writer.mnemonic.removesuffix("_e32").removesuffix("_e64").rpartition("_")
    if bits == ("b64" if wide else "b32"):
        if base in _BY_NAME:
            return _mask(task, writer, "src0", _BY_NAME[base])
        if base in _OF_TWO and _is_exec(task, writer, "sdst"):
            return _of_two(task, writer, _OF_TWO[base])
    if writer.mnemonic.startswith("v_cmpx_"):
        return _saved(task, before[:position], before[position + 1 :], branch)
    return f"{writer.mnemonic} sets EXEC"


def _of_two(task: InstrumentationTask, writer: Instruction, how: How) -> Mask | str:
    if _is_exec(task, writer, "src0"):
        return _mask(task, writer, "src1", how)
    if _is_exec(task, writer, "src1") and how is How.AND_NOT:
        return _mask(task, writer, "src0", How.MASK_AND_NOT)
    if _is_exec(task, writer, "src1"):
        return _mask(task, writer, "src0", how)
    return f"{writer.mnemonic} sets EXEC from other registers"


def _mask(task: InstrumentationTask, writer: Instruction, operand: str, how: How) -> Mask | str:
    try:
        return Mask(writer, task.operand(writer, operand), how)
    except HookError as problem:
        return problem.message


def _saved(
    task: InstrumentationTask, before: list[Instruction], behind: list[Instruction], branch: Instruction
) -> Mask | str:
    """Return EXEC before a ``v_cmpx``, from an earlier copy."""
    changed = 0
    for instruction in behind:
        changed |= instruction.effects.writes
    for instruction in reversed(before):
        if instruction.mnemonic.startswith("s_mov_b") and _is_exec(task, instruction, "src0"):
            copy = task.operand(instruction, "sdst")
            if not any(changed >> unit & 1 for unit in getattr(copy, "units", ())):
                return Mask(branch, copy, How.SAVED)
        if writes_exec(instruction):
            break
        changed |= instruction.effects.writes
    return "v_cmpx sets EXEC, and no instruction copied it before"


def _is_exec(task: InstrumentationTask, instruction: Instruction, operand: str) -> bool:
    value = instruction.operand(operand)
    if value is None or value[0] != OperandKind.REGISTER:
        return False
    register = task.lifted.isa.register(value[1])
    return register.first_unit == EXEC[0]
