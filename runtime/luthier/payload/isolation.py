"""Run LLVM in a child process: what it cannot compile ends the process, and must not end the user's.

LLVM answers code that it cannot select with `abort`, and errors of its backends with `exit`. Loading it, and setting
its code generator up, takes longer than compiling a hook; so one child lasts and does one hook after the other, and a
new one comes in its place where it died. The process itself needs no LLVM.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from luthier.errors import HookError, LuthierError

T = TypeVar("T")

_CAUSE = "LLVM ERROR: "


class _Child:
    """A child process that answers requests, one at a time, until it dies or `end` is called.

    Args:
        work: gives the answer to a request, or raises a `LuthierError`. Requests and answers are pickled.
    """

    def __init__(self, work: Callable[[Any], object]) -> None:
        self._words = os.memfd_create("luthier-llvm", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        with _llvm_at_rest():
            self._pid = os.fork()
            if self._pid == 0:
                _serve(work, theirs, self._words)
        theirs.close()
        self._stream = ours.makefile("rwb")
        ours.close()

    def ask(self, request: object, what: str) -> Any:
        """Return the answer to a request, or the `LuthierError` that the work raised.

        Where this raises, the child is gone.

        Raises:
            HookError: the child died, with what LLVM said.
        """
        try:
            pickle.dump(request, self._stream)
            self._stream.flush()
            answer = pickle.load(self._stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            status, said = self.end()
            raise HookError(f"{what}: LLVM cannot compile it: {_cause(said, status)}") from None
        except BaseException:  # interrupted, or nothing that can be sent
            self.end(kill=True)
            raise
        return answer

    def end(self, *, kill: bool = False) -> tuple[int, str]:
        """Wait for the child's end: its status, and what it said."""
        if kill:
            os.kill(self._pid, signal.SIGKILL)
        self.let_go()
        _, status = os.waitpid(self._pid, 0)
        said = os.pread(self._words, 1 << 16, 0).decode(errors="replace")
        os.close(self._words)
        return status, said

    def let_go(self) -> None:
        """Close this end: the child ends as soon as nobody has it open."""
        with contextlib.suppress(OSError):  # what it would still write
            self._stream.close()


def _llvm_at_rest() -> contextlib.AbstractContextManager[object]:
    """Hold LLVM's lock, so that no other thread is inside LLVM or imports it.

    A child then finds both in a consistent state. Without other threads there is nothing to hold.
    """
    if "llvmlite.binding" not in sys.modules and threading.active_count() == 1:
        return contextlib.nullcontext()
    from llvmlite.binding import ffi

    lock: contextlib.AbstractContextManager[object] = ffi.lib._lock
    return lock


def in_child(work: Callable[[], T], what: str) -> T:
    """Return the result of `work()`, computed in a child of its own.

    Where there are other threads, the work must import nothing: an import lock may be held.

    Args:
        work: uses LLVM; its result, or the `LuthierError` it raises, is pickled.
        what: name of the work in errors, e.g. ``hook count``.

    Raises:
        HookError: the child died, with what LLVM said.
    """
    child = _Child(lambda _: work())
    answer: T | LuthierError = child.ask(None, what)
    child.end()
    return _result(answer)


_lasting: _Child | None = None
_lock = threading.Lock()


def in_lasting_child(what: str, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of `function(*arguments)`, computed in the child that lasts; all three must be picklable.

    Args and errors as of `in_child`.
    """
    global _lasting
    request = function, arguments
    with _lock:
        child, _lasting = _lasting, None
        if child is not None:
            try:
                answer: T | LuthierError = child.ask(request, what)
            except HookError:  # perhaps of what it did before
                child = None
        if child is None:
            child = _Child(_call)
            answer = child.ask(request, what)
        _lasting = child
    return _result(answer)


def end_lasting_child() -> None:
    """End the child that lasts, if there is one."""
    global _lasting
    with _lock:
        child, _lasting = _lasting, None
        if child is not None:
            child.end()


def _forget() -> None:
    """Forget the child in a fork of this process, since it is not the fork's own."""
    global _lasting, _lock
    _lock = threading.Lock()
    if _lasting is not None:
        _lasting.let_go()
    _lasting = None


os.register_at_fork(after_in_child=_forget)


def _result(answer: T | LuthierError) -> T:
    if isinstance(answer, LuthierError):
        raise answer
    return answer


def _call(request: tuple[Callable[..., object], tuple[object, ...]]) -> object:
    function, arguments = request
    return function(*arguments)


def _serve(work: Callable[[Any], object], connection: socket.socket, words: int) -> None:
    """Run the child; it does not return, and runs no handler of the parent's exit."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's to answer
        # Nobody must wait for an end of file because this process has the file, too.
        nothing = os.open(os.devnull, os.O_RDWR)
        files = [fcntl.fcntl(own, fcntl.F_DUPFD, 4) for own in (nothing, nothing, words, connection.fileno())]
        for number, own in enumerate(files):
            os.dup2(own, number)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        gc.freeze()  # what is there is the parent's: no page of it need be copied
        _keep_what_is_freed()
        with socket.socket(fileno=3).makefile("rwb") as stream:
            while True:
                try:
                    request = pickle.load(stream)
                except EOFError:
                    os._exit(0)
                try:
                    answer = work(request)
                except LuthierError as problem:
                    answer = problem
                pickle.dump(answer, stream)
                stream.flush()
    except BaseException as problem:
        os.write(2, f"{_CAUSE}{problem!r}\n".encode())
    finally:
        os._exit(1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt`` (malloc.h)."""
_MOST_ON_HEAP = 32 << 20


def _keep_what_is_freed() -> None:
    """Let glibc keep the memory that LLVM frees for the next hook, which wants 2 MB again: having the system give that
    anew, page by page, is a tenth of compiling a hook."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MOST_ON_HEAP)
        mallopt(_TRIM_THRESHOLD, _MOST_ON_HEAP)


def _cause(said: str, status: int) -> str:
    """Return why a child died, in one line: LLVM's own words, or the signal."""
    lines = said.splitlines()
    for line in lines:
        if line.startswith((_CAUSE, "error: ")):
            return line.partition(": ")[2]
    if os.WIFSIGNALED(status):
        return f"it crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    return lines[0] if lines else f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
