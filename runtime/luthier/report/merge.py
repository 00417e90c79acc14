"""Merge several runs into one run folder: processes and ranks of a job, or repetitions of a program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.projection.kept import WRITTEN, merge_measured
from luthier.run import schema
from luthier.run.folder import Claim, RunFolder
from luthier.run.summary import ExecutedKernel, MergedRun, ReportedTable, ReportedTool, RunProcess, RunSummary
from luthier.run.tables import SCHEMA, Column, Schema, TableWriter
from luthier.support.extras import extra

_KERNEL_SUMS = ("launches", "instrumented")
_FIRST = ("listings", "blocks")
"""Tables that depend on the code only: for each kernel, the first run that has them."""


def merge(runs: Sequence[RunFolder], folder: Path) -> None:
    """Write a run folder with the contents of several.

    Launches, variables and records are concatenated; counts and launches of a kernel are summed; equal sites appear
    once. A process number that another run has too is increased by the run's number (from 0) times 2^32, or by the
    next multiple that makes it unique.

    Args:
        runs: at least one.
        folder: a new or empty folder.

    Raises:
        LuthierError: a run is damaged, tables of the same name have different columns, or writing fails.
    """
    pids = _processes(runs)
    known = {table.name: table for table in schema.TABLES}
    names = [*known, *sorted({name for run in runs for name in run.names} - set(known))]
    rows_of: dict[str, int] = {}
    with ExitStack() as stack:
        claim = stack.enter_context(Claim(folder))
        for name in names:
            having = [at for at, run in enumerate(runs) if name in run.names]
            table = known.get(name) or _found_schema(name, [runs[at] for at in having])
            writer = stack.enter_context(TableWriter(folder, table))
            for columns in _rows(name, table, runs, having, pids):
                writer.append(columns)
            writer.close()
            rows_of[name] = writer.rows
        claim.added += WRITTEN
        merge_measured([run.path for run in runs], folder)
        claim.finish(_summary(runs, pids, rows_of).text())


Pids = list[dict[int, int]]
"""For each run: process number -> number in the merged run."""


def _processes(runs: Sequence[RunFolder]) -> Pids:
    taken: set[int] = set()
    pids: Pids = []
    for at, run in enumerate(runs):
        own = [process.process for process in run.summary.processes]
        used = taken.union(own)
        pids.append({})
        for pid in dict.fromkeys(own):
            free = (pid + (number << 32) for number in itertools.count(at))
            pids[-1][pid] = next(one for one in free if one not in used) if pid in taken else pid
            used.add(pids[-1][pid])
        taken = used
    return pids


def _found_schema(name: str, runs: Sequence[RunFolder]) -> Schema:
    """Return the schema of a table that is described only in its files."""
    schemas = []
    for run in runs:
        with run.table(name) as reader:
            schemas.append(reader.arrow)
    if any(one != schemas[0] for one in schemas):
        raise LuthierError(f"the columns of table {name} in {runs[0].path} differ from those in another run")
    columns = [
        Column(field.name, _type_name(field.type), (field.metadata or {}).get(b"what", b"").decode(errors="replace"))
        for field in schemas[0]
    ]
    what = (schemas[0].metadata or {}).get(b"luthier.what", b"").decode(errors="replace")
    return Schema(name, what, tuple(columns))


def _type_name(type: Any) -> str:
    """Return the name of a type for `Column`."""
    pa = extra("pyarrow")

    if pa.types.is_fixed_size_list(type):
        return f"{type.value_type}[{type.list_size}]"
    return f"{type.value_type}[]" if pa.types.is_list(type) else str(type)


def _rows(
    name: str, table: Schema, runs: Sequence[RunFolder], having: Sequence[int], pids: Pids
) -> Iterator[dict[str, Any]]:
    if name == "kernels":
        yield from _columns(_kernels(runs), table)
    elif name == "counts":
        yield from _columns(_counts(runs), table)
    elif name == "sites":
        yield from _columns(_once(name, table, runs, whole=True), table)
    elif name in _FIRST:
        yield from _columns(_once(name, table, [runs[at] for at in having], whole=False), table)
    else:
        for at in having:
            yield from _renumbered(runs[at], name, pids[at], at)


_BATCH = 1 << 14


def _columns(rows: Iterator[dict[str, Any]], table: Schema) -> Iterator[dict[str, Any]]:
    names = [column.name for column in table.columns]
    held: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name in names:
            held[name].append(row.get(name))  # older runs may lack columns
        if len(held[names[0]]) >= _BATCH:
            yield held
            held = {name: [] for name in names}
    if held[names[0]]:
        yield held


def _renumbered(run: RunFolder, name: str, pids: dict[int, int], at: int) -> Iterator[dict[str, Any]]:
    """Yield batches with the process numbers of the merged run."""
    pa = extra("pyarrow")

    with run.table(name) as reader:
        for batch in reader.batches():
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            if "process" in columns:
                numbers = [pids.get(one, one) for one in columns["process"].to_pylist()]
                columns["process"] = pa.array(numbers, batch.schema.field("process").type)
            if len(batch):
                yield columns


def _kernels(runs: Sequence[RunFolder]) -> Iterator[dict[str, Any]]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        for row in run.rows("kernels"):
            old = rows.setdefault((row["kernel"], row["digest"], row["reason"], row["skipped"]), row)
            if old is not row:
                for name in _KERNEL_SUMS:
                    old[name] = (old[name] or 0) + (row[name] or 0)
                old["covered"] = bool(old["covered"] and row["covered"])
    yield from rows.values()


def _counts(runs: Sequence[RunFolder]) -> Iterator[dict[str, Any]]:
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for run in runs:
        for row in run.rows("counts"):
            old = rows.setdefault((row["kernel"], row["digest"], row["address"]), row)
            if old is not row:
                for name in ("executions", "active_lanes"):
                    old[name] = row[name] if old[name] is None else old[name] + (row[name] or 0)
    yield from rows.values()


def _once(name: str, table: Schema, runs: Sequence[RunFolder], *, whole: bool) -> Iterator[dict[str, Any]]:
    """Yield rows that no earlier run has: whole rows, or any of their kernel."""
    key = [column.name for column in table.columns if column.name != "object"] if whole else ["kernel", "digest"]
    seen: set[tuple[Any, ...]] = set()
    for run in runs:
        new: set[tuple[Any, ...]] = set()
        for row in run.rows(name):
            this = tuple(row.get(one) for one in key)
            if this not in seen:
                new.add(this)
                yield row
        seen |= new


def _summary(runs: Sequence[RunFolder], pids: Pids, tables: dict[str, int]) -> RunSummary:
    """Return the summary of all runs; facts that must be unique come from the first."""
    summaries = [run.summary for run in runs]
    executed = [summary.executed for summary in summaries if summary.executed is not None]
    return RunSummary(
        schema=SCHEMA,
        luthier=summaries[0].luthier,
        command=summaries[0].command,
        exit_code=next((summary.exit_code for summary in summaries if summary.exit_code), 0),
        devices=list(dict.fromkeys(device for summary in summaries for device in summary.devices or ())),
        options=summaries[0].options,
        tools=_tools(runs),
        processes=[
            _renumbered_process(process, numbers)
            for numbers, summary in zip(pids, summaries, strict=True)
            for process in summary.processes
        ],
        faults=[fault for summary in summaries for fault in summary.faults],
        executed=_executed(executed) if executed else None,
        executed_notes=[note for summary in summaries for note in summary.executed_notes],
        ended_before=" and ".join(filter(None, dict.fromkeys(summary.ended_before for summary in summaries))),
        unfinished=[launch for summary in summaries for launch in summary.unfinished],
        runs=[MergedRun(str(run.path), run.summary.command, run.summary.exit_code) for run in runs],
        began_ns=min((summary.began_ns for summary in summaries if summary.began_ns is not None), default=None),
        ended_ns=max((summary.ended_ns for summary in summaries if summary.ended_ns is not None), default=None),
        tables=tables,
    )


def _renumbered_process(process: RunProcess, numbers: dict[int, int]) -> RunProcess:
    parent = None if process.parent is None else numbers.get(process.parent, process.parent)
    return replace(process, process=numbers[process.process], parent=parent)


def _executed(runs: Sequence[Sequence[ExecutedKernel]]) -> list[ExecutedKernel]:
    """Return the sums of what the virtual devices counted."""
    sums: dict[tuple[Any, ...], ExecutedKernel] = {}
    for row in itertools.chain.from_iterable(runs):
        key = row.kernel, row.object, row.digest
        entry = sums.setdefault(key, replace(row, wave_instructions=0, lane_instructions=0))
        entry.wave_instructions += row.wave_instructions
        entry.lane_instructions += row.lane_instructions
    return list(sums.values())


def _tools(runs: Sequence[RunFolder]) -> list[ReportedTool]:
    """Return the tools' tables, merged if tool, title and columns are equal, with a column for the run of each row."""
    tools: dict[str, ReportedTool] = {}
    tables: dict[tuple[str, ...], ReportedTable] = {}
    for at, run in enumerate(runs):
        for tool in run.summary.tools:
            entry = tools.setdefault(tool.tool, ReportedTool(tool.tool, [], tool.options))
            for table in tool.tables:
                key = (tool.tool, table.title, *table.columns)
                if key not in tables:
                    tables[key] = ReportedTable(table.title, ["run", *table.columns], [])
                    entry.tables.append(tables[key])
                tables[key].rows += [[f"{at}: {run.path.name}", *row] for row in table.rows]
    return list(tools.values())
