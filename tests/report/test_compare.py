"""Differences between two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier.cli.main import main
from luthier.report.compare import changed, compared
from luthier.run.folder import RunFolder
from run_folders import code, kernel, launch, write_run
from strict_json_reader import strictly


def _run(folder: Path, digest: str, times: int, vgprs: int, more: str | None = None) -> RunFolder:
    """A build of a program: `times` launches of k, of 10 ns each, and a kernel that only this one has."""
    rows: dict[str, Any] = code("k", 8, block=4)
    counts = [{**row, "digest": digest, "executions": row["executions"] * times} for row in rows["counts"]]
    kernels = [kernel("k", digest=digest, vgprs=vgprs, launches=times), kernel("same", digest=digest)]
    value = {"tool": "t", "variable": "hits", "device": 0, "first": 0, "type": "uint64_t"}
    return RunFolder(
        write_run(
            folder,
            kernels=kernels + ([kernel(more, digest=digest)] if more else []),
            launches=[launch("k", at, 100 * at, 100 * at + 10, digest=digest) for at in range(times)],
            counts=counts,
            counters=[{**value, "process": one, "unsigned": [times]} for one in (1, 2)],
        )
    )


def test_differences_and_ratios(tmp_path: Path) -> None:
    """Matched by name and target, whatever the digests; a kernel that one run lacks has no difference."""
    run = _run(tmp_path / "a", "new", 6, 40, "added")
    against = _run(tmp_path / "b", "old", 4, 32, "gone")
    kernels, opcodes, variables = compared(run, against)
    differences = {(row[0], row[2]): tuple(row[3:]) for row in kernels.rows}
    assert differences["k", "executed"] == (6 * 12, 4 * 12, 24, 1.5)
    assert differences["k", "emulation_ns"] == (50, 30, None, None), "without first launches, and not compared"
    assert not {("k", "time_ns"), ("k", "mean_ns")} & differences.keys(), "emulation is not time on a device"
    assert differences["k", "vgprs"] == (40, 32, 8, 1.25)
    assert differences["k", "launches"] == (6, 4, 2, 1.5)
    assert differences["same", "vgprs"] == (32, 32, 0, 1)
    assert differences["added", "launches"] == (1, None, None, None)
    assert differences["gone", "launches"] == (None, 1, None, None)
    assert kernels.rows[0][0] == "k", "what differs most is first"
    assert [tuple(row) for row in opcodes.rows] == [("k", "gfx90a", "v_add_f32_e32", "executed", 72, 48, 24, 1.5)]
    assert [tuple(row) for row in variables.rows] == [("t", "hits", "value", 12, 8, 4, 1.5)]
    short = changed(kernels)
    assert {row[0] for row in short.rows} == {"k", "added", "gone"}
    same = [key for key, row in differences.items() if row[2] == 0]
    assert ("k", "sgprs") in same
    assert ("k", "emulation_ns") not in same
    assert short.title == f"kernels; {len(same)} rows of equal numbers and times of emulated devices left out"


@pytest.mark.parametrize(
    ("left", "right", "difference"),
    [
        (np.nan, np.nan, 0),
        (np.inf, np.inf, 0),
        (-np.inf, -np.inf, 0),
        (0.0, 0.0, 0),
        (np.inf, 1.0, np.inf),
        (-np.inf, np.inf, -np.inf),
        (np.nan, 1.0, np.nan),
        (1.0, np.nan, np.nan),
    ],
)
def test_what_is_no_number_differs_from_numbers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], left: float, right: float, difference: float
) -> None:
    """Not from itself; the row comes first, and as JSON it is text."""
    value = {"tool": "t", "process": 1, "device": 0, "first": 0}
    runs = [
        RunFolder(
            write_run(
                tmp_path / name,
                counters=[{**value, "variable": "v", "real": [number]}, {**value, "tool": "u", "unsigned": [size]}],
            )
        )
        for name, number, size in (("a", left, 9), ("b", right, 8))
    ]
    *_, variables = compared(*runs)
    values = {row[0]: row for row in variables.rows}
    assert values["t"][-2] == pytest.approx(difference, nan_ok=True)
    assert [row[0] for row in changed(variables).rows] == (["t", "u"] if difference else ["u"])
    paths = [str(run.path) for run in runs]
    assert main(["report", paths[0], "--against", paths[1], "--format", "json"]) == 0
    assert len(strictly(capfd.readouterr().out)["tables"][2]["rows"]) == 2
    assert main(["report", paths[0], "--against", paths[1], "--fail-if", "t.v != 0"]) == bool(difference)
    if not difference:
        assert main(["report", paths[0], "--against", paths[1], "--fail-if", "t.v != 0%"]) == 0


@pytest.mark.thorough
def test_a_run_against_itself(mix_run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for table in compared(RunFolder(mix_run), RunFolder(mix_run)):
        assert table.rows or table.title == "variables"
        assert all(row[-2] == 0 or "emulation_ns" in row for row in table.rows)
        assert all(row[-1] in (1, None) for row in table.rows)
    assert main(["report", str(mix_run), "--against", str(mix_run), "--format", "json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert (data["schema"], len(data["tables"]), data["commands"]["run"]) == (1, 3, data["commands"]["against"])


@pytest.mark.parametrize(
    "options", [["--format", "csv"], ["--format", "perfetto"], ["--table", "counts", "--format", "json"]]
)
def test_what_a_comparison_refuses(mix_run: Path, options: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(mix_run), "--against", str(mix_run), *options]) == 1
    assert "--against works with the formats text, json, html, sarif and junit" in capfd.readouterr().err


def test_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _run(tmp_path / "a", "new", 6, 40)
    _run(tmp_path / "b", "old", 4, 32)
    assert main(["report", str(tmp_path / "a"), "--against", str(tmp_path / "b")]) == 0
    text = capfd.readouterr().out
    assert "k       gfx90a  executed" in text
    assert "same  " not in text.split("executed opcodes")[0].replace("the same", "")
