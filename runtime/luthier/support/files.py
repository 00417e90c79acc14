"""Writing the files that a user names, whatever is there already."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from luthier.errors import LuthierError

_LINKS = 40
"""The number of symbolic links in a path that Linux follows."""
_NO_OWNERS = (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)
"""A file cannot be given to its owner: we are not root, he is not in our namespace, the file system has none."""
_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""A file system has no files without names (`O_TMPFILE`)."""
_NEW = ".luthier-"
"""How names of files begin that are about to take another one's place."""
_IN_MEMORY = 1 << 24
"""Bytes that wait in memory until they go to what is no regular file; more of them wait in a temporary file."""


PRIVATE = 0o600
"""Permissions of files that hold a program's memory."""


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter; one that is there must be this user's.

    Raises:
        LuthierError: others can put links there, so that what is written goes elsewhere.
        OSError: it cannot be made.
    """
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        return
    owners = {os.lstat(folder).st_uid, os.stat(folder).st_uid} - {os.geteuid()}
    if owners:
        why = f"it belongs to another user (number {min(owners)})"
    elif os.stat(folder).st_mode & stat.S_IWOTH:
        why = "everybody may write there"
    else:
        return
    raise LuthierError(f"{folder} is not used, for {why}: take a folder of your own, or the name of a new one")


def write_atomically(path: str | os.PathLike[str], data: bytes | bytearray, mode: int | None = None) -> None:
    """Write a file whole or not at all; see `writing_atomically`."""
    with writing_atomically(path, mode) as file:
        file.write(data)


@contextmanager
def writing_atomically(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file to be written: what is written gets there if the block ends well, else nothing does.

    Links are followed. A regular file is replaced by a new one, which has its owner and its permissions. What is
    something else (a device, a FIFO, this process's standard output) gets the bytes in one go. So does a file that
    cannot be replaced: it has several names, another owner, or a folder that is not to be written. Such a file may have
    some of them if they do not all fit.

    Args:
        mode: permissions of a new file, of which the umask takes (default: reading and writing); where it is given, a
            file that is there gets the permission to be executed from it.

    Raises:
        LuthierError: it cannot be written: its folder is missing, nobody may, the disk is full.
    """
    try:
        target = _Target(os.fspath(path), mode)
        made = target.replacement()
        if made is None:
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as waiting:
                yield waiting
                waiting.seek(0)
                with target.in_place() as out:
                    shutil.copyfileobj(waiting, out)
            return
        descriptor, name = made
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                name = name or _named(descriptor, target.path)
            target.take(name)
        finally:
            if name is not None:
                with suppress(FileNotFoundError):
                    os.unlink(name)
    except OSError as problem:
        raise LuthierError(f"cannot write {os.fspath(path)}: {problem.strerror or problem}") from problem


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before the work is done whose results are to be in it.

    Raises:
        LuthierError: it cannot, as far as can be known without trying.
    """
    try:
        target = _Target(os.fspath(path), None)
        if target.there is None and not os.access(os.path.dirname(target.path), os.W_OK | os.X_OK, effective_ids=True):
            os.stat(os.path.dirname(target.path))  # it may be missing
            raise _error(errno.EACCES)
    except OSError as problem:
        raise LuthierError(f"cannot write {os.fspath(path)}: {problem.strerror or problem}") from problem


def is_same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Return whether two paths lead to one file, there or not, that keeps what is written to it: no pipe or device."""
    path = os.path.realpath(one)
    return path == os.path.realpath(other) and (os.path.isfile(path) or not os.path.exists(path))


