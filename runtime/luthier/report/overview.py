"""Overview of the whole run on the page: kernels with their costs, coverage, and tables of tools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from luthier.objects import names
from luthier.report.measures import is_per_lane
from luthier.report.projected import TOOL as PROJECTED
from luthier.report.rows import KernelNumbers, numeric
from luthier.run.folder import RunFolder
from luthier.support.extras import extra
from luthier.support.strict_json import plain
from luthier.support.table import Table

_FACTS = (
    *("target", "wave_size", "vgprs", "sgprs", "group_segment", "private_segment", "waves_per_simd"),
    *("patched_vgprs", "patched_sgprs", "patched_waves_per_simd", "instructions", "added_instructions"),
    *("code_bytes", "patched_bytes", "skipped", "reason"),
)
_SUMS = ("launches", "instrumented", "requested_sites", "sites", "hooks", "refused_hooks", "unknown_calls")
GPU = "GPU"
"""Name under which measured tables are shown, like that of a tool."""
_CELLS = 200_000
"""Maximum number of cells of tools' tables on a page."""
_REFUSALS = 2_000
"""Maximum number of reasons for refusals on a page."""


def kernels(run: RunFolder, numbers: KernelNumbers) -> list[dict[str, Any]]:
    """Return each kernel, by its number.

    It has facts from the table of kernels, and sums over its launches and counts. On an emulated device, ``time``
    excludes the first launch of each kernel in a process, which compiles it; that is ``first_time``. ``lanes`` is the
    sum of active lanes over ``vector_executed`` executions: of instructions that execute once per lane, where lanes
    were counted.

    Raises:
        LuthierError: a table is damaged.
    """
    entries: list[dict[str, Any]] = []
    for row in run.rows("kernels"):
        number = numbers.of(row["kernel"], row["digest"])
        if number == len(entries):
            name = row["name"] or row["kernel"] or "unknown"
            entries.append({"name": name, "symbol": row["kernel"], "object": row["object"], "digest": row["digest"]})
            entries[-1] |= {fact: row[fact] for fact in _FACTS} | dict.fromkeys(_SUMS, 0) | {"covered": True}
        entry = entries[number]
        for name in _SUMS:
            entry[name] += row[name] or 0
        entry["covered"] = bool(entry["covered"] and row["covered"])
        entry["reason"] = entry["reason"] or row["reason"]
    known = len(entries)
    first, first_timed, time, timed, executed, vectors, lanes = (np.zeros(known, np.int64) for _ in range(7))
    for batch, number in _batches(run, "launches", ["begin_ns", "end_ns", "number"], numbers):
        begin, end = numeric(batch, "begin_ns", -1), numeric(batch, "end_ns", -1)
        rows = (number < known) & (begin >= 0) & (end >= begin)
        firsts = numeric(batch, "number") == 0
        for which, sums, times in ((rows & firsts, first, first_timed), (rows & ~firsts, time, timed)):
            np.add.at(sums, number[which], (end - begin)[which])
            np.add.at(times, number[which], 1)
    for batch, number in _batches(run, "counts", ["mnemonic", "executions", "active_lanes"], numbers):
        rows = number < known
        np.add.at(executed, number[rows], numeric(batch, "executions")[rows])
        per_lane = np.array([is_per_lane(name or "") for name in batch.column("mnemonic").to_pylist()], bool)
        rows &= per_lane & (numeric(batch, "active_lanes", -1) >= 0)
        np.add.at(vectors, number[rows], numeric(batch, "executions")[rows])
        np.add.at(lanes, number[rows], numeric(batch, "active_lanes")[rows])
    columns = (first, first_timed, time, timed, executed, vectors, lanes)
    emulated = is_emulated(run)
    for entry, *sums in zip(entries, *(column.tolist() for column in columns), strict=True):
        took, times = (sums[2], sums[3]) if emulated else (sums[0] + sums[2], sums[1] + sums[3])
        entry |= {"time": took if times else None, "timed": times, "emulated": emulated}
        entry |= {"first_time": sums[0] if sums[1] else None}
        entry |= {"executed": sums[4] or None, "vector_executed": sums[5] or None, "lanes": sums[6] or None}
    return entries


