"""Separate processes that run jobs: a capture cannot harm this one, and each has other free addresses."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import DeviceError
from luthier.replay.jobs import TAKEN, CaptureJob, Job, ReplayOutcome, ReplayStatus, answered
from luthier.support.processes import LATE, run

if TYPE_CHECKING:
    from luthier.capture import Capture
    from luthier.replay.launches import SeveralReplays

TRIES = 16
"""The most processes that are started until one has the capture's addresses free."""
A = TypeVar("A", bound=Struct)
Row = TypeVar("Row", bound=ReplayOutcome)


def done_elsewhere(
    job: Job[A], limit: float | None = None, first: Callable[[Job[A], float | None], str] | None = None
) -> A:
    """Return the answer of a job from a separate process.

    Args:
        limit: seconds that it may take.
        first: tried first; new processes follow if that one uses addresses of the captures.

    Raises:
        DeviceError: the job fails or takes too long, or no process has the captures' addresses free.
    """
    ask = first or _in_process
    for _ in range(TRIES):
        try:
            text = ask(job, limit)
        except DeviceError as problem:  # the process was killed, or has a bug
            if limit is not None and LATE in problem.message:
                raise DeviceError(f"it {LATE} {limit:g} seconds") from None
            raise DeviceError(f"the process that replays it failed: {problem}") from None
        if text.strip() != TAKEN:
            return job.answer(text)
        ask = _in_process
    raise DeviceError(f"addresses of the capture are in use in each of {TRIES} processes")


def replayed_elsewhere(job: CaptureJob[Row], limit: float | None = None) -> Row:
    """Return the outcome of a job on one capture from a separate process; a failure is an outcome, too."""
    from luthier.replay.server import in_server

    try:
        row = done_elsewhere(job, limit, first=in_server)
    except DeviceError as problem:
        row = job.answers(status=ReplayStatus.IMPOSSIBLE, what=str(problem))  # type: ignore[assignment]
    row.file = job.file
    return row


def replay_held(job: SeveralReplays, held: Mapping[str, Capture], limit: float) -> tuple[set[str], tuple[str, ...]]:
    """Replay this run's captures in a fork of this process.

    Args:
        held: captures in this process's memory, which are in no file yet.
        limit: seconds for all replays together.

    Returns:
        The files whose replay was equal, and those that need a process with other free addresses. All others failed:
        they are for `replayed_elsewhere`.
    """
    from luthier.emulator.native.machine import machine_code
    from luthier.support.forks import in_fork

    def work() -> str:
        machine_code.cache_clear()  # the fork must not share the run's
        return answered(job, partial(job.replay_held, held))

    try:
        several = job.answer(in_fork(work, error=DeviceError, seconds=limit))
    except DeviceError:
        return set(), ()
    return several.equal, several.taken


def replay_together(job: SeveralReplays, limit: float) -> set[str]:
    """Replay this run's captures in as few new processes as their addresses allow; return the files that are equal.

    Args:
        limit: seconds that each process may take.
    """
    equal = set[str]()
    for _ in range(TRIES):
        if not job.files:
            break
        try:
            several = job.answer(_in_process(job, limit))
        except DeviceError:
            break
        equal |= several.equal
        job = replace(job, files=several.taken)
    return equal


def _in_process(job: Job[Any], limit: float | None) -> str:
    """Return the answer of a new process to a job."""
    command = [sys.executable, "-m", "luthier.replay.worker", str(os.getpid())]
    return run(command, stdin=job.text(), error=DeviceError, timeout=limit)
