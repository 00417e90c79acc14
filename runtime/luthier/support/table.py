"""Tables: what tools report."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from luthier.support import markup
from luthier.support.markup import Cell
from luthier.terminal import visible

__all__ = ["Cell", "Table"]


@dataclass(frozen=True)
class Table:
    """Rows under column names, with a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self, width: int = 0) -> str:
        """Return the table as aligned text, with numbers to the right.

        Args:
            width: columns of a terminal that lines are to fit: long texts lose their middle, down to 12 characters
                each; 0: as wide as it gets.
        """
        cells = [[visible(str(name)) for name in self.columns], *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        numeric = [
            bool(self.rows) and all(isinstance(row[at], int | float) or row[at] is None for row in self.rows)
            for at in range(len(self.columns))
        ]
        if width:
            widths = _fitted(widths, numeric, width)
        lines = [visible(self.title)] if self.title else []
        for row in cells:
            padded = (
                cell.rjust(size) if right else _cut(cell, size).ljust(size)
                for cell, size, right in zip(row, widths, numeric, strict=True)
            )
            lines.append(("  " + "  ".join(padded)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the table as HTML for notebooks."""
        return markup.table(self.title, self.columns, self.rows)

    def csv(self) -> str:
        """Return the table as comma-separated values, after a line of column names."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Return title, names of columns and rows, as `from_json` takes them."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Table:
        """Return the table that `to_json` gave as plain data."""
        return cls(value["title"], value["columns"], value["rows"])


_SHORTEST = 12
"""Characters that a text keeps where a line is too long."""


def _fitted(widths: Sequence[int], numeric: Sequence[bool], width: int) -> list[int]:
    """Return column widths with the longest texts cut so that a line fits, as far as possible."""
    widths = list(widths)
    texts = [at for at, right in enumerate(numeric) if not right]
    while sum(widths) + 2 * len(widths) > width:
        longest = max(texts, key=lambda at: widths[at], default=-1)
        if longest < 0 or widths[longest] <= _SHORTEST:
            break
        widths[longest] -= 1
    return widths


def _cut(text: str, size: int) -> str:
    if len(text) <= size:
        return text
    end = (size - 1) // 3
    return f"{text[: size - 1 - end]}…{text[len(text) - end :]}"


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else visible(str(cell))
