"""How a channel is told from other variables; known without NumPy, since whoever reads a tool asks."""

from __future__ import annotations

MAGIC = b"luthier.channel\0"
"""What its contents begin with."""


def is_channel(initial: bytes) -> bool:
    """Whether a variable with these contents is a channel."""
    return initial[: len(MAGIC)] == MAGIC
