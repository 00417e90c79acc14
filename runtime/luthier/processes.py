"""The one place that starts other programs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from luthier.errors import BuildError, LuthierError


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
            begins with the standard error, and ends with the command line and the exit code.
    """
    argv = [os.fspath(part) for part in command]
    try:
        done = subprocess.run(
            argv, cwd=cwd, env=env, input=stdin, capture_output=True, text=True, errors="replace", timeout=timeout
        )
    except subprocess.TimeoutExpired as problem:
        raise error(f"{shlex.join(argv)} did not end within {timeout} seconds") from problem
    except OSError as problem:
        raise error(f"cannot run {argv[0]}: {problem.strerror or problem}") from problem
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        how = f"{shlex.join(argv)} failed with exit code {done.returncode}"
        raise error(f"{said}\n{how}" if said else how)
    if warnings is not None and done.stderr.strip():
        warnings(done.stderr)
    return done.stdout


def start(command: Sequence[str], *, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program that shares this one's standard input and output; it is the caller's to wait for.

    Raises:
        LuthierError: it cannot be started.
    """
    try:
        return subprocess.Popen(list(command), env=dict(env))
    except OSError as problem:
        raise LuthierError(f"cannot run {command[0]}: {problem.strerror or problem}") from problem
