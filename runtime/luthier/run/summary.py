"""Contents of ``summary.json`` of a run directory, and the check of them: it may come from strangers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import msgspec

from luthier.errors import LuthierError

_Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_Cell = str | int | float | bool | None


class _Table(msgspec.Struct):
    title: str
    columns: list[str]
    rows: list[list[_Cell]]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError("a row has not as many cells as there are columns")


class _Tool(msgspec.Struct):
    tool: str
    tables: list[_Table]
    options: Any = None


class _Process(msgspec.Struct):
    process: _Number
    parent: _Number | None = None
    rank: _Number | None = None
    command: str | None = None


class _Executed(msgspec.Struct):
    kernel: str | None
    object: str | None
    wave_instructions: _Number
    lane_instructions: _Number
    digest: str | None = None


class _Summary(msgspec.Struct):
    command: list[str]
    exit_code: _Number
    tools: list[_Tool]
    processes: list[_Process]
    faults: list[str]
    tables: dict[str, _Number]
    executed: list[_Executed] = []
    luthier: str | None = None
    devices: list[str] | None = None
    began_ns: _Number | None = None
    ended_ns: _Number | None = None


def read_summary(text: bytes, file: Path, schema: int) -> dict[str, Any]:
    """Return the summary as parsed from JSON, checked.

    Args:
        text: contents of the file.
        file: name of the file in errors.
        schema: the only one that is read.

    Raises:
        LuthierError: it is damaged, no summary, or of another schema.
    """
    try:
        summary = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise LuthierError(f"{file} is damaged: {problem}") from None
    if not isinstance(summary, dict) or "schema" not in summary:
        raise LuthierError(f"{file} is no summary of a run")
    if summary["schema"] != schema:
        raise LuthierError(f"{file.parent} has schema {summary['schema']!r:.40}, this Luthier reads {schema}")
    try:
        msgspec.convert(summary, _Summary)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise LuthierError(f"{file} is damaged: {problem}") from None
    return summary
