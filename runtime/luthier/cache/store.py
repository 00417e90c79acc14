"""Persistent key-value store in an SQLite database.

SQLite lets several processes read and write at once. Every value has a checksum over key and value: a value that does
not match it, or a damaged file, counts as absent. A store that cannot be used costs time, not correctness. A store that
others could have written is not used, which is reported. A read-only file with values that came with the package may
supplement it.
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
"""Errors from a damaged database: also values of other types, and SQLite messages that quote its contents."""
_FILES = ("", "-journal", "-wal", "-shm")
"""Suffixes of a database and the files beside it, all of which SQLite trusts."""
_LOCKS = "locks"
"""Name of the file for the test of file locks."""
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
MOST_BYTES = 1 << 30
"""The most bytes of a store; when it grows larger, the older half of its values is removed."""
_PATIENCE = 10.0
"""Seconds to wait for another process."""


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _require_locks(folder: Path) -> None:
    """Check that files in a folder can be locked, as SQLite does: without locks it waits 10 s for each.

    A separate file is locked: closing a file releases all locks that the process holds on it.

    Raises:
        CacheError: files cannot be locked.
    """
    try:
        file = os.open(folder / _LOCKS, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(file)
    except BlockingIOError:  # another process holds the lock
        pass
    except OSError as problem:
        if problem.errno in _NO_LOCKS:
            raise CacheError(f"{folder} has no file locks ({problem.strerror})") from None


def _read_only(path: Path) -> sqlite3.Connection | None:
    """Open a database that no process writes; None: it does not exist."""
    with contextlib.suppress(*_DAMAGE):
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    return None


def _select(database: sqlite3.Connection, wanted: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the intact values of keys, which are given by their digests."""
    values: dict[bytes, bytes] = {}
    hashes = list(wanted)
    for start in range(0, len(hashes), _AT_ONCE):
        part = hashes[start : start + _AT_ONCE]
        query = f"SELECT key, checksum, value FROM kept WHERE key IN ({','.join('?' * len(part))})"
        for hashed, checksum, value in database.execute(query, part):
            key = wanted[hashed]
            if _digest(key + value) == checksum:
                values[key] = value
    return values


class Store:
    """Values by key. Thread-safe.

    Args:
        path: the file; its folder is made for this user alone.
        unchanged: returns whether the code that makes the values is unchanged; otherwise nothing is added.
        shipped: a read-only file like `path` that came with the package.
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
            os.utime(self._path)  # mark it as used, also if it is only read
        _require_locks(self._path.parent)
        database = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        # After a machine failure, the checksums detect incomplete writes.
        database.execute("PRAGMA synchronous=OFF")
        database.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, checksum BLOB, value BLOB)")
        self._database = database

    def _forget_old(self) -> None:
        """Remove databases of other sources or hosts that were not used for a month."""
        for other in self._path.parent.glob("*.sqlite"):
            if other.stat().st_mtime < time.time() - UNUSED_FOR:
                other.unlink(missing_ok=True)

    def _give_up(self, problem: Exception) -> None:
        """Continue without the database; replace a damaged file by a new one."""
        self._database = None
        if not isinstance(problem, sqlite3.OperationalError):
            with contextlib.suppress(OSError, CacheError, *_DAMAGE):
                self._path.unlink(missing_ok=True)
                self._open()

    def _bound(self) -> None:
        """Remove the older half of the values if they have more than `MOST_BYTES`; the file keeps its size."""
        assert self._database is not None
        names = "freelist_count", "page_count", "page_size"
        free, pages, size = (self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if (pages - free) * size > MOST_BYTES:
            half = "SELECT rowid FROM kept ORDER BY rowid LIMIT (SELECT count(*) / 2 FROM kept)"
            self._database.execute(f"DELETE FROM kept WHERE rowid IN ({half})")

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values of those keys that are stored."""
        wanted = {_digest(key): key for key in keys}
        values: dict[bytes, bytes] = {}
        with self._lock:
            try:
                if self._database is not None:
                    values = _select(self._database, wanted)
            except _DAMAGE as problem:
                self._give_up(problem)
            with contextlib.suppress(*_DAMAGE):
                if self._shipped is not None and len(values) < len(wanted):
                    missing = {hashed: key for hashed, key in wanted.items() if key not in values}
                    values |= _select(self._shipped, missing)
        return values

    def put(self, items: Mapping[bytes, bytes]) -> None:
        """Store values."""
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
