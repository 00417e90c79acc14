"""What works without the packages of extras, and which sentence the rest prints."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier
from kept import ROOT
from luthier.errors import LuthierError
from luthier.support import extras
from run_folders import write_run

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_the_table_names_extras_that_have_these_packages() -> None:
    for package, (extra, _) in extras._EXTRA_OF.items():
        assert any(requirement.startswith((package, "dask[")) for requirement in EXTRAS[extra]), package


@pytest.fixture
def without_extras(tmp_path: Path) -> dict[str, str]:
    """Return an environment in whose Python the packages of extras cannot be found."""
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.modules.update(dict.fromkeys({sorted(extras._EXTRA_OF)!r}))\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def test_counts_need_no_extra(
    without_extras: dict[str, str], build_program: Callable[..., Path], tmp_path: Path
) -> None:
    words = ("run", "-t", "instr_count", "--json", tmp_path / "run.json", "--", build_program("boxes"))
    done = run_luthier(*words, env=without_extras, before=(sys.executable,))
    assert done.returncode == 0, done.stderr
    assert "instr_count" in done.stderr
    assert json.loads((tmp_path / "run.json").read_text())["tools"]


@pytest.mark.parametrize("words", [("run", "-o", "RUN", "--", "true"), ("report", "RUN")], ids=str)
def test_what_needs_an_extra_names_it(without_extras: dict[str, str], tmp_path: Path, words: tuple[str, ...]) -> None:
    folder = tmp_path / "run"
    if words[0] == "report":
        write_run(folder)
    done = run_luthier(
        *(folder if word == "RUN" else word for word in words), env=without_extras, before=(sys.executable,)
    )
    assert done.returncode != 0
    assert "pip install 'luthier[report]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_module_is_imported_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras._EXTRA_OF, "json", ("report", "tests"))
    monkeypatch.setitem(extras._EXTRA_OF, "luthier_nothing", ("report", "tests"))
    assert extras.extra("json") is json
    with pytest.raises(LuthierError, match=r"luthier_nothing is not installed, which tests need: pip install"):
        extras.require("luthier_nothing")
