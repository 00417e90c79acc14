"""Kernels that run for long: lines about them, since a program that waits for one looks as if nothing happened, and
what they were doing when the program was ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.emulator.running.progress import Progress, named_places
from luthier.objects.names import spellings
from luthier.run.planner import Plan
from luthier.terminal import say
from luthier.wire.messages import Running, RunningPlace

_APART = 9.0
"""Seconds between two lines, at least: processes tell independently of each other."""


class LongLaunch(Struct, frozen=True):
    """A launch that had not ended when its process told of it."""

    process: int
    kernel: str
    """Its name for people."""
    seconds: int
    """How long it had run."""
    progress: Progress

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        own = {"process": self.process, "kernel": self.kernel, "seconds": self.seconds}
        return {**own, **self.progress.to_json()}


class LongLaunches:
    """Prints lines about them on standard error, and keeps the last state of each process. Safe from several
    threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -_APART
        self._states: dict[object, tuple[int, Running, Sequence[RunningPlace], Plan]] = {}
        """By connection."""

    def tell(
        self,
        connection: object,
        pid: int,
        running: Running,
        places: Sequence[RunningPlace],
        plan: Plan,
        counts: NDArray[np.int64],
    ) -> None:
        """Take the state of a launch, and print lines about it if they are due, unless the last ones are not long ago.

        Args:
            connection: that of the process,
            pid: which has this number.
            running: how long it has run.
            places: where its waves are.
            plan: of its kernel.
            counts: executions of each record of the plan's code, in this process.
        """
        with self._lock:
            self._states[connection] = pid, running, places, plan
            now = time.monotonic()
            if not running.is_due or now - self._last < _APART:
                return
            self._last = now
        reached = plan.code.code.reach(*plan.roots)
        executed = int(counts[reached[reached < len(counts)]].sum())
        others = f", as {running.others} others are" if running.others > 1 else ", as another one is"
        launch = _launch(pid, running, places, plan)
        say(
            f"luthier run: kernel {launch.kernel} has been running for {running.seconds} s"
            f"{others if running.others else ''} (process {pid}; waves have executed {executed:,} of its instructions)",
            file=sys.stderr,
        )
        say_lines(launch)

    def forget(self, connection: object) -> None:
        """Take that no launch of a process runs for long any more."""
        with self._lock:
            self._states.pop(connection, None)

    def unfinished(self) -> list[LongLaunch]:
        """Return the launches that had not ended when their processes told last."""
        with self._lock:
            states = list(self._states.values())
        return [_launch(*state) for state in states]


def say_lines(launch: LongLaunch) -> None:
    """Print what it does, on standard error."""
    for line in launch.progress.lines():
        say(f"luthier run:   {line}", file=sys.stderr)


def _launch(pid: int, running: Running, places: Sequence[RunningPlace], plan: Plan) -> LongLaunch:
    rows = [(place.record, place.groups) for place in places]
    progress = Progress(
        running.groups,
        running.begun,
        running.running,
        running.resident,
        bool(running.is_full),
        bool(running.repeats),
        named_places(plan.code.code, plan.kernel.name, plan.kernel.entry, rows),
    )
    return LongLaunch(pid, spellings(plan.kernel.name)[-1], running.seconds, progress)
