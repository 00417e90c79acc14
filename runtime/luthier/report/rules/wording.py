"""Numbers in the texts of findings and summaries, and the pages of the rules here."""

from __future__ import annotations

from pathlib import Path

PAGES = Path(__file__).parents[1] / "explanations"
"""Folder of the pages."""


def number(value: float) -> str:
    """Return a number with at most one decimal."""
    return f"{value:,.1f}".removesuffix(".0")


def count(value: float) -> str:
    """Return a whole number with separated thousands."""
    return f"{value:,.0f}"
