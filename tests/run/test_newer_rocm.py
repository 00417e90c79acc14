"""Today's ROCm: HIP and ROCr 6.4 from Debian's own packages, in a root of 2 GB that ``scripts/rocm-stack`` makes.

In `make test-all` only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from effort import EMULATED, EVERYTHING
from kept import ROOT, kept
from kept import run as run_command

from luthier_build.workspace import digest

from .conftest import PATIENCE, PROGRAMS, Outcome
from .test_programs import SAYS, in_order

pytestmark = [
    pytest.mark.skipif(not EVERYTHING, reason="LUTHIER_TEST_ALL is not set"),
    pytest.mark.skipif(
        os.getuid() != 0 or shutil.which("mmdebstrap") is None, reason="a root needs root and mmdebstrap"
    ),
]

STACK = [str(ROOT / "scripts/rocm-stack")]
LUTHIER = str(ROOT / ".venv/bin/luthier")
TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
COUNTED = ("reduction", "graph", "grid_barrier", "modules", "streams")
"""Programs that run under a tool, too."""


@pytest.fixture(scope="session")
def build_newer() -> Callable[[str], Path]:
    """``build_newer(name)``: the program of ``programs/<name>.hip``, built by the root's own hipcc."""

    def build(name: str) -> Path:
        source = PROGRAMS / f"{name}.hip"
        offload = [f"--offload-arch={target}" for target in TARGETS]
        command = [*STACK, "hipcc", *offload, "-O1", "-w", "-pthread", str(source)]
        key = "rocm-stack", *command, digest(source), digest(PROGRAMS / "check.h")
        return kept(key, lambda output: run_command([*command, "-o", str(output)]), name)

    return build


def run(*arguments: str | Path) -> Outcome:
    """``luthier run`` in the root."""
    argv = [*STACK, LUTHIER, "run", *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    # Debian's ROCr is built with checks that warn of what HIP does with signals.
    err = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    return Outcome(done.returncode, done.stdout, "\n".join(err))


@pytest.mark.parametrize("target", EMULATED)
def test_rocminfo(target: str) -> None:
    """Every device, images included: where ROCr knows too little of a chip for them, it does not begin."""
    outcome = run("--device", f"emu:{target}", "--", "rocminfo")
    assert (outcome.code, outcome.err) == (0, ""), outcome
    assert re.findall(r"^  Name: +(gfx\w+)", outcome.out, re.MULTILINE) == [target]
    assert f"Luthier virtual {target}" in outcome.out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_is_right(build_newer: Callable[[str], Path], name: str, target: str) -> None:
    outcome = run("--device", f"emu:{target}", "--", build_newer(name))
    assert (outcome.code, in_order(name, outcome.out), outcome.err) == (0, SAYS[name], "")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", COUNTED)
def test_a_program_under_a_tool(build_newer: Callable[[str], Path], tmp_path: Path, name: str, target: str) -> None:
    summary = tmp_path / "summary.json"
    options = ["-t", "instr_count", "--json", summary]
    outcome = run(*options, "--device", f"emu:{target}", "--", build_newer(name))
    assert (outcome.code, outcome.out) == (0, SAYS[name]), outcome
    found = json.loads(summary.read_text())
    assert found["faults"] == []
    assert all(kernel["covered"] for kernel in found["kernels"] if not kernel["skipped"])