class _Target:
    """The file that a path leads to.

    Raises:
        OSError: the file cannot be looked at, is a folder, or must not be written.
    """

    def __init__(self, path: str, mode: int | None) -> None:
        if not path or path.endswith("/") or os.path.isdir(path):
            raise _error(errno.EISDIR if path else errno.ENOENT)
        self.descriptor = _own_descriptor(path)
        self.path = os.path.realpath(path)
        self.mode = mode
        try:
            self.there: os.stat_result | None = os.stat(path)
        except FileNotFoundError:
            self.there = None
        # Not by opening it: a program that runs may be replaced.
        if self.there is not None and not os.access(path, os.W_OK, effective_ids=True):
            raise _error(errno.EACCES)
        if not self.is_regular:
            self.path = path  # links below /proc lead where no name does

    @property
    def is_regular(self) -> bool:
        return self.there is None or stat.S_ISREG(self.there.st_mode)

    def replacement(self) -> tuple[int, str | None] | None:
        """Make a new file that can take the target's place: as of `_new_file`; None: nothing can."""
        if self.descriptor is not None or not self.is_regular or (self.there and self.there.st_nlink > 1):
            return None
        try:
            descriptor, name = _new_file(os.path.dirname(self.path))
        except PermissionError:
            if self.there is None:
                raise
            return None
        try:
            made = os.fstat(descriptor)
            if self.there is not None and (self.there.st_uid, self.there.st_gid) != (made.st_uid, made.st_gid):
                os.fchown(descriptor, self.there.st_uid, self.there.st_gid)
            os.fchmod(descriptor, self._permissions())
        except OSError as problem:
            os.close(descriptor)
            if name is not None:
                os.unlink(name)
            if self.there is None or problem.errno not in _NO_OWNERS:
                raise
            return None
        return descriptor, name

    def take(self, name: str) -> None:
        """Put the new file there."""
        try:
            os.replace(name, self.path)
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            with open(name, "rb") as file, self.in_place() as out:  # a mount point, as containers have for single files
                shutil.copyfileobj(file, out)

    def _permissions(self) -> int:
        """Return the permissions of the new file.

        Its contents are new, so set-user-ID and set-group-ID bits are dropped: nobody is to run them with the owner's
        rights.
        """
        if self.there is None:
            return (0o666 if self.mode is None else self.mode) & 0o777 & ~umask()
        return self.there.st_mode & 0o777 | ((self.mode or 0) & 0o111 & ~umask())

    def in_place(self) -> IO[bytes]:
        """Open what is there."""
        if self.descriptor is not None:
            if self.descriptor in (1, 2):
                (sys.stdout if self.descriptor == 1 else sys.stderr).flush()
            return os.fdopen(os.dup(self.descriptor), "wb")
        cut = os.O_TRUNC if self.is_regular else 0
        return os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | cut), "wb")


def _new_file(folder: str) -> tuple[int, str | None]:
    """Make a file in a folder: a descriptor, and a path; None: it has no name, and goes when this process is killed."""
    if os.path.isdir("/proc/self/fd"):  # by which it gets a name
        try:
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600), None
        except OSError as problem:
            if problem.errno not in _NO_NAMELESS_FILES:
                raise
    return tempfile.mkstemp(prefix=_NEW, dir=folder)


def _named(descriptor: int, beside: str) -> str:
    """Give a file without a name one in the folder of another file, and return it."""
    name = os.path.join(os.path.dirname(beside), f"{_NEW}{os.urandom(8).hex()}")
    # Without a folder's descriptor, which a full path does not need, Python would link the link (as link(2) does).
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
    return name


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _own_descriptor(path: str) -> int | None:
    """Return the descriptor of this process that a path names, as ``/dev/stdout`` does; None: it names none.

    Who redirected it may have more to write there, so that it is neither opened anew nor replaced.
    """
    for _ in range(_LINKS):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        if name.isdecimal() and re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd", folder):
            return int(name)
        full = os.path.join(folder, name)
        if not os.path.islink(full):
            return None
        path = os.path.join(folder, os.readlink(full))
    return None


def umask() -> int:
    """Return the process's umask, without changing it (`os.umask` would, under other threads)."""
    with suppress(OSError, StopIteration, ValueError):
        status = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    return 0o022
