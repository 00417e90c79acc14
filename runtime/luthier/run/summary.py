"""Summary of a run: ``summary.json`` in a run folder, which may be untrusted, and the head of ``--json``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Struct, field

from luthier.errors import LuthierError
from luthier.support import strict_json
from luthier.support.table import Cell, Table

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class ReportedTable(Struct):
    """Table that a tool reported, as `luthier.support.table.Table.to_json` returns it."""

    title: str
    columns: list[str]
    rows: list[list[Cell]]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"row has {len(row)} cells, expected {len(self.columns)}")


class ReportedTool(Struct):
    """Tool of a run."""

    tool: str
    tables: list[ReportedTable]
    options: Any = None


class RunProcess(Struct):
    """Process of a run."""

    process: Number
    parent: Number | None = None
    rank: Number | None = None
    command: str | None = None
    launches: Number | None = None
    kernels: Number | None = None


class ExecutedKernel(Struct):
    """Number of instructions of a kernel that virtual devices executed."""

    kernel: str | None
    object: str | None
    wave_instructions: Number
    lane_instructions: Number
    digest: str | None = None


class MergedRun(Struct):
    """Run that was merged with others."""

    run: str
    command: list[str]
    exit_code: Number


class RunSummary(Struct, kw_only=True, omit_defaults=True):
    """Facts about a run besides its tables. Writers and readers of runs share this class."""

    schema: int
    luthier: str | None
    """Version that wrote it."""
    command: list[str]
    exit_code: Number
    devices: list[str] | None = None
    """Names of the devices: ``emu:gfx90a``, ``hip:0``."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of ``luthier run`` that affect the results: name -> value."""
    tools: list[ReportedTool]
    processes: list[RunProcess]
    faults: list[str]
    executed: list[ExecutedKernel] | None = None
    """None if it was not requested."""
    executed_notes: list[str] = field(default_factory=list)
    """Reasons why counts of `executed` are too small."""
    ended_before: str = ""
    """Text that names launches and processes that a limit or a signal stopped."""
    unfinished: list[Any] = field(default_factory=list)
    """These launches and what they were doing."""
    runs: list[MergedRun] | None = None
    """Runs that were merged."""
    began_ns: Number | None = None
    ended_ns: Number | None = None
    tables: dict[str, Number] = field(default_factory=dict)
    """Rows of each table."""

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def option_words(self) -> str:
        """Return the options as shell words: ``--kernel 'gemm*' --unique-grid``."""
        words = []
        for name, value in self.options.items():
            for single in value if isinstance(value, list) else [value]:
                flag = f"--no-{name}" if single is False else f"--{name}"
                words += [flag] if isinstance(single, bool) else [flag, str(single)]
        return shlex.join(words)

    def facts(self) -> Table:
        """Return a table of general facts about the run."""
        seconds = (self.ended_ns - self.began_ns) / 1e9 if self.began_ns and self.ended_ns else None
        rows: list[tuple[str, Cell]] = [
            ("command", shlex.join(self.command)),
            ("options", self.option_words()),
            ("exit code", self.exit_code),
            ("devices", ", ".join(self.devices or ())),
            ("seconds", None if seconds is None else round(seconds, 3)),
            ("ended before", self.ended_before),
        ]
        return Table("run", ("fact", "value"), [row for row in rows if row[1] not in ("", None)])

    def text(self) -> str:
        """Return the contents of ``summary.json``."""
        return strict_json.dumps(self.to_json(), indent=2)


def read_summary(text: bytes, file: Path, schema: int) -> RunSummary:
    """Parse the summary of a run.

    Args:
        text: contents of the file.
        file: name of the file in errors.
        schema: supported schema.

    Raises:
        LuthierError: it is damaged, not a summary, or of another schema.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise LuthierError(f"{file} is damaged: {problem}") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise LuthierError(f"{file} is not a summary of a run")
    if data["schema"] != schema:
        raise LuthierError(f"{file.parent} has schema {data['schema']!r:.40}; this version of Luthier reads {schema}")
    try:
        return msgspec.convert({"luthier": None, **data}, RunSummary)
    except (msgspec.ValidationError, RecursionError) as problem:
        raise LuthierError(f"{file} is damaged: {problem}") from None
