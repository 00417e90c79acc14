"""Logs values at chosen instructions: registers by name, or operands by LLVM's name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from luthier import Instruction, InstrumentationTask, Run, Table, Tool, ToolModule, immediate, reg
from luthier.errors import HookError, ToolError
from luthier.isa import RegisterRange
from luthier.isa.registers import is_vector
from luthier.tool.task import HookArgument

DEVICE = ToolModule.from_package(__name__, "device")


class ValueLog(Tool):
    """Pushes a record for every 32 bits of each value through the channel ``values``."""

    @dataclass(frozen=True)
    class Options:
        """Options: instructions and values."""

        at: str = ""
        """Mnemonics of instructions, names or patterns joined by +: ``global_store_*+v_add_f32*``."""
        address: int = 0
        """Virtual address of an instruction in the code object, instead."""
        values: str = "vdata"
        """Registers (``v4``, ``s[2:3]``, ``exec``) and operands (``vdata``, ``src0``), joined by +."""
        after: bool = False
        """Log values after the instruction, not before it."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if not self.options.at and not self.options.address:
            raise ToolError("value_log needs the option at or address: -t value_log:at=global_store_*")
        self.patterns = [pattern for pattern in self.options.at.split("+") if pattern]
        self.values = self.options.values.split("+")
        self.sites: dict[tuple[str, str, str, str], int] = {}
        """Kernel, source, address, text -> values."""
        self.left_out: list[tuple[str, str, str, str]] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert a hook for every 32 bits of each value at the selected instructions."""
        insert = task.insert_hook_after if self.options.after else task.insert_hook_before
        for instruction in task.instructions:
            if not self._wanted(instruction):
                continue
            key = task.lifted.kernel.name, instruction.place, hex(instruction.address), instruction.text
            for number, name in enumerate(self.values):
                try:
                    for word, part in enumerate(parts(task, instruction, name)):
                        uniform = isinstance(part, RegisterRange) and not is_vector(part.first)
                        hook = DEVICE.of_wave if uniform else DEVICE.of_lanes
                        insert(instruction, hook, part, immediate(instruction.address), number, word)
                    self.sites[key] = self.sites.get(key, 0) + 1
                except HookError as problem:
                    self.left_out.append((*key[:3], problem.message))
                    task.leave_out(problem.message)

    def _wanted(self, instruction: Instruction) -> bool:
        if self.options.address:
            return instruction.address == self.options.address
        return any(fnmatchcase(instruction.mnemonic, pattern) for pattern in self.patterns)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the logged instructions, and the numbers of records."""
        rows = [(*key, values) for key, values in self.sites.items()]
        yield Table("values logged at", ("kernel", "source", "address", "instruction", "values"), rows)
        channels = [(one.pid, one.gpu, one.taken, one.dropped, one.lost) for one in run.channels("values")]
        yield Table("values", ("process", "device", "records", "dropped", "lost"), channels)
        if self.left_out:
            yield Table("not logged", ("kernel", "source", "address", "reason"), self.left_out)


def parts(task: InstrumentationTask, instruction: Instruction, name: str) -> list[HookArgument]:
    """Return a value in parts of 32 bits.

    Raises:
        HookError: there is no such register or operand.
    """
    value = task.operand(instruction, name) if instruction.operand(name) is not None else reg(name)
    if isinstance(value, RegisterRange):
        return [RegisterRange(unit, 1) for unit in value.units]
    return [value]
