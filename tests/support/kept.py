"""Cache of what tests compile, by content: made once for all workers, runs and checkouts."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from luthier.cache.folder import cache_root

ROOT = Path(__file__).parents[2]
_CACHE = cache_root()
assert _CACHE is not None
FOLDER = _CACHE / "tests"


def kept(key: object, make: Callable[[Path], object], name: str = "made") -> Path:
    """Return the file or folder `name` that `make` writes at the path it is given, if nothing is cached under `key`.

    Args:
        key: everything the result depends on, compared by its `repr`.
        make: writes the result; may use the path's folder for intermediate files.
        name: name of the result, for readers.
    """
    folder = FOLDER / hashlib.sha256(repr(key).encode()).hexdigest()[:32]
    if not folder.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                unfinished = folder.with_suffix(".new")
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                make(unfinished / name)
                os.rename(unfinished, folder)
    return folder / name


def run(command: list[str]) -> None:
    """Run a program that must succeed; what it says is part of the error."""
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


@functools.cache
def version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
