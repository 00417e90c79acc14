"""`luthier tools`: working, broken, clashing and outdated tools, each a row."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError, ToolError
from luthier.module import DeviceVariable, Hook, ModuleManifest, Parameter
from luthier.tool import parse_tool, parse_tools

GOOD = """\
from dataclasses import dataclass
from luthier import Tool
class Example(Tool):
    @dataclass(frozen=True)
    class Options:
        top: int = 10
        output: str = ""
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a tool package on the path: as pip would, but the manifest is made up."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(
        tool: str,
        package: str,
        *,
        code: str | None = GOOD,
        value: str | None = None,
        manifest: ModuleManifest | str | None = None,
    ) -> None:
        monkeypatch.delitem(sys.modules, package, raising=False)
        metadata = tmp_path / f"{package}-1.2.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.2\nSummary: Counts {tool} things\n"
        )
        (metadata / "entry_points.txt").write_text(f"[luthier.tools]\n{tool} = {value or f'{package}:Example'}\n")
        if code is not None:
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").write_text(code)
        if manifest is not None:
            text = manifest if isinstance(manifest, str) else manifest.to_json()
            (tmp_path / package / "device.json").write_text(text)
            (tmp_path / package / "device.hipfb").write_bytes(b"")

    return make


def manifest(**changes: object) -> ModuleManifest:
    fields: dict[str, object] = {
        "package": "p",
        "module": "device",
        "bundle": "device.hipfb",
        "targets": ("gfx90a", "gfx942"),
        "hooks": (Hook("count", "count", (Parameter("step", "uint32_t", "uint", 4, "i32"),)),),
        "variables": (DeviceVariable("total", "total", "uint64_t", 8, True, False),),
        "intrinsics": (),
        "cuid": "",
        "llvm": "22.1.8",
        "compiler": "clang",
    }
    return ModuleManifest(**{**fields, **changes})  # type: ignore[arg-type]


def rows(capsys: pytest.CaptureFixture[str], names: set[str]) -> list[dict[str, object]]:
    """Return the listed tools with these names (others may be installed on this machine)."""
    main(["tools", "--json"])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return [row for row in json.loads(captured.out) if row["name"] in names]


