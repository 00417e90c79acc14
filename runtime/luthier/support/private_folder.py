"""Folders for temporary files, and removal of folders that killed commands left behind.

A command holds a lock on a file in its folder until it ends, however it ends: a folder with a free lock is abandoned.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from luthier.terminal import say

PREFIX = "luthier-run-"
_LOCK = "lock"


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that only this user may enter (mode 0700), and remove it at the end.

    Its path is valid in lists in environment variables, and short enough for a socket. Abandoned folders are removed
    first. If the folder cannot be locked or removed, a warning is printed.
    """
    usual = tempfile.gettempdir()
    parent = usual if re.fullmatch(r"[\w/.+-]{1,60}", usual, re.ASCII) else "/tmp"
    remove_left(Path(parent))
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with open(folder / f"{_LOCK}.new", "wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                os.rename(lock.name, folder / _LOCK)  # under its final name it is always locked
            except OSError as problem:  # a network file system without a lock daemon
                _warn(f"{parent} has no file locks ({problem.strerror}): folders of killed commands are not removed")
            yield folder
    if folder.exists():
        _warn(f"cannot remove {folder}: remove it by hand")


def _warn(text: str) -> None:
    say(f"luthier: warning: {text}", file=sys.stderr)


def remove_left(parent: Path) -> list[Path]:
    """Remove and return the folders in `parent` that killed commands of this user left behind.

    A folder without a lock file stays: it is being made, or does not belong to Luthier.
    """
    removed = []
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
                removed.append(folder)
            finally:
                os.close(descriptor)
    return removed
