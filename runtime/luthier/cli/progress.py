"""A line about long work, for whoever looks at a terminal.

It is drawn where the cursor is, without moving it or scrolling, and erased before anything else is written: a program
under `luthier run`, which has the same terminal, may be in the middle of a line.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from luthier.support.threads import Worker
from luthier.terminal import say_raw, visible

_PATIENCE, _PERIOD = 1.0, 0.2
"""Seconds without a line, and between two drawings."""
_SAVE, _RESTORE, _ERASE, _CUT, _WRAP = "\0337", "\0338", "\033[K", "\033[?7l", "\033[?7h"


def _keeps_what_is_erased() -> bool:
    """Return whether what is drawn stays to be seen, as on simple terminals and in cells of Jupyter's notebooks."""
    return os.environ.get("TERM") == "dumb" or "JPY_PARENT_PID" in os.environ


class ProgressLine:
    """Shows what is being done, how much of it and for how long still, if it takes longer than a second.

    Args:
        what: is being done, e.g. ``patching``.
        total: how many steps there are; 0 if nobody knows.
    """

    def __init__(self, what: str, total: int = 0) -> None:
        self._what, self._total = what, total
        self._name, self._done = "", -1
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread: Worker | None = None

    def step(self, name: str) -> None:
        """Begin the next step.

        Args:
            name: name of its subject.
        """
        self._name, self._done = name, self._done + 1

    def text(self) -> str:
        """Return the line as it is now."""
        took = time.monotonic() - self._began
        parts = [visible(f"{self._what} {self._name}".strip())]
        if self._total > 1:
            parts.append(f"{max(self._done, 0) + 1} of {self._total}")
        if self._done > 0:
            rate = self._done / took
            parts.append(f"{rate:.3g} a second")
            if self._total:
                parts.append(f"{_duration((self._total - self._done) / rate)} left")
        else:
            parts.append(_duration(took))
        return ", ".join(parts)

    def __enter__(self) -> ProgressLine:
        if sys.stderr.isatty() and not _keeps_what_is_erased():
            self._thread = Worker(self._draw)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _draw(self) -> None:
        wait = _PATIENCE
        while not self._stop.wait(wait):
            wait = _PERIOD
            self._write(f"{_SAVE}{_CUT}{self.text()}{_ERASE}{_WRAP}{_RESTORE}")
        if wait != _PATIENCE:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        try:
            say_raw(text, file=sys.stderr, end="", flush=True)
        except (OSError, ValueError):  # the terminal is gone
            self._stop.set()


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
