"""Summaries of tables that may exceed memory: records by kernel, instruction, page, or any other column.

DuckDB groups what pyarrow reads in batches, and spills what exceeds its memory limit to a temporary folder. It never
opens the file itself, so the usual checks of run folders apply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.run.folder import RunFolder
from luthier.run.tables import TableReader
from luthier.support.extras import extra
from luthier.support.private_folder import private_folder
from luthier.support.table import Table
from luthier.support.wording import counted

MEMORY = 256
"""MiB for grouping, besides some 150 for programs and data being read."""
LEAST = 64
"""Minimum MiB that DuckDB needs."""
_KEY = re.compile(r"(?P<column>.+?)(?:/(?P<size>0x[0-9a-fA-F]+|[0-9]+))?")
_IN_HEX = ("address", "pc")


class Key(Struct, frozen=True):
    """A column to group by, or ranges of it."""

    column: str
    size: int = 1
    """Number of consecutive values in a group, named by the first: 4096 for pages."""

    @classmethod
    def parse(cls, text: str) -> Key:
        """Parse ``COLUMN`` or ``COLUMN/SIZE``.

        Raises:
            LuthierError: the text is malformed.
        """
        match = _KEY.fullmatch(text)
        size = int(match["size"] or "1", 0) if match else 0
        if match is None or not 0 < size < 1 << 63:
            raise LuthierError(f"{text!r} is neither COLUMN nor COLUMN/SIZE")
        return cls(match["column"], size)

    def __str__(self) -> str:
        return self.column if self.size == 1 else f"{self.column}/{self.size}"


def table_name(run: RunFolder, name: str) -> str:
    """Return the full name of a table; ``trace-`` of a channel's table may be omitted.

    Raises:
        LuthierError: there is no such table.
    """
    for known in (name, f"trace-{name}"):
        if known in run.names:
            return known
    raise LuthierError(f"{run.path} has no table {name!r}; it has {', '.join(run.names)}")


def summaries(
    run: RunFolder,
    name: str,
    by: Sequence[Sequence[Key]],
    sums: Sequence[str] = (),
    top: int = 20,
    memory: int = MEMORY,
) -> list[Table]:
    """Return a table of groups for each of `by`, those with most rows first.

    Args:
        name: name of the table, as for `table_name`.
        by: columns that make up a group; none: one group.
        sums: columns to sum in each group.
        top: maximum number of groups; 0: all.
        memory: MiB for grouping.

    Raises:
        LuthierError: there is no such table or column, the table is damaged, its values cannot be grouped or summed, or
            memory or disk space is insufficient.
    """
    if memory < LEAST:
        raise LuthierError(f"{memory} MiB of memory are too little for grouping: give at least {LEAST}")
    return [_summary(run, table_name(run, name), keys, sums, top, memory) for keys in by]


def _summary(run: RunFolder, name: str, keys: Sequence[Key], sums: Sequence[str], top: int, memory: int) -> Table:
    duckdb = extra("duckdb")
    pa = extra("pyarrow")

    with run.table(name) as reader, private_folder() as folder:
        types = _types(reader, keys, sums)
        columns = list(dict.fromkeys([*(key.column for key in keys), *sums])) or reader.columns[:1]
        schema = pa.schema([reader.arrow.field(column) for column in columns])
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory}MiB",
            "temp_directory": str(folder / "spilled"),
            "threads": 2,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        selected = [_value(key, types) for key in keys]
        chosen = [*selected, "count(*)", *(f"sum({_quoted(column)})" for column in sums)]
        groups = f"GROUP BY {', '.join(str(at + 1) for at in range(len(selected)))}" if selected else ""
        order = ", ".join([f"{len(selected) + 1} DESC", *(str(at + 1) for at in range(len(selected)))])
        query = f"SELECT {', '.join(chosen)} FROM rows {groups} ORDER BY {order}" + (f" LIMIT {top}" if top else "")
        try:
            with duckdb.connect(":memory:", config=settings) as database:
                rows = pa.RecordBatchReader.from_batches(schema, reader.batches(columns))
                database.register("rows", rows)
                groups_found = database.execute(query).fetchall()
        except duckdb.Error as problem:
            # For a damaged file, DuckDB repeats the reader's message.
            reason = str(problem).splitlines()[0]
            raise LuthierError(f"{reader.path} cannot be summarised by {_words(keys)}: {reason}") from None
        total = reader.rows
    cells = [
        [*(_shown(key, value) for key, value in zip(keys, row, strict=False)), row[len(keys)], *row[len(keys) + 1 :]]
        for row in groups_found
    ]
    shares = [[*row, round(100 * row[len(keys)] / total, 2) if total else None] for row in cells]
    heads = (*map(str, keys), "rows", *(f"sum of {column}" for column in sums), "%")
    return Table(f"{name} by {_words(keys)}, {counted(total, 'row')}", heads, shares)


def _types(reader: TableReader, keys: Sequence[Key], sums: Sequence[str]) -> dict[str, Any]:
    pa = extra("pyarrow")

    types = {field.name: field.type for field in reader.arrow}
    for column in [*(key.column for key in keys), *sums]:
        if column not in types:
            raise LuthierError(f"{reader.path} has no column {column!r}; it has {', '.join(reader.columns)}")
        if pa.types.is_nested(types[column]):
            raise LuthierError(f"the column {column} of {reader.path} has several values in each row")
    for column in sums:
        if not (pa.types.is_integer(types[column]) or pa.types.is_floating(types[column])):
            raise LuthierError(f"the column {column} of {reader.path} has no numbers to sum")
    for key in keys:
        if key.size > 1 and not pa.types.is_integer(types[key.column]):
            raise LuthierError(f"the column {key.column} of {reader.path} has no integers, which {key} needs")
    return types


def _value(key: Key, types: dict[str, Any]) -> str:
    column = _quoted(key.column)
    if key.size == 1:
        return column
    # In 128 bits, since sizes may exceed the column's type. Ranges of negative numbers begin below them.
    wide = f"CAST({column} AS HUGEINT)"
    return f"{wide} - (({wide} % {key.size}) + {key.size}) % {key.size}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _words(keys: Sequence[Key]) -> str:
    return ", ".join(map(str, keys)) or "nothing"


def _shown(key: Key, value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and (key.column in _IN_HEX or key.size > 1):
        return hex(value)
    return value.hex() if isinstance(value, bytes) else value
