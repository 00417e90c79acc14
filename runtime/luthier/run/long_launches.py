"""Long-running kernels: progress lines, since a program that waits for one appears to hang, and what they were doing
when the program was stopped."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator.running.progress import named_places, progress_json, progress_lines
from luthier.objects.names import spellings
from luthier.run.planner import KernelPlan
from luthier.terminal import say
from luthier.wire.device_requests import Running
from luthier.wire.messages import Progress

_APART = 9.0
"""Minimum seconds between two lines, since processes report independently."""


class LongLaunch(Struct, frozen=True):
    """A launch that had not ended when its process last reported."""

    process: int
    kernel: str
    """Its name in the source."""
    seconds: int
    """Running time so far."""
    progress: Progress
    places: Sequence[tuple[str, int]]
    """Instructions at which waves are, with the number of work-groups, most first."""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        own = {"process": self.process, "kernel": self.kernel, "seconds": self.seconds}
        return {**own, **progress_json(self.progress, self.places)}


class LongLaunches:
    """Prints progress lines on standard error, and keeps the last state of each process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -_APART
        self._states: dict[object, tuple[int, Running, KernelPlan]] = {}
        """By process."""

    def tell(self, process: object, pid: int, running: Running, plan: KernelPlan, counts: NDArray[np.int64]) -> None:
        """Update the state of a launch and print progress lines if they are due.

        Args:
            process: process that launched it.
            pid: its process ID.
            plan: plan of its kernel.
            counts: executions of each record of the plan's code in this process.
        """
        with self._lock:
            self._states[process] = pid, running, plan
            now = time.monotonic()
            if not running.is_due or now - self._last < _APART:
                return
            self._last = now
        reached = plan.code.code.reach(*plan.roots)
        executed = int(counts[reached[reached < len(counts)]].sum())
        more = f", like {running.others} others" if running.others > 1 else ", like another one"
        launch = _launch(pid, running, plan)
        say(
            f"luthier run: kernel {launch.kernel} has been running for {running.seconds} s"
            f"{more if running.others else ''} (process {pid}; waves have executed {executed:,} of its instructions)",
            file=sys.stderr,
        )
        say_lines(launch)

    def forget(self, process: object) -> None:
        """Record that a process has no long-running launch."""
        with self._lock:
            self._states.pop(process, None)

    def unfinished(self) -> list[LongLaunch]:
        """Return the launches that had not ended when their processes last reported."""
        with self._lock:
            states = list(self._states.values())
        return [_launch(*state) for state in states]


def say_lines(launch: LongLaunch) -> None:
    """Print what a launch is doing on standard error."""
    for line in progress_lines(launch.progress, launch.places):
        say(f"luthier run:   {line}", file=sys.stderr)


def _launch(pid: int, running: Running, plan: KernelPlan) -> LongLaunch:
    kernel, progress = plan.kernel, running.progress
    places = named_places(progress, plan.code.code, kernel.name, kernel.entry)
    return LongLaunch(pid, spellings(kernel.name)[-1], running.seconds, progress, places)
