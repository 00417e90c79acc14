"""``luthier replay --split``: a launch in ranges of work-groups, side by side, and the process that runs one."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from luthier.capture import read_capture
from luthier.capture.split import Part, Range, merged, part_of, ranges, run_part
from luthier.cli.replay_answers import EQUAL, IMPOSSIBLE, answer
from luthier.cli.replay_process import expected, launch_of, outcome, row_of
from luthier.errors import LuthierError

if TYPE_CHECKING:
    from distributed import Client

PART = "luthier.cli.replay_split"
"""Name of this module."""


def rows(args: argparse.Namespace, paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield what comes of each capture, whose launch is run in parts, here or on a cluster."""
    options = {name: getattr(args, name) for name in ("device", "against", "time_limit")}
    with _client(args.scheduler) as client:
        for path in paths:
            try:
                yield {"file": str(path)} | _row(path, args.split, options, client)
            except LuthierError as problem:
                yield {"file": str(path), "status": IMPOSSIBLE, "what": str(problem)}


def _client(scheduler: str | None) -> AbstractContextManager[Client | None]:
    if scheduler is None:
        return nullcontext()
    from luthier.cli.replay_cluster import cluster

    return cluster(scheduler)


def _row(path: Path, count: int, options: Mapping[str, Any], client: Client | None) -> dict[str, Any]:
    """Return what came of a capture.

    Raises:
        LuthierError: it cannot be split, or be run.
    """
    capture = expected(str(path), options)
    chosen = ranges(capture.manifest, count)
    began = time.perf_counter()
    found = list(_parts(path, chosen, options, client))
    for row, _ in found:
        if row["status"] != EQUAL:
            return row
    done = merged(capture, [part for _, part in found if part is not None], time.perf_counter() - began)
    return row_of(capture, {"object": None}, done) | {
        "parts": len(found),
        "part_seconds": [row["seconds"] for row, _ in found],
    }


def _parts(
    path: Path, chosen: Sequence[Range], options: Mapping[str, Any], client: Client | None
) -> Iterator[tuple[dict[str, Any], Part | None]]:
    """Yield the row of each part, and what it did; none if it could not be run."""
    if client is None:
        from luthier.cli.replay_process import row_elsewhere

        for of in chosen:
            with tempfile.TemporaryDirectory(prefix="luthier-split-") as folder:
                output = Path(folder) / "part"
                row = row_elsewhere(PART, path, {**options, "range": of, "output": str(output)})
                yield row, Part.unpacked(output.read_bytes()) if output.exists() else None
        return
    from luthier.cli.replay_cluster import parts_on

    for row, data in parts_on(client, path, options, chosen, PART):
        yield row, Part.unpacked(data) if data else None


def here(task: Mapping[str, Any]) -> dict[str, Any]:
    """Run a part in this process; write what it did to a file, and return the row."""
    from msgspec.structs import replace

    first, end = task["range"]
    capture = read_capture(task["file"])
    launch = launch_of(replace(capture, manifest=part_of(capture.manifest, (first, end))), task)
    part, done = run_part(launch, (first, end))
    row = outcome(done)
    if done.fault is None:  # what it leaves is not all that is expected
        Path(task["output"]).write_bytes(part.packed())
        row |= {"status": EQUAL, "what": "a part"}
    return row


if __name__ == "__main__":
    answer(here)
