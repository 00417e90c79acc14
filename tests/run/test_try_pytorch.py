"""scripts/try_pytorch, with programs in place of a Python that has PyTorch for ROCm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/try_pytorch"
FACTS = '{{"torch": "2.99", "hip": {hip}, "targets": [], "folder": "/torch"}}'


def attempt(tmp_path: Path, hip: str, step: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the script; each step is a shell command."""
    python = tmp_path / "python"
    facts = FACTS.format(hip=hip)
    python.write_text(f"#!/bin/sh\ncase $2 in *get_arch_list*) echo warning; echo '{facts}';; *) exec {step};; esac\n")
    python.chmod(0o755)
    command = [sys.executable, SCRIPT, "--python", python, "--output", tmp_path / "report.json", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_without_pytorch(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--python", "/nothing"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "try_pytorch: cannot run /nothing: [Errno 2] No such file or directory: '/nothing'\n",
    )
    done = attempt(tmp_path, "null", "true")
    assert done.returncode == 2
    assert "PyTorch 2.99 in /torch is no build for ROCm" in done.stderr
    done = attempt(tmp_path, '"7.0"', "true", "paint")
    assert done.returncode == 2
    assert "there is no step 'paint'; there are device, copies" in done.stderr


def test_a_step_that_fails_or_hangs(tmp_path: Path) -> None:
    done = attempt(tmp_path, '"7.0"', "sh -c 'echo broken >&2; exit 3'", "--device", "cpu", "matrix")
    assert (done.returncode, done.stderr) == (1, "")
    (row,) = json.loads((tmp_path / "report.json").read_text())["steps"]
    assert (row["step"], row["status"], row["errors"]) == ("matrix", "exit code 3", "broken\n")
    done = attempt(tmp_path, '"7.0"', "sleep 100", "--device", "cpu", "--timeout", "1", "matrix")
    assert done.returncode == 1
    assert "not finished after 1 s" in done.stdout


@pytest.mark.thorough
def test_under_tools(tmp_path: Path, build_program: Callable[..., Path]) -> None:
    done = attempt(tmp_path, '"7.0"', f"{build_program('reduction')}", "--device", "emu:gfx90a", "copies")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "report.json").read_text())["steps"]
    assert [row["way"] for row in rows] == ["as it is", "instr_count", "sanitize"]
    assert rows[1]["instructions"] > 1000
    assert rows[1]["launches"] > 0 == rows[1]["uninstrumented launches"]
