"""Device modules of installed tool packages: find them and keep them up to date."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from luthier.errors import BuildError, ToolError
from luthier.extensions.entry_points import points_of
from luthier.extensions.records import load
from luthier.isa.targets import TargetId
from luthier.module.manifest import ModuleManifest

RECORD = ".luthier-editable.json"
"""File in a package's folder after a build into the source tree: its modules follow their sources."""
REFRESHERS = "luthier.refreshers"
"""Entry-point group: functions ``refresh(folder: Path, target: TargetId | None)`` that rebuild folders with such a
record if necessary, and for one more target."""


def _is_followed(folder: Path) -> bool:
    """Return whether a folder has the record of a build into it, not a copied record."""
    try:
        return bool(json.loads((folder / RECORD).read_text())["folder"] == str(folder.resolve()))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError, KeyError, TypeError):
        return True  # damaged, which the rebuild reports


def follow_sources(folder: Path, target: TargetId | None = None) -> None:
    """Rebuild modules in a source tree if their sources have changed; do nothing for installed or copied modules.

    Args:
        target: target of an application for which there must be code, if possible.

    Raises:
        LuthierError: the changed sources cannot be built.
    """
    if _is_followed(folder):
        for point in points_of(REFRESHERS):
            refresh = load(point, f"the builder of {folder}", BuildError, kind=(Callable, "function"))
            refresh(folder, target)


def targets_on_demand(folder: Path) -> Mapping[str, tuple[TargetId, ...]]:
    """Return the targets for which each module in a source tree is compiled on demand; {} for installed or copied
    modules."""
    if not _is_followed(folder):
        return {}
    recorded = json.loads((folder / RECORD).read_text()).get("targets", {})
    return {module: tuple(map(TargetId.parse, targets)) for module, targets in recorded.items()}


def read_installed(
    package: str, module: str, target: TargetId | None = None
) -> tuple[bytes, ModuleManifest, tuple[TargetId, ...]]:
    """Return the bundle of a tool package's device module, its manifest, and the targets for which it is compiled on
    demand.

    Args:
        target: as for `follow_sources`.

    Raises:
        ToolError: there is no such package or module.
    """
    from importlib.resources import files  # slow to import, and tools that only count have no modules

    targets: Mapping[str, tuple[TargetId, ...]] = {}
    try:
        folder = files(package)
        if isinstance(folder, Path):
            sources = (folder / f"{module}.hipfb").resolve().parent
            follow_sources(sources, target)
            targets = targets_on_demand(sources)
        data = (folder / f"{module}.hipfb").read_bytes()
        text = (folder / f"{module}.json").read_text()
    except (ImportError, OSError, ValueError) as problem:
        raise ToolError(f"package {package} has no built device module {module!r}: {problem}") from problem
    return data, ModuleManifest.from_text(text, f"{package}/{module}.json"), targets.get(module, ())
