"""A process that has loaded what replays need and forks for each capture, and the client of such processes.

To load it takes ten times longer than to replay a small launch. Each capture has a process of its own all the same.
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
    """A server's process, as its client has it: it answers one request after the other.

    Args:
        module: of the jobs, which the process loads.
    """

    def __init__(self, module: str) -> None:
        self._process = converse([sys.executable, "-m", "luthier.replay.server", module])

    def ask(self, job: Job[Any], limit: float | None) -> str:
        """Return the answer to a job, as text.

        Raises:
            DeviceError: the fork that had it failed, or took longer than so many seconds.
            OSError: the server is gone.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"job": job.text(), "seconds": limit}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise BrokenPipeError(f"a server of replays ended with {process.wait()}")
        reply = json.loads(line)
        if "problem" in reply:
            raise DeviceError(reply["problem"])
        answer: str = reply["answer"]
        return answer

    def end(self) -> None:
        """End the process, and what it does."""
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                stream and stream.close()
        self._process.wait()


_idle: dict[str, list[Server]] = {}
"""Servers that do nothing, by module."""
_lock = threading.Lock()


def in_server(job: Job[Any], limit: float | None) -> str:
    """Return the answer to a job (`luthier.replay.jobs.answered`), from a fork of a server.

    Threads have servers of their own; these last as long as this process.

    Raises:
        DeviceError: the fork failed, or took longer than so many seconds, or there is no server.
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
    except BaseException:  # interrupted: what it does is for nobody
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
    """End the servers that do nothing."""
    with _lock:
        servers = [server for some in _idle.values() for server in some]
        _idle.clear()
    for server in servers:
        server.end()


def _forget() -> None:
    """Forget the servers in a fork of this process: they answer the parent."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


os.register_at_fork(after_in_child=_forget)


def _serve(module: str) -> None:
    """Answer requests until nobody has any."""
    import luthier.capture  # for the forks  # noqa: F401
    from luthier.emulator.native.store import store

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    importlib.import_module(module)
    store()  # what made it is known to the forks
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        try:
            # Who asked is gone if there is something to read before the answer.
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
