"""Programs of this folder, built by plain hipcc once a session, run under `luthier run`."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
TARGETS = ("gfx906", "gfx90a", "gfx1030")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
PATIENCE = 120
"""Seconds for a program, on a machine with other work."""


@dataclass(frozen=True)
class Outcome:
    """What a program did."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def build_program(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``build_program(name)``: the program of ``programs/<name>.hip``, for all targets."""
    folder = tmp_path_factory.mktemp("programs")

    @functools.cache
    def build(name: str) -> Path:
        output = folder / name
        command = ["hipcc", *(f"--offload-arch={target}" for target in TARGETS), "-O1", "-w", "-pthread"]
        command += [str(PROGRAMS / f"{name}.hip"), "-o", str(output)]
        # Where there is an nvcc, hipcc would choose it.
        subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        return output

    return build


@pytest.fixture
def luthier_run() -> Callable[..., Outcome]:
    """``luthier_run(devices, *command)``: run a program under `luthier run`."""

    def run(devices: str, *command: str | Path, env: Mapping[str, str] | None = None, stdin: str = "") -> Outcome:
        argv = [sys.executable, "-c", MAIN, "run", "--device", devices, "--", *map(str, command)]
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE, input=stdin, env={**os.environ, **(env or {})}
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run
