"""Declaration of a format of `luthier report`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from luthier.errors import LuthierError


class ReportFormat(Struct, frozen=True, kw_only=True):
    """A format of `luthier report`, named by its entry point.

    It writes whole runs, single tables, or both. Its functions write bytes to an open file, which is removed if they
    raise a `LuthierError`.
    """

    help: str
    """One line of help."""
    write: Callable[..., None] | None = None
    """Writes a run (`RunFolder`, file). Without it, tables are written: the one that is chosen, or all to a folder."""
    write_table: Callable[..., None] | None = None
    """Writes the table of a name (``--table``): run (`RunFolder`), name, file."""
    suffix: str = ""
    """Suffix of table files in a folder, such as ``.csv``."""
    compare: Callable[..., None] | None = None
    """Writes the differences between a run and another one (``--against``; both `RunFolder`, file)."""

    sources: bool = False
    """Whether `write` shows source files; then it also takes ``roots``, the folders to look in."""

    measured: bool = False
    """Whether `write` shows tables of what a GPU measured (``--counters``); then it also takes ``measured``, a sequence
    of `Table`."""

    verdicts: bool = False
    """Whether `write` and `compare` show conditions (``--fail-if``); then they also take ``verdicts``, a sequence of
    `luthier.report.conditions.Verdict`."""

    numbers: bool = False
    """Whether `write` sums one number (``--number``); then it also takes ``number``, a name or None."""

    def __post_init__(self) -> None:
        if self.write is None and self.write_table is None:
            raise LuthierError("a report format must write runs or tables")
