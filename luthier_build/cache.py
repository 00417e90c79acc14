"""The per-user cache of the build side: compiled plugins and generated device libraries."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from luthier.cache import VARIABLE, cache_root
from luthier.errors import BuildError

_FIX = f"set {VARIABLE} to a writable folder"


def cache_dir(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Folder `name` of the cache, made if it is not there.

    See `luthier.cache.cache_root` for where it is.

    Raises:
        BuildError: the folder cannot be made or written to, or the cache is turned off.
    """
    try:
        base = cache_root(environment)
        if base is None:
            raise BuildError(f"a build needs Luthier's cache, which is turned off; {_FIX}")
        folder = base / name
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError) as problem:  # RuntimeError: no home folder
        raise BuildError(f"cannot use Luthier's cache: {problem}; {_FIX}") from problem
    if not writable:
        raise BuildError(f"cannot write to Luthier's cache {folder}; {_FIX}")
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock against other processes and threads while the block runs (they wait)."""
    try:
        lock = path.open("a")
    except OSError as problem:
        raise BuildError(f"cannot write {path}: {problem.strerror}; {_FIX}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
