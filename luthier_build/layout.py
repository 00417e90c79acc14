"""Location of a project's packages: flat, under ``src``, or as set in ``[tool.setuptools]``.

For builds without setuptools (`luthier build`, SCons).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from luthier.errors import BuildError

_NOT_PACKAGES = frozenset({"tests", "test", "docs", "examples", "benchmarks", "build", "dist"})
"""Folders that setuptools' discovery skips, too."""


def _setuptools(project: Path) -> dict[str, Any]:
    """Return the table ``[tool.setuptools]``, or an empty one."""
    try:
        with (project / "pyproject.toml").open("rb") as file:
            table = tomllib.load(file).get("tool", {}).get("setuptools", {})
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}  # reading the settings has reported it
    return table if isinstance(table, dict) else {}


def _roots(project: Path, table: dict[str, Any]) -> list[Path]:
    """Return the folders that may contain packages, the most likely first."""
    folders, packages = table.get("package-dir"), table.get("packages")
    root = folders.get("") if isinstance(folders, dict) else None
    if isinstance(root, str):
        return [project / root]
    find = packages.get("find") if isinstance(packages, dict) else None
    where = find.get("where") if isinstance(find, dict) else None
    if isinstance(where, list) and where:
        return [project / str(folder) for folder in where]
    return [project / "src", project] if (project / "src").is_dir() else [project]


def package_folder(project: Path, package: str) -> Path:
    """Return the source folder of a package, which need not exist yet."""
    table = _setuptools(project)
    named = table.get("package-dir")
    parts = package.split(".")
    if isinstance(named, dict):
        for length in range(len(parts), 0, -1):  # the longest name with its own folder
            folder = named.get(".".join(parts[:length]))
            if isinstance(folder, str):
                return project.joinpath(folder, *parts[length:])
    roots = _roots(project, table)
    return next((root for root in roots if (root / parts[0]).is_dir()), roots[0]).joinpath(*parts)


def outermost(packages: Iterable[str], folder_of: Callable[[str], Path]) -> list[str]:
    """Return the packages that are not inside another package, without pure namespaces (folders that contain packages
    but no Python files)."""
    names = {str(name) for name in packages}

    def within(name: str, outer: Iterable[str]) -> bool:
        return any(name.startswith(f"{other}.") for other in outer)

    def has_code(name: str) -> bool:
        return any(folder_of(name).glob("*.py")) or not any(within(other, [name]) for other in names)

    packages = set(filter(has_code, names))
    return sorted(name for name in packages if not within(name, packages))


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
        depth = "*" if root == project else "**"  # a flat project has no namespaces
        packages = {
            ".".join(path.parent.relative_to(root).parts)
            for path in root.glob(f"{depth}/__init__.py")
            if path.parent != root and path.parent.relative_to(root).parts[0] not in _NOT_PACKAGES
        }
    top = outermost(packages, lambda name: package_folder(project, name))
    if len(top) != 1:
        raise BuildError(
            "cannot tell which package receives the device modules: set `package` in [tool.luthier]; "
            f"the project has {', '.join(top) or 'no packages'}"
        )
    return top[0]
