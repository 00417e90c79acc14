"""Work in forks and servers of forks: failures are reported, and nothing is left behind."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from luthier.errors import DeviceError, LackError
from luthier.replay.jobs import Job
from luthier.replay.server import Server
from luthier.run.shared_memory import SharedMemory
from luthier.support.forks import in_fork
from luthier.support.processes import descendants

CLIENT = """
import sys
from luthier.replay.server import in_server
from odd_work import Odd
print("began", flush=True)
in_server(Odd(do="sleep"), None)
"""
WORK = """
import os, time
from luthier.replay.jobs import Job, ReplayOutcome
class Odd(Job[ReplayOutcome], frozen=True, kw_only=True):
    do: str
    def run(self):
        if self.do == "sleep":
            open(os.environ["PID_FILE"], "w").write(str(os.getpid()))
            time.sleep(600)
        if self.do == "crash":
            os.abort()
        return ReplayOutcome(status=0, what=f"{self.do} {os.getpid()}")
"""


def forked(work: Callable[[], str], seconds: float | None = None) -> str:
    """Return the result of work in a fork."""
    return in_fork(work, error=DeviceError, seconds=seconds)


def test_what_forks_return_and_how_they_end() -> None:
    def fail() -> str:
        raise KeyError("which nobody expects")

    def die() -> str:
        os.write(1, b"last ")
        os.write(2, b"words\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    def last() -> str:
        time.sleep(600)
        return ""

    before, processes = len(os.listdir("/proc/self/fd")), descendants(os.getpid())
    assert forked(lambda: "ä" * 1_000_000) == "ä" * 1_000_000
    assert forked(lambda: str(os.getppid())) == str(os.getpid())
    with pytest.raises(DeviceError, match=r"(?s)KeyError: 'which nobody expects'.*exit code 1"):
        forked(fail)
    with pytest.raises(DeviceError, match=r"last words\nit ended by signal 9"):
        forked(die)
    began = time.monotonic()
    with pytest.raises(DeviceError, match=r"did not end within 0\.2 seconds"):
        forked(last, 0.2)
    assert time.monotonic() - began < 60
    assert len(os.listdir("/proc/self/fd")) == before
    assert descendants(os.getpid()) == processes


def test_without_descriptors() -> None:
    """Failed forks raise the system's error, and leave no file open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = [number for number in range(1000) if not os.path.lexists(f"/proc/self/fd/{number}")]
    for make, needed in ((lambda: forked(str), 3), (lambda: SharedMemory("luthier-test", 1), 1)):
        for free in range(needed):
            resource.setrlimit(resource.RLIMIT_NOFILE, (unused[free], limit[1]))
            try:
                with pytest.raises(LackError, match="Too many open files"):
                    make()
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    assert unused == [number for number in range(1000) if not os.path.lexists(f"/proc/self/fd/{number}")]


@pytest.fixture
def odd_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module for servers, and the file to which its process writes who it is."""
    (tmp_path / "odd_work.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PID_FILE", str(tmp_path / "pid"))
    return tmp_path / "pid"


def odd(do: str) -> Job[Any]:
    """A job of the module of `odd_work`."""
    job: Job[Any] = importlib.import_module("odd_work").Odd(do=do)
    return job


def test_a_server_outlives_its_forks(odd_work: Path) -> None:
    server = Server("odd_work")
    first = server.ask(odd("one"), None)
    with pytest.raises(DeviceError, match="signal 6"):
        server.ask(odd("crash"), None)
    with pytest.raises(DeviceError, match="did not end within 2"):
        server.ask(odd("sleep"), 2)
    assert server.ask(odd("one"), None) != first
    assert not Path(f"/proc/{odd_work.read_text()}").exists()
    server.end()


def test_forks_end_with_who_asked(odd_work: Path) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT], stdout=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not (odd_work.exists() and odd_work.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = odd_work.read_text()
    client.kill()
    client.communicate()
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
