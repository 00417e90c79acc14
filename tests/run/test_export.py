"""Captured launches as stand-alone HIP programs: compiled, and run under `luthier run`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import PATIENCE

from .conftest import Luthier, Outcome

Captured = Callable[..., list[Path]]


def build(folder: Path) -> Path:
    """Compile an exported program by the line that it gives."""
    environment = {**os.environ, "HIP_PLATFORM": "amd"}
    command = ["hipcc", "--offload-arch=gfx90a", "-std=c++17", "-w", "launch.cpp", "-o", "launch"]
    subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True, timeout=PATIENCE)
    return folder / "launch"


def spoil(file: Path) -> None:
    """Change the last byte of a file."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_exported_programs_leave_what_was_recorded(
    captured: Captured, luthier: Luthier, luthier_run: Callable[..., Outcome], temporary: Path, target: str
) -> None:
    # Buffers that begin within an allocation, and dynamic LDS.
    for number, file in enumerate((captured("defects", target)[0], captured("reduction", target)[2])):
        folder = temporary / f"program{number}"
        done = luthier("export", file, "--hip", "-o", folder)
        assert (done.returncode, "pointers" in done.stdout) == (0, False), done
        modes = {path.stat().st_mode & 0o777 for path in (file, *folder.iterdir())}
        assert (modes, folder.stat().st_mode & 0o777) == ({0o600}, 0o700)
        program = build(folder)
        outcome = luthier_run(f"emu:{target}", program)
        assert (outcome.code, "\n0 of " in outcome.out) == (0, True), outcome
        spoil(folder / "after.bin")
        outcome = luthier_run(f"emu:{target}", program)
        assert (outcome.code, "\n1 of " in outcome.out) == (1, True), outcome


@pytest.mark.thorough
def test_pointers_in_memory_are_refused_or_changed(
    captured: Captured, luthier: Luthier, luthier_run: Callable[..., Outcome], temporary: Path
) -> None:
    walk, folder = captured("linked")[0], temporary / "program"
    refused = luthier("export", walk, "--hip", "-o", folder)
    assert (refused.returncode, "looks like a pointer" in refused.stderr) == (1, True), refused
    assert not folder.exists()
    done = luthier("export", walk, "--hip", "-o", folder, "--relocate")
    assert (done.returncode, "treated as pointers" in done.stdout) == (0, True), done
    header = (folder / "launch.h").read_text()
    assert '{"offset", 4}' in header
    assert '{"visited", 4}' in header
    program = build(folder)
    outcome = luthier_run("emu:gfx90a", program)
    assert (outcome.code, "\n0 of " in outcome.out) == (0, True), outcome
    (folder / "relocations.bin").write_bytes((folder / "relocations.bin").read_bytes()[:-7])
    outcome = luthier_run("emu:gfx90a", program)
    assert (outcome.code, "damaged" in outcome.err) == (2, True), outcome


@pytest.mark.thorough
def test_what_cannot_be_exported(captured: Captured, luthier: Luthier, temporary: Path) -> None:
    mix, small = captured("defects")[1], temporary / "small.lcap"
    assert luthier("minimise", mix, "-o", small, "--check", "race").returncode == 0
    for file, why in ((small, "only some work-groups"), (captured("managed")[0], "managed variable")):
        done = luthier("export", file, "--hip", "-o", temporary / "program")
        assert (done.returncode, why in done.stderr) == (1, True), done
    done = luthier("export", mix, "--hip", "-o", temporary)
    assert (done.returncode, "not empty" in done.stderr) == (1, True), done
