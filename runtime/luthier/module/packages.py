"""Device modules of installed tool packages: where a build put them, and how they are kept up to date."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from luthier.errors import ToolError
from luthier.module.manifest import Manifest
from luthier.support.extensions import points_of

RECORD = ".luthier-editable.json"
"""File that a build into the source tree leaves in a package's folder: its modules follow their sources."""
REFRESHERS = "luthier.refreshers"
"""Entry-point group: functions ``refresh(folder: Path)`` that build what has such a record again where needed."""


def follow_sources(folder: Path) -> None:
    """Build what lies in a source tree again if its sources have changed; nothing to do for what was installed.

    Raises:
        LuthierError: they have changed and cannot be built.
    """
    if (folder / RECORD).is_file():
        for point in points_of(REFRESHERS):
            point.load()(folder)


def read_installed(package: str, module: str) -> tuple[bytes, Manifest]:
    """Return the bundle of a tool package's device module, and its manifest.

    Raises:
        ToolError: there is no such package or module.
    """
    try:
        folder = importlib.resources.files(package)
        if isinstance(folder, Path):
            follow_sources((folder / f"{module}.hipfb").resolve().parent)
        data = (folder / f"{module}.hipfb").read_bytes()
        text = (folder / f"{module}.json").read_text()
    except (ImportError, OSError, ValueError) as problem:
        raise ToolError(f"package {package} has no built device module {module!r}: {problem}") from problem
    return data, Manifest.from_text(text, f"{package}/{module}.json")
