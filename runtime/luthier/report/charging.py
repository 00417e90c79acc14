"""Source lines to which instructions are charged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from luthier.objects.user_source import lines_text

COLUMNS = ("file", "line", "inlined", "user_file", "user_line")
"""Columns of the table of listings for source lines; older runs lack some."""


class SourceLine(NamedTuple):
    """Line of a source file."""

    file: str
    """Path recorded by the compiler."""
    line: int

    def __str__(self) -> str:
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}"


def charged(columns: Mapping[str, Sequence[Any]]) -> list[SourceLine | None]:
    """Return the line to which each instruction is charged; None if it has none.

    Args:
        columns: of the table of listings. Runs of the first versions have only an instruction's own line.
    """
    none = [None] * len(columns["address"])
    own, user = (
        zip(*(columns.get(name, none) for name in names), strict=True)
        for names in (("file", "line"), ("user_file", "user_line"))
    )
    chosen = (one if theirs[0] is None else theirs for one, theirs in zip(own, user, strict=True))
    return [SourceLine(file, line) if file and line else None for file, line in chosen]


def span(places: Iterable[SourceLine | None]) -> str:
    """Return ``file:first-last`` for the file with most of the places, without its folders; "" if there are none."""
    return lines_text([place for place in places if place is not None]).rsplit("/", 1)[-1]


def spans(blocks: Sequence[int], block_of: Sequence[int], places: Sequence[SourceLine | None]) -> list[str]:
    """Return the span of each block; `block_of` and `places` have an element for each instruction."""
    of: dict[int, list[SourceLine | None]] = {}
    for block, place in zip(block_of, places, strict=True):
        of.setdefault(block, []).append(place)
    return [span(of.get(block, ())) for block in blocks]
