"""Run LLVM in a child process: what it cannot compile ends the process, and must not end the user's.

LLVM answers code that it cannot select with `abort`, and errors of its backends with `exit`. A fork costs two
milliseconds where compiling a hook takes fifty or more; the child inherits LLVM as it is, initialised.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import TypeVar

from luthier.errors import HookError, LuthierError
from luthier.payload.llvm import llvm

T = TypeVar("T")

_CAUSE = "LLVM ERROR: "


def in_child(work: Callable[[], T], what: str) -> T:
    """The result of `work()`, computed in a forked child. It must import nothing: an import lock may be held.

    Args:
        work: uses LLVM; its result, or the `LuthierError` it raises, is pickled.
        what: what errors call the work, e.g. ``hook count``.

    Raises:
        HookError: the child died, with what LLVM said.
    """
    words = os.memfd_create("luthier-llvm", os.MFD_CLOEXEC)
    # With llvmlite's lock held, no other thread is inside LLVM: the child finds it in a consistent state. Nor can
    # another child inherit this pipe's writing end.
    with llvm.ffi.lib._lock:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            _serve(work, writing, words)
        os.close(writing)
    status = None
    try:
        with os.fdopen(reading, "rb") as pipe:
            answer = pipe.read()
        _, status = os.waitpid(child, 0)
        said = os.pread(words, 1 << 16, 0).decode(errors="replace")
    finally:
        os.close(words)
        if status is None:  # interrupted
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if status != 0:
        raise HookError(f"{what}: LLVM cannot compile it: {_cause(said, status)}")
    result: T | LuthierError = pickle.loads(answer)
    if isinstance(result, LuthierError):
        raise result
    return result


def _serve(work: Callable[[], object], writing: int, words: int) -> None:
    """The child's life; it does not return, and runs no handler of the parent's exit."""
    try:
        os.dup2(words, 2)
        result: object
        try:
            result = work()
        except LuthierError as problem:
            result = problem
        answer = memoryview(pickle.dumps(result))
        while answer:
            answer = answer[os.write(writing, answer) :]
        os._exit(0)
    except BaseException as problem:
        os.write(2, f"{_CAUSE}{problem!r}\n".encode())
    finally:
        os._exit(1)


def _cause(said: str, status: int) -> str:
    """Why a child died, in one line: LLVM's own words, or the signal."""
    lines = said.splitlines()
    for line in lines:
        if line.startswith((_CAUSE, "error: ")):
            return line.partition(": ")[2]
    if os.WIFSIGNALED(status):
        return f"it crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    return lines[0] if lines else f"it ended with exit code {os.waitstatus_to_exitcode(status)}"
