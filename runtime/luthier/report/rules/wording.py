"""Numbers in the texts of findings and summaries."""

from __future__ import annotations


def number(value: float) -> str:
    """Return a number with at most one decimal."""
    return f"{value:,.1f}".removesuffix(".0")


def count(value: float) -> str:
    """Return a whole number with separated thousands."""
    return f"{value:,.0f}"
