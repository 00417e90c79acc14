"""Writes registers of the application at selected instructions, to inject faults and try values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from luthier import InstrumentationTask, Run, Table, Tool, ToolModule, reg
from luthier.errors import HookError, ToolError
from luthier.isa import RegisterRange

DEVICE = ToolModule.from_package(__name__, "device")


class RegisterWrite(Tool):
    """Sets register = ((register & keep) ^ flip) | set after each selected instruction."""

    @dataclass(frozen=True)
    class Options:
        """Options: instructions, register and bits."""

        at: str = ""
        """Mnemonics of instructions, names or patterns joined by +."""
        register: str = "vdst"
        """A 32-bit register (``v4``, ``s2``), or an operand (``vdst``, ``sdst``)."""
        keep: int = 0xFFFFFFFF
        """Bits to keep; 0 to write only `set`."""
        flip: int = 0
        """Bits to invert."""
        set: int = 0
        """Bits to set to 1."""
        every: int = 1
        """Select every n-th of the instructions in each kernel."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if not self.options.at:
            raise ToolError(
                "register_write needs the option at, mnemonics of instructions: -t register_write:at=v_add_*"
            )
        self.patterns = self.options.at.split("+")
        self.written: list[tuple[str, ...]] = []
        self.refused: list[tuple[str, ...]] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook after the instructions."""
        bits = self.options.keep, self.options.flip, self.options.set
        name = self.options.register
        wanted = task.select(
            lambda candidate: any(fnmatchcase(candidate.mnemonic, pattern) for pattern in self.patterns),
            every=self.options.every,
        )
        for instruction in wanted:
            row = task.lifted.kernel.name, instruction.place, hex(instruction.address), instruction.text
            try:
                register = task.operand(instruction, name) if instruction.operand(name) is not None else reg(name)
                if not isinstance(register, RegisterRange) or len(register.units) != 1:
                    raise HookError(f"{name} is not a 32-bit register")
                task.insert_hook_after(instruction, DEVICE.write, register.units[0], *bits)
            except HookError as problem:
                self.refused.append((*row, problem.message))
                task.leave_out(problem.message)
            else:
                self.written.append(row)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the instructions after which registers are written."""
        yield Table("written after", ("kernel", "source", "address", "instruction"), self.written)
        if self.refused:
            yield Table("not written", ("kernel", "source", "address", "instruction", "reason"), self.refused)
