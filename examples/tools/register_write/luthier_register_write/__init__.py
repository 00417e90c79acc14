"""Writes registers of the application at chosen instructions: fault injection, what-if values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from luthier import InstrumentationTask, Run, Table, Tool, ToolModule, reg
from luthier.errors import HookError, ToolError
from luthier.isa import RegisterRange

DEVICE = ToolModule.from_package(__name__, "device")


class RegisterWrite(Tool):
    """After each chosen instruction: register = ((register & keep) ^ flip) | set."""

    @dataclass(frozen=True)
    class Options:
        """Options: where, which register, and how."""

        at: str = ""
        """Instructions by mnemonic, names or patterns with + between them."""
        register: str = "vdst"
        """A register of 32 bits (``v4``, ``s2``), or an operand (``vdst``, ``sdst``)."""
        keep: int = 0xFFFFFFFF
        """Bits that stay; 0 to write `set` alone."""
        flip: int = 0
        """Bits that are inverted."""
        set: int = 0
        """Bits that become 1."""
        every: int = 1
        """Only every so many of the instructions in each kernel."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if not self.options.at:
            raise ToolError("register_write needs the option at: which instructions")
        self.patterns = self.options.at.split("+")
        self.written: list[tuple[str, ...]] = []
        self.refused: list[tuple[str, ...]] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Put the hook after the instructions."""
        bits = self.options.keep, self.options.flip, self.options.set
        name = self.options.register
        wanted = task.select(
            lambda one: any(fnmatchcase(one.mnemonic, pattern) for pattern in self.patterns), every=self.options.every
        )
        for instruction in wanted:
            row = task.lifted.kernel.name, instruction.place, hex(instruction.address), instruction.text
            try:
                found = task.operand(instruction, name) if instruction.operand(name) is not None else reg(name)
                if not isinstance(found, RegisterRange) or len(found.units) != 1:
                    raise HookError(f"{name} is no register of 32 bits")
                task.insert_hook_after(instruction, DEVICE.write, found.units[0], *bits)
            except HookError as problem:
                self.refused.append((*row, problem.message))
                task.leave_out(problem.message)
            else:
                self.written.append(row)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield where registers are written."""
        yield Table("written after", ("kernel", "source", "address", "instruction"), self.written)
        if self.refused:
            yield Table("not written", ("kernel", "source", "address", "instruction", "reason"), self.refused)
