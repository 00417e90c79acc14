"""docs/recipes.md: each recipe does what it shows, alone and in a folder of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from kept import ROOT, kept, run

from .conftest import Environment

PAGE = ROOT / "docs/recipes.md"
START, *SECTIONS = re.split(r"(?m)^(?=## )", PAGE.read_text())
RECIPES = {section.partition("\n")[0].removeprefix("## "): section for section in SECTIONS}
APPS = re.findall(r"^ {4}(HIP_PLATFORM=amd (hipcc .*) -o (\w+))$", START, re.MULTILINE)
SHARED = {"Instrument the loads of one function?"}
"""Recipes without commands of their own."""
PYTHON_PROGRAM = """
import luthier
import numpy as np

kernel = luthier.open_device("hip:0").load("vector_add").kernel("vector_add")
a, b, c = (np.ones(1000, np.float32) for _ in range(3))
kernel.launch(a, b, c, 1000, grid=4, block=256)
assert np.array_equal(c, a + b)
"""
"""The reader's Python program, which launches a kernel by the real HIP."""


@pytest.fixture(scope="module")
def environment(reader_environment: Environment) -> dict[str, str]:
    return reader_environment()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reader's folder, with the programs that the page builds at its start."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for line, command, name in APPS:
        source = next(ROOT.glob(f"examples/apps/{name}.hip"))

        def make(output: Path, command: str = command) -> None:
            words = command.replace("examples/", f"{ROOT}/examples/").split()
            run(["env", "HIP_PLATFORM=amd", *words, "-o", str(output)])

        shutil.copy(kept(("recipes", line, str(source), source.read_text()), make, name), tmp_path / name)
    (tmp_path / "train.py").write_text(PYTHON_PROGRAM)
    return tmp_path


def test_every_recipe_has_commands() -> None:
    assert len(RECIPES) >= 20
    assert {title for title, text in RECIPES.items() if not re.search(r"^ {4}\S", text, re.MULTILINE)} == SHARED
    assert len(APPS) == START.count("HIP_PLATFORM=")


@pytest.mark.rows(1)
@pytest.mark.parametrize("title", [title for title in RECIPES if title not in SHARED])
def test_a_recipe(newcomer: ModuleType, folder: Path, environment: dict[str, str], title: str) -> None:
    # Programs are built once for all tests, so their sources are not below the reader's folder.
    newcomer.Walk(folder, environment).follow(RECIPES[title].replace("  examples/apps/", f"  {ROOT}/examples/apps/"))


def test_other_pages_repeat_the_measured_cost() -> None:
    """The README's figure is that of the table for gfx90a; the FAQ and the recipe have none of their own."""
    table = (ROOT / "docs/tools.md").read_text()
    (ratio,) = re.findall(r"^\| opcode_histogram \| \d+ \| 1\.(\d\d)x ", table.partition("gfx1201:")[0], re.MULTILINE)
    assert (
        f"executes [{int(ratio)} % more\n  instructions](docs/tools.md#what-they-cost)"
        in (ROOT / "README.md").read_text()
    )
    faq = (ROOT / "docs/faq.md").read_text().partition("How much slower")[2].partition("\n\n")[0]
    recipe = RECIPES["Find out how much slower my program gets?"].rpartition("```")[2]
    assert not re.search(r"\d+ %|\d times", faq + recipe)
