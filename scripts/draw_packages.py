"""Draw the packages of `luthier` and their imports: docs/packages.svg, made from the sources.

Each package is a box, in the order of the layers in pyproject.toml. An arrow leads to each package that it imports,
unless an imported package imports that one, too.

Use: python scripts/draw_packages.py [--check]    (--check: exit code 1 if the drawing does not match the sources)
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "runtime" / "luthier"
DRAWING = ROOT / "docs" / "packages.svg"
WIDTH, HEIGHT, GAP = 190, 34, 18
"""Size of a box and of the gap between two boxes, in pixels."""


def layers() -> list[str]:
    """Return the packages of `luthier` in the order of import-linter's contract, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract.get("containers") == ["luthier"])
    return list(layers)


def package_of(path: Path) -> str:
    """Return the package, or the top-level module of `luthier`, that a source belongs to."""
    return path.relative_to(SOURCES).with_suffix("").parts[0]


def imports(packages: list[str]) -> dict[str, set[str]]:
    """Return package -> packages that its modules import, also within functions."""
    imported: dict[str, set[str]] = {package: set() for package in packages}
    for path in SOURCES.rglob("*.py"):
        package = package_of(path)
        if package not in imported:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.ImportFrom) and node.module == "luthier":
                names = [f"luthier.{alias.name}" for alias in node.names]
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            parts = [name.split(".") for name in names]
            imported[package] |= {part[1] for part in parts if part[0] == "luthier" and len(part) > 1}
    return {
        package: {name for name in names if name in imported and name != package} for package, names in imported.items()
    }


def reduced(imported: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without those that other imports imply (the transitive reduction)."""

    def reached(package: str) -> set[str]:
        return imported[package].union(*map(reached, imported[package]))

    return {
        package: {name for name in names if not any(name in reached(other) for other in names - {name})}
        for package, names in imported.items()
    }


def drawing() -> str:
    """Return the SVG: boxes in a column, arrows to boxes other than the next one as arcs on the right."""
    packages = layers()
    arrows = reduced(imports(packages))
    place = {package: number for number, package in enumerate(packages)}
    top = {package: 10 + number * (HEIGHT + GAP) for package, number in place.items()}
    reach = max(place[to] - place[start] for start, others in arrows.items() for to in others)
    size = f'width="{WIDTH + 60 + reach * 22}" height="{len(packages) * (HEIGHT + GAP) + 10}"'
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for start, targets in arrows.items():
        for to in sorted(targets, key=place.__getitem__):
            text.append(_arrow(top[start], top[to], place[to] - place[start]))
    for package in packages:
        text.append(
            f'<rect x="10" y="{top[package]}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#eef3fa" stroke="#456"/>'
            f'<text x="20" y="{top[package] + 22}">{escape(package)}</text>'
        )
    return "\n".join([*text, "</svg>", ""])


def _arrow(start: int, end: int, steps: int) -> str:
    style = 'fill="none" stroke="#777" marker-end="url(#tip)"'
    if steps == 1:
        x = 10 + WIDTH // 2
        return f'<path d="M{x} {start + HEIGHT} V{end}" {style}/>'
    right, bend = 10 + WIDTH, 10 + WIDTH + 22 * steps
    begin, stop = start + HEIGHT * 2 // 3, end + HEIGHT // 3
    return f'<path d="M{right} {begin} C{bend} {begin} {bend} {stop} {right} {stop}" {style}/>'


def write_or_check(path: Path, text: str) -> int:
    """Write a drawing, or compare it if the command line has ``--check``; return the exit status."""
    if sys.argv[1:] != ["--check"]:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        sys.stderr.write(f"{path.relative_to(ROOT)} is not up to date: run scripts/{Path(sys.argv[0]).name}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(DRAWING, drawing()))
