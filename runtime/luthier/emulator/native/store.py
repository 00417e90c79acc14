"""What the emulator keeps on disk: generated code, and what binding found out."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from luthier.cache import cache_root
from luthier.emulator.native.sources import BEFORE, unchanged
from luthier.store import Store


def store_file() -> Path | None:
    """The database for these sources on this host; None if the cache is turned off."""
    root = cache_root()
    return None if root is None else root / "emulator" / f"{BEFORE}.sqlite"


@functools.cache
def store() -> Store | None:
    """The process's store; None if the cache is turned off."""
    path = store_file()
    return None if path is None else Store(path, unchanged)


os.register_at_fork(after_in_child=store.cache_clear)  # SQLite's connections do not survive a fork
