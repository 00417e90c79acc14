"""Tables of results."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.support import markup, plots
from luthier.support.extras import extra
from luthier.support.markup import Cell
from luthier.support.suggestions import did_you_mean
from luthier.support.wording import enumerated
from luthier.terminal import visible

__all__ = ["Cell", "Table"]


class Table(Struct, frozen=True):
    """Rows under column names, with a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self, width: int = 0) -> str:
        """Return the table as aligned text, with numbers right-aligned.

        Args:
            width: columns of the terminal; 0: unlimited. To fit, long texts lose their middle and paths their
                beginning, down to 12 characters each. If that is not enough, or makes different texts equal, each row
                is printed as several lines, one for each column.
        """
        columns = [[row[at] for row in self.rows] for at in range(len(self.columns))]
        numeric = [
            bool(column) and all(isinstance(cell, int | float) or cell is None for cell in column) for column in columns
        ]
        texts = [
            _aligned(str(name), column) if right else list(map(_shown, column))
            for name, column, right in zip(self.columns, columns, numeric, strict=True)
        ]
        cells = [[visible(str(name)) for name in self.columns], *map(list, zip(*texts, strict=True))]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        if width:
            widths = _fitted(widths, numeric, width)
            if sum(widths) + 2 * len(widths) > width or not _stay_distinct(cells, widths, numeric):
                return "\n".join(_records(visible(self.title), cells, width))
        lines = wrapped(visible(self.title), width).split("\n") if self.title else []
        for row in cells if self.columns else ():
            padded = (
                cell.rjust(size) if right else _cut(cell, size).ljust(size)
                for cell, size, right in zip(row, widths, numeric, strict=True)
            )
            lines.append(("  " + "  ".join(padded)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML for notebooks."""
        return markup.table(self.title, self.columns, self.rows)

    def where(self, **values: Cell) -> Table:
        """Return the table with only the rows that have these values in the columns of these names.

        Raises:
            LuthierError: there is no such column.
        """
        columns = list(map(str, self.columns))
        for name in values:
            if name not in columns:
                has = f"{self.title or 'the table'} has {enumerated(columns)}{'' if self.rows else ', and no rows'}"
                raise LuthierError(f"there is no column {name!r}; {has}{did_you_mean(name, columns)}")
        places = {columns.index(name): value for name, value in values.items()}
        rows = [row for row in self.rows if all(row[at] == value for at, value in places.items())]
        return Table(self.title, self.columns, rows)

    def to_pandas(self) -> Any:
        """Return the table as a pandas data frame, with its title in ``attrs["title"]``.

        Raises:
            LuthierError: pandas is not installed.
        """
        frame = extra("pandas").DataFrame([list(row) for row in self.rows], columns=list(map(str, self.columns)))
        frame.attrs["title"] = self.title
        return frame

    def plot(self, column: str | None = None, *, top: int = 20, axes: Any = None) -> Any:
        """Draw rows as horizontal bars, and return the Matplotlib axes.

        Args:
            column: column of numbers; None: the first one.
            top: number of rows, from the first; the title says how many there are.
            axes: axes to draw into; None: those of a new figure.

        Raises:
            LuthierError: Matplotlib is not installed, there is no such column, or there are no rows.
        """
        return plots.bars(self.title, self.columns, self.rows, column, top, axes)

    def csv(self) -> str:
        """Return the table as comma-separated values, after a line of column names."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return title, column names and rows for `from_json`."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Table:
        """Return the table from the data of `to_json`."""
        return cls(value["title"], value["columns"], value["rows"])


_SHORTEST = 12
"""The fewest characters to which a text is cut."""


def _fitted(widths: Sequence[int], numeric: Sequence[bool], width: int) -> list[int]:
    """Return column widths with the longest texts cut until a line fits, if possible."""
    widths = list(widths)
    texts = [at for at, right in enumerate(numeric) if not right]
    while sum(widths) + 2 * len(widths) > width:
        longest = max(texts, key=lambda at: widths[at], default=-1)
        if longest < 0 or widths[longest] <= _SHORTEST:
            break
        widths[longest] -= 1
    return widths


def _stay_distinct(cells: Sequence[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool]) -> bool:
    """Return whether different texts of a column stay different when they are cut."""
    return all(
        right or len({row[at] for row in cells}) == len({_cut(row[at], size) for row in cells})
        for at, (size, right) in enumerate(zip(widths, numeric, strict=True))
    )


def _records(title: str, cells: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table that does not fit: the non-empty cells of each row, one per line."""
    if title:
        yield wrapped(title, width)
    names, *rows = cells
    if not rows:
        yield wrapped(f"  {', '.join(names)}", width)
    label = min(max(map(len, names), default=0), max(width // 3, 8))
    for row in rows:
        indent = "  "
        for name, cell in zip(names, row, strict=True):
            if cell:
                yield wrapped(f"{indent}{name.ljust(label)}  {cell}", width)
                indent = "    "


def wrapped(text: str, width: int) -> str:
    """Return a text with lines longer than `width` broken; 0: unlimited."""
    if not width:
        return text
    return "\n".join(part for line in text.split("\n") for part in _broken(line, width))


def _broken(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    indent = min(len(line) - len(line.lstrip()) + 4, width // 2)
    own = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line.lstrip(),
        width,
        initial_indent=own,
        subsequent_indent=" " * indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_on_hyphens=False,
    )


def _cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    if text.startswith("/"):  # keep the file name and line of a path
        return f"…{text[len(text) - size + 1 :]}"
    end = (size - 1) // 3
    return f"{text[: size - 1 - end]}…{text[len(text) - end :]}"


_NAMES = frozenset(
    (
        *("process", "thread", "device", "queue", "rank", "launch", "group", "wave", "block", "number", "first"),
        *("address", "pc", "line", "user_line"),
    )
)
"""Columns whose numbers are names: their thousands are not separated."""


def _aligned(name: str, cells: Sequence[Cell]) -> list[str]:
    """Return numbers as text, decimal points below each other, thousands separated unless the numbers are names.

    Numbers have equally many decimals. A column of whole and other numbers mixes quantities, unless it is of
    percentages. Each percentage has its own decimals.
    """
    reals = [cell for cell in cells if isinstance(cell, float) and math.isfinite(cell)]
    texts = [f"{cell:.6g}" if abs(cell) < 1e6 else f"{cell:.0f}" for cell in reals if abs(cell) < 1e15]
    if len(texts) < len(reals) or any("e" in text for text in texts):
        return list(map(_shown, cells))
    decimals = max((len(text.partition(".")[2]) for text in texts), default=0)
    comma = "" if name in _NAMES else ","
    if decimals and "%" not in name and any(isinstance(cell, int) and not isinstance(cell, bool) for cell in cells):
        return [_padded(cell, comma, decimals) for cell in cells]
    return [
        f"{cell:{comma}.{decimals}f}"
        if isinstance(cell, float) and math.isfinite(cell)
        else f"{cell:{comma}d}" + (f".{'0' * decimals}" if decimals else "")
        if isinstance(cell, int) and not isinstance(cell, bool)
        else _shown(cell)
        for cell in cells
    ]


def _padded(cell: Cell, comma: str, decimals: int) -> str:
    """Return a number with its own decimals, and spaces in place of those that it lacks."""
    if not isinstance(cell, int | float) or isinstance(cell, bool) or not math.isfinite(cell):
        return _shown(cell)
    whole, point, rest = (f"{cell:{comma}d}" if isinstance(cell, int) else f"{cell:{comma}.{decimals}f}").partition(".")
    rest = rest.rstrip("0")
    return f"{whole}{point if rest else ' '}{rest.ljust(decimals)}"


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else visible(str(cell))
