"""The per-user cache of the build side: compiled plugins and generated device libraries."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path

from luthier.cache import VARIABLE, cache_root
from luthier.errors import BuildError

FIX = f"set {VARIABLE} to a writable folder"
"""What to do about a cache that cannot be used, for messages."""


def cache_dir(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Folder `name` of the cache, made if it is not there; one that is there may be read-only.

    See `luthier.cache.cache_root` for where it is.

    Raises:
        BuildError: the folder cannot be made, or the cache is turned off.
    """
    try:
        base = cache_root(environment)
        if base is None:
            raise BuildError(f"a build needs Luthier's cache, which is off; {FIX}")
        folder = base / name
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise BuildError(f"cannot use Luthier's cache: {problem}; {FIX}") from problem
    return folder


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock against other processes and threads while the block runs (they wait)."""
    try:
        lock = path.open("a")
    except OSError as problem:
        raise BuildError(f"cannot write {path}: {problem.strerror}; {FIX}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
