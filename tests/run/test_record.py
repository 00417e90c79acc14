"""What a run leaves, and what `luthier report` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from luthier.cli.main import main
from luthier.errors import LuthierError
from luthier.run import record
from luthier.run.sessions import RECORD

SUMMARY: dict[str, Any] = {
    "schema": record.SCHEMA,
    "tools": [{"tool": "count", "tables": [{"title": "", "columns": ["variable", "value"], "rows": [["n", 7]]}]}],
    "kernels": [
        {
            "kernel": "k",
            "launches": 2,
            "instrumented": 1,
            "sites": 3,
            "requested_sites": 4,
            "covered": False,
            "reason": None,
        }
    ],
    "variables": [],
    "faults": ["a, fault"],
}


def session() -> Any:
    """A process with one finished launch, and one that is not."""
    rows = np.zeros(2, RECORD)
    rows[0] = (5, 0, 0, 1, (256, 1, 1), 64, 16, (64, 1, 1), (0,) * 7)
    return SimpleNamespace(pid=12, launches=rows, kernels=[SimpleNamespace(gpu=1, name="k")])


def test_a_run_is_written_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    record.write(folder, SUMMARY, [session()])
    assert (folder / record.LAUNCHES).read_text().splitlines()[1:] == ["12,1,k,0,True,5,256,1,1,64,1,1,64,16"]
    assert main(["report", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "n             7" in text
    assert "a, fault" in text
    assert main(["report", str(folder), "--format", "json", "-o", str(tmp_path / "out")]) == 0
    tables = json.loads((tmp_path / "out").read_text())
    assert [table["title"] for table in tables] == ["count", "kernels", "launches", "faults"]
    assert main(["report", str(folder), "--format", "csv"]) == 0
    assert '"a, fault"' in capsys.readouterr().out
    with pytest.raises(LuthierError, match="not empty"):
        record.write(folder, SUMMARY, [])


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 99}', '{"schema": 1, "tools": 3}', "\0"])
def test_folders_that_are_no_runs(tmp_path: Path, text: str) -> None:
    with pytest.raises(LuthierError, match="cannot read"):
        record.read(tmp_path / "nothing")
    (tmp_path / record.SUMMARY).write_text(text)
    (tmp_path / record.LAUNCHES).write_text("")
    with pytest.raises(LuthierError):
        record.read(tmp_path)
