"""Sums by site: what a tool's hooks add up at each of their points, in rows of one device variable.

A tool that measures something at every memory instruction or branch needs a number for each, rows of 64-bit numbers on
the device, and in the end the rows with the instructions they belong to. That is here, once for all such tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from luthier.errors import HookError, ToolError
from luthier.lifting import Instruction
from luthier.module import LoadedModule
from luthier.support.table import Table
from luthier.tool.arguments import Immediate, immediate
from luthier.tool.observation import Run
from luthier.tool.task import InstrumentationTask


@dataclass(frozen=True)
class MeasuredSite:
    """An instruction at which something is measured."""

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
    """Anything that the tool wants to remember of the site."""

    @property
    def source(self) -> str:
        """Return the user's ``file:line``; without debug information ``function+0x…``."""
        return self.instruction.place


class Measured(NamedTuple):
    """Sums of one site."""

    site: MeasuredSite
    sums: NDArray[np.uint64]
    """[columns] over all devices and processes."""


class Sites:
    """Sites by number, and those that are left out.

    Args:
        capacity: number of sites that there is room for.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.sites: list[MeasuredSite] = []
        """By number."""
        self.unmeasured: list[tuple[str, Instruction, str]] = []
        """Instructions that are left out: kernel, instruction and reason."""

    def add(
        self,
        task: InstrumentationTask,
        instruction: Instruction,
        insert: Callable[[Immediate], object],
        facts: Any = None,
    ) -> bool:
        """Measure an instruction, unless that cannot be done: then it is among `unmeasured`.

        Args:
            insert: inserts the hooks, which are given the number of the site's row.

        Returns:
            Whether it is measured.
        """
        kernel = task.lifted.kernel.name
        try:
            if len(self.sites) == self.capacity:
                raise HookError(f"the tool has room for {self.capacity} sites", kernel=kernel)
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

    def tables(self) -> Sequence[Table]:
        """Return the table of sites that are not measured, if there are any: one table, or none."""
        if not self.unmeasured:
            return ()
        rows = [(kernel, one.place, hex(one.address), one.text, reason) for kernel, one, reason in self.unmeasured]
        return (Table("not measured", ("kernel", "source", "address", "instruction", "reason"), rows),)


class SiteSums(Sites):
    """Sites, and the rows that hooks add to.

    Args:
        module: the tool's.
        variable: its device variable, an array of 64-bit numbers: `columns` for each site.
        columns: numbers of a row.
    """

    def __init__(self, module: LoadedModule, variable: str, columns: int) -> None:
        super().__init__(module.variables[variable].size // (8 * columns))
        self.module = module
        self.variable = variable
        self.columns = columns

    def read(self, run: Run) -> list[Measured]:
        """Return the sums of all sites so far, in the order in which they were added."""
        total = np.zeros((self.capacity, self.columns), np.uint64)
        for variable in run.variables(self.variable):
            total += variable.read(np.uint64)[: total.size].reshape(total.shape)
        return [Measured(site, total[number]) for number, site in enumerate(self.sites)]


def most_first(measured: Sequence[Measured], column: int, top: int) -> list[Measured]:
    """Return the sites that ran, those with most of a column first; at most `top`, all if that is 0."""
    ran = sorted((one for one in measured if one.sums[column]), key=lambda one: -int(one.sums[column]))
    return ran[: top or None]


def ratio(part: float, whole: float, digits: int = 2) -> float | None:
    """Return a quotient for a table; None where the divisor is zero."""
    return round(part / whole, digits) if whole else None


def chosen(text: str, known: Sequence[str], what: str) -> frozenset[str]:
    """Return the names in an option's text, where they are separated by +.

    Args:
        what: the option and its tool, for the error.

    Raises:
        ToolError: an unknown name.
    """
    names = frozenset(text.split("+"))
    for name in sorted(names - set(known)):
        raise ToolError(f"{what}: no {name!r}; there are {', '.join(known)}")
    return names
