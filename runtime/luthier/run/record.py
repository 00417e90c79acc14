"""The folder that a run leaves: ``summary.json`` and ``launches.csv``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luthier.errors import LuthierError
from luthier.run.sessions import Session
from luthier.table import Table

SCHEMA = 1
"""Of the summaries that are read and written; it grows when something in them changes its meaning or goes."""
SUMMARY, LAUNCHES = "summary.json", "launches.csv"
_COLUMNS = (
    *("process", "device", "kernel", "number", "instrumented", "time_ns", "grid_x", "grid_y", "grid_z"),
    *("block_x", "block_y", "block_z", "group_segment", "private_segment"),
)


def launches(sessions: Sequence[Session]) -> Table:
    """Every recorded launch: sizes are work-items, times nanoseconds since 1970."""
    rows = []
    for session in sessions:
        for record in session.launches:
            kernel = int(record["kernel"])
            if not record["time"] or kernel >= len(session.kernels):  # not finished, or of a kernel beyond the rows
                continue
            found = session.kernels[kernel]
            sizes = *record["grid"].tolist(), *record["block"].tolist()
            segments = int(record["group_segment"]), int(record["private_segment"])
            about = int(record["number"]), bool(record["instrumented"]), int(record["time"])
            rows.append((session.pid, found.gpu, found.name, *about, *sizes, *segments))
    return Table("launches", _COLUMNS, rows)


def write(folder: Path, summary: Mapping[str, Any], sessions: Sequence[Session]) -> None:
    """Write the folder, which must not be there or be empty.

    Raises:
        LuthierError: there is something, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise LuthierError(f"{folder} is not empty")
        (folder / LAUNCHES).write_text(launches(sessions).csv())
        (folder / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    except OSError as problem:
        raise LuthierError(f"cannot write {folder}: {problem.strerror or problem}") from problem


def read(folder: Path) -> tuple[dict[str, Any], list[Table]]:
    """A run's summary, and everything in the folder as tables.

    Raises:
        LuthierError: no such folder, malformed, or of another schema.
    """
    try:
        summary = json.loads((folder / SUMMARY).read_text())
        if summary["schema"] != SCHEMA:
            raise LuthierError(f"{folder} has schema {summary['schema']}, this Luthier reads {SCHEMA}")
        rows = list(csv.reader(io.StringIO((folder / LAUNCHES).read_text())))
        tables = [
            Table(f"{tool['tool']} {table['title']}".strip(), table["columns"], table["rows"])
            for tool in summary["tools"]
            for table in tool["tables"]
        ]
        keys = ("kernel", "launches", "instrumented", "sites", "requested_sites", "covered", "reason")
        tables.append(Table("kernels", keys, [[one[key] for key in keys] for one in summary["kernels"]]))
        held = ("variable", "module", "process", "device", "value")
        tables.append(Table("variables", held, [[one[key] for key in held] for one in summary["variables"]]))
        tables.append(Table("launches", rows[0], rows[1:]))
        tables.append(Table("faults", ("fault",), [[fault] for fault in summary["faults"]]))
    except OSError as problem:
        raise LuthierError(f"cannot read the run {folder}: {problem.strerror or problem}") from problem
    except (ValueError, KeyError, TypeError, IndexError) as problem:
        raise LuthierError(f"{folder} is no run of `luthier run -o`: {problem!r}") from None
    return summary, [table for table in tables if table.rows]
