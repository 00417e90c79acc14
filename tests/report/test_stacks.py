"""Numbers by stack of calls that are those of some launches only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from luthier.cli.main import main
from luthier.report.stacks import LaunchStacks, by_stack
from luthier.run.folder import RunFolder
from run_folders import code, kernel, launch, write_run


def test_how_many_launches_were_counted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sizes = {"grid_x": 64, "block_x": 64} | {f"{name}_{axis}": 1 for name in ("grid", "block") for axis in "yz"}
    launches = [
        launch(name, number, 0, 0, instrumented=counted, stack=1, **sizes)
        for name, number, counted in (("k", 0, True), ("k", 1, False), ("other", 0, True))
    ]
    frame = {"process": 1, "frame": 0, "python": True, "function": "train", "file": "t.py", "line": 7}
    stack = {"process": 1, "stack": 1, "frames": [0], "ranges": [], "whole": True}
    rows = code("k", 2) | {"frames": [frame], "stacks": [stack], "launches": launches}
    folder = write_run(tmp_path / "run", kernels=[kernel("k"), kernel("other")], **rows)
    partial = "1 of 3 launches were counted"
    assert by_stack(RunFolder(folder), "python").title.endswith(f"; {partial}")
    assert LaunchStacks.of(RunFolder(folder)).to_json()["partial"] == partial
    assert main(["report", str(folder), "--format", "folded", "--number", "launches"]) == 0
    assert capfd.readouterr().err == ""
    assert main(["report", str(folder), "--format", "folded"]) == 0
    assert capfd.readouterr().err == f"luthier report: {partial}\n"
    assert main(["report", str(folder), "--format", "speedscope"]) == 0
    names = [profile["name"] for profile in json.loads(capfd.readouterr().out)["profiles"]]
    assert names[:5] == ["launches", "work-items", "waves", f"instructions ({partial})", f"lanes ({partial})"]
