"""Triton's own launcher under `luthier run`: its results, and the functions that launched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kept import ROOT
from luthier.report.stacks import LaunchStacks
from luthier.run.folder import RunFolder
from rocm_stacks import stack

pytest.importorskip("triton", reason="needs Triton")

RELEASE = "6.4"
PROGRAM = Path(__file__).with_name("own_launcher.py")


@pytest.mark.rocm(RELEASE)
def test_stacks_of_launches(tmp_path: Path) -> None:
    luthier = [*stack(RELEASE), ROOT / ".venv/bin/luthier", "run", "--device", "emu:gfx942", "-t", "opcode_histogram"]
    done = subprocess.run(
        [*luthier, "-o", tmp_path / "run", "--", sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")},
    )
    assert (done.returncode, done.stdout) == (0, "doubled\n"), done.stderr
    stacks = LaunchStacks.of(RunFolder(tmp_path / "run"))
    (row,) = (row for row in stacks.rows if stacks.kernels[row.kernel] == "double")
    assert row.numbers["launches"] == 3
    assert row.numbers["instructions"], "it was not counted"
    names = [call.partition(" ")[0] for call in stacks.path(row, "python")]
    assert (names[:2], names[-1]) == (["<module>", "layer"], "HIPLauncher.__call__")
    assert "launchKernel" in stacks.path(row, "stack")
