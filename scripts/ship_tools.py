"""Add the shipped tools to an unpacked wheel of Luthier, compiled for every processor.

Each becomes a subpackage of `luthier_tools`, so that a package of `examples/tools` can be installed beside it.

Use: python scripts/ship_tools.py FOLDER   (written by `wheel unpack`)
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from luthier.tool.tool import ENTRY_POINT_GROUP
from shipped_tools import FOLDER, shipped_tools

from luthier_build.layout import only_package, package_folder
from luthier_build.package import compile_tool
from luthier_build.settings import load_settings, read_pyproject, read_table

PACKAGE = "luthier_tools"
TARGETS = (
    *("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"),
    *("gfx1010", "gfx1030", "gfx1100", "gfx1201", "gfx1250", "gfx1251"),
)
"""Targets whose hooks serve every processor."""


def add_tools(wheel: Path, names: Sequence[str], targets: Sequence[str] = TARGETS) -> None:
    """Add tools of this repository to an unpacked wheel, with their entry points.

    Raises:
        BuildError: a tool cannot be compiled.
    """
    folder = wheel / PACKAGE
    folder.mkdir()
    (folder / "__init__.py").write_text('"""The tools that come with Luthier."""\n')
    points = "".join(_add_tool(name, folder, targets) for name in names)
    (metadata,) = wheel.glob("*.dist-info")
    for file, text in (("entry_points.txt", f"\n[{ENTRY_POINT_GROUP}]\n{points}"), ("top_level.txt", f"{PACKAGE}\n")):
        with (metadata / file).open("a") as output:
            output.write(text)


def _add_tool(name: str, folder: Path, targets: Sequence[str]) -> str:
    """Add one tool to the package in `folder`, and return the lines of its entry points."""
    project, package = FOLDER / name, f"{PACKAGE}.{name}"
    original = only_package(project)
    sources = package_folder(project, original)

    def renamed(text: str) -> str:
        return re.sub(rf"\b{original}\b", package, text)

    for path in sources.rglob("*.py"):
        copy = folder / name / path.relative_to(sources)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(renamed(path.read_text()))
    table = read_table(project)
    if table:
        settings = load_settings(table, flags={"targets": targets, "compress": True, "package": package})
        compile_tool(settings, project=project, destination=folder / name, report=lambda _: None)
    points = read_pyproject(project)["project"]["entry-points"][ENTRY_POINT_GROUP]
    return "".join(f"{point} = {renamed(value)}\n" for point, value in points.items())


if __name__ == "__main__":
    add_tools(Path(sys.argv[1]), [name for name, tool in shipped_tools().items() if not tool.is_example])
