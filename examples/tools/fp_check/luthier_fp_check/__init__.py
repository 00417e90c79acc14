"""Finds the instructions that make NaN and infinity, as opposed to those that pass them on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from luthier import Immediate, Instruction, InstrumentationTask, Run, SiteSums, Table, Tool, ToolModule
from luthier.findings.finding import Finding, Unchecked
from luthier.isa import OperandKind, RegisterRange
from luthier.module import Hook
from luthier.tool.site_sums import MeasuredSite
from msgspec.structs import replace

from luthier_fp_check import exponents
from luthier_fp_check.guards import Guards
from luthier_fp_check.matrices import product_of
from luthier_fp_check.operands import Operands, most_vgprs
from luthier_fp_check.shapes import MOST_OPERANDS, Shape, gives_floats, passes_on_only, shapes_of

DEVICE = ToolModule.from_package(__name__, "device")
KINDS = ("nan", "infinity", "nan-flow", "infinity-flow")
"""Kinds of findings by column of the device's table, with the names of `luthier sanitize`."""


class FpCheck(Tool):
    """Counts lanes by instruction, result and operands."""

    @dataclass(frozen=True)
    class Options:
        """Options: what is shown."""

        flow: bool = False
        """Also show numbers that operands passed on."""
        top: int = 20
        """Rows to show, in the order of the code; 0: all."""
        exponents: bool = False
        """Count exponents of results by source line, and show which smaller formats they would fit."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self.sums = SiteSums(DEVICE, "found", len(KINDS))
        self.exponents = SiteSums(DEVICE, "exponents", exponents.COLUMNS)

    def instrument(self, task: InstrumentationTask) -> None:
        """Insert a hook after every instruction with floating-point results in VGPRs."""
        most, guards = most_vgprs(task), Guards(task)
        for instruction in task.instructions:
            if not gives_floats(instruction):
                continue
            operands = Operands(task, instruction, most)
            if self.options.flow or not passes_on_only(instruction):
                self.sums.add(task, instruction, partial(_look, task, instruction, operands, guards))
            if self.options.exponents:
                self.exponents.add(task, instruction, partial(_count, task, instruction, operands))

    def _exceptional(self, run: Run) -> Iterator[tuple[MeasuredSite, str, int]]:
        """Yield instruction, kind and lanes of results, by kernel in the order of the code."""
        shown = len(KINDS) if self.options.flow else 2
        for site, sums in sorted(self.sums.read(run), key=lambda row: (row.site.kernel, row.site.address)):
            for kind, lanes in zip(KINDS[:shown], sums, strict=False):
                if lanes:
                    yield site, kind, int(lanes)

    def findings(self, run: Run) -> Iterable[Finding]:
        """Yield the instructions that made or passed on exceptional numbers."""
        for site, kind, lanes in self._exceptional(run):
            made = site.finding(kind)
            made.count = lanes
            yield made

    def unchecked(self, run: Run) -> Iterable[Unchecked]:
        """Yield the instructions that were not examined."""
        if partial := run.total("partial"):
            yield Unchecked(0, "", "results of matrix products", f"lanes were inactive ({partial} times)")
        yield from self.sums.unchecked("results")

    def report(self, run: Run) -> Iterable[Table]:
        """Yield the instructions that made or passed on exceptional numbers, by kernel in the order of the code."""
        rows = [
            (site.kernel, kind, site.source, hex(site.address), site.text, lanes)
            for site, kind, lanes in self._exceptional(run)
        ]
        yield Table(
            "exceptional numbers",
            ("kernel", "kind", "source", "address", "instruction", "lanes"),
            rows[: self.options.top or None],
        )
        if partial := run.total("partial"):
            yield Table("not examined", ("what", "count"), [("matrix products with inactive lanes", partial)])
        yield from self.sums.tables()
        if self.options.exponents:
            yield from exponents.tables(run, self.exponents)
            yield from (replace(one, title=f"{one.title}: exponents") for one in self.exponents.tables())


def _look(
    task: InstrumentationTask, instruction: Instruction, operands: Operands, guards: Guards, site: Immediate
) -> None:
    """Insert the hooks, and copies of the operands that the instruction overwrites.

    Raises:
        HookError: the instruction cannot be examined, or there is no register for a copy.
    """
    if instruction.is_matrix:
        _look_at_product(task, instruction, operands, site)
        return
    for shape in shapes_of(instruction, task.lifted.isa):
        _look_at(task, instruction, shape, operands, guards, site)
    operands.copy()


def _look_at(
    task: InstrumentationTask,
    instruction: Instruction,
    shape: Shape,
    operands: Operands,
    guards: Guards,
    site: Immediate,
) -> None:
    """Insert the hook for one result.

    Raises:
        HookError: as `_look`.
    """
    sources = [operands.source(name) for name in shape.sources]
    skipped = operands.skipped()
    first, second = (*(element.code for element in shape.elements), 0)[:2]
    wide = _width(task, instruction, shape.result) == 2
    widths = {_width(task, instruction, name) for name in shape.sources} - {0}
    result = task.operand(instruction, shape.result)
    units, shift = operands.registers(shape.result)
    tests = guards.of(shape, RegisterRange(units.start, len(units)), high=shift > 0)
    if len(sources) == 1 and len(shape.elements) == 1 and widths == {1 if wide else 2}:
        hook = DEVICE.widened if wide else DEVICE.narrowed
        task.insert_hook_after(instruction, hook, result, sources[0], skipped, first, site, only_if=tests)
        return
    sources += [0] * (MOST_OPERANDS - len(sources))
    hook = DEVICE.wide if wide else DEVICE.narrow
    given = (result, *sources, skipped, first, second, shape.once, site)
    task.insert_hook_after(instruction, hook, *given, only_if=tests)


def _look_at_product(task: InstrumentationTask, instruction: Instruction, operands: Operands, site: Immediate) -> None:
    """Insert hooks for a matrix product: before it for its operands, after it for its result.

    Raises:
        HookError: as `_look`.
    """
    product, flags = product_of(task, instruction), operands.spare()
    for number, matrix in enumerate(product.operands):
        hook = DEVICE.hook(f"operand_{matrix.count}")
        task.insert_hook_before(instruction, hook, matrix.registers, matrix.form, flags.first, number > 0)
    made = product.result
    hook = DEVICE.hook(f"product_{made.count}")
    task.insert_hook_after(instruction, hook, made.registers, made.form, flags, site)


def _count(task: InstrumentationTask, instruction: Instruction, operands: Operands, site: Immediate) -> None:
    """Insert hooks that count the exponents of results.

    Raises:
        HookError: as `_look`.
    """
    if instruction.is_matrix:
        for registers, parts in product_of(task, instruction).result.numbers():
            codes = (*(part.code for part in parts), 0)[:2]
            task.insert_hook_after(instruction, _counter(registers.count), registers, 0, *codes, False, site)
        return
    skipped = operands.skipped()
    for shape in shapes_of(instruction, task.lifted.isa):
        codes = (*(element.result.code for element in shape.elements), 0)[:2]
        hook = _counter(_width(task, instruction, shape.result))
        result = task.operand(instruction, shape.result)
        task.insert_hook_after(instruction, hook, result, skipped, *codes, shape.once, site)
    operands.copy()


def _counter(registers: int) -> Hook:
    return DEVICE.exponents_wide if registers > 1 else DEVICE.exponents_narrow


def _width(task: InstrumentationTask, instruction: Instruction, name: str) -> int:
    """Return the number of registers of an operand; 0 for a number."""
    operand = instruction.operand(name)
    if operand is None or operand[0] != OperandKind.REGISTER:
        return 0
    return task.lifted.isa.register(operand[1]).unit_count
