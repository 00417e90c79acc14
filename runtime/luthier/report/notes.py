"""Notes of people about a run: ``notes.md`` in its folder, for the report page.

A heading of the second level names what the text below it is about: a kernel, a source line (``mix.hip:21``), or the
whole run (``*``), which the text before the first heading is about, too::

    Measured before the change of the layout.

    ## transpose<float>
    Stage through LDS.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.run.tables import open_regular

FILE = "notes.md"
_HEADING = "## "
_ESCAPED = re.compile(rf"\\+{_HEADING}")
"""Begins a line of a note that would otherwise be a heading; one backslash is not the note's."""
_BLANKS = " \t\n"
_WHOLE = "*"
_LARGEST = 1 << 20
"""In bytes."""


class RunNote(Struct, frozen=True):
    """A note of a person."""

    place: str
    """Kernel, or ``file:line``; "" for the whole run."""
    text: str


def read_notes(folder: Path) -> list[RunNote]:
    """Return the notes in a run folder, in their order.

    Raises:
        LuthierError: the file is not a regular file of UTF-8 text of at most a mebibyte.
    """
    file = folder / FILE
    if not file.exists() and not file.is_symlink():
        return []
    with open_regular(file) as opened:
        data = opened.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise LuthierError(f"{file} is larger than {_LARGEST} bytes: notes are shown up to this size")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise LuthierError(f"{file} is not UTF-8 text: {problem}") from None
    notes = []
    place, lines = "", list[str]()
    for line in [*text.replace("\r\n", "\n").split("\n"), _HEADING]:
        if not line.startswith(_HEADING):
            lines.append(line[1:] if _ESCAPED.match(line) else line)
            continue
        if shown := "\n".join(lines).strip(_BLANKS):
            notes.append(RunNote(place, shown))
        name = line.removeprefix(_HEADING).strip(_BLANKS)
        place, lines = "" if name == _WHOLE else name, []
    return notes
