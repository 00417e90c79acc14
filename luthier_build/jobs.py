"""Run as many compilations in parallel as processors and memory allow."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TypeVar, cast

from luthier.errors import BuildError, LuthierError

T = TypeVar("T")

MEMORY_OF_ONE_COMPILATION = 1 << 30
"""Bytes reserved for one compiler process: clang needs about 250 MB for HIP's headers alone, and more for templates."""


def available_memory() -> int | None:
    """Return the bytes usable without swapping: the smaller of the kernel's estimate and the control group's rest."""
    limits = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(int(line.split()[1]) * 1024)
    except (OSError, ValueError, IndexError):
        pass
    try:
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            limits.append(max(0, int(limit) - int((group / "memory.current").read_text())))
    except (OSError, ValueError):
        pass
    return min(limits) if limits else None


def job_count(requested: int, tasks: int) -> int:
    """Return how many of `tasks` to run in parallel; `requested` 0 selects the number automatically."""
    if requested > 0:
        return max(1, min(requested, tasks))
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    memory = available_memory()
    by_memory = processors if memory is None else memory // MEMORY_OF_ONE_COMPILATION
    return max(1, min(processors, by_memory, tasks))


def run_all(tasks: Sequence[Callable[[], T]], jobs: int = 0) -> list[T]:
    """Run `tasks` in parallel and return their results in order.

    After a failure, no further task starts; running tasks finish.

    Raises:
        BuildError: with the message of every task that failed.
    """
    stop = threading.Event()

    def guarded(task: Callable[[], T]) -> T | None:
        if stop.is_set():
            return None
        try:
            return task()
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(job_count(jobs, len(tasks)), thread_name_prefix="luthier-build") as pool:
        futures = [pool.submit(guarded, task) for task in tasks]
        pending: set[Future[T | None]] = set(futures)
        try:
            while pending:
                _, pending = wait(pending, return_when=FIRST_COMPLETED)
        except BaseException:  # Ctrl-C: start no further task while the pool shuts down
            stop.set()
            raise
    problems = [problem for future in futures if (problem := future.exception()) is not None]
    for problem in problems:
        if not isinstance(problem, LuthierError):
            raise problem
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise BuildError(f"{len(problems)} compilations failed:\n" + "\n".join(str(problem) for problem in problems))
    return [cast(T, future.result()) for future in futures]
