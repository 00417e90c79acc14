"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_LISTED = 8
"""Things that a message lists."""


def counted(number: int, noun: str) -> str:
    """Return how many there are of something: ``1 finding``, ``2 launches``.

    Args:
        noun: in the singular.
    """
    plural = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def enumerated(items: Iterable[str]) -> str:
    """Return a list for a message: ``a, b, c``; ``none``; of a long one the first and ``… and 120 more``."""
    every = list(items)
    shown = every if len(every) <= _MOST_LISTED + 1 else every[:_MOST_LISTED]
    more = f" and {len(every) - len(shown)} more" if len(shown) < len(every) else ""
    return (", ".join(shown) or "none") + more
