"""Declaration of a format of `luthier report`."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from luthier.errors import LuthierError


class ReportFormat(Struct, frozen=True, kw_only=True):
    """A format of `luthier report`, which calls it as its entry point is called.

    It can write whole runs, single tables, or both. Its functions write bytes to a file that is open; where one raises
    a `LuthierError`, no file is left.
    """

    help: str
    """One line: what is written."""
    write: Callable[..., None] | None = None
    """Function that writes a run (`RunFolder`, file). Without it, only tables are written: to a folder unless one is
    chosen."""
    write_table: Callable[..., None] | None = None
    """Function that writes the table of a name (``--table``): run (`RunFolder`), name, file."""
    suffix: str = ""
    """Suffix of the names of tables' files in a folder, such as ``.csv``."""
    compare: Callable[..., None] | None = None
    """Function that writes the differences between a run and another one (``--against``; both `RunFolder`, file)."""

    sources: bool = False
    """Whether `write` shows source files: it is called with ``roots``, the folders to look in, too."""

    verdicts: bool = False
    """Whether `write` and `compare` show what conditions (``--fail-if``) say: they are called with ``verdicts``, a
    sequence of `luthier.report.conditions.Verdict`, too."""

    def __post_init__(self) -> None:
        if self.write is None and self.write_table is None:
            raise LuthierError("a report format writes runs or tables")
