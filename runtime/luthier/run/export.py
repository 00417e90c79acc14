"""A run directory's tables in other formats, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from luthier.errors import LuthierError
from luthier.run.folder import RunFolder
from luthier.run.tables import TableReader


def write_json(folder: RunFolder, out: IO[bytes], table: str | None = None) -> None:
    """One table as an array of objects; without one the summary and all tables, as one object.

    Bytes are hexadecimal.
    """
    if table is not None:
        _write_rows(folder, table, out)
    else:
        out.write(b'{"summary": ' + json.dumps(folder.summary).encode() + b',\n"tables": {')
        for number, name in enumerate(folder.names):
            out.write((",\n" if number else "\n").encode() + json.dumps(name).encode() + b": ")
            _write_rows(folder, name, out)
        out.write(b"}}")
    out.write(b"\n")


def _write_rows(folder: RunFolder, name: str, out: IO[bytes]) -> None:
    out.write(b"[")
    for number, row in enumerate(folder.rows(name)):
        out.write((b",\n" if number else b"\n") + json.dumps(row, default=_hexadecimal).encode())
    out.write(b"]")


def _hexadecimal(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise LuthierError(f"a value of type {type(value).__name__} has no JSON")


def write_csv(folder: RunFolder, table: str, out: IO[bytes]) -> None:
    """One table, with a line of column names; nulls are empty, lists JSON, bytes hexadecimal."""
    import pyarrow as pa
    from pyarrow import csv

    with folder.table(table) as reader:
        flat = pa.schema([pa.field(one.name, pa.string() if _nested(one.type) else one.type) for one in reader.arrow])
        with csv.CSVWriter(out, flat) as writer:
            for batch in reader.batches():
                columns = [
                    pa.array([_text(value) for value in column.to_pylist()], pa.string())
                    if _nested(column.type)
                    else column
                    for column in batch.columns
                ]
                writer.write_batch(pa.record_batch(columns, flat))


def _nested(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_nested(type) or pa.types.is_binary(type) or pa.types.is_fixed_size_binary(type))


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.hex() if isinstance(value, bytes) else json.dumps(value, default=_hexadecimal)


def write_csv_folder(folder: RunFolder, out: Path) -> None:
    """All tables, a file each.

    Raises:
        LuthierError: it cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in folder.names:
            with (out / f"{name}.csv").open("xb") as file:
                write_csv(folder, name, file)
    except OSError as problem:
        raise LuthierError(f"cannot write {out}: {problem.strerror or problem}") from problem


# The trace event format of Chrome and Perfetto ------------------------------------------------------------------------


def write_perfetto(folder: RunFolder, out: IO[bytes]) -> None:
    """Launches on a time line: a process each, a track for each queue of a device, a slice for each launch.

    Where a queue runs launches at the same time, those that overlap are on further tracks of it. A launch whose times
    on the device are not known is a mark at the time when it was written to the queue, and says so.
    """
    began = _began(folder)
    out.write(b'{"displayTimeUnit": "ns", "otherData": {"began_ns": "%d"}, "traceEvents": [' % began)
    separator = b"\n"
    for event in _events(folder, began):
        out.write(separator + json.dumps(event, separators=(",", ":")).encode())
        separator = b",\n"
    out.write(b"]}\n")


def _began(folder: RunFolder) -> int:
    return folder.summary.get("began_ns") or 0


def _events(folder: RunFolder, began: int) -> Iterator[dict[str, Any]]:
    for process in folder.summary["processes"]:
        rank = "" if process.get("rank") is None else f"rank {process['rank']}: "
        name = f"{rank}{process.get('command') or ''}"
        yield {"ph": "M", "name": "process_name", "pid": process["process"], "args": {"name": name}}
    names = {row["kernel"]: row["name"] or row["kernel"] for row in folder.rows("kernels", ["kernel", "name"])}
    tracks: dict[tuple[int, int | None, int], list[tuple[int, int]]] = {}
    """Of each queue: thread number, and when the last launch on it ended."""
    total = 0
    with folder.table("launches") as reader:
        for row in _rows(reader):
            key = row["process"], row["device"], row["queue"]
            lanes = tracks.setdefault(key, [])
            begin, end = row["begin_ns"], row["end_ns"]
            known = begin is not None and end is not None
            at = begin if known else row["time_ns"]
            lane = next((number for number, (_, free) in enumerate(lanes) if free <= at), len(lanes))
            if lane == len(lanes):
                total += 1
                lanes.append((total, at))
                more = f" ({lane + 1})" if lane else ""
                name = f"device {row['device']}, queue {row['queue']}{more}"
                thread = {"pid": row["process"], "tid": total, "args": {"name": name}}
                yield {"ph": "M", "name": "thread_name", **thread}
            tid = lanes[lane][0]
            event = {
                "name": names.get(row["kernel"]) or row["kernel"] or "unknown",
                "cat": "instrumented" if row["instrumented"] else "original",
                "pid": row["process"],
                "tid": tid,
                "ts": (at - began) / 1000,
                "args": {key: row[key] for key in _ARGUMENTS} | {"times": "device" if known else "not known"},
            }
            if known:
                lanes[lane] = tid, end
                yield {"ph": "X", "dur": (end - begin) / 1000, **event}
            else:
                yield {"ph": "i", "s": "t", **event}


_ARGUMENTS = (
    *("number", "instrumented", "time_ns", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("group_segment", "private_segment"),
)


def _rows(reader: TableReader) -> Iterator[dict[str, Any]]:
    for batch in reader.batches():
        yield from batch.to_pylist()
