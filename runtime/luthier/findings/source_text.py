"""The text of source lines, as a compiler's messages show it."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import unquote

from luthier.objects.source import SourceFrame
from luthier.terminal import visible

_URI = "file://"
_MOST_BYTES = 4 << 20
"""Larger files are not read."""
_MOST_COLUMNS = 160
"""Longer lines are cut."""


def shown_line(frame: SourceFrame, object: str) -> Iterator[str]:
    """Yield a source line with its number, and a mark below its column; nothing if the file cannot be read.

    Args:
        object: path or URI of the file that was built from the source: a source that is newer may have other lines.
    """
    line = _line(frame.file, frame.line)
    if line is None:
        return
    program = unquote(object.removeprefix(_URI).partition("#")[0]) if object.startswith(_URI) else object
    if _written(frame.file) > (_written(program) or float("inf")):
        yield f"{'':>5} | (the file is newer than the program: its lines may have moved)"
        return
    before = line.encode()[: max(frame.column - 1, 0)].decode(errors="replace")
    text, column = line.replace("\t", " "), len(before)
    if column >= _MOST_COLUMNS:
        return
    yield f"{frame.line:>5} | {visible(text[:_MOST_COLUMNS])}"
    if frame.column:
        yield f"{'':>5} | {' ' * column}^"


def _line(file: str, number: int) -> str | None:
    lines = _lines(file)
    return lines[number - 1].rstrip() if 0 < number <= len(lines) else None


@functools.lru_cache(maxsize=64)
def _lines(file: str) -> tuple[str, ...]:
    """Return the lines of a regular file; none if it is large or cannot be read."""
    try:
        with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
            about = os.fstat(opened.fileno())
            if stat.S_ISREG(about.st_mode) and about.st_size <= _MOST_BYTES:
                return tuple(opened.read().decode(errors="replace").split("\n"))
    except (OSError, ValueError):  # ValueError: a null character in the path
        pass
    return ()


def _written(file: str) -> float:
    """Return when a file was last written; 0 if that is unknown."""
    with suppress(OSError, ValueError):
        return os.stat(file).st_mtime
    return 0
