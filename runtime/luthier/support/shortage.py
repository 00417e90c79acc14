"""Messages about shortages of memory or threads."""

from __future__ import annotations

import errno
import resource

_OF_LOADER = ("failed to map segment", "annot allocate memory")
"""Parts of the dynamic loader's messages when there is no memory for a library."""
_LIMITS = {"d": resource.RLIMIT_DATA, "v": resource.RLIMIT_AS}


def memory_limits() -> str:
    """Return the limits of this process's memory as options of `ulimit`, in KiB; empty: there are none."""
    values = {option: resource.getrlimit(limit)[0] for option, limit in _LIMITS.items()}
    limited = {option: value for option, value in values.items() if value != resource.RLIM_INFINITY}
    return ", ".join(f"ulimit -{option} {value >> 10}" for option, value in limited.items())


def shortage(problem: BaseException) -> str | None:
    """Return the message for an error from a lack of memory or threads; None: it is another error."""
    limits = memory_limits()
    why = f": {limits}" if limits else ""
    is_short = (
        isinstance(problem, MemoryError)
        or (isinstance(problem, OSError) and problem.errno == errno.ENOMEM)
        or (isinstance(problem, ImportError | OSError) and _is_of_loader(problem))
        # An import ends like this if the interpreter has no memory for the error either.
        or (isinstance(problem, SystemError) and bool(limits))
    )
    if is_short:
        return f"there is not enough memory for this{why}"
    if isinstance(problem, RuntimeError) and "start new thread" in str(problem):
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        own = "" if processes == resource.RLIM_INFINITY else f"ulimit -u {processes}, or "
        most = f" ({own}pids.max of a control group)"
        return f"there is not enough memory for one more thread{why}, or there are too many{most}"
    return None


def _is_of_loader(problem: BaseException) -> bool:
    """Return whether the dynamic loader had no memory for a library; packages may replace its error by their own."""
    reason: BaseException | None = problem
    while reason is not None:
        if any(text in str(reason) for text in _OF_LOADER):
            return True
        reason = reason.__cause__ or reason.__context__
    return False
