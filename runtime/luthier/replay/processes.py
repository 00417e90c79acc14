"""Processes that do jobs, which a capture cannot harm, and of which each has other addresses."""

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
"""Processes that are started until one has nothing where the program had its memory."""
A = TypeVar("A", bound=Struct)
Row = TypeVar("Row", bound=ReplayOutcome)


def done_elsewhere(
    job: Job[A], limit: float | None = None, first: Callable[[Job[A], float | None], str] | None = None
) -> A:
    """Return the answer of a job, from a process of its own.

    Args:
        limit: seconds that it may take.
        first: tries it first; new processes do where that has something else at the captures' addresses.

    Raises:
        DeviceError: it fails, or takes longer, or each process has something else where the captures' memory was.
    """
    ask = first or _in_process
    for _ in range(TRIES):
        try:
            text = ask(job, limit)
        except DeviceError as problem:  # it was killed, or there is a bug of ours
            if limit is not None and LATE in problem.message:
                raise DeviceError(f"it {LATE} {limit:g} seconds") from None
            raise DeviceError(f"the process that replays it failed: {problem}") from None
        if text.strip() != TAKEN:
            return job.answer(text)
        ask = _in_process
    raise DeviceError("addresses of the capture are taken in each process")


def replayed_elsewhere(job: CaptureJob[Row], limit: float | None = None) -> Row:
    """Return the outcome of a job on one capture, from a process of its own, also where that fails."""
    from luthier.replay.server import in_server

    try:
        row = done_elsewhere(job, limit, first=in_server)
    except DeviceError as problem:
        row = job.answers(status=ReplayStatus.IMPOSSIBLE, what=str(problem))  # type: ignore[assignment]
    row.file = job.file
    return row


def replay_held(job: SeveralReplays, held: Mapping[str, Capture], limit: float) -> tuple[set[str], tuple[str, ...]]:
    """Replay captures of our own in a fork of this process; return the files of those that are equal, and those that
    need a process of other addresses. The others fail, or their process does: they are for `replayed_elsewhere`.

    Args:
        held: captures in this process's memory, which are in no file yet.
        limit: seconds that all may take.
    """
    from luthier.emulator.native.machine import machine_code
    from luthier.support.forks import in_fork

    def work() -> str:
        machine_code.cache_clear()  # that of a run is not for this process
        return answered(job, partial(job.replay_held, held))

    try:
        several = job.answer(in_fork(work, error=DeviceError, seconds=limit))
    except DeviceError:
        return set(), ()
    return several.equal, several.taken


def replay_together(job: SeveralReplays, limit: float) -> set[str]:
    """Replay captures of our own in as few new processes as their addresses allow; return the files of those that are
    equal.

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
    """Return what a new process answers to a job."""
    command = [sys.executable, "-m", "luthier.replay.worker", str(os.getpid())]
    return run(command, stdin=job.text(), error=DeviceError, timeout=limit)
