"""Sums by site: numbers that a tool's hooks add up at each of their points, in rows of one device variable.

This serves tools that measure something at every memory instruction or branch: it numbers the sites, gives each a row
of 64-bit numbers on the device, and returns the rows with their instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.errors import HookError, ToolError
from luthier.findings.finding import UNKNOWN, Finding, Other, Unchecked
from luthier.lifting import Instruction
from luthier.module import LoadedModule
from luthier.objects.source import SourceFrame
from luthier.support.table import Table
from luthier.tool.arguments import Immediate, immediate
from luthier.tool.observation import Run
from luthier.tool.task import InstrumentationTask

_NO_SOURCE = "debug information has none for this instruction"


@dataclass(frozen=True)
class MeasuredSite:
    """An instruction at which a tool measures something."""

    kernel: str
    object: str
    """Name of the code object."""
    address: int
    """Virtual address in the code object."""
    block: int
    text: str
    """The instruction."""
    instruction: Instruction = field(repr=False, compare=False)
    facts: Any = None
    """Anything that the tool stores with the site."""

    @property
    def source(self) -> str:
        """Return the user's ``file:line``, or ``function+0x…`` without debug information."""
        return self.instruction.place

    def finding(self, kind: str, process: int = 0) -> Finding:
        """Return a finding at this instruction, for `luthier.Tool.findings`; wave, work-group and launch are unknown.

        Args:
            kind: one of `luthier.findings.kinds.KINDS`.
            process: process ID.
        """
        made = Finding(kind, process, self.kernel, self.object, self.address, self.text, *self._frames)
        made.lane = made.wave = made.group = made.first_launch = made.last_launch = UNKNOWN
        return made

    @property
    def as_other(self) -> Other:
        """Return this instruction as the other one of a finding."""
        return Other(self.object, self.address, self.text, *self._frames)

    @property
    def _frames(self) -> tuple[tuple[SourceFrame, ...], str]:
        """Return the source frames, innermost first, and why there is none."""
        source = self.instruction.source
        return ((), _NO_SOURCE) if source is None else (source.frames, "")


class Measured(NamedTuple):
    """Sums of one site."""

    site: MeasuredSite
    sums: NDArray[np.uint64]
    """[columns] over all devices and processes."""


class Sites:
    """Numbered sites, and instructions that could not become sites.

    Args:
        capacity: maximum number of sites.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.sites: list[MeasuredSite] = []
        """By number."""
        self.unmeasured: list[tuple[str, Instruction, str]] = []
        """Kernel, instruction, and the reason why it is not measured."""

    def add(
        self,
        task: InstrumentationTask,
        instruction: Instruction,
        insert: Callable[[Immediate], object],
        facts: Any = None,
    ) -> bool:
        """Add an instruction as a site, or to `unmeasured` if `insert` raises a HookError or no site is left.

        Args:
            insert: inserts the hooks, which take the number of the site's row as an argument.

        Returns:
            Whether the instruction became a site.
        """
        kernel = task.lifted.kernel.name
        try:
            if len(self.sites) == self.capacity:
                raise HookError(f"the tool supports at most {self.capacity} sites", kernel=kernel)
            inserted = len(task.insertions)
            try:
                insert(immediate(len(self.sites)))
            except HookError:
                del task.insertions[inserted:]
                raise
        except HookError as problem:
            self.unmeasured.append((kernel, instruction, problem.message))
            task.leave_out(problem.message)
            return False
        name = task.lifted.object.name
        self.sites.append(
            MeasuredSite(kernel, name, instruction.address, instruction.block, instruction.text, instruction, facts)
        )
        return True

    def unchecked(self, what: str) -> Iterator[Unchecked]:
        """Yield the instructions that are not measured, for `luthier.Tool.unchecked`.

        Args:
            what: what the tool checks at them, as in ``bounds``.
        """
        for kernel, instruction, reason in self.unmeasured:
            yield Unchecked(0, kernel, f"{what} of {instruction.text.partition(' ')[0]}", reason)

    def tables(self) -> Sequence[Table]:
        """Return the table of instructions that are not measured, or nothing if there are none."""
        if not self.unmeasured:
            return ()
        rows = [
            (kernel, instruction.place, hex(instruction.address), instruction.text, reason)
            for kernel, instruction, reason in self.unmeasured
        ]
        return (Table("not measured", ("kernel", "source", "address", "instruction", "reason"), rows),)


class SiteSums(Sites):
    """Sites, and the rows that hooks add to.

    Args:
        module: the tool's module.
        variable: its device variable, an array of 64-bit numbers with `columns` numbers for each site.
        columns: length of a row.
    """

    def __init__(self, module: LoadedModule, variable: str, columns: int) -> None:
        super().__init__(module.variables[variable].size // (8 * columns))
        self.module = module
        self.variable = variable
        self.columns = columns

    def read(self, run: Run) -> list[Measured]:
        """Return the current sums of all sites, in the order in which the sites were added."""
        total = np.zeros((self.capacity, self.columns), np.uint64)
        for variable in run.variables(self.variable):
            total += variable.read(np.uint64)[: total.size].reshape(total.shape)
        return [Measured(site, total[number]) for number, site in enumerate(self.sites)]


def most_first(measured: Sequence[Measured], column: int, top: int) -> list[Measured]:
    """Return the `top` sites with the largest sums in a column, without zeros; all if `top` is 0."""
    nonzero = [each for each in measured if each.sums[column]]
    return sorted(nonzero, key=lambda each: -int(each.sums[column]))[: top or None]


def ratio(part: float, whole: float, digits: int = 2) -> float | None:
    """Return a quotient for a table, or None if the divisor is zero."""
    return round(part / whole, digits) if whole else None


def chosen(text: str, known: Sequence[str], what: str) -> frozenset[str]:
    """Return the names in an option's text, which are separated by +.

    Args:
        what: the option and its tool, for the error.

    Raises:
        ToolError: a name is not known.
    """
    names = frozenset(text.split("+"))
    for name in sorted(names - set(known)):
        raise ToolError(f"{what}: unknown name {name!r}; use {', '.join(known)}")
    return names
