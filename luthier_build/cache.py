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
"""Remedy for an unusable cache, for messages."""
_LOCKS = (".lock", ".luthier-build")
"""Lock files, whose contents are not read."""


def cache_dir(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return folder `name` of the cache and create it if it is missing; an existing folder may be read-only.

    See `luthier.cache.folder` for its location.

    Raises:
        BuildError: the folder cannot be made, other users could have written its contents, or the cache is off.
    """
    try:
        folder = find_folder(name, environment)
    except (OSError, CacheError) as problem:
        raise BuildError(f"cannot use Luthier's cache: {problem}; {FIX}") from problem
    if folder is None:
        raise BuildError(f"a build needs Luthier's cache, which is off; {FIX}")
    return folder


def drop_foreign(folder: Path) -> None:
    """Remove from a cache folder everything that other users could have written, and report it; it will be rebuilt.

    No other process may use the folder at the same time.

    Raises:
        BuildError: a file cannot be removed.
    """
    for path in sorted(folder.rglob("*")):
        if path.name in _LOCKS:
            continue
        if path.is_symlink() or path.exists():  # its folder may be removed by now
            drop_if_foreign(path)


def drop_if_foreign(path: Path) -> None:
    """Remove a file or a folder if it exists and other users could have written it."""
    if is_own(path) or not (path.is_symlink() or path.exists()):
        return
    tell(f"{path} is rebuilt: others could have written it")
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as problem:
        raise BuildError(f"cannot remove {path}, which others may write: {problem.strerror}; {FIX}") from problem


def keep_own(*paths: Path) -> None:
    """Remove other users' write permission from new files and the contents of new folders; a umask may have granted
    it."""
    for path in paths:
        for file in (path, *path.rglob("*")):
            with contextlib.suppress(OSError):
                mode = file.lstat().st_mode
                if mode & 0o022 and not file.is_symlink():
                    file.chmod(stat.S_IMODE(mode) & ~0o022)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock while the block runs; other processes and threads wait."""
    try:
        lock = path.open("a")
    except OSError as problem:
        raise BuildError(f"cannot write {path}: {problem.strerror}; {FIX}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
