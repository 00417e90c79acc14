"""The `luthier` command, each time in a process of its own, which begins with Luthier imported.

Imports are most of what a short command takes, and hundreds of tests give one. The fork server of `multiprocessing` has
what most of them import, and nothing else: no state, threads or machine code of other tests. Tests of how the command
itself starts and ends run `MAIN` by a new interpreter. Nobody waits for the server, so `time` does not count these
commands: they take a third of the CPU time of `make test`.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
"""Program that ``python -c`` runs."""
LUTHIER = str(Path(sys.executable).with_name("luthier"))
PATIENCE = 300
"""Seconds for a command, on a machine with other work."""

_IMPORTED = """
luthier.cli.main luthier.cli.run luthier.cli.findings luthier.cli.sanitize luthier.cli.capture luthier.cli.replay
luthier.capture luthier.run.service luthier.run.instrumentation luthier.run.results luthier.run.record
luthier.run.watching luthier.run.host_places luthier.run.findings.collector luthier.run.findings.arguments
luthier.run.findings.tally luthier.run.findings.variables luthier.run.findings.failed_launches luthier.findings.causes
luthier.findings.sarif luthier.findings.source_text luthier.findings.suppressions luthier.findings.text
luthier.emulator.inspection.early luthier.emulator.inspection.guards luthier.emulator.inspection.half_masks
luthier.emulator.inspection.uses luthier.emulator.inspection.waiting luthier.module.packages
luthier.module.tool_module luthier.patch.output.companion_code
importlib.metadata importlib.resources llvmlite numpy.ma pyarrow.parquet pandas
"""
"""pyarrow imports pandas when it makes its first array: a third of what a run with a folder takes."""
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_IMPORTED.split())


def run_luthier(
    *words: object,
    input: str = "",
    env: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, in the environment of this process or another one.

    Args:
        words: its arguments.
        before: words of a command that runs it, in a new interpreter.

    Raises:
        subprocess.TimeoutExpired: it took longer; it was killed.
    """
    argv = [LUTHIER, *map(str, words)]
    if before:
        return subprocess.run([*before, *argv], capture_output=True, text=True, input=input, env=env, timeout=timeout)
    with tempfile.TemporaryDirectory(prefix="luthier-command-") as name:
        files = [Path(name, stream) for stream in ("in", "out", "err")]
        files[0].write_text(input)
        process = _SERVER.Process(target=_command, args=(argv, dict(os.environ if env is None else env), files))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(argv, timeout, *(file.read_bytes() for file in files[1:]))
        assert process.exitcode is not None
        out, err = (file.read_text() if file.exists() else "" for file in files[1:])
        return subprocess.CompletedProcess(argv, process.exitcode, out, err)


def start_luthier(*words: object, env: Mapping[str, str], files: Path) -> multiprocessing.process.BaseProcess:
    """Start the command as the leader of a session.

    Args:
        files: folder in which `out` and `err` get what it prints.
    """
    streams = [files / stream for stream in ("in", "out", "err")]
    streams[0].write_text("")
    process = _SERVER.Process(target=_lead, args=([LUTHIER, *map(str, words)], dict(env), streams))
    process.start()
    return process


def _lead(argv: list[str], env: dict[str, str], files: list[Path]) -> None:
    os.setsid()
    _command(argv, env, files)


def session(leader: int) -> list[int]:
    """Return the processes of a session, its leader and those that have ended left out."""
    members = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid, stat = int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()
            if int(stat[3]) == leader and stat[0] != "Z" and pid != leader:
                members.append(pid)
    return members


def end_of_session(process: subprocess.Popen[str], timeout: float = PATIENCE) -> tuple[str, str]:
    """Return what the leader of a session writes to its pipes, when all of its processes have ended by themselves.

    Raises:
        subprocess.TimeoutExpired: some have not; they were killed.
    """
    deadline = time.monotonic() + timeout
    try:
        out, err = process.communicate(timeout=timeout)
        while session(process.pid):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, timeout, out, err)
            time.sleep(0.05)
        return out, err
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for pid in session(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _command(argv: list[str], env: dict[str, str], files: list[Path]) -> None:
    missing = [name for name in _IMPORTED.split() if name not in sys.modules]  # the server does not complain
    assert not missing, missing
    gc.freeze()
    for number, file in enumerate(files):
        descriptor = os.open(file, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    sys.argv = argv
    from luthier.cli.main import main

    sys.exit(main())
