"""The tools in wheels of Luthier (`scripts/ship_tools.py`)."""

from __future__ import annotations

import configparser
import importlib
from pathlib import Path

import pytest
import ship_tools
from luthier.arch.targets import TARGETS
from luthier.isa.targets import TargetId
from luthier.module.demand import best_for
from luthier.tool import Tool
from shipped_tools import FOLDER

from luthier_build.settings import read_table


@pytest.mark.parametrize("name", TARGETS)
def test_every_processor_has_hooks(name: str) -> None:
    assert best_for(TargetId(TARGETS[name]), ship_tools.TARGETS, TargetId.parse)


def test_targets_of_the_packages_are_kept() -> None:
    tables = [read_table(path.parent) or {} for path in FOLDER.glob("*/pyproject.toml")]
    assert {target for table in tables for target in table.get("targets", ())} <= set(ship_tools.TARGETS)


def test_tools_in_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool without hooks, and one with hooks in a package of several modules."""
    metadata = tmp_path / "luthier-0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[console_scripts]\nluthier = luthier.cli.main:main\n")
    (metadata / "top_level.txt").write_text("luthier\n")
    ship_tools.add_tools(tmp_path, ["opcode_histogram", "divergence"], ["gfx90a"])

    points = configparser.ConfigParser()
    points.read(metadata / "entry_points.txt")
    assert dict(points["luthier.tools"]) == {
        "opcode_histogram": "luthier_tools.opcode_histogram:OpcodeHistogram",
        "divergence": "luthier_tools.divergence:Divergence",
    }
    assert (metadata / "top_level.txt").read_text() == "luthier\nluthier_tools\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    divergence = importlib.import_module("luthier_tools.divergence")
    histogram = importlib.import_module("luthier_tools.opcode_histogram")
    assert issubclass(histogram.OpcodeHistogram, Tool)
    assert divergence.DEVICE.name == "luthier_tools.divergence.device"
    assert divergence.DEVICE.contents_for(TargetId.parse("gfx90a")).hooks
    assert divergence.mask_of.__module__ == "luthier_tools.divergence.masks"
    assert not list(tmp_path.rglob("*.hip"))
