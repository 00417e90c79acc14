"""Writing of files that a user names."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from luthier.errors import LuthierError

_LINKS = 40
"""The most symbolic links in a path that Linux follows."""
_NO_OWNERS = (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP)
"""The owner of a file cannot be changed: not root, owner not in the namespace, or no owners in the file system."""
_NO_NAMELESS_FILES = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
"""The file system does not support unnamed files (`O_TMPFILE`)."""
_NEW = ".luthier-"
"""Prefix of the names of files that will replace others."""
_IN_MEMORY = 1 << 24
"""Bytes for a file that is not regular that are buffered in memory; more are buffered in a temporary file."""

PRIVATE = 0o600
"""Permissions of files that hold a program's memory."""


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter; an existing one must belong to this user.

    Raises:
        LuthierError: others could put links there, which redirect writes.
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
    raise LuthierError(f"cannot use {folder}, since {why}: name a folder of your own, or a new one")


def write_atomically(path: str | os.PathLike[str], data: bytes | bytearray, mode: int | None = None) -> None:
    """Write a file atomically; see `writing_atomically`."""
    with writing_atomically(path, mode) as file:
        file.write(data)


@contextmanager
def writing_atomically(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file for writing; its contents appear only if the block ends without an exception.

    Links are followed. A regular file is replaced by a new one with the same owner and permissions. Other files
    (devices, FIFOs, this process's standard output) get all bytes at the end. So does a file that cannot be replaced,
    because it has several names, another owner, or a read-only folder; it may be incomplete if the disk is full.

    Args:
        mode: permissions of a new file before the umask (default: read and write). If given, an existing file gets its
            execute permissions.

    Raises:
        LuthierError: it cannot be written: its folder is missing, permissions are missing, or the disk is full.
    """
    try:
        target = _Target(os.fspath(path), mode)
        made = target.replacement()
        if made is None:
            import shutil
            import tempfile

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
                if name is None and target.is_new and _has_name(descriptor, target.path):
                    return
                name = name or _named(descriptor, target.path)
            target.take(name)
        finally:
            if name is not None:
                with suppress(FileNotFoundError):
                    os.unlink(name)
    except OSError as problem:
        raise LuthierError(f"cannot write {os.fspath(path)}: {problem.strerror or problem}") from problem


def check_writable(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written, before computing its contents.

    Raises:
        LuthierError: it cannot; some problems only show when writing.
    """
    try:
        target = _Target(os.fspath(path), None)
        if target.status is None and not os.access(os.path.dirname(target.path), os.W_OK | os.X_OK, effective_ids=True):
            os.stat(os.path.dirname(target.path))  # it may be missing
            raise _error(errno.EACCES)
    except OSError as problem:
        raise LuthierError(f"cannot write {os.fspath(path)}: {problem.strerror or problem}") from problem


def is_same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Return whether two paths name the same regular file, which may not exist yet."""
    path = os.path.realpath(first)
    return path == os.path.realpath(second) and (os.path.isfile(path) or not os.path.exists(path))


class _Target:
    """The file that a path names.

    Raises:
        OSError: the file cannot be examined, is a folder, or is not writable.
    """

    def __init__(self, path: str, mode: int | None) -> None:
        if not path or path.endswith("/") or os.path.isdir(path):
            raise _error(errno.EISDIR if path else errno.ENOENT)
        self.descriptor = _own_descriptor(path)
        self.path = os.path.realpath(path)
        self.mode = mode
        try:
            self.status: os.stat_result | None = os.stat(path)
        except FileNotFoundError:
            self.status = None
        # Without opening it: a running program may be replaced, but not opened for writing.
        if self.status is not None and not os.access(path, os.W_OK, effective_ids=True):
            raise _error(errno.EACCES)
        if not self.is_regular:
            self.path = path  # links in /proc may not have a real path

    @property
    def is_new(self) -> bool:
        """Return whether the file did not exist."""
        return self.status is None

    @property
    def is_regular(self) -> bool:
        return self.status is None or stat.S_ISREG(self.status.st_mode)

    def replacement(self) -> tuple[int, str | None] | None:
        """Make a new file that can replace the target, as `_new_file` does; None: the target cannot be replaced."""
        if self.descriptor is not None or not self.is_regular or (self.status and self.status.st_nlink > 1):
            return None
        try:
            descriptor, name = _new_file(os.path.dirname(self.path), self._new_permissions())
        except PermissionError:
            if self.status is None:
                raise
            return None
        if self.is_new and name is None:  # it has its owner and permissions
            return descriptor, name
        try:
            made = os.fstat(descriptor)
            if self.status is not None and (self.status.st_uid, self.status.st_gid) != (made.st_uid, made.st_gid):
                os.fchown(descriptor, self.status.st_uid, self.status.st_gid)
            os.fchmod(descriptor, self._permissions())
        except OSError as problem:
            os.close(descriptor)
            if name is not None:
                os.unlink(name)
            if self.status is None or problem.errno not in _NO_OWNERS:
                raise
            return None
        return descriptor, name

    def take(self, name: str) -> None:
        """Replace the target by the new file."""
        try:
            os.replace(name, self.path)
        except OSError as problem:
            if problem.errno != errno.EBUSY:
                raise
            import shutil

            with open(name, "rb") as file, self.in_place() as out:  # a mount point, as for single files in containers
                shutil.copyfileobj(file, out)

    def _permissions(self) -> int:
        """Return the permissions of the new file.

        Set-user-ID and set-group-ID bits are dropped, so that new contents do not run with the owner's rights.
        """
        if self.status is None:
            return self._new_permissions() & ~umask()
        return self.status.st_mode & 0o777 | ((self.mode or 0) & 0o111 & ~umask())

    def _new_permissions(self) -> int:
        return (0o666 if self.mode is None else self.mode) & 0o777

    def in_place(self) -> IO[bytes]:
        """Open the existing file for writing."""
        if self.descriptor is not None:
            if self.descriptor in (1, 2):
                (sys.stdout if self.descriptor == 1 else sys.stderr).flush()
            return os.fdopen(os.dup(self.descriptor), "wb")
        cut = os.O_TRUNC if self.is_regular else 0
        return os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | cut), "wb")


def _new_file(folder: str, mode: int) -> tuple[int, str | None]:
    """Make a file in a folder; return its descriptor and path. None: it has no name, and ends with the process.

    Args:
        mode: permissions before the umask of a file without a name; others are private.
    """
    if os.path.isdir("/proc/self/fd"):  # needed to name it later
        try:
            return os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode), None
        except OSError as problem:
            if problem.errno not in _NO_NAMELESS_FILES:
                raise
    import tempfile

    return tempfile.mkstemp(prefix=_NEW, dir=folder)


def _named(descriptor: int, beside: str) -> str:
    """Give an unnamed file a name in the folder of another file, and return it."""
    name = os.path.join(os.path.dirname(beside), f"{_NEW}{os.urandom(8).hex()}")
    _name(descriptor, name)
    return name


def _has_name(descriptor: int, name: str) -> bool:
    """Give an unnamed file this name; return False if another file has it by now."""
    try:
        _name(descriptor, name)
    except FileExistsError:
        return False
    return True


def _name(descriptor: int, name: str) -> None:
    # With src_dir_fd, which a full path ignores, Python follows the link; otherwise it links the link, like link(2).
    os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _own_descriptor(path: str) -> int | None:
    """Return the descriptor of this process that a path names, such as ``/dev/stdout``; None: it names none.

    Others may write to the same file, so it is neither opened again nor replaced.
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
    """Return the process's umask without changing it, as `os.umask` would for all threads."""
    with suppress(OSError, StopIteration, ValueError):
        status = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in status if line.startswith("Umask:")).split()[1], 8)
    return 0o022