def test_wave_sizes(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    targets = ("gfx90a", "gfx1100", "gfx1201")
    sizes = {"gfx90a": (64,), "gfx1100": (32, 64), "gfx1201": (32,)}
    install("waves", "wave_tool", manifest=manifest(targets=targets, wave_sizes=sizes))
    (row,) = rows(capsys, {"waves"})
    assert row["wave_sizes"] == {"gfx90a": [64], "gfx1100": [32, 64], "gfx1201": [32]}
    main(["tools"])
    assert "gfx90a gfx1100(32,64) gfx1201(32)" in capsys.readouterr().out


def test_a_tool_and_all_it_offers(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("fine", "fine_tool", manifest=manifest())
    assert rows(capsys, {"fine"}) == [
        {
            "name": "fine",
            "package": "fine-tool",
            "version": "1.2",
            "description": "Counts fine things",
            "entry_point": "fine_tool:Example",
            "modules": ["device"],
            "targets": ["gfx90a", "gfx942"],
            "wave_sizes": {},
            "hooks": ["device.count(uint32_t step)"],
            "variables": ["device.total"],
            "options": ["top: int = 10", "output: str = ''"],
            "problems": [],
        }
    ]
    main(["tools"])
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["tool", "what", "it", "does", "from", "targets"]
    (line,) = [line for line in lines if line.startswith("fine ")]
    assert "Counts fine things" in line
    assert " fine-tool " in line
    assert line.endswith("gfx90a gfx942")


def test_a_tool_without_device_code(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """One that only counts has no hooks."""
    install("counting", "counting_tool")
    (row,) = rows(capsys, {"counting"})
    assert (row["modules"], row["hooks"], row["problems"]) == ([], [], [])


@pytest.mark.rows(8)
@pytest.mark.parametrize(
    ("tool", "problem"),
    [
        ({"code": "raise RuntimeError('oops')"}, "broken_tool:Example cannot be imported: RuntimeError('oops')"),
        ({"code": "import sys; sys.exit(3)"}, "cannot be imported: SystemExit(3)"),
        ({"code": "def ("}, "cannot be imported: SyntaxError"),
        ({"code": ""}, "cannot be imported: AttributeError"),
        ({"code": "class Example: pass"}, "broken_tool:Example is not a subclass of luthier.Tool"),
        ({"code": None}, "package broken_tool is not installed; was the tool removed without pip?"),
        ({"manifest": None, "code": GOOD + "from luthier import ToolModule\n"}, "no device modules in"),
        ({"manifest": "{}"}, "not a manifest of a device module"),
        ({"manifest": manifest(luthier="99.0")}, "version skew: device was built with luthier 99.0"),
        ({"manifest": manifest(llvm="99.1")}, "version skew: device holds bitcode of LLVM 99.1"),
    ],
)
def test_a_broken_tool_is_a_row_with_the_reason(
    install: Install, capsys: pytest.CaptureFixture[str], tool: dict[str, object], problem: str
) -> None:
    code = tool.get("code", GOOD)
    install("broken", "broken_tool", **{"manifest": manifest() if code is not None else None, "code": code, **tool})
    install("fine", "fine_tool", manifest=manifest())
    broken, fine = rows(capsys, {"broken", "fine"})
    assert any(problem in text for text in broken["problems"])  # type: ignore[attr-defined]
    assert fine["problems"] == []
    assert main(["tools"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("! broken: ")]
    assert any(problem in line for line in lines)


def test_an_error_of_luthier_keeps_its_lines(install: Install) -> None:
    install("broken", "broken_tool", code="from luthier import LuthierError\nraise LuthierError('first\\nsecond')")
    with pytest.raises(LuthierError, match=r"broken_tool:Example\) cannot be imported: first\nsecond"):
        parse_tool("broken")


def test_two_tools_of_one_name(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    """Only a request for that name must say which tool; other names are not affected."""
    install("same", "one_tool", manifest=manifest())
    install("same", "two_tool", manifest=manifest())
    install("fine", "fine_tool")
    listed = rows(capsys, {"same"})
    assert [row["package"] for row in listed] == ["one-tool", "two-tool"]
    for row in listed:
        assert row["problems"] == [
            "name clash: same is provided by one-tool and two-tool; use one-tool:same or two-tool:same"
        ]
    assert parse_tool("fine:top=2").options.top == 2
    for command in (
        ["tools", "same"],
        ["patch", "x.co", "-o", "y", "-t", "same:top=2"],
        ["verify", "x.co", "-t", "same"],
    ):
        assert main(command) == 1
        output = capsys.readouterr().err
        assert "several packages have a tool 'same': use one-tool:same or two-tool:same" in output
    both = parse_tools(["one-tool:same", "Two_Tool:same:top=3"]).tools
    assert [(type(tool).__module__, tool.options.top, tool.name) for tool in both] == [
        ("one_tool", 10, "one-tool:same"),
        ("two_tool", 3, "two-tool:same"),
    ]
    with pytest.raises(ToolError, match="tool one-tool:same is given 2 times"):
        parse_tools(["one-tool:same", "one.tool:same"])
    with pytest.raises(ToolError, match="no tool 'three-tool' is installed"):
        parse_tool("three-tool:same")
    assert parse_tool("fine-tool:fine").name == "fine"
    assert main(["tools", "two-tool:same"]) == 0
    assert "usage: luthier run -t two-tool:same:OPTION=VALUE" in capsys.readouterr().out
    main(["tools", "two-tool:same", "--json"])
    assert [row["package"] for row in json.loads(capsys.readouterr().out)] == ["two-tool"]


def test_a_tool_replaces_one_that_luthier_comes_with(
    install: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("luthier.tool.tool.OWN_PACKAGE", "own-tools")
    monkeypatch.setattr("luthier.cli.tools.OWN_PACKAGE", "own-tools")
    install("same", "own_tools", code='"""Counts all.\n\nMore."""\n' + GOOD)
    (listed,) = rows(capsys, {"same"})
    assert (listed["package"], listed["description"], listed["problems"]) == ("own-tools", "Counts all", [])
    install("same", "added_tool")
    (listed,) = rows(capsys, {"same"})
    assert (listed["package"], listed["description"], listed["problems"]) == ("added-tool", "Counts same things", [])
    assert type(parse_tool("same")).__module__ == "added_tool"


def test_an_option_that_is_called_like_a_tool(install: Install) -> None:
    """``two:top`` was the option `top` of `two` before a package `two` had a tool `top`."""
    install("two", "other_tool")
    install("top", "two")
    with pytest.raises(ToolError, match="option top of tool two must be a whole number, not 'true'"):
        parse_tool("two:top")
    assert parse_tool("two:top=4").options.top == 4
    assert parse_tool("top").name == "top"


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("luthier.cli.tools.installed_tools", list)
    assert main(["tools"]) == 0
    assert "luthier new" in capsys.readouterr().out
