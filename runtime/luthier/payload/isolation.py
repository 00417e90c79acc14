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

from luthier.errors import HookError, LuthierError, UnfinishedError
from luthier.support.shortage import memory_limits
from luthier.support.threads import are_running

T = TypeVar("T")

_CAUSE = "LLVM ERROR: "
_OF_SYSTEM = {
    *(signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT),
    *(signal.SIGXCPU, signal.SIGXFSZ, signal.SIGALRM, signal.SIGPIPE, signal.SIGBUS),
}
"""Signals that LLVM does not raise itself. SIGBUS is of a mapped file that was cut short, or of a full disk."""
_SYSTEM_FAILED = 75
"""Exit code of a child whose work failed for want of what the system has: EX_TEMPFAIL of sysexits.h."""
_NO_MEMORY = ("out of memory", "bad_alloc")
"""Parts of what LLVM says where memory cannot be had."""


class _Child:
    """A child process that answers requests, one at a time, until it dies or `end` is called.

    Args:
        work: gives the answer to a request, or raises a `LuthierError`. Requests and answers are pickled.
    """

    def __init__(self, work: Callable[[Any], object]) -> None:
        try:
            with contextlib.ExitStack() as made:
                self._words = os.memfd_create("luthier-llvm", os.MFD_CLOEXEC)
                made.callback(os.close, self._words)
                ours, theirs = (made.enter_context(end) for end in socket.socketpair())
                with _llvm_at_rest():
                    self._pid = os.fork()
                    if self._pid == 0:
                        _serve(work, theirs, self._words)
                self._stream = ours.makefile("rwb")
                made.pop_all()
        except OSError as problem:
            raise UnfinishedError(f"no process can be started for LLVM: {problem.strerror}") from None
        theirs.close()
        ours.close()

    def ask(self, request: object, what: str) -> Any:
        """Return the answer to a request, or the `LuthierError` that the work raised.

        Where this raises, the child is gone.

        Raises:
            HookError: the child died, with what LLVM said.
            UnfinishedError: the system ended the child.
        """
        try:
            pickle.dump(request, self._stream)
            self._stream.flush()
            answer = pickle.load(self._stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            status, said = self.end()
            cause = _cause(said, status)
            limits = memory_limits()
            if os.WIFSIGNALED(status) and limits:  # LLVM may say nothing where it lacks memory
                why = f"perhaps for want of memory ({limits})"
                raise UnfinishedError(f"{what}: its compilation ended, {why}: {cause}") from None
            if _is_of_system(status, cause):
                raise UnfinishedError(f"{what}: the system ended its compilation: {cause}") from None
            raise HookError(f"{what}: LLVM cannot compile it: {cause}") from None
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
    if "llvmlite.binding" not in sys.modules and threading.active_count() == 1 and not are_running():
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
        UnfinishedError: the system ended the child, and another one after it.
    """
    child, answer = _ask_new(lambda _: work(), None, what)
    child.end()
    result: T = _result(answer)
    return result


def _ask_new(work: Callable[[Any], object], request: object, what: str) -> tuple[_Child, Any]:
    """Return a new child and its answer to a request: the second child's where the system ends the first one."""
    try:
        child = _Child(work)
        return child, child.ask(request, what)
    except UnfinishedError:
        child = _Child(work)
        return child, child.ask(request, what)


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
                answer = child.ask(request, what)
            except HookError:  # perhaps of what it did before
                child = None
        if child is None:
            child, answer = _ask_new(_call, request, what)
        _lasting = child
    result: T = _result(answer)
    return result


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
        _close_from(4)
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
    except (MemoryError, OSError) as problem:
        os.write(2, f"{_CAUSE}{problem!r}\n".encode())
        os._exit(_SYSTEM_FAILED)
    except BaseException as problem:
        os.write(2, f"{_CAUSE}{problem!r}\n".encode())
    finally:
        os._exit(1)


def _close_from(first: int) -> None:
    """Close all files from this number on: those that are open, since there may be room for many millions, and before
    Linux 5.9 each number would be tried."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no /proc, or nothing left to list it with
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        return
    for number in numbers:
        if number >= first:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)


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


def _is_of_system(status: int, cause: str) -> bool:
    """Return whether a child died of what the system did or lacked, and not of its work."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OF_SYSTEM:
        return True
    return os.waitstatus_to_exitcode(status) == _SYSTEM_FAILED or any(text in cause for text in _NO_MEMORY)


def _cause(said: str, status: int) -> str:
    """Return why a child died, in one line: LLVM's own words, or the signal."""
    lines = said.splitlines()
    for line in lines:
        if line.startswith((_CAUSE, "error: ")):
            return line.partition(": ")[2]
    if os.WIFSIGNALED(status):
        return f"it crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    return lines[0] if lines else f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
