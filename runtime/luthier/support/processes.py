"""The one place that starts other programs, and ends them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from luthier.errors import BuildError, LuthierError

GRACE = 5.0
"""Seconds from the request to end until a program is killed."""
LATE = "did not end within"
"""Part of what errors say where something took too long."""
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LEFT_TO_OTHERS = (signal.SIGINT, signal.SIGQUIT)
"""The terminal sends these to programs that were started, too: what they mean is their business."""
_SIGNAL_AT_END_OF_PARENT = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    error: type[LuthierError] = BuildError,
    stdin: str | None = None,
    warnings: Callable[[str], object] | None = None,
    timeout: float | None = None,
) -> str:
    """Run `command` to its end and return its standard output.

    What a successful program writes to standard error goes to `warnings`, if there is anything and it is given.

    Raises:
        LuthierError: of class `error`, if the program is missing, runs longer than `timeout` seconds (it is killed
            then), or exits with another code than 0; the message
            begins with the standard error, and ends with the command line and the exit code, or says which signal
            killed it before the command line.
    """
    argv = [os.fspath(part) for part in command]
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired as problem:
        raise error(f"{shlex.join(argv)} {LATE} {timeout} seconds") from problem
    except OSError as problem:
        raise error(f"cannot run {argv[0]}: {problem.strerror or problem}") from problem
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        how = f"{shlex.join(argv)} failed with exit code {done.returncode}"
        if done.returncode < 0:
            how = f"{argv[0]} was killed by {_signal_name(-done.returncode)}: {shlex.join(argv)}"
        raise error(f"{said}\n{how}" if said else how)
    if warnings is not None and done.stderr.strip():
        warnings(done.stderr)
    return done.stdout


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # of real time
        return f"signal {number}"


def start(command: Sequence[str], *, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program that shares this one's standard input and output; it is the caller's to wait for.

    Raises:
        LuthierError: it cannot be started.
    """
    try:
        return subprocess.Popen(list(command), env=dict(env))
    except OSError as problem:
        raise LuthierError(f"cannot run {command[0]}: {problem.strerror or problem}") from problem


def converse(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a program whose standard input and output are lines for its caller, whose it is to end.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def forwarded_signals() -> Iterator[tuple[Callable[[Callable[[int], object]], None], list[int]]]:
    """Forward signals to a program: the function given takes one that passes them on, once there is a program. Those
    that came are in the list.

    They have handlers, and are not ignored: an ignored signal would be ignored in the program, too.
    """
    early: list[int] = []
    received: list[int] = []
    receivers: list[Callable[[int], object]] = []

    def forward(number: int, _: object) -> None:
        received.append(number)
        receivers[-1](number) if receivers else early.append(number)

    def forward_to(receiver: Callable[[int], object]) -> None:
        receivers.append(receiver)
        while early:
            receiver(early.pop(0))

    before = {number: signal.signal(number, lambda one, _: received.append(one)) for number in LEFT_TO_OTHERS}
    before |= {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield forward_to, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(parent: int) -> None:
    """Have the system kill this process when the thread that started it has ended: what it does is for nobody then.

    Args:
        parent: id of that thread's process.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_SIGNAL_AT_END_OF_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        sys.exit(128 + signal.SIGKILL)


def wait(child: subprocess.Popen[bytes], seconds: float | None) -> int | None:
    """Wait for a program; its exit code, or None if it had to be ended, with all that it had started.

    Args:
        seconds: how long it may run; None: for ever.
    """
    with suppress(subprocess.TimeoutExpired):
        return child.wait(seconds)
    with ExitStack() as opened:
        family = _open([child.pid, *descendants(child.pid)], opened)
        _send(family, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
        _send([*family, *_open(descendants(child.pid), opened)], signal.SIGKILL)
    child.wait()
    return None


def descendants(pid: int) -> list[int]:
    """Return the running processes that a process has started, directly or through others."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # Behind the name, which may hold anything: state, parent (proc(5)).
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found = [pid]
    for parent in found:
        found += parents.get(parent, [])
    return found[1:]


def _open(pids: Sequence[int], opened: ExitStack) -> list[int]:
    """Return file descriptors of processes, which stay theirs even when their process ids are reused."""
    descriptors = []
    for pid in pids:
        with suppress(OSError):
            descriptors.append(os.pidfd_open(pid))
            opened.callback(os.close, descriptors[-1])
    return descriptors


def _send(processes: Sequence[int], number: int) -> None:
    for process in processes:
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(process, number)
