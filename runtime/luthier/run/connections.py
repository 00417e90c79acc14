"""Connections of the program's processes to the service of a run."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence
from typing import Literal

from luthier.errors import UnfinishedError
from luthier.support.losses import note_loss
from luthier.support.threads import Worker
from luthier.terminal import say

_CROWDED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""Errors of accept(2) that may be temporary."""
_PAUSE = 0.05
"""Seconds between attempts."""
_FILES_OF_A_PROCESS = 6
"""Open files that each process of the program needs here: two connections, and shared memory."""


class Connections:
    """Accepts connections, and answers each on its own thread.

    Args:
        answer: answers a process until it ends; receives its process ID in this namespace, or 0 if it has none here.
    """

    def __init__(self, answer: Callable[[socket.socket, int], None]) -> None:
        self._answer = answer
        self._is_crowded = False
        self._threads: list[tuple[int, Worker]] = []
        """Threads that answer processes; ended ones are removed when another begins."""

    def serve(self, first: socket.socket, further: Sequence[socket.socket] = ()) -> None:
        """Accept connections until a listener is closed; wait while the system lacks resources for another.

        Args:
            first: accepts the first connection of each process, only while there are enough files for another process.
                Otherwise all processes would get one connection, and none its other files.
            further: accept other connections of processes that have one.
        """
        own = len(os.listdir("/proc/self/fd"))
        processes: list[Worker] = []
        while True:
            processes = [process for process in processes if process.is_alive()]
            has_room = not processes or own + _FILES_OF_A_PROCESS * (len(processes) + 1) <= _limit()
            if not has_room:
                self._say_crowded(f"ulimit -n {_limit()}")
            waiting = select.poll()  # select(2) is limited to descriptors below 1,024
            try:
                for listener in (*further, *([first] if has_room else ())):
                    waiting.register(listener, select.POLLIN)
            except ValueError:  # a listener is closed
                return
            ready = {descriptor for descriptor, _ in waiting.poll(None if has_room else _PAUSE * 1000)}
            for listener in (*further, first):
                if listener.fileno() not in ready:
                    continue
                try:
                    connection, _ = listener.accept()
                except OSError as problem:
                    if problem.errno in (errno.ECONNABORTED, errno.EAGAIN):  # its process has gone already
                        continue
                    if problem.errno not in _CROWDED:
                        return
                    self._say_crowded(f"{problem.strerror} (ulimit -n {_limit()})")
                    time.sleep(_PAUSE)
                    continue
                thread = self._take(connection)
                if thread is not None and listener is first:
                    processes.append(thread)

    def _take(self, connection: socket.socket) -> Worker | None:
        """Start to answer a process and return the thread; None if it belongs to another user or lost its service."""
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, user, _ = struct.unpack("3i", credentials)
        if user != os.geteuid():
            connection.close()
            return None
        while (thread := self._begin(connection, pid)) is None:
            time.sleep(_PAUSE)
        if thread:
            self._threads.append((pid, thread))
        return thread or None

    def _begin(self, connection: socket.socket, pid: int) -> Worker | Literal[False] | None:
        """Return a thread that answers a process; None: retry after others have ended; False: there is no room, and
        the process has lost its service."""
        self._threads = [one for one in self._threads if one[1].is_alive()]
        try:
            return Worker(self._answer, connection, pid)
        except UnfinishedError as problem:
            if self._threads:
                self._say_crowded(str(problem))
                return None
            connection.close()
            note_loss(f"the results of process {pid}: {problem}")
            return False

    def _say_crowded(self, why: str) -> None:
        """Print once that processes must wait for others to end."""
        if not self._is_crowded:
            self._is_crowded = True
            say(f"luthier run: warning: processes must wait for others to end: {why}", file=sys.stderr)

    def wait_for_ended(self, seconds: float) -> None:
        """Wait until the last messages of ended processes are handled, for a limited time."""
        patient_until = time.monotonic() + seconds
        for pid, thread in self._threads:
            if not os.path.exists(f"/proc/{pid}"):
                thread.join(max(0.0, patient_until - time.monotonic()))


def _limit() -> int:
    """Return the limit of open files of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
