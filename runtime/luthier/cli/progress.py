"""A progress line for the terminal.

It is drawn at the cursor without moving it or scrolling, and erased before anything else is written: a program under
`luthier run`, which shares the terminal, may be in the middle of a line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from luthier.support.threads import Worker
from luthier.terminal import say_raw, visible

Item = TypeVar("Item")
_PATIENCE, _PERIOD = 1.0, 0.2
"""Seconds until the line appears, and between two updates."""
_SAVE, _RESTORE, _ERASE, _CUT, _WRAP = "\0337", "\0338", "\033[K", "\033[?7l", "\033[?7h"


def _keeps_what_is_erased() -> bool:
    """Return whether the terminal cannot erase a line, as simple terminals and cells of Jupyter notebooks."""
    return os.environ.get("TERM") == "dumb" or "JPY_PARENT_PID" in os.environ


class ProgressLine:
    """Shows the current step, the progress and the remaining time of work that takes longer than a second.

    Args:
        what: the work, e.g. ``patching``.
        total: number of steps; 0 if it is unknown.
    """

    def __init__(self, what: str, total: int = 0) -> None:
        self._what, self._total = what, total
        self._name, self._done = "", -1
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._thread: Worker | None = None

    def step(self, name: str) -> None:
        """Begin the next step; `name` is its subject."""
        self._name, self._done = name, self._done + 1

    def text(self) -> str:
        """Return the current line."""
        took = time.monotonic() - self._began
        parts = [visible(f"{self._what} {self._name}".strip())]
        if self._total > 1:
            parts.append(f"{max(self._done, 0) + 1} of {self._total}")
        if self._done > 0:
            rate = self._done / took
            parts.append(f"{rate:.3g} per second")
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


def awaited(what: str, items: Iterable[Item]) -> Iterator[Item]:
    """Yield items that each take unknown time; show a progress line while the next one is awaited."""
    each = iter(items)
    while True:
        with ProgressLine(what):
            item = next(each, None)
        if item is None:
            return
        yield item


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
