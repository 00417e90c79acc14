"""Tables: what tools report."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from luthier import markup
from luthier.markup import Cell

__all__ = ["Cell", "Table"]


@dataclass(frozen=True)
class Table:
    """Rows under column names, with a title."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        """Aligned for reading: numbers to the right."""
        cells = [list(self.columns), *([_shown(cell) for cell in row] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        numeric = [
            bool(self.rows) and all(isinstance(row[at], int | float) or row[at] is None for row in self.rows)
            for at in range(len(self.columns))
        ]
        lines = [self.title] if self.title else []
        for row in cells:
            padded = (
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            )
            lines.append(("  " + "  ".join(padded)).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """For notebooks."""
        return markup.table(self.title, self.columns, self.rows)

    def csv(self) -> str:
        """Comma-separated, with a line of column names."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(self.rows)
        return out.getvalue()

    def to_json(self) -> dict[str, Any]:
        """Title, names of columns, rows: what `from_json` takes."""
        return {"title": self.title, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Table:
        """The table that `to_json` gave."""
        return cls(value["title"], value["columns"], value["rows"])


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
