"""Lines about kernels that run for long: a program that waits for one looks as if nothing happened."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
from numpy.typing import NDArray

from luthier.objects.names import spellings
from luthier.run.planner import Plan
from luthier.terminal import say
from luthier.wire.messages import Running

_APART = 9.0
"""Seconds between two lines, at least: processes tell independently of each other."""


class LongLaunches:
    """Prints them on standard error. Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -_APART

    def tell(self, pid: int, running: Running, plan: Plan, counts: NDArray[np.int64]) -> None:
        """Print a line, unless the last one is not long ago.

        Args:
            pid: process that the launch is of.
            running: how long it has run.
            plan: of its kernel.
            counts: executions of each record of the plan's code, in this process.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._last < _APART:
                return
            self._last = now
        reached = plan.code.code.reach(*plan.roots)
        executed = int(counts[reached[reached < len(counts)]].sum())
        others = f", as {running.others} others are" if running.others > 1 else ", as another one is"
        say(
            f"luthier run: kernel {spellings(plan.kernel.name)[-1]} has been running for {running.seconds} s"
            f"{others if running.others else ''} (process {pid}; waves have executed {executed:,} of its instructions)",
            file=sys.stderr,
        )
