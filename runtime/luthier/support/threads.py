"""Threads that start or fail, and never block the thread that starts them.

`threading.Thread.start` waits for a signal of the new thread. If there is no memory for its first call, that signal
never comes.
"""

from __future__ import annotations

import _thread
import os
import time
import weakref
from collections.abc import Callable

from luthier.errors import UnfinishedError
from luthier.support.shortage import shortage

_PAUSE = 0.05
"""Seconds between checks for a thread that died silently."""


class _Held:
    """Object that only a thread holds: it disappears with the thread, however that ends. No callback is used, since
    that may need memory."""


class Worker:
    """A running thread. It does not keep the process from exiting.

    Raises:
        UnfinishedError: the thread cannot start, because there is too little memory or there are too many threads.
    """

    def __init__(self, work: Callable[..., object], *arguments: object) -> None:
        self._began, self._ended = _thread.allocate_lock(), _thread.allocate_lock()
        self._began.acquire()
        self._ended.acquire()
        held = _Held()
        self._held = weakref.ref(held)
        try:
            _thread.start_new_thread(self._run, (held, work, arguments))
        except (RuntimeError, MemoryError) as problem:
            raise UnfinishedError(shortage(problem) or str(problem)) from None
        del held
        if not self._wait(self._began):
            raise UnfinishedError(str(shortage(MemoryError())))

    def _run(self, _: _Held, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
        _running[id(self)] = self
        self._began.release()
        try:
            work(*arguments)
        finally:
            _running.pop(id(self), None)
            self._ended.release()

    def _wait(self, lock: _thread.LockType, seconds: float | None = None) -> bool:
        """Return whether the thread released a lock; False if it died, or after `seconds`."""
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _PAUSE if end is None else min(_PAUSE, max(0.0, end - time.monotonic()))
            is_alive = self._held() is not None
            if lock.acquire(timeout=left):
                return True
            if not is_alive or left == 0:
                return False

    def is_alive(self) -> bool:
        """Return whether the thread is running."""
        return self._ended.locked() and self._held() is not None

    def join(self, seconds: float | None = None) -> None:
        """Wait until the thread has ended, or for `seconds`."""
        if self._wait(self._ended, seconds):
            self._ended.release()


_running: dict[int, Worker] = {}
os.register_at_fork(after_in_child=_running.clear)


def are_running() -> bool:
    """Return whether any workers are running."""
    return bool(_running)
