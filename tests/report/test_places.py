"""Executed instructions by place: `luthier report --by`."""

from __future__ import annotations

from pathlib import Path

import pytest
from luthier.cli.main import main
from run_folders import code, kernel, write_run


def test_nothing_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = str(write_run(tmp_path / "run"))
    assert main(["report", run, "--by", "line"]) == 1
    assert "has no counts of instructions" in capfd.readouterr().err
    assert main(["report", run, "--by", "lin"]) == 1
    assert "did you mean 'line'?" in capfd.readouterr().err


@pytest.mark.parametrize(("times", "note"), [(0, "no instruction was executed"), (1, "compile with -g")])
def test_why_there_are_no_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str], times: int, note: str) -> None:
    rows = code("k", 4)
    rows["counts"] = [row | {"executions": times} for row in rows["counts"]]
    assert main(["report", str(write_run(tmp_path / "run", kernels=[kernel("k")], **rows)), "--by", "line"]) == 0
    assert note in capfd.readouterr().out.splitlines()[0]
