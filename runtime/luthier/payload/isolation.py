"""Run LLVM in a child process, so that code which it cannot compile does not end the user's process.

LLVM calls `abort` for code that it cannot select, and `exit` for errors of its backends. Loading it and setting up its
code generator takes longer than compiling a hook. Therefore one lasting child compiles hook after hook, and is replaced
when it dies. The parent process needs no LLVM.
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
"""Signals that LLVM itself does not raise. SIGBUS is caused by a truncated mapped file, or by a full disk."""
_SYSTEM_FAILED = 75
"""Exit code of a child whose work failed for lack of system resources: EX_TEMPFAIL of sysexits.h."""
_NO_MEMORY = ("out of memory", "bad_alloc")
"""Parts of LLVM's messages about a lack of memory."""


class _Child:
    """A child process that answers requests, one at a time, until it dies or `end` is called.

    Args:
        work: returns the answer to a request, or raises a `LuthierError`. Requests and answers are pickled.
    """

    def __init__(self, work: Callable[[Any], object]) -> None:
        try:
            with contextlib.ExitStack() as cleanup:
                self._output = os.memfd_create("luthier-llvm", os.MFD_CLOEXEC)
                cleanup.callback(os.close, self._output)
                parent_end, child_end = (cleanup.enter_context(end) for end in socket.socketpair())
                with _llvm_at_rest():
                    self._pid = os.fork()
                    if self._pid == 0:
                        _serve(work, child_end, self._output)
                self._stream = parent_end.makefile("rwb")
                cleanup.pop_all()
        except OSError as problem:
            raise UnfinishedError(f"no process can be started for LLVM: {problem.strerror}") from None
        child_end.close()
        parent_end.close()

    def ask(self, request: object, what: str) -> Any:
        """Return the answer to a request, or the `LuthierError` that the work raised.

        If this raises, the child has ended.

        Raises:
            HookError: the child died, with LLVM's message.
            UnfinishedError: the system ended the child.
        """
        try:
            pickle.dump(request, self._stream)
            self._stream.flush()
            answer = pickle.load(self._stream)
        except (EOFError, OSError, pickle.UnpicklingError):
            status, output = self.end()
            cause = _cause(output, status)
            limits = memory_limits()
            if os.WIFSIGNALED(status) and limits:  # LLVM may report nothing if it lacks memory
                why = f"perhaps for lack of memory ({limits})"
                raise UnfinishedError(f"{what}: its compilation ended, {why}: {cause}") from None
            if _is_of_system(status, cause):
                raise UnfinishedError(f"{what}: the system ended its compilation: {cause}") from None
            raise HookError(f"{what}: LLVM cannot compile it: {cause}") from None
        except BaseException:  # interrupted, or the request cannot be pickled
            self.end(kill=True)
            raise
        return answer

    def end(self, *, kill: bool = False) -> tuple[int, str]:
        """Wait for the child's end. Return its status, and its output."""
        if kill:
            os.kill(self._pid, signal.SIGKILL)
        self.let_go()
        _, status = os.waitpid(self._pid, 0)
        output = os.pread(self._output, 1 << 16, 0).decode(errors="replace")
        os.close(self._output)
        return status, output

    def let_go(self) -> None:
        """Close this end of the connection: the child ends when no process has it open."""
        with contextlib.suppress(OSError):  # flushing may fail
            self._stream.close()


def _llvm_at_rest() -> contextlib.AbstractContextManager[object]:
    """Hold LLVM's lock, so that no other thread is inside LLVM or imports it.

    A child then starts with both in a consistent state. Without other threads no lock is needed.
    """
    if "llvmlite.binding" not in sys.modules and threading.active_count() == 1 and not are_running():
        return contextlib.nullcontext()
    from llvmlite.binding import ffi

    lock: contextlib.AbstractContextManager[object] = ffi.lib._lock
    return lock


def in_child(work: Callable[[], T], what: str) -> T:
    """Return the result of `work()`, computed in a new child.

    If there are other threads, the work must import nothing, since an import lock may be held.

    Args:
        work: uses LLVM; its result, or the `LuthierError` that it raises, is pickled.
        what: name of the work in errors, e.g. ``hook count``.

    Raises:
        HookError: the child died, with LLVM's message.
        UnfinishedError: the system ended the child, and a second one.
    """
    child, answer = _ask_new(lambda _: work(), None, what)
    child.end()
    result: T = _result(answer)
    return result


def _ask_new(work: Callable[[Any], object], request: object, what: str) -> tuple[_Child, Any]:
    """Return a new child and its answer to a request. If the system ends the child, try a second one."""
    try:
        child = _Child(work)
        return child, child.ask(request, what)
    except UnfinishedError:
        child = _Child(work)
        return child, child.ask(request, what)


_lasting: _Child | None = None
_lock = threading.Lock()


def in_lasting_child(what: str, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of `function(*arguments)`, computed in the lasting child; all three must be picklable.

    For arguments and errors see `in_child`.
    """
    global _lasting
    request = function, arguments
    with _lock:
        child, _lasting = _lasting, None
        if child is not None:
            try:
                answer = child.ask(request, what)
            except HookError:  # perhaps because of an earlier request
                child = None
        if child is None:
            child, answer = _ask_new(_call, request, what)
        _lasting = child
    result: T = _result(answer)
    return result


def end_lasting_child() -> None:
    """End the lasting child, if there is one."""
    global _lasting
    with _lock:
        child, _lasting = _lasting, None
        if child is not None:
            child.end()


def _forget() -> None:
    """Forget the lasting child in a fork of this process, which it does not belong to."""
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


def _serve(work: Callable[[Any], object], connection: socket.socket, output: int) -> None:
    """Run the child. This does not return, and runs none of the parent's exit handlers."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles it
        # Close inherited files, so that no other process waits for their end because of this one.
        null = os.open(os.devnull, os.O_RDWR)
        files = [fcntl.fcntl(file, fcntl.F_DUPFD, 4) for file in (null, null, output, connection.fileno())]
        for number, file in enumerate(files):
            os.dup2(file, number)
        _close_from(4)
        gc.freeze()  # avoids copies of the parent's pages
        _keep_freed_memory()
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
    """Close all open files from this number on. Closing by number could take millions of calls before Linux 5.9."""
    try:
        numbers = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:  # no /proc, or no resources to list it
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        return
    for number in numbers:
        if number >= first:
            with contextlib.suppress(OSError):  # the file of the listing itself
                os.close(number)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of ``mallopt`` (malloc.h)."""
_MOST_ON_HEAP = 32 << 20


def _keep_freed_memory() -> None:
    """Make glibc keep the memory that LLVM frees for the next hook, which needs 2 MB again: getting it from the system
    page by page takes a tenth of the time of compiling a hook."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _MOST_ON_HEAP)
        mallopt(_TRIM_THRESHOLD, _MOST_ON_HEAP)


def _is_of_system(status: int, cause: str) -> bool:
    """Return whether a child died because of the system or a lack of resources, not because of its work."""
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in _OF_SYSTEM:
        return True
    return os.waitstatus_to_exitcode(status) == _SYSTEM_FAILED or any(text in cause for text in _NO_MEMORY)


def _cause(output: str, status: int) -> str:
    """Return why a child died, in one line: LLVM's message, or the signal."""
    lines = output.splitlines()
    for line in lines:
        if line.startswith((_CAUSE, "error: ")):
            return line.partition(": ")[2]
    if os.WIFSIGNALED(status):
        return f"it crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    return lines[0] if lines else f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
