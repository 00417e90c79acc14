"""Measures LDS bank conflicts: the cycles that each LDS instruction of a wave takes, and those that it needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from luthier import Immediate, Instruction, InstrumentationTask, Run, SiteSums, Table, Tool, ToolModule
from luthier.errors import HookError, ToolError
from luthier.tool.site_sums import most_first, ratio

DEVICE = ToolModule.from_package(__name__, "device")
BANK = 4
"""Bytes of a bank."""
SIZES = {1: 4, 2: 4, 4: 4, 8: 8, 16: 16}
"""Bytes of an access -> those of the banks that it is counted in."""


class LdsBankConflicts(Tool):
    """Adds up accesses and cycles for each instruction."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is shown, and the structure of LDS."""

        banks: int = 0
        """Banks of four bytes, a power of two from 8 to 64; 0: the target's."""
        top: int = 20
        """Instructions to show, most lost cycles first; 0: all."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        if self.options.banks not in (0, 8, 16, 32, 64):
            raise ToolError(f"option banks of lds_bank_conflicts must be 0, 8, 16, 32 or 64, not {self.options.banks}")
        self.sums = SiteSums(DEVICE, "accesses", 4)

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert the hook before every LDS instruction, for each of its addresses."""
        for instruction in task.instructions:
            if instruction.memory is not None and instruction.memory.space == "lds":
                self._measure(task, instruction)

    def _measure(self, task: InstrumentationTask, instruction: Instruction) -> None:
        target = task.lifted.target
        access = instruction.memory
        assert access is not None

        def insert(number: Immediate) -> None:
            size = SIZES.get(access.size or 0)
            if size is None:
                raise HookError(f"the LDS phases of accesses of {access.size} bytes are not known")
            known = target.lds_store_banks if access.kind == "store" else target.lds_banks
            banks = (self.options.banks or known) * BANK // size
            mixed = target.lds_reads_128_mixed and size == 16 and access.kind == "load" and banks * size == 128
            for which in range(access.count):
                address = task.effective_address(instruction, which)
                task.insert_hook_before(
                    instruction, DEVICE.access, address, number, size.bit_length() - 1, banks, mixed
                )

        self.sums.add(task, instruction, insert)

    def report(self, run: Run) -> Iterable[Table]:
        """Yield each kernel, then the instructions that lose the most cycles."""
        measured = self.sums.read(run)
        kernels: defaultdict[str, list[int]] = defaultdict(lambda: [0] * 4)
        for site, sums in measured:
            kernels[site.kernel] = [a + int(b) for a, b in zip(kernels[site.kernel], sums, strict=True)]
        columns = ("accesses", "lanes", "cycles needed", "cycles", "conflicts", "cycles/needed")
        yield Table(
            "LDS bank conflicts",
            ("kernel", *columns),
            [(name, *row, row[3] - row[2], ratio(row[3], row[2])) for name, row in kernels.items() if row[0]],
        )
        rows = []
        for site, sums in most_first(measured, 3, 0):
            needed, taken = int(sums[2]), int(sums[3])
            row = *map(int, sums), taken - needed, ratio(taken, needed)
            rows.append((site.kernel, site.source, hex(site.address), site.text, *row))
        rows.sort(key=lambda row: -row[8])
        yield Table(
            "by instruction", ("kernel", "source", "address", "instruction", *columns), rows[: self.options.top or None]
        )
        yield from self.sums.tables()
