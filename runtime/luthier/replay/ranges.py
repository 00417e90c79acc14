"""Launches replayed in ranges of work-groups, in parallel: ``luthier replay --split``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from luthier.capture.split import LaunchPart, Range, merged, part_of, ranges, run_part
from luthier.errors import LuthierError
from luthier.replay.jobs import CaptureJob, ReplayOutcome, ReplayStatus, outcome
from luthier.replay.processes import replayed_elsewhere

if TYPE_CHECKING:
    from distributed import Client


class RangeOutcome(ReplayOutcome, kw_only=True, omit_defaults=True):
    """Outcome of a range of a launch."""

    part: bytes = b""
    """`luthier.capture.split.LaunchPart.packed`; empty if it could not be run."""


class ReplayRange(CaptureJob[RangeOutcome], frozen=True, kw_only=True):
    """Replay of a range of a launch's work-groups."""

    answers: ClassVar[type[Struct]] = RangeOutcome
    range: Range = (0, 0)

    def run(self) -> RangeOutcome:
        """Replay in this process."""
        capture = self.capture()
        launch = self.launch(replace(capture, manifest=part_of(capture.manifest, self.range)))
        part, done = run_part(launch, self.range)
        row = outcome(done)
        if done.fault is not None:  # its results are incomplete
            return RangeOutcome(status=row.status, what=row.what, seconds=row.seconds, instructions=row.instructions)
        return RangeOutcome(status=ReplayStatus.EQUAL, what="a part", seconds=row.seconds, part=part.packed())


def replays_in_ranges(
    job: ReplayRange, paths: Sequence[Path], count: int, scheduler: str | None = None, limit: float | None = None
) -> Iterator[ReplayOutcome]:
    """Yield the outcome of each capture after replaying its launch in ranges.

    Args:
        count: ranges of each launch.
        scheduler: address of a cluster that runs them in parallel; None: this machine.
        limit: seconds that each range may take.
    """
    with _client(scheduler) as client:
        for path in paths:
            try:
                row = _replayed(replace(job, file=str(path)), count, client, limit)
            except LuthierError as problem:
                row = ReplayOutcome(status=ReplayStatus.IMPOSSIBLE, what=str(problem))
            row.file = str(path)
            yield row


def _client(scheduler: str | None) -> AbstractContextManager[Client | None]:
    if scheduler is None:
        return nullcontext()
    from luthier.replay.cluster import cluster

    return cluster(scheduler)


def _replayed(job: ReplayRange, count: int, client: Client | None, limit: float | None) -> ReplayOutcome:
    """Return the outcome of a capture.

    Raises:
        LuthierError: the launch cannot be split or run.
    """
    capture = job.capture()
    jobs = [replace(job, range=chosen) for chosen in ranges(capture.manifest, count)]
    began = time.perf_counter()
    rows = list(_ranges(jobs, client, limit))
    for row in rows:
        if row.status != ReplayStatus.EQUAL:
            return row
    done = merged(capture, [LaunchPart.unpacked(row.part) for row in rows], time.perf_counter() - began)
    whole = job.outcome(capture, done)
    whole.parts = len(rows)
    whole.part_seconds = tuple(row.seconds for row in rows if isinstance(row.seconds, float))
    return whole


def _ranges(jobs: Sequence[ReplayRange], client: Client | None, limit: float | None) -> Iterable[RangeOutcome]:
    if client is None:
        return (replayed_elsewhere(job, limit) for job in jobs)
    from luthier.replay.cluster import jobs_on

    return jobs_on(client, jobs, limit)
