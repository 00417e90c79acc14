"""Store of the emulator on disk: generated code, and results of binding."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from luthier import _mc
from luthier.cache.folder import cache_folder
from luthier.cache.provenance import Provenance, provenance_of
from luthier.cache.store import Store

MAKERS = ("luthier.emulator.native.machine", "luthier.emulator.binding.records")
"""The modules that keep something here."""


def _made_by() -> Provenance:
    """Return the provenance of what is kept, to which the host's processor belongs."""
    return provenance_of(*MAKERS, also=repr(_mc.host()))


def store_file() -> Path | None:
    """Return the database for these sources on this host; None if there is no cache."""
    folder = cache_folder("emulator")
    return None if folder is None else folder / f"{_made_by().digest}.sqlite"


@functools.cache
def store() -> Store | None:
    """Return the process's store; None if there is no cache."""
    path = store_file()
    return None if path is None else Store(path, _made_by().unchanged)


os.register_at_fork(after_in_child=store.cache_clear)  # SQLite's connections do not survive a fork
