"""HTML for notebooks: tables with escaped text.

Colours are inherited from the notebook, so that light and dark themes work.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape as _escape

from luthier.terminal import visible

_ROWS = 200
"""The most rows of a table that are shown."""
_CELL = "padding:1px 10px;white-space:nowrap;"
_HEAT = "224,90,20"
"""The report page's heat colour (luthier/report/assets/page.css)."""

_NAMES = frozenset(("address", "block", "device", "line", "process", "queue", "rank"))
"""Columns whose numbers are names, which are shown without thousands separators."""

Cell = str | int | float | bool | None


def escape(text: str) -> str:
    """Return a text for HTML, with unprintable characters made visible."""
    return _escape(visible(text))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], heat: str = "") -> str:
    """Return a table as HTML.

    Args:
        heat: column whose numbers get bars, relative to the largest.
    """
    numeric = [all(isinstance(row[at], int | float) or row[at] is None for row in rows) for at in range(len(columns))]
    hot = columns.index(heat) if heat and heat in columns else -1
    most = max((float(row[hot] or 0) for row in rows), default=0.0) if hot >= 0 else 0.0
    lines = [f"<p><b>{escape(title)}</b></p>"] if title else []
    lines.append(
        "<div style='overflow-x:auto'><table style='border-collapse:collapse;font-variant-numeric:tabular-nums'>"
    )
    head = (_cell("th", escape(str(name)), right) for name, right in zip(columns, numeric, strict=True))
    lines.append(f"<thead><tr>{''.join(head)}</tr></thead><tbody>")
    for row in rows[:_ROWS]:
        cells = []
        for at, (name, value) in enumerate(zip(columns, row, strict=True)):
            share = 100 * float(value or 0) / most if at == hot and most else 0.0
            bar = f"background:linear-gradient(to left,rgba({_HEAT},.5) {share:.1f}%,transparent {share:.1f}%);"
            cells.append(_cell("td", escape(_shown(value, name)), numeric[at], bar if share else ""))
        lines.append(f"<tr>{''.join(cells)}</tr>")
    lines.append("</tbody></table></div>")
    if len(rows) > _ROWS:
        lines.append(f"<p>and {len(rows) - _ROWS:,} more rows</p>")
    return "\n".join(lines)


def _cell(tag: str, text: str, right: bool, style: str = "") -> str:
    return f"<{tag} style='{_CELL}text-align:{'right' if right else 'left'};{style}'>{text}</{tag}>"


def _shown(value: Cell, column: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or column in _NAMES:
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}" if isinstance(value, float) else str(value)
