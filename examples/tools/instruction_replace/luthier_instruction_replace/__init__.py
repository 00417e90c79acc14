"""Replaces instructions of the application by others: what if this addition were a subtraction?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from luthier import InstrumentationTask, Run, Table, Tool
from luthier.errors import LuthierError, ToolError


class InstructionReplace(Tool):
    """Puts another mnemonic in the place of one, with the operands as they are."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is replaced by what."""

        find: str = ""
        """Mnemonic as disassembled, with its suffix: ``v_add_f32_e32``."""
        put: str = ""
        """The mnemonic in its place; empty: the instruction goes."""
        every: int = 1
        """Only every so many of them in each kernel."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if not self.options.find:
            raise ToolError(
                "instruction_replace needs the option find, a mnemonic: "
                "-t instruction_replace:find=v_add_f32_e32,put=v_sub_f32_e32"
            )
        self.replaced: list[tuple[str, ...]] = []
        self.refused: list[tuple[str, ...]] = []

    def instrument(self, task: InstrumentationTask) -> None:
        """Replace."""
        find, put = self.options.find, self.options.put
        for instruction in task.select(lambda candidate: candidate.mnemonic == find, every=self.options.every):
            row = task.lifted.kernel.name, instruction.place, hex(instruction.address), instruction.text
            text = instruction.text.replace(find, put, 1) if put else ""
            try:
                task.replace(instruction, text)
            except LuthierError as problem:
                self.refused.append((*row, problem.message))
                task.leave_out(problem.message)
            else:
                self.replaced.append((*row, text))

    def report(self, run: Run) -> Iterable[Table]:
        """Yield what was replaced."""
        yield Table("replaced", ("kernel", "source", "address", "instruction", "by"), self.replaced)
        if self.refused:
            yield Table("not replaced", ("kernel", "source", "address", "instruction", "reason"), self.refused)
