"""Entry points of installed packages: those of Luthier's groups, kept from one process to the next.

To import `importlib.metadata` and to read what all packages say takes longer than most that is done with it, so both
are done again only where something was installed, removed or written since.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pkgutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from luthier.cache.folder import UNUSED_FOR, cache_folder, is_own, tell

if TYPE_CHECKING:
    from importlib import metadata

ARCHITECTURES = "luthier.arch"
"""Group of entry points of processors (`luthier.arch.targets`)."""
INTRINSICS = "luthier.intrinsics"
"""Group of entry points of what hooks may call (`luthier.payload.registry`)."""
REPORT_FORMATS = "luthier.report_formats"
"""Group of entry points of the formats of `luthier report` (`luthier.report.formats`)."""
CHECKS = "luthier.checks"
"""Group of entry points of the checks of `luthier check` (`luthier.hazards.checks`)."""

_PREFIX = "luthier."
"""Beginning of the names of Luthier's groups."""
_METADATA = (".dist-info", ".egg-info")
"""Ends of the names of what installers write about a package: mostly a folder, of distutils a file."""
_OF_EGG = "EGG-INFO"
"""Name of such a folder in an egg, which is on the search path itself."""
_FORM = 2
"""Version of what is kept."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which a file that is written again has another time for sure."""
_State = tuple[int, int, int, int]


class EntryPoint(Struct, frozen=True):
    """Name that an installed distribution gives to an object in one of its modules."""

    name: str
    value: str
    """``module:object``."""
    group: str
    package: str = ""
    """The distribution; empty if it does not say its name."""

    @property
    def module(self) -> str:
        """Return the full name of the module."""
        return self.value.partition(":")[0].strip()

    def load(self) -> Any:
        """Import the module and return the object; whatever the module raises is passed on."""
        target = self.value.partition("[")[0]  # behind it are extras, of old packages
        return pkgutil.resolve_name("".join(target.split()))

    def literal(self) -> Any:
        """Return the object without importing anything: where its module's source assigns it a literal; else None."""
        import ast  # not needed where nothing is listed

        folders: Sequence[str] | None = None
        spec = None
        parts = self.module.split(".")
        with suppress(Exception):  # whatever finders raise, and sources that are none
            for end in range(1, len(parts) + 1):
                specs = (finder.find_spec(".".join(parts[:end]), folders) for finder in sys.meta_path)
                spec = next(filter(None, specs), None)
                folders = spec.submodule_search_locations if spec else None
            source = Path(spec.origin).read_bytes() if spec and spec.origin else b""
            for node in ast.parse(source).body:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                if [getattr(target, "id", "") for target in targets] == [self.value.partition(":")[2].strip()]:
                    return ast.literal_eval(node.value)  # type: ignore[attr-defined]
        return None


def points_of(group: str) -> Sequence[EntryPoint]:
    """Return the entry points of a group of Luthier's, none of them imported."""
    return _read(tuple((folder, _state(folder)) for folder in sys.path if isinstance(folder, str))).get(group, ())


def _state(path: str) -> _State:
    """Return size, inode and when a file or folder was last written and put there; zeros if it is not there.

    Whoever puts a file in another's place may give it the size and the time of change of that one.
    """
    try:
        found = os.stat(path or ".")
    except OSError:
        return 0, 0, 0, 0
    return found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns


@functools.lru_cache(maxsize=4)
def _read(folders: tuple[tuple[str, _State], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    paths = [folder for folder, _ in folders]
    kept, states = _kept_for(paths), {path: _state(path) for path in _sources(paths)}
    with suppress(OSError, msgspec.DecodeError):
        if kept is not None and is_own(kept):
            index = msgspec.json.decode(kept.read_bytes(), type=_Index)
            if index.state == _digest_of(states):
                if kept.stat().st_mtime < time.time() - UNUSED_FOR / 30:
                    os.utime(kept)  # another version removes what was not used for long
                return index.points
    points, is_whole = _installed()
    last = max((stamp for *_, written, put in states.values() for stamp in (written, put)), default=0)
    if kept is not None and is_whole and last < time.time_ns() - _SETTLED:
        _keep(kept, _Index(_digest_of(states), points))
    return points


# What is kept ---------------------------------------------------------------------------------------------------------


class _Index(Struct, frozen=True):
    state: str
    """Digest of the state of each file and folder that says something about a package."""
    points: dict[str, tuple[EntryPoint, ...]]
    """The entry points by group."""


def _kept_for(folders: Sequence[str]) -> Path | None:
    """Return the file that entry points of a search path are kept in; None if they are not."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None  # it may have packages elsewhere
    try:
        here = os.getcwd() if any(not os.path.isabs(one) for one in folders) else ""
    except OSError:  # it was removed
        return None
    folder = cache_folder("entry-points")
    return folder and folder / f"{_digest_of(_FORM, here, folders)}.json"


def _digest_of(*said: object) -> str:
    return hashlib.sha256(repr(said).encode()).hexdigest()[:24]


def _sources(folders: Sequence[str]) -> Iterator[str]:
    """Yield the paths whose states change where an entry point is added, removed or changed."""
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            yield folder  # an archive, or nothing
        else:
            for name in names:
                if name.lower().endswith(_METADATA) or name.upper() == _OF_EGG:
                    yield os.path.join(folder, name)
                    yield os.path.join(folder, name, "entry_points.txt")


def _keep(file: Path, index: _Index) -> None:
    from luthier.errors import LuthierError
    from luthier.support.files import write_atomically  # slow to import

    with suppress(OSError, LuthierError, ValueError):  # it costs time, not correctness
        for other in file.parent.glob("*.json"):
            if other.stat().st_mtime < time.time() - UNUSED_FOR:
                other.unlink(missing_ok=True)
        write_atomically(file, msgspec.json.encode(index))


def _installed() -> tuple[dict[str, tuple[EntryPoint, ...]], bool]:
    """Return the entry points of installed packages in groups of Luthier's, and whether all packages could be read.

    Those that cannot be are reported.
    """
    from importlib.metadata import entry_points  # slow to import

    is_whole = True
    try:
        installed = entry_points()
        ours = [group for group in installed.groups if group.startswith(_PREFIX)]  # to select one takes long
        found = [point for group in ours for point in installed.select(group=group)]
    except Exception:  # a damaged file, of any package
        found, is_whole = list(_readable()), False
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in found:
        own = EntryPoint(point.name, point.value, point.group, _name_of(point.dist))
        points[own.group] = (*points.get(own.group, ()), own)
    return points, is_whole


def _readable() -> Iterator[metadata.EntryPoint]:
    """Yield the entry points of one package after the other."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            yield from (point for point in distribution.entry_points if point.group.startswith(_PREFIX))
        except Exception as problem:
            where = _name_of(distribution) or f"a package in {distribution.locate_file('')}"
            why = f"{type(problem).__name__}: {problem}"
            tell(f"the entry points of {where} are left out, since they cannot be read: {why}")


def _name_of(distribution: metadata.Distribution | None) -> str:
    with suppress(Exception):  # any damage to another package's metadata
        return str((distribution and distribution.name) or "")
    return ""
