"""Timeline of launches, waits and calls, in the trace event format of Chrome and Perfetto."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

from luthier.errors import LuthierError
from luthier.report.formats.declare import ReportFormat
from luthier.support import strict_json
from luthier.terminal import visible_json

if TYPE_CHECKING:
    from luthier.run.folder import RunFolder


def write(folder: RunFolder, out: IO[bytes]) -> None:
    """Write a run as a timeline, with tracks for each process:

    - a track for each queue of a device, with a slice for each launch; launches that overlap on a queue get more
      tracks. A launch without device times is a mark at the time when it was written to the queue, and says so;
    - for each queue, the waits of launches from when they were written to it until they began;
    - a track for each thread, with a slice for each HIP call, if they were recorded. Copies and fills have a category
      of their own. The program's ranges (roctx) and marks enclose them; ranges that may overlap get their own tracks.
    """
    began = folder.summary.began_ns or 0
    out.write(b'{"displayTimeUnit": "ns", "otherData": {"began_ns": "%d"}, "traceEvents": [' % began)
    separator, pids = b"\n", _Pids()
    for event in _TimeLine(folder, began).events():
        out.write(separator + _json(event | {"pid": pids[event["pid"]]}).encode())
        separator = b",\n"
    out.write(b"]}\n")


def _json(event: Any) -> str:
    """Return an event as JSON without escapes of letters, which Perfetto does not read."""
    text = strict_json.dumps(event, separators=(",", ":"))
    if "\\u" in text:
        text = json.dumps(json.loads(visible_json(text)), separators=(",", ":"), ensure_ascii=False)
    return text


class _Pids(dict[int, int]):
    """Process -> number on the timeline: its own, or a free one if its own is too large."""

    def __missing__(self, process: int) -> int:
        used = set(self.values())
        free = (one for one in range(_LARGEST_PID, 0, -1) if one not in used)
        self[process] = process if _fits(process) and process not in used else next(free)
        return self[process]


def _fits(process: int | None) -> bool:
    return process is not None and 0 <= process <= _LARGEST_PID


_LARGEST_PID = (1 << 31) - 1
"""Largest process number that Perfetto accepts; it reads larger ones, which merged runs may have, as 0."""


class _TimeLine:
    """Events of one run.

    Args:
        began: start of the timeline, in nanoseconds since 1970.
    """

    def __init__(self, folder: RunFolder, began: int) -> None:
        self._folder, self._began = folder, began
        self._tracks = itertools.count(1)
        """Numbers of tracks, used as thread numbers."""

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield all events, each track's name before its events."""
        for process in self._folder.summary.processes:
            rank = "" if process.rank is None else f"rank {process.rank}: "
            number = "" if _fits(process.process) else f" (process {process.process})"
            name = f"{rank}{process.command or ''}{number}".strip()
            yield {"ph": "M", "name": "process_name", "pid": process.process, "args": {"name": name}}
        yield from self._launches()
        if "calls" in self._folder.names:
            yield from self._calls()

    def _launches(self) -> Iterator[dict[str, Any]]:
        names = {
            row["kernel"]: row["name"] or row["kernel"] for row in self._folder.rows("kernels", ["kernel", "name"])
        }
        queues: dict[tuple[int, int | None, int], list[tuple[int, int]]] = {}
        """Tracks of each queue, and when the last launch on each ended."""
        for number, row in enumerate(self._folder.rows("launches")):
            queue = f"device {row['device']}, queue {row['queue']}"
            lanes = queues.setdefault((row["process"], row["device"], row["queue"]), [])
            begin, end = row["begin_ns"], row["end_ns"]
            known = begin is not None and end is not None
            at = begin if known else row["time_ns"]
            lane = next((number for number, (_, free) in enumerate(lanes) if free <= at), len(lanes))
            if lane == len(lanes):
                lanes.append((next(self._tracks), at))
                yield self._named(row["process"], lanes[lane][0], f"{queue} ({lane + 1})" if lane else queue)
            tid = lanes[lane][0]
            name = names.get(row["kernel"]) or row["kernel"] or "unknown"
            event = {
                "name": name,
                "cat": "instrumented" if row["instrumented"] else "original",
                "pid": row["process"],
                "tid": tid,
                "ts": self._time(at),
                "args": {key: row[key] for key in _ARGUMENTS} | {"times": "device" if known else "not known"},
            }
            if known:
                lanes[lane] = tid, end
                yield {"ph": "X", "dur": (end - begin) / 1000, **event}
                yield from self._wait(row, number, f"{queue}: waiting", name)
            else:
                yield {"ph": "i", "s": "t", **event}

    def _wait(self, row: dict[str, Any], number: int, queue: str, kernel: str) -> Iterator[dict[str, Any]]:
        """Yield the wait of a launch for its turn. Waits overlap, so they are not slices of one track.

        Their IDs are local to the process (`id2`): viewers show global IDs apart from all processes.
        """
        if row["time_ns"] is not None and row["time_ns"] < row["begin_ns"]:
            same = {"cat": "wait", "name": queue, "id2": {"local": f"wait {number}"}, "pid": row["process"], "tid": 0}
            yield {"ph": "b", "ts": self._time(row["time_ns"]), "args": {"kernel": kernel}, **same}
            yield {"ph": "e", "ts": self._time(row["begin_ns"]), **same}

    def _calls(self) -> Iterator[dict[str, Any]]:
        threads: dict[tuple[int, int], int] = {}
        for number, row in enumerate(self._folder.rows("calls")):
            if row["name"] is None or row["begin_ns"] is None:
                raise LuthierError(f"{self._folder.path}: a call has no name or no start time")
            key = row["process"], row["thread"]
            if key not in threads:
                threads[key] = next(self._tracks)
                yield self._named(row["process"], threads[key], f"thread {row['thread']}: HIP")
            api = row.get("api") or "hip"
            event = {
                "name": row["name"],
                "cat": "copy" if api == "hip" and row["name"].startswith(_COPIES) else api,
                "pid": row["process"],
                "tid": threads[key],
                "ts": self._time(row["begin_ns"]),
                "args": {**self._arguments(row["arguments"]), "result": row["result"]},
            }
            if api == "roctx.mark":
                yield {"ph": "i", "s": "t", **event}
            elif api == "roctx.range":  # it may end on another thread, and overlap others
                event["id2"] = {"local": f"range {number}"}
                yield {"ph": "b", **event}
                if row["end_ns"] is not None:
                    yield {"ph": "e", **event, "ts": self._time(row["end_ns"])}
            elif row["end_ns"] is None:
                yield {"ph": "B", **event}  # it has not ended
            else:
                yield {"ph": "X", "dur": (row["end_ns"] - row["begin_ns"]) / 1000, **event}

    def _arguments(self, text: str | None) -> dict[str, Any]:
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict):
            raise LuthierError(f"{self._folder.path}: the arguments of a call are not a JSON object")
        return arguments

    def _named(self, process: int, track: int, name: str) -> dict[str, Any]:
        return {"ph": "M", "name": "thread_name", "pid": process, "tid": track, "args": {"name": name}}

    def _time(self, nanoseconds: int) -> float:
        return (nanoseconds - self._began) / 1000


_COPIES = ("hipMemcpy", "hipMemset", "hipDrvMemcpy")
_ARGUMENTS = (
    *("number", "instrumented", "time_ns", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("group_segment", "private_segment"),
)


FORMAT = ReportFormat(help="timeline of launches, waits and HIP calls, for ui.perfetto.dev", write=write)
