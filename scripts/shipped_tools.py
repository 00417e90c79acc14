"""The shipped tools: the properties in the `pyproject.toml` of each, and the tables of docs/tools.md made from them.

``[tool.shipped]`` may have:

answers     The question that the tool answers, or what the example shows, for the table.
is_example  Whether it shows how to do something, and is listed with the examples; default: false.
use         The argument of ``luthier run -t`` in the table; default: the tool's name.
trial       Options with which the tool works in any kernel without changing results; default: none.
inserts     Whether the tool inserts code; default: true.
costs       Rows of benchmarks/bench_tools.py: suffix of the tool's name -> options; default: one row.

Use: python scripts/shipped_tools.py   (writes the tables; `make format` does so)
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
TABLE = re.compile(rf"(?:{ROW.pattern})+", re.MULTILINE)


@dataclass(frozen=True)
class Shipped:
    """Properties of a tool that do not need its import."""

    name: str
    answers: str
    is_example: bool = False
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
    """Return the tools and examples by name.

    Raises:
        TypeError: ``[tool.shipped]`` lacks a key, or has an unknown one.
    """
    tools = {}
    for path in sorted(FOLDER.glob("*/pyproject.toml")):
        name, properties = path.parent.name, tomllib.loads(path.read_text()).get("tool", {}).get("shipped", {})
        try:
            tools[name] = Shipped(name, **properties)
        except TypeError as problem:
            raise TypeError(f"{path}: [tool.shipped]: {problem}") from None
    return tools


def with_table(page: str) -> str:
    """Return docs/tools.md with its tables of tools and of examples; rows keep their order, and new ones come last."""
    shipped, is_example = shipped_tools(), iter((False, True))

    def updated(table: re.Match[str]) -> str:
        wanted = next(is_example)
        names = [name for name, tool in shipped.items() if tool.is_example == wanted]
        listed = [name for name in ROW.findall(table[0]) if name in names]
        return "".join(shipped[name].row for name in listed + [name for name in names if name not in listed])

    return TABLE.sub(updated, page)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
