"""Launches on a time line, in the trace event format of Chrome and Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from luthier.report.formats.declare import ReportFormat

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder
    from luthier.run.tables import TableReader


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write launches on a time line: a process each, a track for each queue of a device, a slice for each launch.

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
    """For each queue the thread number, and when the last launch on it ended."""
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


FORMAT = ReportFormat(help="launches on a time line, for ui.perfetto.dev", write=write)
