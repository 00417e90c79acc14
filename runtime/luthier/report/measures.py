"""Measurements of tools at instructions, combined for source lines: sums are added, ratios recomputed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Values = Sequence[float | int | None]
"""One for each instruction of a kernel."""

QUOTIENTS = {"lines/request": ("lines", "requests"), "cycles/needed": ("cycles", "cycles needed")}
"""Ratio -> columns for numerator and denominator, summed over instructions."""
WEIGHTED = {"efficiency %": "lines", "utilisation %": "vector instructions", "%": "waves"}
"""Ratio -> column that weights its mean, which is then the ratio of the sums."""


def is_ratio(name: str) -> bool:
    """Return whether the values of a column are ratios, which cannot be summed."""
    return "%" in name or "/" in name or "ratio" in name or "mean" in name


def together(name: str, columns: Mapping[str, Values], which: Sequence[int]) -> float | int | None:
    """Combine the values of several instructions into one; return None if that is not possible.

    Args:
        columns: columns of one table.
        which: numbers of the instructions.
    """
    values = [value for at in which if (value := columns[name][at]) is not None]
    if not values:
        return None
    if not is_ratio(name):
        return sum(values)
    if len(values) == 1:
        return values[0]
    if name in QUOTIENTS and all(part in columns for part in QUOTIENTS[name]):
        over, under = (sum(columns[part][at] or 0 for at in which) for part in QUOTIENTS[name])
        return round(over / under, 2) if under else None
    if (weight := WEIGHTED.get(name)) in columns:
        pairs = [(columns[name][at], columns[str(weight)][at]) for at in which]
        known = [(value, by) for value, by in pairs if value is not None and by is not None]
        total = sum(by for _, by in known)
        return round(sum(value * by for value, by in known) / total, 1) if total else None
    return values[0] if len(set(values)) == 1 else None


def is_per_lane(text: str) -> bool:
    """Return whether an instruction, given by its mnemonic or text, executes once per lane: its active lanes count.

    All mnemonics of instructions that execute once per wave begin with ``s_``. Unknown ones (``.long``) do not count.
    """
    return bool(text) and not text.startswith(("s_", "."))


def lines_of_tables(
    heat: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[int]]
) -> list[list[dict[str, float | int | None]]]:
    """Return for each group of instructions the values of each table with addresses, by column."""
    tables = _by_table(heat).values()
    return [[{name: together(name, columns, which) for name in columns} for columns in tables] for which in groups]


def _by_table(heat: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Values]]:
    tables: dict[tuple[str, str], dict[str, Values]] = {}
    for column in heat:
        if column["key"] == "address":
            tables.setdefault((column["tool"], column["title"]), {})[column["name"]] = column["values"]
    return tables


def by_line(heat: Sequence[Mapping[str, Any]], groups: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    """Return measures of source lines: ``tool``, ``name``, ``values`` with one for each group of instructions.

    Values of blocks are left out, since they do not belong to single instructions.
    """
    return [
        {"tool": tool, "name": name, "values": [together(name, columns, which) for which in groups]}
        for (tool, _), columns in _by_table(heat).items()
        for name in columns
    ]