def is_emulated(run: RunFolder) -> bool:
    """Return whether times of launches are those of the emulator, which do not predict those of a GPU.

    A run that does not record its devices counts as emulated.
    """
    devices = run.summary.devices or ()
    return not devices or any(device.startswith("emu:") for device in devices)


def _batches(run: RunFolder, table: str, columns: list[str], numbers: KernelNumbers) -> Iterator[tuple[Any, Any]]:
    with run.table(table) as reader:
        for batch in reader.batches(["kernel", "digest", *columns]):
            yield batch, numbers.column(batch)


def coverage(run: RunFolder, numbers: KernelNumbers) -> dict[str, Any]:
    """Return the number of sites by tool and status, and each reason for refusals with its first address and count.

    Raises:
        LuthierError: the table of sites is damaged.
    """
    pa = extra("pyarrow")

    group = ["kernel", "digest", "tool", "hook", "status", "kind", "reason"]
    totals: dict[tuple[Any, ...], list[Any]] = {}
    with run.table("sites") as reader:
        for batch in reader.batches([*group, "address"]):
            grouped = (
                pa.Table.from_batches([batch]).group_by(group).aggregate([("address", "count"), ("address", "min")])
            )
            for row in grouped.to_pylist():
                entry = totals.setdefault(tuple(row[name] for name in group), [0, row["address_min"]])
                entry[0] += row["address_count"]
                entry[1] = min((one for one in (entry[1], row["address_min"]) if one is not None), default=None)
    tools: dict[str, dict[str, int]] = {}
    refusals = []
    for (kernel, digest, tool, hook, status, kind, reason), (count, first) in totals.items():
        counts = tools.setdefault(tool or "", {})
        counts[status or ""] = counts.get(status or "", 0) + count
        if status == "refused":
            number = numbers.of(kernel, digest)
            refusals.append([number, tool, hook, kind, reason, count, first])
    refusals.sort(key=lambda row: -row[5])
    return {"tools": tools, "refusals": refusals[:_REFUSALS], "more": max(len(refusals) - _REFUSALS, 0)}


def tool_tables(
    run: RunFolder, measured: Sequence[Table] = (), projected: Sequence[tuple[int, Table]] = ()
) -> tuple[list[dict[str, Any]], int]:
    """Return the tools' tables, and the number of tables that exceed the page's limit.

    Args:
        measured: tables of what a GPU measured, which are shown like those of a tool `GPU`.
        projected: tables of projected cycles by instruction, each of one kernel, with its number.
    """
    shown, left_out, cells = [], 0, 0
    sources: list[tuple[str, int | None, Any]] = [
        *((tool.tool, None, table) for tool in run.summary.tools for table in tool.tables),
        *((GPU, None, table) for table in measured),
        *((PROJECTED, number, table) for number, table in projected),
    ]
    for tool, kernel, table in sources:
        size = len(table.columns) * len(table.rows)
        if not table.rows or cells + size > _CELLS:
            left_out += bool(table.rows)
            continue
        cells += size
        rows = [[plain(cell) for cell in row] for row in table.rows]
        shown.append({"tool": tool, "title": table.title, "columns": table.columns, "rows": rows})
        if kernel is not None:
            shown[-1]["of_kernel"] = kernel
    return shown, left_out


def as_in_source(tables: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return tables of `tool_tables` with the kernel names of the terminal."""
    spelled = names.as_in_source(Table(str(one["title"]), one["columns"], one["rows"]) for one in tables)
    return [one | {"title": table.title, "rows": table.rows} for one, table in zip(tables, spelled, strict=True)]
