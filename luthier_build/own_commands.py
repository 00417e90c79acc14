"""Recognise Luthier's own compile commands. Imports as little as the wrapper does."""

from __future__ import annotations

from luthier_build.wrapper_tables import MARKER

_MARKS = (b"luthier_build.wrapper", MARKER.encode())
"""Byte strings that occur in Luthier's own commands: in the script and in the native programs."""


def is_wrapper(path: str) -> bool:
    """Return whether the program is one of Luthier's wrappers, also as a link or a copy under another name."""
    try:
        with open(path, "rb") as file:
            start = file.read(1 << 18)
    except OSError:
        return False
    return any(mark in start for mark in _MARKS)
