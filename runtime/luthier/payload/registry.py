"""Registry of intrinsics: the built-in ones, and those that packages add by entry points.

An entry point of the group ``luthier.intrinsics`` refers to an `Intrinsic`. Its name is that of the intrinsic with dots
instead of ``::``, so that only the intrinsics that a hook uses are imported::

    [project.entry-points."luthier.intrinsics"]
    "my.lane_swap" = "my_package.intrinsics:LANE_SWAP"
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from luthier.arch.targets import makers
from luthier.cache.provenance import Provenance, package_provenance
from luthier.errors import ToolError
from luthier.extensions.entry_points import INTRINSICS, EntryPoint, points_of
from luthier.extensions.records import by_name, clash, load_record, package_of
from luthier.payload.calls import Intrinsic
from luthier.payload.intrinsics import BUILT_IN


def find_intrinsics(names: Iterable[str]) -> dict[str, Intrinsic]:
    """Return the records of intrinsics by name; undefined names are left out.

    Raises:
        ToolError: two packages define one of them, or its record cannot be loaded.
    """
    intrinsics = {}
    installed = _points()
    for name in sorted(names):
        points = installed.get(name, ())
        owners = [*(["luthier"] if name in BUILT_IN else []), *(package_of(point) for point in points)]
        if len(owners) > 1:
            raise clash(f"intrinsic {name}", owners, ToolError)
        if name in BUILT_IN:
            intrinsics[name] = BUILT_IN[name]
        elif points:
            intrinsics[name] = _load(points[0], name)
    return intrinsics


def makers_of(names: Iterable[str]) -> tuple[Provenance, ...] | None:
    """Return the provenance of other packages' intrinsics and of packages that add processors; None if that of one is
    unknown."""
    installed = _points()
    points = [point for name in sorted(names) if name not in BUILT_IN for point in installed.get(name, ())]
    modules = dict.fromkeys([*(point.module for point in points), *makers()])
    provenances = [package_provenance(module) for module in modules]
    values = hashlib.sha256(repr([(point.name, point.value) for point in points]).encode()).hexdigest()
    known = list(filter(None, provenances))
    if len(known) < len(provenances):
        return None
    return tuple(replace(provenance, digest=f"{provenance.digest} {values}") for provenance in known)


def installed_names() -> list[str]:
    """Return the names of the intrinsics that installed packages add, without importing them."""
    return sorted(_points())


def _points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of each intrinsic."""
    return by_name(points_of(INTRINSICS), dot="::")


def _load(point: EntryPoint, name: str) -> Intrinsic:
    record = load_record([point], f"intrinsic {name}", Intrinsic, ToolError)
    if record.name != name:
        raise ToolError(f"intrinsic {name} of {package_of(point)}: {point.value} has the name {record.name}")
    return replace(record, package=package_of(point))
