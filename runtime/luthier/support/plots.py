"""Drawings of tables, with Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luthier.errors import LuthierError
from luthier.support.extras import extra
from luthier.support.suggestions import did_you_mean
from luthier.terminal import visible, visible_lines

HEAT = "#e05a14"
"""The report page's heat colour (luthier/report/assets/page.css)."""
_WIDTH, _ROW = 8.0, 0.28
"""Size of a drawing, and height of a bar, in inches."""
_LABEL = 60
"""Characters of a label."""


_Rows = Sequence[Sequence[Any]]


def bars(title: str, columns: Sequence[str], rows: _Rows, column: str | None, top: int, axes: Any) -> Any:
    """Draw rows as horizontal bars, in their order, as described at `luthier.support.table.Table.plot`."""
    if top < 1:
        raise LuthierError(f"top must be at least 1, not {top}")
    at = _drawn_column(title, columns, rows, column)
    name = str(columns[at])
    with_value = [row for row in rows if row[at] is not None]
    drawn = with_value[:top]
    axes = new_axes(1.2 + _ROW * len(drawn)) if axes is None else axes
    values = [row[at] for row in drawn]
    axes.bar_label(axes.barh(range(len(drawn)), values, color=HEAT), map(number, values), padding=3, fontsize="small")
    axes.set_yticks(range(len(drawn)), _labels(drawn), fontsize="small")
    as_is(*axes.get_yticklabels())
    axes.yaxis.set_inverted(True)
    axes.margins(x=0.12)
    left_out = [f"the first {len(drawn)} of {len(with_value)}"] if len(drawn) < len(with_value) else []
    if unknown := len(rows) - len(with_value):
        left_out.append(f"{unknown} without a value")
    if name.endswith("%") and all(0 <= value <= 100 for value in values):
        axes.set_xlim(0, 112)
    describe(axes, ", ".join([title or name, *left_out]), name)
    return axes


def new_axes(height: float) -> Any:
    """Return the axes of a new figure.

    Args:
        height: in inches.

    Raises:
        LuthierError: Matplotlib is not installed.
    """
    return extra("matplotlib.pyplot").subplots(figsize=(_WIDTH, height), layout="constrained")[1]


def describe(axes: Any, title: str, x: str, y: str = "") -> None:
    """Set title and names of the axes, and show texts as they are."""
    heading = axes.set_title(visible_lines(title), fontsize="medium", loc="left")
    axes.set_xlabel(visible(x))
    axes.set_ylabel(visible(y))
    axes.spines[["top", "right"]].set_visible(False)
    as_is(axes.xaxis.label, axes.yaxis.label, heading, *axes.texts)


def as_is(*texts: Any) -> None:
    """Show texts of a plot as they are, not as TeX."""
    for text in texts:
        text.set_parse_math(False)


def number(value: float) -> str:
    """Return a number with separated thousands; a fraction below 1000 has at most four digits."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _drawn_column(title: str, columns: Sequence[str], rows: _Rows, column: str | None) -> int:
    """Return the position of the column to draw.

    Raises:
        LuthierError: there is no such column, it has no numbers, or there are no rows.
    """
    if not rows:
        raise LuthierError(f"{title or 'the table'} has no rows to draw")
    numeric = {}
    for at, name in enumerate(columns):
        values = [row[at] for row in rows if row[at] is not None]
        if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            numeric[str(name)] = at
    if column is None and numeric:
        return next(iter(numeric.values()))
    if column not in numeric:
        known = ", ".join(numeric) or "none"
        hint = did_you_mean(column, numeric) if column else ""
        raise LuthierError(
            f"a plot needs a column of numbers, not {column!r}; {title or 'the table'} has {known}{hint}"
        )
    return numeric[column]


def _labels(rows: _Rows) -> list[str]:
    """Return a label for each row: its texts, without those that all rows share, and paths without folders."""
    texts = [at for at in range(len(rows[0])) if any(isinstance(row[at], str) for row in rows)]
    columns = [[visible(str(row[at] or "")) for row in rows] for at in texts]
    varying = [_without_folders(column) for column in columns if len(set(column)) > 1] or columns[:1]
    whole = ["  ".join(filter(None, cells)) for cells in zip(*varying, strict=True)]
    return [text if len(text) <= _LABEL else f"…{text[1 - _LABEL :]}" for text in whole] or [""] * len(rows)


def _without_folders(texts: Sequence[str]) -> Sequence[str]:
    """Return paths without their folders, unless two would become equal."""
    short = [text.rpartition("/")[2] if text.startswith("/") else text for text in texts]
    return short if len(set(short)) == len(set(texts)) else texts
