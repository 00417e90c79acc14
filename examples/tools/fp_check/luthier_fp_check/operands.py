"""Operands of an instruction for hooks: registers, and copies of those that it overwrites."""

from __future__ import annotations

import re
from collections.abc import Sequence

from luthier import Instruction, InstrumentationTask
from luthier.errors import HookError
from luthier.isa import OperandKind, RegisterRange
from luthier.isa.registers import VGPR_FIRST
from luthier.patch.registers.budget import budget_of
from luthier.tool.task import HookArgument

_DPP = re.compile(r" (?:quad_perm|row_|wave_|dpp8)[^|]*$")
"""The part of an instruction's text that selects other lanes."""
_EVERY = 15
"""Row and bank masks of all lanes."""
_MORE = 8
"""VGPRs that may be added to the kernel for copies."""


class Operands:
    """The operands of one instruction, for a hook after it.

    Args:
        most: VGPRs that the kernel may have (`most_vgprs`).
    """

    def __init__(self, task: InstrumentationTask, instruction: Instruction, most: int) -> None:
        self._task, self._instruction = task, instruction
        self._free = _free_vgprs(task, instruction, most)
        self._before: list[str] = []

    def source(self, name: str) -> HookArgument:
        """Return an operand by LLVM's name, with its value before the instruction.

        Raises:
            HookError: the instruction overwrites it, and there is no register for a copy.
        """
        moved = self._moved() if name == "src0" else ""
        units, shift = self.registers(name)
        if moved:
            if len(units) != 1:
                raise HookError("it reads 64 bits of other lanes")
            return self._kept([f"v_mov_b32_dpp {{0}}, {_whole(units[0])}{moved}"], shift)
        if not any(self._instruction.effects.writes >> unit & 1 for unit in units):
            return self._task.operand(self._instruction, name)
        first = self._take(len(units))
        for at, unit in enumerate(units):
            move = f"v_lshrrev_b32_e32 v{first + at}, {shift}," if shift else f"v_mov_b32_e32 v{first + at},"
            self._before.append(f"{move} {RegisterRange(unit)}")
        return RegisterRange(VGPR_FIRST + first, len(units))

    def skipped(self) -> HookArgument:
        """Return a value that is not zero in active lanes that the instruction does not write.

        Raises:
            HookError: there is no register for it.
        """
        moved = self._moved()
        if not moved or self._fills_every_lane():
            return 0
        units, _ = self.registers("src0")
        zero = self._take(1)
        # Zero is read in this lane, so the result is zero wherever there is one.
        lines = [f"v_mov_b32_e32 v{zero}, 0", "v_mov_b32_e32 {0}, 1"]
        return self._kept([*lines, f"v_and_b32_dpp {{0}}, {_whole(units[0])}, v{zero}{moved}"], 0)

    def spare(self) -> RegisterRange:
        """Return a register for the hooks of this instruction.

        Raises:
            HookError: there is none.
        """
        return RegisterRange(VGPR_FIRST + self._take(1), 1)

    def copy(self) -> None:
        """Insert the copies."""
        if self._before:
            self._task.add_before(self._instruction, "\n".join(self._before))
            self._before.clear()

    def _moved(self) -> str:
        """Return the text that selects other lanes; empty if the instruction reads none."""
        if not self._instruction.mnemonic.endswith(("_dpp", "_dpp8")):
            return ""
        match = _DPP.search(self._instruction.text)
        assert match is not None, self._instruction.text
        return match[0]

    def _fills_every_lane(self) -> bool:
        masks = [self._instruction.operand(name) for name in ("row_mask", "bank_mask")]
        bound = self._instruction.operand("bound_ctrl")
        return all(one is not None and one[1] == _EVERY for one in masks) and bound is not None and bound[1] != 0

    def _kept(self, lines: Sequence[str], shift: int) -> RegisterRange:
        """Return a register that instructions leave a value in."""
        register = f"v{self._take(1)}"
        shifts = [f"v_lshrrev_b32_e32 {register}, {shift}, {register}"] if shift else []
        self._before += [*(line.format(register) for line in lines), *shifts]
        return RegisterRange(VGPR_FIRST + int(register[1:]), 1)

    def _take(self, count: int) -> int:
        """Return the first of several registers that are used for nothing else.

        Raises:
            HookError: there are none.
        """
        free = self._free
        first = next((one for one in free if all(one + at in free for at in range(count))), None)
        if first is None:
            raise HookError("it overwrites an operand, and no register is free for a copy")
        for at in range(count):
            free.remove(first + at)
        return first

    def registers(self, name: str) -> tuple[range, int]:
        """Return the units of an operand, none if it is a number, and the shift of its bits in them."""
        operand = self._instruction.operand(name)
        if operand is None or operand[0] != OperandKind.REGISTER:
            return range(0), 0
        register = self._task.lifted.isa.register(operand[1])
        units = RegisterRange(register.first_unit, register.unit_count).units
        return units, 16 if register.name.endswith("_HI16") else 0


def most_vgprs(task: InstrumentationTask) -> int:
    """Return the number of VGPRs that the kernel may have with copies."""
    own = task.lifted.kernel.descriptor.architected_vgprs
    return max(own, min(own + _MORE, budget_of(task.lifted, task.hook_budget).vgpr_limit))


def _free_vgprs(task: InstrumentationTask, instruction: Instruction, most: int) -> list[int]:
    """Return the numbers of VGPRs that are dead at an instruction."""
    liveness = task.lifted.liveness
    live = liveness.live_before(instruction.index).active | liveness.live_after(instruction.index).active
    held = live | instruction.effects.reads | instruction.effects.writes
    return [one for one in range(most) if not held >> VGPR_FIRST + one & 1]


def _whole(unit: int) -> str:
    return str(RegisterRange(unit))
