"""Key-value store on disk that lasts from one process to the next, in an SQLite database.

SQLite lets several processes read and write at once. Every value carries a checksum over key and value: one that does
not match, or a damaged file, is treated as absent. A store that cannot be used costs time, not correctness. One that
others could have written is not used, which is reported. Values that came with the package may be beneath it, in a
file that is only read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from luthier.cache.folder import UNUSED_FOR, make_folder, require_own, tell
from luthier.errors import CacheError

_AT_ONCE = 500
"""Keys of one query; SQLite's limit is 999 in old versions."""
_DAMAGE = (sqlite3.Error, TypeError, UnicodeDecodeError)
"""Errors that a damaged database leads to: also values of another kind, and messages of SQLite's that quote it."""
_FILES = ("", "-journal", "-wal", "-shm")
"""Suffixes of the files that SQLite has beside a database, all of which it trusts."""
_LOCKS = "locks"
"""Name of the file that is locked to see whether files can be."""
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
MOST_BYTES = 1 << 30
"""Bytes of a store; where it grows larger, the older half of its values goes."""
_PATIENCE = 10.0
"""Seconds to wait for another process."""


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _require_locks(folder: Path) -> None:
    """Do nothing if files in a folder can be locked, as SQLite locks its own. Without locks it waits 10 s for each.

    Another file is locked: whoever closes one loses all locks that the process has on it.

    Raises:
        CacheError: they cannot.
    """
    try:
        file = os.open(folder / _LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(file)
    except BlockingIOError:  # another process is here, and can
        pass
    except OSError as problem:
        if problem.errno in _NO_LOCKS:
            raise CacheError(f"{folder} has no file locks ({problem.strerror})") from None


def _read_only(path: Path) -> sqlite3.Connection | None:
    """Open a database that no process writes; None if there is none."""
    with contextlib.suppress(*_DAMAGE):
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    return None


def _select(database: sqlite3.Connection, wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the sound values of keys, which are given by their digests."""
    found: dict[bytes, bytes] = {}
    hashes = list(wanted)
    for start in range(0, len(hashes), _AT_ONCE):
        part = hashes[start : start + _AT_ONCE]
        query = f"SELECT key, checksum, value FROM kept WHERE key IN ({','.join('?' * len(part))})"
        for hashed, checksum, value in database.execute(query, part):
            key = wanted[hashed]
            if _digest(key + value) == checksum:
                found[key] = value
    return found


class Store:
    """Values by key. Safe from several threads.

    Args:
        path: the file; its folder is made, for this user alone.
        unchanged: whether what makes the values is still what it was; else nothing is added.
        shipped: a file like `path` that came with the package, and that nobody writes any more.
    """

    def __init__(self, path: Path, unchanged: Callable[[], bool] = lambda: True, shipped: Path | None = None) -> None:
        self._path = path
        self._unchanged = unchanged
        self._lock = threading.Lock()
        self._shipped = None if shipped is None else _read_only(shipped)
        self._database: sqlite3.Connection | None = None
        try:
            self._open()
        except _DAMAGE as problem:
            self._give_up(problem)
        except CacheError as problem:
            tell(f"the cache is not used: {problem}")
        except OSError:
            pass  # the folder cannot be made

    def _open(self) -> None:
        make_folder(self._path.parent)
        for suffix in _FILES:
            require_own(self._path.with_name(self._path.name + suffix))
        if not self._path.exists():
            self._forget_old()
        elif self._path.stat().st_mtime < time.time() - UNUSED_FOR / 30:
            os.utime(self._path)  # whoever only reads it has it, too
        _require_locks(self._path.parent)
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        # If the machine fails, what is half written is found out by the checksums.
        database.execute("PRAGMA synchronous=OFF")
        database.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, checksum BLOB, value BLOB)")
        self._database = database

    def _forget_old(self) -> None:
        """Remove what belongs to other sources or hosts and was not used for a month."""
        for other in self._path.parent.glob("*.sqlite"):
            if other.stat().st_mtime < time.time() - UNUSED_FOR:
                other.unlink(missing_ok=True)

    def _give_up(self, problem: Exception) -> None:
        """Go on without; a damaged file makes room for a new one."""
        self._database = None
        if not isinstance(problem, sqlite3.OperationalError):
            with contextlib.suppress(OSError, CacheError, *_DAMAGE):
                self._path.unlink(missing_ok=True)
                self._open()

    def _bound(self) -> None:
        """Remove the older half where the values have more than `MOST_BYTES`; the file keeps its size."""
        assert self._database is not None
        names = "freelist_count", "page_count", "page_size"
        free, pages, size = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if (pages - free) * size > MOST_BYTES:
            half = "SELECT rowid FROM kept ORDER BY rowid LIMIT (SELECT count(*) / 2 FROM kept)"
            self._database.execute(f"DELETE FROM kept WHERE rowid IN ({half})")

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values that are stored under the keys."""
        wanted = {_digest(key): key for key in keys}
        found: dict[bytes, bytes] = {}
        with self._lock:
            try:
                if self._database is not None:
                    found = _select(self._database, wanted)
            except _DAMAGE as problem:
                self._give_up(problem)
            with contextlib.suppress(*_DAMAGE):
                if self._shipped is not None and len(found) < len(wanted):
                    missing = {hashed: key for hashed, key in wanted.items() if key not in found}
                    found |= _select(self._shipped, missing)
        return found

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Keep values."""
        if not items or not self._unchanged():
            return
        rows = [(_digest(key), _digest(key + value), value) for key, value in items.items()]
        with self._lock:
            if self._database is None:
                return
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)
                self._database.execute("COMMIT")
                self._bound()
            except _DAMAGE as problem:
                self._give_up(problem)
