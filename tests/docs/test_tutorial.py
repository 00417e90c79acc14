"""The tutorial, run by its script, and the README's examples."""

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
EXAMPLES = re.findall(r"^```text\n\$ (.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


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


@pytest.mark.rows(1)
@pytest.mark.parametrize("shown", EXAMPLES, ids=[shown.partition("\n")[0] for shown in EXAMPLES])
def test_an_example_of_the_readme(
    newcomer: ModuleType, environment: dict[str, str], shown: str, tmp_path: Path
) -> None:
    command, _, output = shown.partition("\n")
    shutil.copytree(ROOT / "examples" / "apps", tmp_path / "examples" / "apps")
    walk = newcomer.Walk(tmp_path, environment)
    program = "divergent_loop" if "divergent_loop" in command else "vector_add"
    walk.run(f"HIP_PLATFORM=amd hipcc -g --offload-arch=gfx90a examples/apps/{program}.hip -o {program}")
    if "report RUN" in command:
        walk.run(EXAMPLES[1].partition("\n")[0])
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
