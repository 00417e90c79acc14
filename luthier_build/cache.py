"""The per-user cache of the build side: compiled plugins and generated device libraries."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from luthier.cache.folder import VARIABLE, find_folder, is_own, tell
from luthier.errors import BuildError, CacheError

FIX = f"set {VARIABLE} to a writable folder"
"""Remedy for a cache that cannot be used, for messages."""
_LOCKS = (".lock", ".luthier-build")
"""Files that are held and not read."""


def cache_dir(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return folder `name` of the cache, creating it where it is missing; an existing one may be read-only.

    See `luthier.cache.folder` for where it is.

    Raises:
        BuildError: the folder cannot be made, others could have written what is in it, or the cache is off.
    """
    try:
        folder = find_folder(name, environment)
    except (OSError, CacheError) as problem:
        raise BuildError(f"cannot use Luthier's cache: {problem}; {FIX}") from problem
    if folder is None:
        raise BuildError(f"a build needs Luthier's cache, which is off; {FIX}")
    return folder


def drop_foreign(folder: Path) -> None:
    """Remove from a folder of the cache all that others could have written, and report it: it is made again.

    No other process may use it meanwhile.

    Raises:
        BuildError: it cannot be removed.
    """
    for path in sorted(folder.rglob("*")):
        if path.name in _LOCKS:
            continue
        if path.is_symlink() or path.exists():  # not in a folder that is gone by now
            drop_if_foreign(path)


def drop_if_foreign(path: Path) -> None:
    """Remove a file or a folder, if it is there and others could have written it."""
    if is_own(path) or not (path.is_symlink() or path.exists()):
        return
    tell(f"{path} is made again: others could have written it")
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as problem:
        raise BuildError(f"{path} could have been written by others: {problem.strerror}; {FIX}") from problem


def keep_own(*paths: Path) -> None:
    """Take from others the right to write files that were just made, and what is in folders: a user's umask may have
    given it to them."""
    for path in paths:
        for one in (path, *path.rglob("*")):
            with contextlib.suppress(OSError):
                mode = one.lstat().st_mode
                if mode & 0o022 and not one.is_symlink():
                    one.chmod(stat.S_IMODE(mode) & ~0o022)


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
