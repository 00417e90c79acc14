"""What installed packages add, by entry points.

To read all of them takes longer than most that is done with them, so they are read once, and again only when something
was installed or the search path has changed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

INTRINSICS = "luthier.intrinsics"
"""Group of entry points of what hooks may call (`luthier.payload.registry`)."""


def points_of(group: str) -> Sequence[EntryPoint]:
    """The entry points of a group of Luthier's, none of them imported."""
    return _read(tuple((folder, _changed(folder)) for folder in sys.path)).get(group, ())


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0


@functools.lru_cache(maxsize=4)
def _read(folders: tuple[tuple[str, int], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    installed = entry_points()
    ours = (group for group in installed.groups if group.startswith("luthier."))  # to select one takes long
    return {group: tuple(installed.select(group=group)) for group in ours}
