"""Cached entry points of installed packages in Luthier's groups.

Importing `importlib.metadata` and reading the metadata of all packages takes longer than most uses of it. So both are
repeated only after something was installed, removed or changed.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import zlib
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
"""Group of entry points of functions that hooks may call (`luthier.payload.registry`)."""
REPORT_FORMATS = "luthier.report_formats"
"""Group of entry points of the formats of `luthier report` (`luthier.report.formats`)."""
REPORT_RULES = "luthier.report_rules"
"""Group of entry points of the rules of `luthier report` (`luthier.report.rules`)."""
CHECKS = "luthier.checks"
"""Group of entry points of the checks of `luthier check` (`luthier.hazards.checks`)."""

_PREFIX = "luthier."
"""Beginning of the names of Luthier's groups."""
_METADATA = (".dist-info", ".egg-info")
"""Suffixes of the metadata of installed packages: mostly folders, for distutils files."""
_OF_EGG = "EGG-INFO"
"""Name of the metadata folder in an egg, which is itself on the search path."""
_FORM = 3
"""Version of the cache's format."""
_SETTLED = 2_000_000_000
"""Nanoseconds after which another write to a file certainly changes its time."""
_State = tuple[int, int, int, int]


class EntryPoint(Struct, frozen=True):
    """Name of an object in a module of an installed distribution."""

    name: str
    value: str
    """``module:object``."""
    group: str
    package: str = ""
    """The distribution; empty if its name is not known."""

    @property
    def module(self) -> str:
        """Return the full name of the module."""
        return self.value.partition(":")[0].strip()

    def load(self) -> Any:
        """Import the module and return the object; exceptions of the module are passed on."""
        import pkgutil

        target = self.value.partition("[")[0]  # old packages have extras after it
        return pkgutil.resolve_name("".join(target.split()))

    def literal(self) -> Any:
        """Return the object without an import if its module's source assigns it a literal; otherwise None."""
        import ast  # only needed for lists

        folders: Sequence[str] | None = None
        spec = None
        parts = self.module.split(".")
        with suppress(Exception):  # finders may raise anything, and sources may be malformed
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
    """Return the entry points of one of Luthier's groups, without importing them."""
    return _read(tuple((folder, _state(folder)) for folder in sys.path if isinstance(folder, str))).get(group, ())


def _state(path: str) -> _State:
    """Return size, inode, and times of the last change of contents and inode of a file or folder; zeros if missing.

    A replaced file may have the same size and time of change of contents.
    """
    try:
        status = os.stat(path or ".")
    except OSError:
        return 0, 0, 0, 0
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


@functools.lru_cache(maxsize=4)
def _read(folders: tuple[tuple[str, _State], ...]) -> Mapping[str, Sequence[EntryPoint]]:
    paths = [folder for folder, _ in folders]
    kept, states = _kept_for(paths), {path: _state(path) for path in _sources(paths)}
    with suppress(OSError, msgspec.DecodeError):
        if kept is not None and is_own(kept):
            index = msgspec.json.decode(kept.read_bytes(), type=_Index)
            if index.state == _text_of(_FORM, paths, states):
                if kept.stat().st_mtime < time.time() - UNUSED_FOR / 30:
                    os.utime(kept)  # other versions remove files that were not used for long
                return index.points
    points, is_whole = _installed()
    last = max((stamp for *_, written, put in states.values() for stamp in (written, put)), default=0)
    if kept is not None and is_whole and last < time.time_ns() - _SETTLED:
        _keep(kept, _Index(_text_of(_FORM, paths, states), points))
    return points


# The cache ------------------------------------------------------------------------------------------------------------


class _Index(Struct, frozen=True):
    state: str
    """The search path, and the state of each file and folder with package metadata."""
    points: dict[str, tuple[EntryPoint, ...]]
    """The entry points by group."""


def _kept_for(folders: Sequence[str]) -> Path | None:
    """Return the cache file of a search path; None if its entry points cannot be cached."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder for finder in sys.meta_path):
        return None  # it may have packages elsewhere
    try:
        current = "" if all(map(os.path.isabs, folders)) else os.getcwd()
    except OSError:  # the current folder was removed
        return None
    folder = cache_folder("entry-points")
    key = zlib.crc32(_text_of(_FORM, current, folders).encode())  # equal keys of two search paths only cost time
    return folder and folder / f"{key:08x}.json"


def _text_of(*values: object) -> str:
    return ascii(values)  # names of folders may have bytes that are no text


def _sources(folders: Sequence[str]) -> Iterator[str]:
    """Yield the paths whose states change when an entry point is added, removed or changed."""
    for folder in folders:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            yield folder  # an archive, or missing
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
    """Return the entry points of installed packages in Luthier's groups, and whether all packages could be read.

    Unreadable packages are reported.
    """
    from importlib.metadata import entry_points  # slow to import

    is_whole = True
    try:
        installed = entry_points()
        ours = [group for group in installed.groups if group.startswith(_PREFIX)]  # selecting a group takes long
        installed_points = [point for group in ours for point in installed.select(group=group)]
    except Exception:  # damaged metadata of any package
        installed_points, is_whole = list(_readable()), False
    points: dict[str, tuple[EntryPoint, ...]] = {}
    for point in installed_points:
        own = EntryPoint(point.name, point.value, point.group, _name_of(point.dist))
        points[own.group] = (*points.get(own.group, ()), own)
    return points, is_whole


def _readable() -> Iterator[metadata.EntryPoint]:
    """Yield the entry points of one package after another."""
    from importlib.metadata import distributions

    for distribution in distributions():
        try:
            yield from (point for point in distribution.entry_points if point.group.startswith(_PREFIX))
        except Exception as problem:
            where = _name_of(distribution) or f"a package in {distribution.locate_file('')}"
            why = f"{type(problem).__name__}: {problem}"
            tell(f"ignoring the entry points of {where}, which cannot be read: {why}")


def _name_of(distribution: metadata.Distribution | None) -> str:
    with suppress(Exception):  # any damage to another package's metadata
        return str((distribution and distribution.name) or "")
    return ""
