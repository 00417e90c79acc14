"""Packages whose entry points name what cannot be imported: an error or a warning says whose, never a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.errors import BuildError, LuthierError, ToolError
from luthier.module import packages
from luthier.module.inline import load_inline
from luthier.tool import parse_tool
from planted import plant

BROKEN = {
    "no module": ("nowhere:IT", "", "ModuleNotFoundError"),
    "no object": ("other_one:IT", "", "AttributeError"),
    "an error": ("other_one:IT", "1 / 0", "ZeroDivisionError"),
    "an exit": ("other_one:IT", "raise SystemExit(3)", "SystemExit"),
    "no Python": ("other_one:IT", "def (", "SyntaxError"),
}
each_breakage = pytest.mark.parametrize("breakage", BROKEN)


def break_group(folder: Path, monkeypatch: pytest.MonkeyPatch, group: str, name: str, breakage: str) -> str:
    """Plant a package with a broken entry point and return the expected part of the error."""
    value, code, problem = BROKEN[breakage]
    plant(folder, monkeypatch, group, f"{name} = {value}", code)
    return f"of other-one ({value}) cannot be imported: {problem}"


@each_breakage
def test_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], breakage: str
) -> None:
    """Other packages' commands are there."""
    reason = break_group(tmp_path, monkeypatch, "luthier.commands", "new_ones", breakage)
    with pytest.raises(SystemExit) as ended:
        main(["build", "--help"])
    assert ended.value.code == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("usage: luthier build")
    assert f"luthier: warning: commands new_ones {reason}" in captured.err


def test_commands_are_imported_when_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their table is read without its package, whose code may do anything."""
    code = 'print("imported")\nIT: dict = {"hello": ("other_one", "says who is there")}\n'
    code += "def add_arguments(parser): parser.description = 'HELLO'"
    plant(tmp_path, monkeypatch, "luthier.commands", "new_ones = other_one:IT", code)
    for command in (["--help"], ["build", "--help"], ["hello", "--help"]):
        with pytest.raises(SystemExit):
            main(command)
        out = capsys.readouterr().out
        assert ("imported" in out) == ("HELLO" in out) == (command[0] == "hello"), out
        assert ("says who is there" in out) == (command == ["--help"])


def test_commands_that_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(tmp_path, monkeypatch, "luthier.commands", "new_ones = other_one:IT", "IT = 3")
    with pytest.raises(SystemExit):
        main(["build", "--help"])
    assert "luthier: warning: commands new_ones of other-one: other_one:IT is not a mapping" in capsys.readouterr().err


def test_what_builds_again_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, packages.REFRESHERS, "mine = other_one:IT", "IT = 3")
    (tmp_path / packages.RECORD).write_text("{}")
    with pytest.raises(LuthierError, match="of other-one: other_one:IT is not a function"):
        packages.follow_sources(tmp_path)


def test_a_compiler_is_no_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(tmp_path, monkeypatch, "luthier.compilers", "inline = other_one:IT", "IT = 3")
    with pytest.raises(BuildError, match="the compiler of device modules of other-one: other_one:IT is not a function"):
        load_inline("", targets="gfx90a")


@each_breakage
def test_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    reason = break_group(tmp_path, monkeypatch, "luthier.tools", "broken", breakage)
    with pytest.raises(ToolError) as raised:
        parse_tool("broken")
    assert f"tool broken {reason}" in str(raised.value)


@each_breakage
def test_what_builds_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    reason = break_group(tmp_path, monkeypatch, packages.REFRESHERS, "mine", breakage)
    (tmp_path / packages.RECORD).write_text("{}")
    with pytest.raises(LuthierError) as raised:
        packages.follow_sources(tmp_path)
    assert reason in str(raised.value)


@each_breakage
def test_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: str) -> None:
    reason = break_group(tmp_path, monkeypatch, "luthier.compilers", "inline", breakage)
    with pytest.raises(BuildError) as raised:
        load_inline("", targets="gfx90a")
    assert f"the compiler of device modules {reason}" in str(raised.value)
