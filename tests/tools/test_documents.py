"""The tools' documents: they describe every tool and its options, and the code of docs/tools.md runs."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from luthier import Table
from luthier.cli.tools import option_meanings
from luthier.module.tool_module import loaded_by
from luthier.patch import patch_object
from shipped import FOLDER, NAMES, device_of
from shipped_tools import ROW, shipped_tools, with_table

from .conftest import PROCESSORS, rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tools.md"


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_tool_and_option_is_told_of(shipped: Any, name: str) -> None:
    known = shipped_tools()[name]
    assert known.row in PAGE.read_text()
    readme = (FOLDER / name / "README.md").read_text()
    assert f"pip install examples/tools/{name}" in readme
    tool = type(shipped(name, **known.trial))
    assert option_meanings(tool).keys() == set(getattr(tool.Options, "__dataclass_fields__", {}))
    for options in re.findall(rf"-t {name}:(\S+)", PAGE.read_text() + readme):
        for option in options.split(","):
            assert option.partition("=")[0] in tool.Options.__dataclass_fields__, option


def test_the_page_has_a_row_of_each_tool() -> None:
    """`make format` writes the rows: new ones last, others at their positions."""
    page = PAGE.read_text()
    assert with_table(page) == page
    assert sorted(row[1] for row in ROW.finditer(page)) == NAMES
    known = shipped_tools()
    rows = [row[0] for row in ROW.finditer(page) if not known[row[1]].is_example]
    without = page.replace(rows[2], "").replace(rows[4], "| [gone](../examples/tools/gone/README.md) | what? | … |\n")
    assert with_table(without) == page.replace(
        "".join(rows), "".join([*rows[:2], rows[3], *rows[5:], rows[4], rows[2]])
    )


def test_what_the_page_shows_runs(
    app: Any, shipped: Any, make_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch in process, and the tool that adds up by site, whose rows are those of the shipped one."""
    in_process, by_site = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "vector_add.hsaco").write_bytes(app("vector_add", "gfx942").read_bytes())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        importlib.import_module("luthier.tool"), "parse_tool", lambda text: shipped("coalescing", top=5)
    )
    shown: list[Any] = []
    names: dict[str, Any] = {"print": shown.append}
    exec(compile(in_process, str(PAGE), "exec"), names)
    assert (names["c"] == 2).all()
    assert "efficiency" in shown[0]
    tables: dict[str, Table] = {
        table.title: table for table in names["reported"](names["tool"], names["module"], names["patched"])
    }

    made = device_of(make_module, "coalescing", PROCESSORS)
    assert made is not None
    own: dict[str, Any] = {"__name__": "sizes"}
    with loaded_by(lambda package, name: made):
        exec(compile(by_site, str(PAGE), "exec"), own)
    tool = own["Sizes"]()
    patched = patch_object(names["load_object"]("vector_add.hsaco"), tool.instrument, strict=True)
    module = names["open_device"]("emu:gfx942").load(patched.data)
    module.kernel("vector_add").launch(names["a"], names["b"], names["c"], 1000, grid=4, block=256)
    (table,) = names["reported"](tool, module, patched)
    expected = {row["address"]: (row["requests"], row["lanes"]) for row in rows(tables["most cache lines"])}
    assert {row["address"]: (row["requests"], row["lanes"]) for row in rows(table)} == expected
