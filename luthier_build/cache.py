"""The per-user cache of the build side: compiled plugins and generated device libraries."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from luthier.errors import BuildError

_FIX = "set LUTHIER_CACHE_DIR to a writable folder"


def cache_dir(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Folder `name` of the cache, made if it is not there.

    ``LUTHIER_CACHE_DIR`` says where the cache is; default: ``$XDG_CACHE_HOME/luthier``, else ``~/.cache/luthier``.

    Raises:
        BuildError: the folder cannot be made or written to.
    """
    variables = os.environ if environment is None else environment
    explicit = variables.get("LUTHIER_CACHE_DIR")
    try:
        base = (
            Path(explicit) if explicit else Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "luthier"
        )
        folder = base / name
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, RuntimeError) as problem:  # RuntimeError: no home folder
        raise BuildError(
            f"cannot use Luthier's cache: {problem}; set LUTHIER_CACHE_DIR to a writable folder"
        ) from problem
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
