"""The tools that ship: what the `pyproject.toml` of each says of it, and the table that docs/tools.md has of that.

``[tool.shipped]`` may have:

answers   The question that the tool answers, for the table.
use       What follows ``luthier run -t`` in the table; default: the tool's name.
trial     Options with which the tool works, and changes no results, in any kernel; default: none.
inserts   Whether it inserts code; default: true.
costs     Of each row of benchmarks/bench_tools.py: what its name adds to the tool's -> options; default: one row.

Use: python scripts/shipped_tools.py   (writes the table; `make format` does so)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples" / "tools"
PAGE = ROOT / "docs" / "tools.md"
ROW = re.compile(r"^\| \[(\w+)\]\(\.\./examples/tools/.*\n", re.MULTILINE)


@dataclass(frozen=True)
class Shipped:
    """Properties of a tool that are known without importing it."""

    name: str
    answers: str
    use: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)
    inserts: bool = True
    costs: Mapping[str, str] = field(default_factory=lambda: {"": ""})

    @property
    def row(self) -> str:
        """Return the tool's row of the table in docs/tools.md."""
        page = f"[{self.name}](../examples/tools/{self.name}/README.md)"
        return f"| {page} | {self.answers} | `luthier run -t {self.use or self.name} -- ./app` |\n"


def shipped_tools() -> dict[str, Shipped]:
    """Return the tools by name.

    Raises:
        TypeError: one says too little, or something that there is not.
    """
    found = {}
    for path in sorted(FOLDER.glob("*/pyproject.toml")):
        name, told = path.parent.name, tomllib.loads(path.read_text()).get("tool", {}).get("shipped", {})
        try:
            found[name] = Shipped(name, **told)
        except TypeError as problem:
            raise TypeError(f"{path}: [tool.shipped]: {problem}") from None
    return found


def with_table(page: str) -> str:
    """Return docs/tools.md with its table as the tools say; rows stay in their order, and new ones come last."""
    tools = shipped_tools()
    there = [row[1] for row in ROW.finditer(page)]
    names = [name for name in there if name in tools] + [name for name in tools if name not in there]
    first, last = min(row.start() for row in ROW.finditer(page)), max(row.end() for row in ROW.finditer(page))
    return page[:first] + "".join(tools[name].row for name in names) + page[last:]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
