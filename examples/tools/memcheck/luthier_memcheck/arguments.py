"""Kernel arguments that are pointers, in the registers into which the kernel loaded them."""

from __future__ import annotations

from luthier import Instruction
from luthier.isa import OperandKind
from luthier.isa.registers import SGPRS
from luthier.lifting import BasicBlock, LiftedRepresentation

from luthier_memcheck.launch_loads import kernarg_loads

Known = dict[int, int]
"""First unit of a pair of SGPRs -> byte offset of its value in the kernel's arguments."""


class Arguments:
    """Arguments in SGPRs, on all paths to each instruction of the kernel's own function."""

    def __init__(self, lifted: LiftedRepresentation) -> None:
        self._lifted, self._loads = lifted, kernarg_loads(lifted)
        self._blocks = {block.index: block for block in lifted.functions[0].blocks}
        self._entering = self._follow()

    def at(self, instruction: Instruction, unit: int) -> int | None:
        """Return the argument in a pair of SGPRs before an instruction; None if it is not certain."""
        block = self._blocks.get(instruction.block)
        if block is None:
            return None
        known = dict(self._entering.get(block.index, {}))
        for index in range(block.first, instruction.index):
            self._run(index, known)
        return known.get(unit)

    def loaded(self, instruction: Instruction, unit: int) -> int | None:
        """Return the same, also for the upper half of a pair."""
        candidates = (self.at(instruction, first) for first in (unit, unit - 1))
        return next((argument for argument in candidates if argument is not None), None)

    def _follow(self) -> dict[int, Known]:
        """Return the arguments known at each block's entry: those on which all paths agree."""
        entry = self._lifted.functions[0].entry_block
        entering: dict[int, Known] = {entry: {}}
        waiting = [entry]
        while waiting:
            block = self._blocks[waiting.pop()]
            left = self._leaving(block, dict(entering[block.index]))
            for edge in block.successors:
                before = entering.get(edge.to)
                after = left if before is None else dict(before.items() & left.items())
                if edge.to in self._blocks and after != before:
                    entering[edge.to] = after
                    waiting.append(edge.to)
        return entering

    def _leaving(self, block: BasicBlock, known: Known) -> Known:
        for index in range(block.first, block.last + 1):
            self._run(index, known)
        return {} if block.exit in ("call", "unknown") else known

    def _run(self, index: int, known: Known) -> None:
        """Update the known arguments for an instruction."""
        instruction = self._lifted.instructions[index]
        writes = instruction.effects.writes
        for unit in [unit for unit in known if writes >> unit & 3]:
            del known[unit]
        if index in self._loads and (operand := instruction.operand("sdst")) is not None:
            number = _number(instruction)
            register = self._lifted.isa.register(operand[1])
            if operand[0] != OperandKind.REGISTER or register.first_unit not in SGPRS:
                return
            for place in range(0, register.unit_count - 1, 2):
                known[register.first_unit + place] = number + 4 * place


def _number(instruction: Instruction) -> int:
    """Return the constant offset of a scalar load; the operand depends on the generation."""
    operands = (instruction.operand(name) for name in ("offset", "soffset"))
    return sum(one[1] for one in operands if one is not None and one[0] != OperandKind.REGISTER)
