"""Device modules of installed tool packages: where a build put them, and how they are kept up to date."""

from __future__ import annotations

import functools
import importlib.resources
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

from luthier.errors import ToolError
from luthier.module.manifest import Manifest
from luthier.module.tool_module import ToolModule

RECORD = ".luthier-editable.json"
"""File that a build into the source tree leaves in a package's folder: its modules follow their sources."""
REFRESHERS = "luthier.refreshers"
"""Entry-point group: functions ``refresh(folder: Path)`` that build what has such a record again where needed."""

Loader = Callable[[str, str], ToolModule]
"""Package and module name -> the module."""


def follow_sources(folder: Path) -> None:
    """Build what lies in a source tree again if its sources have changed; nothing to do for what was installed.

    Raises:
        LuthierError: they have changed and cannot be built.
    """
    if (folder / RECORD).is_file():
        for point in entry_points(group=REFRESHERS):
            point.load()(folder)


@functools.lru_cache(maxsize=64)
def _load_installed(package: str, module: str) -> ToolModule:
    try:
        folder = importlib.resources.files(package)
        if isinstance(folder, Path):
            follow_sources((folder / f"{module}.hipfb").resolve().parent)
        data = (folder / f"{module}.hipfb").read_bytes()
        text = (folder / f"{module}.json").read_text()
    except (ImportError, OSError, ValueError) as problem:
        raise ToolError(f"package {package} has no built device module {module!r}: {problem}") from problem
    loaded = ToolModule.load(data)
    loaded.name = f"{package}.{module}"
    loaded.describe(Manifest.from_text(text, f"{package}/{module}.json"))
    return loaded


_loader: Loader = _load_installed


def load(package: str, module: str) -> ToolModule:
    """The module that a tool package's build put beside its Python code; the same object each time.

    Raises:
        ToolError: no such package or module, or not one of the compiler plugin's.
    """
    return _loader(package, module)


@contextmanager
def loaded_by(loader: Loader) -> Iterator[None]:
    """Meanwhile packages get their modules from `loader`: a tool can be tried with a module that is not installed."""
    global _loader
    before, _loader = _loader, loader
    try:
        yield
    finally:
        _loader = before
