"""Executed instructions by place: `luthier report --by`."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.cli.main import main
from run_folders import write_run


def test_nothing_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = str(write_run(tmp_path / "run"))
    assert main(["report", run, "--by", "line"]) == 1
    assert "has no counts of instructions" in capfd.readouterr().err
    assert main(["report", run, "--by", "lin"]) == 1
    assert "did you mean 'line'?" in capfd.readouterr().err
