"""Which intrinsics there are: the built-in ones, and those that packages add by entry points.

An entry point of group ``luthier.intrinsics`` names an `Intrinsic`. It is called as the intrinsic is, with dots for the
``::`` between namespaces, so that only what a hook uses is imported::

    [project.entry-points."luthier.intrinsics"]
    "my.lane_swap" = "my_package.intrinsics:LANE_SWAP"
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint

from luthier.errors import ToolError
from luthier.extensions import INTRINSICS, points_of
from luthier.payload.calls import Intrinsic
from luthier.payload.intrinsics import BUILT_IN
from luthier.provenance import Provenance, package_provenance


def find_intrinsics(names: Iterable[str]) -> dict[str, Intrinsic]:
    """The records of intrinsics by name; names that nobody defines are left out.

    Raises:
        ToolError: two packages define one of them, or its record cannot be loaded.
    """
    found = {}
    installed = _points()
    for name in sorted(names):
        points = installed.get(name, ())
        owners = [*(["luthier"] if name in BUILT_IN else []), *(_package(point) for point in points)]
        if len(owners) > 1:
            raise ToolError(f"intrinsic {name} is defined by several packages: {' and '.join(owners)}; remove one")
        if name in BUILT_IN:
            found[name] = BUILT_IN[name]
        elif points:
            found[name] = _load(points[0], name)
    return found


def makers_of(names: Iterable[str]) -> tuple[Provenance, ...] | None:
    """What intrinsics are made by that are none of Luthier's own; None where that of one cannot be told."""
    installed = _points()
    points = [point for name in sorted(names) if name not in BUILT_IN for point in installed.get(name, ())]
    found = [package_provenance(module) for module in dict.fromkeys(point.module for point in points)]
    values = hashlib.sha256(repr([(point.name, point.value) for point in points]).encode()).hexdigest()
    known = [one for one in found if one is not None]
    if len(known) < len(found):
        return None
    return tuple(replace(one, digest=f"{one.digest} {values}") for one in known)


def installed_names() -> list[str]:
    """Names of the intrinsics that installed packages add, none of them imported."""
    return sorted(_points())


def _points() -> Mapping[str, tuple[EntryPoint, ...]]:
    """Name of each intrinsic -> its entry points; a distribution that is seen twice has one."""
    found: dict[str, dict[tuple[str, str], EntryPoint]] = {}
    for point in points_of(INTRINSICS):
        found.setdefault(point.name.replace(".", "::"), {})[_package(point), point.value] = point
    return {name: tuple(points.values()) for name, points in found.items()}


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


def _load(point: EntryPoint, name: str) -> Intrinsic:
    package = _package(point)
    try:
        record = point.load()
    except Exception as problem:  # whatever a stranger's module raises at import
        raise ToolError(f"intrinsic {name} of {package} ({point.value}) cannot be imported: {problem!r}") from problem
    if not isinstance(record, Intrinsic):
        raise ToolError(f"intrinsic {name} of {package}: {point.value} is no luthier.Intrinsic")
    if record.name != name:
        raise ToolError(f"intrinsic {name} of {package}: {point.value} is called {record.name}")
    return replace(record, package=package)
