"""Work in forks of this process, which are isolated from crashes, hangs and full memory."""

from __future__ import annotations

import gc
import os
import select
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from luthier.errors import LuthierError
from luthier.support.losses import lacking
from luthier.support.processes import LATE

_MOST_SAID = 1 << 16
"""The most bytes of a fork's output in an error."""
_FAILED = 1
"""Exit code of a fork whose work raised an exception."""


def in_fork(
    work: Callable[[], str], *, error: type[LuthierError], seconds: float | None = None, unless: int | None = None
) -> str:
    """Run `work` in a fork of this process and return its result.

    If there are other threads, the work should not import modules: an import lock may be held.

    Args:
        error: class of the error to raise.
        seconds: time limit; None: none.
        unless: a file descriptor; the work is ended when it becomes readable.

    Raises:
        LackError: the fork cannot be made.
        LuthierError: of class `error`, if the fork dies, raises an exception or takes too long; with its output.
    """
    files = list[int]()
    try:
        with lacking("cannot start a process"):
            files += os.pipe()
            files.append(os.memfd_create("luthier-fork", os.MFD_CLOEXEC))
            pid = os.fork()
        reading, writing, words = files
        if pid == 0:
            _child(work, writing, words)
        os.close(files.pop(1))
        answer = _read(reading, unless, seconds)
        if answer is None:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if answer is None:
            raise error(f"it {LATE} {seconds} seconds")
        if status:
            output = os.pread(words, _MOST_SAID, 0).decode(errors="replace").strip()
            code = os.waitstatus_to_exitcode(status)
            how = f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
            raise error(f"{output}\n{how}" if output else how)
        return answer.decode()
    finally:
        for file in files:
            os.close(file)


def _child(work: Callable[[], str], writing: int, words: int) -> NoReturn:
    """Run the work and exit."""
    status = _FAILED
    try:
        gc.freeze()  # do not finalise the parent's objects
        with suppress(ValueError):  # not on the main thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(words, 1)  # keep output out of the parent's protocols
        os.dup2(words, 2)
        with open(writing, "wb") as file:
            file.write(work().encode())
        status = 0
    except BaseException:
        os.write(words, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _read(reading: int, unless: int | None, seconds: float | None) -> bytes | None:
    """Return everything from a pipe; None after `seconds`, or if `unless` becomes readable."""
    end = None if seconds is None else time.monotonic() + seconds
    parts: list[bytes] = []
    watched = select.poll()  # select(2) does not support descriptors from 1,024 on
    for descriptor in (reading,) if unless is None else (reading, unless):
        watched.register(descriptor, select.POLLIN)
    while True:
        left = None if end is None else max(0.0, end - time.monotonic()) * 1000
        if reading not in (descriptor for descriptor, _ in watched.poll(left)):
            return None
        part = os.read(reading, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
