"""Recognising Luthier's own compile commands among the programs of a machine. Imports as little as the wrapper does."""

from __future__ import annotations

from luthier_build.wrapper_tables import MARKER

_MARKS = (b"luthier_build.wrapper", MARKER.encode())
"""Marks of Luthier's own commands: in the script, and in the native programs."""


def is_wrapper(path: str) -> bool:
    """Return whether the program is one of Luthier's wrappers, be it linked or copied and under any name."""
    try:
        with open(path, "rb") as file:
            start = file.read(1 << 18)
    except OSError:
        return False
    return any(mark in start for mark in _MARKS)
