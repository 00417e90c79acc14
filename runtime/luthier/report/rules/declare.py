"""Declaration of a rule, and the counts that it judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.report.code import ReportedCode
from luthier.report.measures import lines_of_tables
from luthier.support.explanations import Explanation

LEVELS = ("error", "warning", "note")
"""Levels of rules, as in SARIF, in the order of the report."""


class RuleFinding(Struct, frozen=True, kw_only=True):
    """Fault that a rule finds."""

    text: str
    """The fault with its numbers."""
    advice: str = ""
    """What to change, as an imperative."""
    lost: float = 0.0
    """Lost slots (`luthier.report.findings`). Warnings need them: those that lose little are left out."""
    at: int | None = None
    """Position of the instruction in the kernel's code; None: the whole kernel."""


class MeasuredKernel(Struct, frozen=True, kw_only=True):
    """Counts of one kernel over a run."""

    facts: Mapping[str, Any]
    """From `luthier.report.overview.kernels`: ``wave_size``, ``vgprs``, ``executed``, ``launches`` and others."""
    code: ReportedCode | None = None
    """Its code with counts; None if the run does not have it."""
    rows: Sequence[Mapping[str, Any]] = ()
    """Rows of tools' tables with a column ``kernel`` that names it; each maps columns to cells."""
    full: float = 1.0
    """Share of its waves' lanes that hold a work-item: below 1 if work-groups do not fill their waves."""


class MeasuredLine(Struct, frozen=True, dict=True):
    """Counts of the instructions of one source line, or of all instructions without a line."""

    kernel: MeasuredKernel
    code: ReportedCode
    which: Sequence[int]
    """Positions of the instructions in the kernel's code."""
    tables: Sequence[Mapping[str, float | int | None]] = field(default_factory=list)
    """One for each table of a tool: values of its columns for this line; sums are added, ratios recomputed."""

    def measured(self, *names: str) -> tuple[float, ...] | None:
        """Return the values of these columns from the first table that has all of them; None if there is none."""
        for table in self.tables:
            values = tuple(table.get(name) for name in names)
            if None not in values:
                return tuple(float(value or 0) for value in values)
        return None

    def parted(self, key: Callable[[str], str]) -> Iterator[tuple[str, MeasuredLine]]:
        """Yield the instructions of the line by a key of their text, each with their own counts."""
        parts: dict[str, list[int]] = {}
        for at in self.which:
            parts.setdefault(key(self.code.columns["text"][at] or ""), []).append(at)
        if len(parts) == 1:
            yield next(iter(parts)), self
            return
        tables = lines_of_tables(self.code.heat, list(parts.values()))
        for (name, which), values in zip(parts.items(), tables, strict=True):
            yield name, MeasuredLine(self.kernel, self.code, which, values)

    @cached_property
    def vector(self) -> tuple[int, int]:
        """The executed vector instructions whose lanes are known, and the sum of their active lanes."""
        ran = lanes = 0
        for at in self.which:
            if self.code.executions and self.code.executions[at] and self.code.lanes[at] is not None:
                ran += self.code.executions[at] or 0
                lanes += self.code.lanes[at] or 0
        return ran, lanes

    def most(self, name: str) -> int:
        """Return the position of the instruction with the largest value of a column."""
        for heat in self.code.heat:
            if heat["name"] == name and heat["key"] == "address" and any(heat["values"][at] for at in self.which):
                return max(self.which, key=lambda at: heat["values"][at] or 0)
        return self.which[0]

    @property
    def most_executed(self) -> int:
        """The position of the instruction that was executed most often."""
        return max(self.which, key=lambda at: self.code.executions[at] or 0)


class ReportRule(Struct, frozen=True, kw_only=True):
    """A rule that finds one kind of fault in the counts of a run, named by its entry point.

    It has a threshold, below which there is no finding: a finding is what costs.
    """

    level: Literal["error", "warning", "note"]
    """As in SARIF. Notes have no known loss."""
    label: str
    """One word for the fault on the page."""
    explanation: Path
    """Markdown file with its page (`luthier explain`); the format is that of
    `luthier.support.explanations.Explanation.read`."""
    of_line: Callable[[MeasuredLine], Iterable[RuleFinding]] | None = None
    """Finds faults in one source line."""
    of_kernel: Callable[[MeasuredKernel], Iterable[RuleFinding]] | None = None
    """Finds faults in a whole kernel."""

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise LuthierError(f"the level of a report rule must be {', '.join(LEVELS)}, not {self.level!r}")

    def to_json(self) -> dict[str, str]:
        """Return plain data for the page."""
        return {"level": self.level, "label": self.label, "summary": Explanation.read(self.explanation).summary}


def lines_of(kernel: MeasuredKernel) -> Iterator[MeasuredLine]:
    """Yield the source lines of a kernel with their counts, then its instructions without a line together."""
    code = kernel.code
    if code is None:
        return
    without = [at for at, place in enumerate(code.places) if place is None]
    groups = [*code.lines.instructions, *([without] if without else [])]
    for which, tables in zip(groups, lines_of_tables(code.heat, groups), strict=True):
        yield MeasuredLine(kernel, code, which, tables)
