"""Reading a run directory, which may come from strangers: what is missing, damaged or foreign is an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from luthier.errors import LuthierError
from luthier.objects.names import as_in_source
from luthier.run import schema
from luthier.run.tables import SCHEMA, SUFFIX, TableReader, open_regular, table_names
from luthier.table import Table

SUMMARY = "summary.json"
_LARGEST_SUMMARY = 1 << 26
"""Bytes."""
_KEYS = {"command": list, "exit_code": int, "tools": list, "processes": list, "faults": list, "tables": dict}
_SHOWN = 20
"""Rows of a long table that are shown to people."""


def begin(folder: Path) -> None:
    """Make the folder of a new run directory.

    Raises:
        LuthierError: it is there and not empty, or cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise LuthierError(f"{folder} is not empty")
    except OSError as problem:
        raise LuthierError(f"cannot write {folder}: {problem.strerror or problem}") from problem


class RunFolder:
    """A run directory.

    Args:
        path: of the folder.

    Raises:
        LuthierError: it is none, unfinished, damaged, or of another schema.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.summary = self._read_summary()
        """What ``summary.json`` says."""
        self.names = table_names(path)
        """Of its tables."""
        for table in schema.TABLES:
            if table.name not in self.names and table.name not in schema.ADDED:
                raise LuthierError(f"{path} lacks {table.name}{SUFFIX}")

    def _read_summary(self) -> dict[str, Any]:
        file = self.path / SUMMARY
        if not file.exists() and any(self.path.glob(f"*{SUFFIX}.partial")):
            raise LuthierError(f"{self.path} is of a run that has not ended, or was killed")
        if not file.exists():
            what = "has no summary.json" if self.path.is_dir() else "is no folder"
            raise LuthierError(f"{self.path} is no run directory, as `luthier run -o` makes them: it {what}")
        with open_regular(file) as opened:
            text = opened.read(_LARGEST_SUMMARY + 1)
        if len(text) > _LARGEST_SUMMARY:
            raise LuthierError(f"{file} is larger than {_LARGEST_SUMMARY} bytes")
        try:
            summary = json.loads(text)
        except (ValueError, RecursionError) as problem:
            raise LuthierError(f"{file} is damaged: {problem}") from None
        if not isinstance(summary, dict) or "schema" not in summary:
            raise LuthierError(f"{file} is no summary of a run")
        if summary["schema"] != SCHEMA:
            raise LuthierError(f"{self.path} has schema {summary['schema']!r:.40}, this Luthier reads {SCHEMA}")
        for key, kind in _KEYS.items():
            if not isinstance(summary.get(key), kind):
                raise LuthierError(f"{file} is damaged: no {key}")
        return summary

    def table(self, name: str) -> TableReader:
        """One of its tables.

        Raises:
            LuthierError: there is no such table, or it is damaged.
        """
        if name not in self.names:
            raise LuthierError(f"{self.path} has no table {name!r}; it has {', '.join(self.names)}")
        known = next((table for table in schema.TABLES if table.name == name), None)
        return TableReader(self.path, name, known)

    def rows(self, name: str, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
        """The rows of a table.

        Raises:
            LuthierError: as of `table`.
        """
        with self.table(name) as reader:
            for batch in reader.batches(columns):
                yield from batch.to_pylist()

    def tool_tables(self) -> list[Table]:
        """What the tools reported.

        Raises:
            LuthierError: the summary is damaged.
        """
        try:
            return [
                Table(f"{tool['tool']} {table['title']}".strip(), table["columns"], table["rows"])
                for tool in self.summary["tools"]
                for table in tool["tables"]
            ]
        except (KeyError, TypeError) as problem:
            raise LuthierError(f"{self.path / SUMMARY} is damaged: {problem!r}") from None

    def shown(self) -> Iterator[Table]:
        """Everything for people: the tools' tables whole, of others what fits.

        Raises:
            LuthierError: something is damaged.
        """
        yield from self.tool_tables()
        yield self._first("kernels", "kernel", "launches", "instrumented", "sites", "requested_sites", "reason")
        yield self._variables()
        yield self._first("launches", "process", "device", "kernel", "number", "instrumented", "begin_ns", "end_ns")
        yield self._first("counts", "kernel", "address", "mnemonic", "executions", "active_lanes")
        yield Table("faults", ("fault",), [[str(fault)] for fault in self.summary["faults"]])

    def _repr_html_(self) -> str:
        """For notebooks: as `shown`, kernels by their names in the source."""
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
        """Those of one element."""
        columns = ("tool", "variable", "process", "device", "value")
        rows = []
        for row in self.rows("counters"):
            values: list[Any] = row["unsigned"] or row["signed"] or row["real"] or []
            if row["first"] == 0 and len(values) == 1:
                rows.append([*(row[name] for name in columns[:-1]), values[0]])
        return Table("variables", columns, rows)
