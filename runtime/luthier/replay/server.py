"""A server process that has loaded the modules for replays and forks for each capture, and its client.

Loading takes ten times longer than replaying a small launch. Each capture still has its own process.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import signal
import sys
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from luthier.errors import DeviceError
from luthier.replay.jobs import Job, answered, job_of
from luthier.support.forks import in_fork
from luthier.support.processes import converse
from luthier.terminal import say_text


class Server:
    """The client's side of a server process, which answers one request after another.

    Args:
        module: the jobs' module, which the process loads.
    """

    def __init__(self, module: str) -> None:
        self._process = converse([sys.executable, "-m", "luthier.replay.server", module])

    def ask(self, job: Job[Any], limit: float | None) -> str:
        """Return the answer to a job, as text.

        Raises:
            DeviceError: the fork failed, or took longer than `limit` seconds.
            OSError: the server has ended.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"job": job.text(), "seconds": limit}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise BrokenPipeError(f"the replay server exited with status {process.wait()}")
        reply = json.loads(line)
        if "problem" in reply:
            raise DeviceError(reply["problem"])
        answer: str = reply["answer"]
        return answer

    def end(self) -> None:
        """End the process and its current fork."""
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream and stream.close()
        self._process.wait()


_idle: dict[str, list[Server]] = {}
"""Idle servers by module."""
_lock = threading.Lock()


def in_server(job: Job[Any], limit: float | None) -> str:
    """Return the answer to a job (`luthier.replay.jobs.answered`) from a fork of a server.

    Each thread has its own server; servers live as long as this process.

    Raises:
        DeviceError: the fork failed, or took longer than `limit` seconds, or the server has ended.
    """
    module = type(job).__module__
    with _lock:
        idle = _idle.setdefault(module, [])
        server = idle.pop() if idle else None
    try:
        server = server or Server(module)
        answer = server.ask(job, limit)
    except DeviceError:
        if server is not None:
            _give_back(module, server)
        raise
    except OSError as problem:
        if server is not None:
            server.end()
        raise DeviceError(str(problem)) from None
    except BaseException:  # interrupted: nobody waits for the answer
        if server is not None:
            server.end()
        raise
    _give_back(module, server)
    return answer


def _give_back(module: str, server: Server) -> None:
    with _lock:
        _idle[module].append(server)


@atexit.register
def end_servers() -> None:
    """End the idle servers."""
    with _lock:
        servers = [server for some in _idle.values() for server in some]
        _idle.clear()
    for server in servers:
        server.end()


def _forget() -> None:
    """Forget the servers in a fork of this process: they belong to the parent."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)


def _serve(module: str) -> None:
    """Answer requests until standard input ends."""
    import luthier.capture  # for the forks  # noqa: F401
    from luthier.emulator.native.store import store

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module(module)
    store()  # the forks inherit its provenance
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        try:
            # The client is gone if standard input becomes readable before the answer.
            answer = in_fork(
                partial(answered, job_of(request["job"])),
                error=DeviceError,
                seconds=request["seconds"],
                unless=sys.stdin.fileno(),
            )
            reply = {"answer": answer}
        except DeviceError as problem:
            reply = {"problem": str(problem)}
        say_text(json.dumps(reply), flush=True)


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        _serve(sys.argv[1])
