"""The tutorial, run by its script, and the README's first example."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from .conftest import Environment

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs/tutorial.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(ROOT / "examples" / "apps", made / "examples" / "apps")
    return made


@pytest.fixture(scope="module")
def environment(reader_environment: Environment) -> dict[str, str]:
    return reader_environment()


def test_the_tutorial(newcomer: ModuleType, folder: Path, environment: dict[str, str]) -> None:
    """Every step does what the tutorial shows, down to the tables that it prints."""
    walk = newcomer.Walk(folder, environment, skip=("make setup", ". .venv/bin/activate"))
    walk.follow(TUTORIAL)
    assert [title for title, *_ in walk.times] == re.findall(r"^## (.*)$", TUTORIAL, re.MULTILINE)
    assert (folder / "vector_add.html").stat().st_size > 10000
    assert (folder / "store_sizes/store_sizes/device.hip").read_text() in TUTORIAL


def test_the_first_example_of_the_readme(newcomer: ModuleType, folder: Path, environment: dict[str, str]) -> None:
    (shown,) = re.findall(r"^```text\n\$ (.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    command, _, output = shown.partition("\n")
    walk = newcomer.Walk(folder, environment)
    walk.run("HIP_PLATFORM=amd hipcc -g --offload-arch=gfx90a examples/apps/divergent_loop.hip -o divergent_loop")
    walk.run(command)
    walk.check(output)


def test_what_is_not_printed_is_noticed(newcomer: ModuleType, tmp_path: Path) -> None:
    walk = newcomer.Walk(tmp_path, dict(os.environ))
    walk.run("printf 'a  1\\nb 2\\n'")
    walk.check("a 1\n  b 2\n")
    for wrong in ("a 2\n", "b 2\na 1\n"):
        with pytest.raises(SystemExit, match="not printed"):
            walk.check(wrong)
    with pytest.raises(SystemExit, match="failed with exit code 3"):
        walk.run("exit 3")
