"""Mark that distinguishes channels from other variables.

This module does not import NumPy, since every reader of a tool needs it.
"""

from __future__ import annotations

from luthier.wire.channels import MAGIC


def is_channel(initial: bytes) -> bool:
    """Return whether a variable with these contents is a channel."""
    return initial[: len(MAGIC)] == MAGIC
