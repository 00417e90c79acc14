"""Run folders: exclusive writing, and reading. A run folder may come from an untrusted source: missing, damaged or
foreign contents are errors."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from luthier.errors import LuthierError
from luthier.objects.names import as_in_source
from luthier.run import schema
from luthier.run.summary import RunSummary, read_summary
from luthier.run.tables import SCHEMA, SUFFIX, TableReader, open_regular, table_names
from luthier.support import strict_json
from luthier.support.files import make_private
from luthier.support.suggestions import did_you_mean
from luthier.support.table import Table

SUMMARY = "summary.json"
_PARTIAL = f"{SUMMARY}.partial"
_LARGEST_SUMMARY = 1 << 26
"""In bytes."""
_SIZES = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")
_SHOWN = 20
"""Number of rows shown of a long table."""


class Claim:
    """A run folder that only this process writes. The partial summary file marks it: the first process creates it, and
    holds a lock on it while it lives.

    As a context manager it removes everything unless it was finished.

    Args:
        folder: new folder, which only this user may enter, or empty folder of this user.

    Raises:
        LuthierError: another run writes to it, it is not empty, or it cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._partial = folder / _PARTIAL
        self._file: IO[str] | None = None
        self.added: list[str] = []
        """Names of files and folders beside the tables, which go with the claim unless it is finished."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            make_private(folder)
            if any(folder.iterdir()):
                raise LuthierError(_why_not(folder))
            try:
                self._file = self._partial.open("x")
            except FileExistsError:
                raise LuthierError(_why_not(folder)) from None
            with suppress(OSError):  # file systems without locks
                fcntl.flock(self._file, fcntl.LOCK_EX)  # waits briefly for checks in `_why_not`
            if any(path.name != _PARTIAL for path in folder.iterdir()):  # another run began and ended meanwhile
                self.discard()
                raise LuthierError(_why_not(folder))
        except OSError as problem:
            raise LuthierError(f"cannot write {folder}: {problem.strerror or problem}") from problem

    def finish(self, summary: str) -> None:
        """Write the summary, which completes the folder.

        Raises:
            LuthierError: it cannot be written.
        """
        file = self._file
        assert file is not None
        try:
            file.write(summary + "\n")
            file.flush()
            os.close(os.dup(file.fileno()))  # some file systems report errors here; the lock stays
            self._partial.rename(self.folder / SUMMARY)
            self._file = None
            file.close()
        except OSError as problem:
            raise LuthierError(f"cannot write {self.folder}: {problem.strerror or problem}") from problem

    def discard(self) -> None:
        """Release the folder, unless it is finished."""
        if self._file is not None:
            for path in (self.folder / name for name in self.added):
                shutil.rmtree(path, ignore_errors=True)
                with suppress(OSError):  # it was a folder, or not written
                    path.unlink()
            with suppress(OSError):
                self._partial.unlink()
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # do not retry failed writes
                file.close()

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            for table in self.folder.glob(f"*{SUFFIX}"):
                table.unlink(missing_ok=True)
        self.discard()


def _why_not(folder: Path) -> str:
    """Return the reason why a run cannot be written to a folder that is not empty."""
    for _ in range(20):  # the file may exist and not be locked yet
        try:
            descriptor = os.open(folder / _PARTIAL, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            base = folder if folder.name not in ("", "..") else folder.resolve()
            free = next(name for number in itertools.count(2) if not (name := Path(f"{base}-{number}")).exists())
            return f"{folder} is not empty: choose another folder, such as {free}"
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return f"another run is writing to {folder}: choose another folder, or wait until it ends"
        finally:
            os.close(descriptor)
        time.sleep(0.02)
    return f"{folder} contains the files of a killed run: remove it, or choose another folder"


class RunFolder:
    """A run folder.

    Args:
        path: path of the folder.

    Raises:
        LuthierError: it is not a run folder, or is unfinished, damaged, or of another schema.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        self.summary = self._read_summary()
        """Contents of ``summary.json``."""
        self.names = table_names(path)
        """Names of its tables."""
        for table in schema.TABLES:
            if table.name not in self.names and table.name not in schema.ADDED:
                raise LuthierError(f"{path} lacks {table.name}{SUFFIX}")

    def _read_summary(self) -> RunSummary:
        file = self.path / SUMMARY
        if not file.exists() and any(self.path.glob("*.partial")):
            raise LuthierError(f"{self.path} belongs to a run that has not ended, or was killed")
        if not file.exists():
            what = "has no summary.json" if self.path.is_dir() else "is not a folder"
            raise LuthierError(f"{self.path} is not a run folder of `luthier run -o`: it {what}")
        try:
            with open_regular(file) as opened:
                text = opened.read(_LARGEST_SUMMARY + 1)
        except OSError as problem:
            raise LuthierError(f"{file} cannot be read: {problem.strerror or problem}") from None
        if len(text) > _LARGEST_SUMMARY:
            raise LuthierError(f"{file} is larger than {_LARGEST_SUMMARY} bytes")
        return read_summary(text, file, SCHEMA)

    def table(self, name: str) -> TableReader:
        """Open a table.

        Raises:
            LuthierError: there is no such table, or it is damaged.
        """
        if name not in self.names:
            hint = did_you_mean(name, self.names)
            raise LuthierError(f"{self.path} has no table {name!r}; it has {', '.join(self.names)}{hint}")
        known = next((table for table in schema.TABLES if table.name == name), None)
        return TableReader(self.path, name, known)

    def rows(self, name: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table.

        Raises:
            LuthierError: as for `table`.
        """
        with self.table(name) as reader:
            for batch in reader.batches(columns):
                yield from batch.to_pylist()

    def tool_tables(self, name: str | None = None) -> list[Table]:
        """Return the tables that the tools reported, or one of them."""
        return [
            Table(
                f"{tool.tool} {table.title}".strip(),
                table.columns,
                [[strict_json.number(cell) for cell in row] for row in table.rows],
            )
            for tool in self.summary.tools
            if name in (None, tool.tool)
            for table in tool.tables
        ]

    def whole(self, name: str) -> Table:
        """Return all rows and columns of a table.

        Raises:
            LuthierError: there is no such table, or it is damaged.
        """
        with self.table(name) as reader:
            columns = tuple(reader.columns)
            return Table(
                name,
                columns,
                [[row[column] for column in columns] for batch in reader.batches() for row in batch.to_pylist()],
            )

    def shown(self) -> Iterator[Table]:
        """Yield tables to show: the tools' tables in full, the first rows of others.

        Raises:
            LuthierError: a file is damaged.
        """
        yield self.summary.facts()
        yield from self.tool_tables()
        yield self._first("kernels", "kernel", "launches", "instrumented", "sites", "requested_sites", "reason")
        yield self._variables()
        yield self.executed()
        yield self._first("launches", "process", "device", "kernel", "number", "instrumented", *_SIZES)
        yield self._first("counts", "kernel", "address", "mnemonic", "executions", "active_lanes")
        yield Table("faults", ("fault",), [[fault] for fault in self.summary.faults])

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: the tables of `shown`, with kernels by their names in the source."""
        return "\n".join(table._repr_html_() for table in as_in_source(self.shown()) if table.rows)

    def _first(self, name: str, *columns: str) -> Table:
        with self.table(name) as reader:
            rows: list[list[Any]] = []
            for batch in reader.batches(columns):
                rows += [[row[column] for column in columns] for row in batch.slice(0, _SHOWN - len(rows)).to_pylist()]
                if len(rows) >= _SHOWN:
                    break
        more = f", the first {len(rows)} of {reader.rows}" if reader.rows > len(rows) else ""
        return Table(name + more, columns, rows)

    def _variables(self) -> Table:
        """Return a table of the variables of one element."""
        columns = ("tool", "variable", "process", "device", "value")
        rows = []
        for row in self.rows("counters"):
            values: list[Any] = row["unsigned"] or row["signed"] or row["real"] or []
            if row["first"] == 0 and len(values) == 1:
                rows.append([*(row[name] for name in columns[:-1]), values[0]])
        return Table("variables", columns, rows)

    def executed(self) -> Table:
        """Return a table of what the virtual devices counted, if that was requested."""
        columns = ("kernel", "object", "wave_instructions", "lane_instructions")
        return Table(
            "executed", columns, [[getattr(row, name) for name in columns] for row in self.summary.executed or ()]
        )
