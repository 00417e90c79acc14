"""Starting and ending of other programs; no other module does this."""

from __future__ import annotations

import errno
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
"""Part of the messages of errors after a time limit."""
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
LEFT_TO_OTHERS = (signal.SIGINT, signal.SIGQUIT)
"""The terminal also sends these to started programs, which decide what they mean."""
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

    The standard error of a successful program goes to `warnings`, if it is not empty.

    Raises:
        LuthierError: of class `error`, if the program is missing, runs longer than `timeout` seconds (it is then
            killed), or exits with a code other than 0. The message is the standard error, followed by the command line
            with the exit code or the signal.
    """
    done = attempt(command, cwd=cwd, env=env, error=error, stdin=stdin, timeout=timeout)
    argv = done.args
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        how = f"{shlex.join(argv)} failed with exit code {done.returncode}"
        if done.returncode < 0:
            how = f"{argv[0]} was killed by {signal_name(-done.returncode)}: {shlex.join(argv)}"
        raise error(f"{output}\n{how}" if output else how)
    if warnings is not None and done.stderr.strip():
        warnings(done.stderr)
    return done.stdout


def attempt(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    error: type[LuthierError] = BuildError,
    stdin: str | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, whatever its exit code, and return what it wrote.

    Raises:
        LuthierError: of class `error`, if the program is missing, or runs longer than `timeout` seconds (it is then
            killed).
    """
    argv = [os.fspath(part) for part in command]
    try:
        return subprocess.run(
            argv, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired as problem:
        raise error(f"{shlex.join(argv)} {LATE} {timeout} seconds") from problem
    except OSError as problem:
        raise error(f"cannot run {argv[0]}: {problem.strerror or problem}") from problem


def signal_name(number: int) -> str:
    """Return the name of a signal."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def start(command: Sequence[str], *, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program that shares standard input and output with this one; the caller must wait for it.

    Raises:
        LuthierError: it cannot be started.
    """
    try:
        return subprocess.Popen(list(command), env=dict(env))
    except OSError as problem:
        hint = _start_hint(command[0], problem)
        raise LuthierError(f"cannot run {command[0]}: {problem.strerror or problem}{hint}") from problem


def _start_hint(program: str, problem: OSError) -> str:
    """Return what a user who cannot start a program can do, if that is known."""
    is_program = os.path.isfile(program) and os.access(program, os.X_OK)
    if problem.errno == errno.EACCES and os.path.isfile(program):
        return f"; a script needs its interpreter (python3 {program}), a program its permission (chmod +x {program})"
    if problem.errno == errno.ENOENT and is_program:
        return "; its interpreter is missing" if "/" in program else f"; did you mean ./{program}?"
    if problem.errno == errno.ENOEXEC and is_program:
        with suppress(OSError), open(program, "rb") as file:
            if file.read(4) == b"\x7fELF":
                return "; it is an ELF file for another processor, or damaged"
        return "; a script begins with a line such as #!/bin/sh"
    return ""


def converse(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a program that exchanges lines with the caller on its standard input and output; the caller must end it.

    Raises:
        OSError: it cannot be started.
    """
    return subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def forwarded_signals() -> Iterator[tuple[Callable[[Callable[[int], object]], None], list[int]]]:
    """Forward signals to a program.

    Yields a function and a list. The function takes a receiver of signals and is called when the program exists; it
    passes on earlier signals. The list has all signals received. They are handled, not ignored: the program would
    inherit an ignored signal.
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

    before = {number: signal.signal(number, lambda caught, _: received.append(caught)) for number in LEFT_TO_OTHERS}
    before |= {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        yield forward_to, received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_with(parent: int) -> None:
    """Make the system kill this process when the thread that started it ends.

    Args:
        parent: id of that thread's process.
    """
    import ctypes

    ctypes.CDLL(None).prctl(_SIGNAL_AT_END_OF_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it has ended already
        sys.exit(128 + signal.SIGKILL)


def wait(child: subprocess.Popen[bytes], seconds: float | None) -> int | None:
    """Wait for a program and return its exit code; None: it ran too long and was ended with all its descendants.

    Args:
        seconds: time limit; None: none.
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
    """Return the running descendants of a process."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # After the name, which may contain anything: state, parent (proc(5)).
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(folder.name))
    pids = [pid]
    for parent in pids:
        pids += parents.get(parent, [])
    return pids[1:]


def _open(pids: Sequence[int], opened: ExitStack) -> list[int]:
    """Return file descriptors of processes, which stay valid if process ids are reused."""
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
