"""Location of a project's packages: flat, under ``src``, or as ``[tool.setuptools]`` says.

setuptools knows by itself; this is for the builds that run without it (`luthier build`, SCons).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from luthier.errors import BuildError

_NOT_PACKAGES = frozenset({"tests", "test", "docs", "examples", "benchmarks", "build", "dist"})
"""Folders that setuptools' discovery passes over, too."""


def _setuptools(project: Path) -> dict[str, Any]:
    """Return the table ``[tool.setuptools]``; empty where there is none."""
    try:
        with (project / "pyproject.toml").open("rb") as file:
            table = tomllib.load(file).get("tool", {}).get("setuptools", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}  # whoever reads the settings has said it
    return table if isinstance(table, dict) else {}


def _roots(project: Path, table: dict[str, Any]) -> list[Path]:
    """Return the folders that packages may lie in, the most likely first."""
    folders, packages = table.get("package-dir"), table.get("packages")
    root = folders.get("") if isinstance(folders, dict) else None
    if isinstance(root, str):
        return [project / root]
    found = packages.get("find") if isinstance(packages, dict) else None
    where = found.get("where") if isinstance(found, dict) else None
    if isinstance(where, list) and where:
        return [project / str(folder) for folder in where]
    return [project / "src", project] if (project / "src").is_dir() else [project]


def package_folder(project: Path, package: str) -> Path:
    """Return the source folder of a package; where none is there yet, the one it would have."""
    table = _setuptools(project)
    named = table.get("package-dir")
    parts = package.split(".")
    if isinstance(named, dict):
        for length in range(len(parts), 0, -1):  # the longest name that is given a folder of its own
            folder = named.get(".".join(parts[:length]))
            if isinstance(folder, str):
                return project.joinpath(folder, *parts[length:])
    roots = _roots(project, table)
    return next((root for root in roots if (root / parts[0]).is_dir()), roots[0]).joinpath(*parts)


def outermost(packages: Iterable[str], folder_of: Callable[[str], Path]) -> list[str]:
    """Return the packages that are in no other one, without those that are only namespaces: folders with no Python in
    them but packages."""
    names = {str(name) for name in packages}

    def within(name: str, others: Iterable[str]) -> bool:
        return any(name.startswith(f"{other}.") for other in others)

    real = {
        one for one in names if any(folder_of(one).glob("*.py")) or not any(within(other, [one]) for other in names)
    }
    return sorted(name for name in real if not within(name, real))


def only_package(project: Path) -> str:
    """Return the project's only top-level package, as setuptools would find it.

    Raises:
        BuildError: there is none, or there are several.
    """
    table = _setuptools(project)
    listed = table.get("packages")
    if isinstance(listed, list):
        packages = {str(name) for name in listed}
    else:
        root = _roots(project, table)[0]
        depth = "*" if root == project else "**"  # beside the project's own files there are no namespaces
        packages = {
            ".".join(path.parent.relative_to(root).parts)
            for path in root.glob(f"{depth}/__init__.py")
            if path.parent != root and path.parent.relative_to(root).parts[0] not in _NOT_PACKAGES
        }
    top = outermost(packages, lambda name: package_folder(project, name))
    if len(top) != 1:
        raise BuildError(
            "the device modules' package is not clear: set `package` in [tool.luthier]; "
            f"the project has {', '.join(top) or 'no packages'}"
        )
    return top[0]
