"""Work in forks of this process: what crashes, hangs or fills memory there harms nobody here."""

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
"""Bytes of what was printed that an error has."""
_FAILED = 1
"""Exit code of a fork whose work raised something."""


def in_fork(
    work: Callable[[], str], *, error: type[LuthierError], seconds: float | None = None, unless: int | None = None
) -> str:
    """Return what `work` returns in a fork of this process, and nothing else of it.

    Where there are other threads, the work should import nothing: an import lock may be held.

    Args:
        error: class of what is raised.
        seconds: how long it may take; None: for ever.
        unless: a file descriptor whose readiness to be read ends the work.

    Raises:
        LackError: it cannot be made.
        LuthierError: of class `error`, if it dies, raises anything or takes longer; with what it has printed.
    """
    files = list[int]()
    try:
        with lacking("no process can be started"):
            files += os.pipe()
            files.append(os.memfd_create("luthier-fork", os.MFD_CLOEXEC))
            pid = os.fork()
        reading, writing, words = files
        if pid == 0:
            _child(work, writing, words)
        os.close(files.pop(1))
        told = _read(reading, unless, seconds)
        if told is None:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if told is None:
            raise error(f"it {LATE} {seconds} seconds")
        if status:
            said = os.pread(words, _MOST_SAID, 0).decode(errors="replace").strip()
            code = os.waitstatus_to_exitcode(status)
            how = f"it ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
            raise error(f"{said}\n{how}" if said else how)
        return told.decode()
    finally:
        for file in files:
            os.close(file)


def _child(work: Callable[[], str], writing: int, words: int) -> NoReturn:
    """Do the work and end."""
    status = _FAILED
    try:
        gc.freeze()  # what came along is not finalised here: it is the parent's
        with suppress(ValueError):  # not on the main thread
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.dup2(words, 1)  # what the work prints is for nobody's protocol
        os.dup2(words, 2)
        with open(writing, "wb") as file:
            file.write(work().encode())
        status = 0
    except BaseException:
        os.write(words, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _read(reading: int, unless: int | None, seconds: float | None) -> bytes | None:
    """Return everything that comes out of a pipe; None if that takes longer, or something else can be read."""
    end = None if seconds is None else time.monotonic() + seconds
    parts: list[bytes] = []
    watched = select.poll()  # select(2) takes no descriptor from 1,024 on
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
