"""Numbers and lists in messages."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_LISTED = 8
"""The most items that a message lists."""


def counted(number: int, noun: str) -> str:
    """Return a number with a noun, which is given in the singular: ``1 finding``, ``2,000 launches``."""
    plural = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def enumerated(items: Iterable[str]) -> str:
    """Return a list for a message: ``a, b, c``; ``none``; a long list is cut to ``… and 120 more``."""
    every = list(items)
    shown = every if len(every) <= _MOST_LISTED + 1 else every[:_MOST_LISTED]
    more = f" and {len(every) - len(shown)} more" if len(shown) < len(every) else ""
    return (", ".join(shown) or "none") + more
