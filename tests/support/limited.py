"""Limits on what a test may take: memory, and time of the processor."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from luthier.errors import LuthierError

MB = 1 << 20


class TooLongError(Exception):
    """Something takes more time of the processor than it may."""


def address_space() -> int:
    """Return the bytes of address space that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def limits(*, memory: int = 1024 * MB, seconds: float = 5) -> Iterator[None]:
    """Limit what this process does inside.

    Args:
        memory: bytes of address space beyond what there is; more raises MemoryError.
        seconds: processor time; more raises TooLongError.
    """

    def stop(signal: int, frame: FrameType | None) -> NoReturn:
        raise TooLongError(f"more than {seconds} s")

    old_memory = resource.getrlimit(resource.RLIMIT_AS)
    old_handler = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (address_space() + memory, old_memory[1]))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, old_memory)


def survives(action: Callable[[], object], *, memory: int = 1024 * MB, seconds: float = 5) -> bool:
    """Return whether something succeeds within the limits; False if it is refused by a `LuthierError`.

    Any other exception is passed on.
    """
    with limits(memory=memory, seconds=seconds):
        try:
            action()
        except LuthierError:
            return False
    return True


class Ended(NamedTuple):
    """End of a command."""

    code: int
    """Exit code; minus a signal's number where that ended it."""
    output: str
    error: str
    peak: int
    """Bytes of memory it had at most."""
    seconds: float
    """Processor time, in seconds."""


_STARTER = """
import os, resource, sys
memory, seconds, *command = sys.argv[1:]
pid = os.fork()
if not pid:
    resource.setrlimit(resource.RLIMIT_AS, (int(memory),) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    os.execv(command[0], command)
_, status, used = os.wait4(pid, 0)
print(os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)
"""
"""A small process, since a program's peak counts what the process had that started it. The last line is the figures."""


def command(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    memory: int = 8192 * MB,
    seconds: int = 30,
    environment: dict[str, str] | None = None,
) -> Ended:
    """Run `luthier` with arguments under limits.

    Args:
        memory: bytes of address space.
        seconds: of the processor.
        environment: variables that are set besides the test's own.
    """

    luthier = Path(sys.executable).with_name("luthier")
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as error:
        starter = subprocess.run(
            [
                sys.executable,
                "-S",
                "-c",
                _STARTER,
                str(memory),
                str(seconds),
                luthier,
                *(os.fspath(one) for one in arguments),
            ],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=error,
            env={**os.environ, **(environment or {})},
        )
        out.seek(0)
        error.seek(0)
        *lines, last = error.read().splitlines(keepends=True)
        assert starter.returncode == 0, [*lines, last]
        code, peak, used = last.split()
        ended = Ended(int(code), out.read(), "".join(lines), int(peak) << 10, float(used))
    assert "Traceback" not in ended.error, ended.error
    return ended
