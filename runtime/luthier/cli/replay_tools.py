"""The process in which `luthier replay -t` replays captures under tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luthier.capture.place import AddressTaken
from luthier.cli.replay_answers import IMPOSSIBLE, answer
from luthier.cli.replay_process import expected, launch_of, row_of
from luthier.errors import LuthierError
from luthier.objects.names import as_in_source
from luthier.run import results
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.replaying import ReplayedRun
from luthier.support.losses import losses
from luthier.support.table import Table
from luthier.tool import parse_tools


def _here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Replay in this process; return the rows of the replays and what tools report."""
    try:
        recorder = Recorder(Path(task["output"])) if task["output"] else None
    except LuthierError as problem:
        return _nothing(problem)
    try:
        return _replayed(task, recorder)
    finally:
        if recorder is not None:
            recorder.discard()


def _nothing(problem: LuthierError) -> dict[str, Any]:
    """Return what is told where nothing can be replayed."""
    return {"replays": [], "sections": [], "tools": [], "faults": [], "error": str(problem)}


def _replayed(task: Mapping[str, Any], recorder: Recorder | None) -> dict[str, Any]:
    try:
        run = ReplayedRun(parse_tools(task["tool"]), recorder, hoist=task["hoist"])
    except LuthierError as problem:
        return _nothing(problem)
    rows = [_replay(run, file, task) for file in task["files"]]
    instrumentation = run.instrumentation
    instrumentation.end()
    reported = list(results.tables(instrumentation))
    status = max(int(row["status"]) for row in rows)
    error = _error(instrumentation) if any("instructions" in row for row in rows) else ""
    if recorder is not None:
        summary = results.head(instrumentation, ["luthier", "replay", *task["files"]], status, reported)
        try:
            recorder.finish(instrumentation, {**summary, "devices": [f"emu:{device}" for device in run.devices]})
        except LuthierError as problem:
            error = error or str(problem)
    sections = [*reported, ("coverage", [results.coverage(results.kernels(instrumentation))])]
    return {
        "replays": rows,
        "sections": [(name, texts(tables, mangled=task["mangled"])) for name, tables in sections],
        "tools": [{"tool": name, "tables": [table.to_json() for table in tables]} for name, tables in reported],
        "faults": list(instrumentation.faults),
        "error": error,
    }


def texts(tables: Sequence[Table], *, mangled: bool) -> list[str]:
    """Return tables as they are printed."""
    return [table.text() for table in (tables if mangled else as_in_source(tables))]


def _replay(run: ReplayedRun, file: str, task: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"file": file}
    try:
        capture = expected(file, task)
        row["kernel"] = capture.manifest.kernel
        done = run.replay(launch_of(capture, task), task.get("threads"), task["checks"])
        return row | row_of(capture, task, done)
    except AddressTaken:
        raise
    except LuthierError as problem:
        return row | {"status": IMPOSSIBLE, "what": str(problem)}


def _error(instrumentation: Instrumentation) -> str:
    """Return why the tools' work counts as failed; empty if it does not."""
    try:
        results.check_tools(instrumentation)
        results.check(instrumentation)
        if lost := losses():  # the process that started this one has none of them
            raise LuthierError(f"lost: {lost[0]}")
    except LuthierError as problem:
        return str(problem)
    return ""


if __name__ == "__main__":
    answer(_here)
