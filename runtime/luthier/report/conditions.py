"""Conditions that make a report fail: values in tools' tables, or differences between two runs."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.objects.names import matches
from luthier.report.compare import ComparedRow, compared, difference, words
from luthier.run.folder import RunFolder
from luthier.support import strict_json
from luthier.support.suggestions import did_you_mean
from luthier.support.table import Cell, Table

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_REDUCTIONS: Mapping[str, Callable[[Iterable[float]], float]] = {"max": max, "min": min, "sum": sum}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_CONDITION = re.compile(rf"(.+?)\s*({'|'.join(_OPERATORS)})\s*({_NUMBER})\s*(%?)")
_REDUCED = re.compile(rf"({'|'.join(_REDUCTIONS)})\((.+)\)")
_NAMED = re.compile(r"([\w-]+)(?:\[(.+)\])?\.(.+)")
"""Tool, optional table, column."""
_COMPARED = ("kernels", "opcodes", "variables")
"""Names of the tables of a comparison, in order."""
_PLACE = ("source", "block", "address", "instruction")
"""Columns that locate a row, besides the kernel."""
SHOWN = 10
"""Number of violations of a condition that are printed; the others are counted."""


class Condition(Struct, frozen=True):
    """A condition as given on the command line."""

    text: str
    reduction: str
    """A name of `_REDUCTIONS`; "": each row."""
    name: str
    """Name of the value."""
    compare: str
    """One of `_OPERATORS`."""
    bound: float
    percent: bool
    """Whether ``%`` follows the bound."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Parse a condition such as ``coalescing.efficiency < 50``.

        Raises:
            LuthierError: the text is malformed.
        """
        match = _CONDITION.fullmatch(text.strip())
        if match is None:
            raise LuthierError(
                f"--fail-if {text!r} is malformed: give a name, one of {' '.join(sorted(_OPERATORS))} and a number, "
                "such as 'coalescing.efficiency < 50'"
            )
        reduced = _REDUCED.fullmatch(match[1])
        reduction, name = (reduced[1], reduced[2].strip()) if reduced else ("", match[1])
        return cls(text.strip(), reduction, name, match[2], float(match[3]), bool(match[4]))

    def error(self, problem: str) -> LuthierError:
        """Return an error about the condition."""
        return LuthierError(f"--fail-if {self.text!r}: {problem}")

    def holds(self, value: float) -> bool:
        """Return whether the condition holds for a number."""
        return _OPERATORS[self.compare](value, self.bound)


class Violation(Struct, frozen=True):
    """A row, or all rows of a table together, for which a condition holds."""

    value: str
    """The number as text."""
    kernel: str
    """Symbol or name, as in the table; "" if the row has no kernel."""
    place: Mapping[str, Cell]
    """Location in the kernel: cells of the columns `_PLACE` that the table has."""
    row: str
    """Other text that identifies the row."""

    @property
    def where(self) -> str:
        """Return kernel, source line and other facts about the location as text."""
        parts = [f"kernel {self.kernel}"] if self.kernel else []
        parts += [
            f"block {cell}" if name == "block" else str(cell)
            for name, cell in self.place.items()
            if cell not in (None, "")
        ]
        return ", ".join([*parts, *([self.row] if self.row else [])])


class Verdict(Struct, frozen=True):
    """A condition and the rows for which it holds."""

    condition: Condition
    rows: int
    """Number of rows judged."""
    violations: Sequence[Violation]
    unmatched: Sequence[str] = ()
    """Rows of a comparison that are in one run only."""

    def lines(self) -> Iterator[str]:
        """Yield the verdict as lines of text; none if there is nothing to report."""
        for violation in self.violations[:SHOWN]:
            yield f"{self.condition.text}: {violation.value}" + (f" ({violation.where})" if violation.where else "")
        if len(self.violations) > SHOWN:
            yield f"{self.condition.text}: {len(self.violations) - SHOWN} more"
        yield from self.unjudged()

    def unjudged(self) -> Iterator[str]:
        """Yield sentences about rows that are in one run only, or that there is nothing to judge."""
        if not self.rows:
            yield f"{self.condition.text}: no row has a number, so there is nothing to judge"
        if self.unmatched:
            more = f" and {len(self.unmatched) - SHOWN} more" if len(self.unmatched) > SHOWN else ""
            yield f"{self.condition.text}: in one run only, so not compared: {', '.join(self.unmatched[:SHOWN])}{more}"


def judge(run: RunFolder, conditions: Iterable[Condition], against: RunFolder | None = None) -> list[Verdict]:
    """Evaluate conditions.

    Args:
        run: the run to judge.
        conditions: on values in tools' tables, or, with `against`, on differences.
        against: the run to compare with.

    Raises:
        LuthierError: a condition names an unknown tool, table, column or number, or there is nothing to judge.
    """
    conditions = list(conditions)
    if against is None:
        return [_of_tables(run, one) for one in conditions]
    tables = dict(zip(_COMPARED, compared(run, against), strict=True)) if conditions else {}
    return [_of_differences(tables, one) for one in conditions]


def _of_tables(run: RunFolder, condition: Condition) -> Verdict:
    rows = 0
    violations: list[Violation] = []
    for table, at in _columns(run, condition):
        values = [(row, _number(row[at], condition)) for row in table.rows]
        known = [(row, value) for row, value in values if value is not None]
        rows += len(known)
        if condition.reduction and known:
            value = _REDUCTIONS[condition.reduction](value for _, value in known)
            if condition.holds(value):
                what = table.title or condition.name
                violations.append(Violation(f"{value:.6g}", "", {}, f"{condition.reduction} of {len(known)}, {what}"))
        elif not condition.reduction:
            violations += [_violation(table, row, at, f"{value:.6g}") for row, value in known if condition.holds(value)]
    return Verdict(condition, rows, violations)


def _columns(run: RunFolder, condition: Condition) -> list[tuple[Table, int]]:
    """Return the tables that a condition names, each with the position of the column.

    Raises:
        LuthierError: there are none.
    """
    match = _NAMED.fullmatch(condition.name)
    tools = [tool.tool for tool in run.summary.tools]
    if match is None:
        raise condition.error(
            f"{condition.name!r} does not name a column: give TOOL.COLUMN or "
            f"TOOL[TABLE].COLUMN of a tool of the run ({', '.join(dict.fromkeys(tools)) or 'it has none'})"
        )
    tool, title, column = match.groups()
    if tool not in tools:
        available = ", ".join(dict.fromkeys(tools)) or "none"
        raise condition.error(f"the run has no tool {tool!r}; it has {available}{did_you_mean(tool, tools)}")
    tables = _tables_of(run, condition, tool, title)
    chosen = [(table, at) for table in tables if (at := _position(table.columns, column)) is not None]
    if not chosen:
        names = dict.fromkeys(str(name) for table in tables for name in table.columns)
        available = ", ".join(names) or "none"
        raise condition.error(
            f"{tool} reported no column {column!r}; it reported {available}{did_you_mean(column, names)}"
        )
    for table, at in chosen:
        if condition.percent and "%" not in table.columns[at]:
            raise condition.error(
                f"{table.columns[at]!r} is not a percentage, so the bound takes no %; "
                "differences in percent need --against"
            )
    return chosen


def _tables_of(run: RunFolder, condition: Condition, tool: str, title: str | None) -> list[Table]:
    """Return the tables of a tool, or those with a title.

    Raises:
        LuthierError: none has the title.
    """
    reported = (table for report in run.summary.tools if report.tool == tool for table in report.tables)
    tables = [_by_variable(Table(table.title, table.columns, table.rows)) for table in reported]
    if title is None:
        return tables
    titles = [table.title for table in tables]
    if not (chosen := [table for table in tables if matches(table.title, title)]):
        available = ", ".join(map(repr, titles)) or "none"
        raise condition.error(
            f"{tool} reported no table {title!r}; it reported {available}{did_you_mean(title, titles)}"
        )
    return chosen


def _by_variable(table: Table) -> Table:
    """Return a table of tool variables with a column for each variable; other tables unchanged."""
    if list(table.columns) != ["variable", "value"]:
        return table
    return Table(table.title, [str(row[0]) for row in table.rows], [[row[1] for row in table.rows]])


def _position(columns: Sequence[str], name: str) -> int | None:
    """Return the position of a column; case and a final percent sign are ignored."""
    if name in columns:
        return list(columns).index(name)
    folded = [_folded(one) for one in columns]
    return folded.index(_folded(name)) if _folded(name) in folded else None


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name.lower()).removesuffix("%").strip() or name


def _number(cell: Cell, condition: Condition) -> float | None:
    """Return a cell as a number; None if it is empty.

    Raises:
        LuthierError: the cell is text.
    """
    value = strict_json.number(cell)
    if value is None or isinstance(value, bool | int | float):
        return value
    raise condition.error(f"the column contains {str(cell)[:40]!r}, which is not a number")


def _violation(table: Table, row: Sequence[Cell], at: int, value: str) -> Violation:
    cells = dict(zip(table.columns, row, strict=True))
    place = {name: cells[name] for name in _PLACE if name in cells}
    kernel = str(cells["kernel"]) if "kernel" in cells else table.title if place else ""
    if kernel or place:
        return Violation(value, kernel, place, "")
    # Identify other rows by their texts.
    texts = [f"{name} {cell}" for name, cell in cells.items() if isinstance(cell, str)]
    return Violation(value, "", {}, ", ".join([*([table.title] if table.title else []), *texts]))


def _of_differences(tables: Mapping[str, Table], condition: Condition) -> Verdict:
    has_kernels, rows = _compared_rows(tables, condition)
    both = [row for row in rows if row.is_of_both]
    if not both:
        raise condition.error("no row is in both runs, so there is nothing to compare")
    unmatched = [words(row.keys) for row in rows if not row.is_of_both]
    if not condition.reduction:
        violations = [
            Violation(change, str(row.keys[0]), {}, words(row.keys[1:]))
            if has_kernels
            else Violation(change, "", {}, words(row.keys))
            for row in both
            if (change := _violating(row.run, row.against, condition))
        ]
        return Verdict(condition, len(both), violations, unmatched)
    reduce, both_values = _REDUCTIONS[condition.reduction], [(row.run, row.against) for row in both]
    run, against = (reduce(float(value or 0) for value in column) for column in zip(*both_values, strict=True))
    change = _violating(run, against, condition)
    violations = [Violation(change, "", {}, f"{condition.reduction} of all")] if change else []
    return Verdict(condition, 1, violations, unmatched)


def _violating(run: Cell, against: Cell, condition: Condition) -> str:
    """Return two values and their difference as text if a condition holds for them; otherwise ""."""
    value, base = float(run or 0), float(against or 0)
    if not condition.holds(_change(value, base) if condition.percent else difference(value, base)):
        return ""
    change = f"{_change(value, base):+.6g} %" if base else f"{difference(value, base):+.6g}"
    return f"{value:.6g} against {base:.6g}, {change}"


def _change(value: float, base: float) -> float:
    """Return by how many percent a value exceeds a base."""
    by = difference(value, base)
    if base == 0 or by == 0:
        return math.copysign(math.inf, by) if by else 0.0
    return 100 * by / abs(base)


def _compared_rows(tables: Mapping[str, Table], condition: Condition) -> tuple[bool, list[ComparedRow]]:
    """Return whether the rows that a condition names have kernels, and these rows.

    Raises:
        LuthierError: there are none, or they cannot be compared.
    """
    name = condition.name
    word, _, what = name.partition(".")
    title, wanted = (word, what) if what and word in tables else ("kernels", name)
    chosen = _rows(tables[title])
    names = list(dict.fromkeys(str(row.what) for row in chosen))
    if wanted == "emulation_ns":
        raise condition.error("time of emulated devices is not compared, since it is not the time of a GPU")
    position = _position(names, wanted)
    if position is not None:
        return tables[title].columns[0] == "kernel", [row for row in chosen if row.what == names[position]]
    variables = [row for row in _rows(tables["variables"]) if ".".join(map(str, row.keys)) == name]
    if variables:
        return False, variables
    available = [
        *(str(what) for what in dict.fromkeys(row.what for row in _rows(tables["kernels"])) if what != "emulation_ns"),
        *(f"opcodes.{what}" for what in dict.fromkeys(row.what for row in _rows(tables["opcodes"]))),
        *(".".join(map(str, row.keys)) for row in _rows(tables["variables"])),
    ]
    raise condition.error(
        f"the comparison has no {name!r}; it has {', '.join(available) or 'nothing'}{did_you_mean(name, available)}"
    )


def _rows(table: Table) -> list[ComparedRow]:
    return [ComparedRow.of(row) for row in table.rows]
