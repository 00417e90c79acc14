"""Host threads, kept from launch to launch and shared by all devices: starting one takes longer than a small kernel."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

Share = TypeVar("Share")
_GLANCE = 0.5
"""Seconds after which a waiting thread looks up: a signal that comes just before it waits does not wake it."""


class _Task:
    """One share of a piece of work."""

    def __init__(self, work: Callable[[], Any], finished: SimpleQueue[None]) -> None:
        self.work = work
        self.problem: BaseException | None = None
        self.done = False
        self._finished = finished

    def run(self) -> None:
        try:
            self.work()
        except BaseException as problem:  # raised again by `Crew.spread`
            self.problem = problem
        del self.work  # and with it what a launch holds
        self.done = True

    def tell(self) -> None:
        self._finished.put(None)


class Crew:
    """Threads that take on work; there are as many as ever worked at once."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[_Task] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0

    def spread(self, work: Callable[[Share], Any], shares: Sequence[Share], abort: Callable[[], None]) -> None:
        """Call `work` for each share, each on its own thread, and wait for them; at an interrupt, `abort` first.

        Raises:
            BaseException: the first one that `work` raised.
        """
        finished: SimpleQueue[None] = SimpleQueue()
        tasks = [_Task(functools.partial(work, share), finished) for share in shares]
        given = 0
        try:
            self._have(len(tasks))
            for task in tasks:
                self._tasks.put(task)
                given += 1
            _wait_for(tasks, finished)
        except BaseException:  # a signal, on the main thread
            abort()
            while not all(task.done for task in tasks[:given]):
                with contextlib.suppress(KeyboardInterrupt):
                    _wait_for(tasks[:given], finished)
            raise
        for task in tasks:
            if task.problem is not None:
                raise task.problem

    def _have(self, count: int) -> None:
        """Set that many idle threads aside, starting what is missing."""
        with self._lock:
            missing = max(0, count - self._idle)
            for _ in range(missing):
                threading.Thread(target=self._serve, name="luthier-emulator", daemon=True).start()
            self._idle += missing - count

    def _serve(self) -> None:
        while True:
            task = self._tasks.get()
            task.run()
            with self._lock:
                self._idle += 1
            task.tell()
            del task


def _wait_for(tasks: Sequence[_Task], finished: SimpleQueue[None]) -> None:
    while not all(task.done for task in tasks):
        with contextlib.suppress(Empty):
            finished.get(timeout=_GLANCE)


CREW = Crew()


def _forget() -> None:
    """A child process has none of its parent's threads."""
    CREW.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget)
