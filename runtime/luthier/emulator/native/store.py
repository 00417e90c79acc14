"""Store of generated code and of binding results on disk."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from luthier.cache.folder import cache_folder
from luthier.cache.provenance import EMULATOR, SHIPPED, Provenance, provenance_of
from luthier.cache.store import Store
from luthier.emulator.native.processor import LEVELS, levels, processor


def _made_by() -> Provenance:
    """Return the provenance of the store's contents, including the processor that they are for."""
    return provenance_of(*EMULATOR, also=repr(processor()))


def store_file() -> Path | None:
    """Return the path of the database for these sources on this host; None if there is no cache."""
    folder = cache_folder("emulator")
    return None if folder is None else folder / f"{_made_by().digest}.sqlite"


def shipped_name(level: str) -> str:
    """Return the file name in `SHIPPED` of a level's database. It differs for other sources."""
    return f"{level}-{_made_by().own}.sqlite"


def shipped_file() -> Path | None:
    """Return the path of the shipped database for the highest usable level; None if there is none."""
    name = processor().name
    usable = (name,) if name in LEVELS else levels()
    return next((path for level in usable if (path := SHIPPED / shipped_name(level)).exists()), None)


@functools.cache
def store() -> Store | None:
    """Return the process's store; None if there is no cache."""
    path = store_file()
    return None if path is None else Store(path, _made_by().unchanged, shipped_file())


os.register_at_fork(after_in_child=store.cache_clear)  # SQLite's connections do not survive a fork
