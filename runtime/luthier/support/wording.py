"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return how many there are of something: ``1 finding``, ``2 launches``.

    Args:
        noun: in the singular.
    """
    plural = "es" if noun.endswith(("ch", "s")) else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"
