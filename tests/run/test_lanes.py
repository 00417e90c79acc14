"""`luthier sanitize --check wave-size`: shuffles and masks written for other numbers of lanes than the wave has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier

from .sanitized import findings_of, marked_line
from .test_programs import SAYS

Build = Callable[..., Path]
FAULTS = {
    "stored": "inactive-lane",
    "branched": "inactive-lane",
    "addressed": "inactive-lane",
    "added": "inactive-lane",
    "counted": "half-mask",
    "preceding": "half-mask",
    "searched": "half-mask",
    "compared": "half-mask",
    "active": "half-mask",
}
RIGHT = (
    *("guarded", "only_first", "chosen", "scanned", "whole_count", "both_halves"),
    *("whole_wave", "one_bit", "small_group", "any_and_all"),
)


def test_each_fault_at_its_line(build_program: Build, tmp_path: Path) -> None:
    findings = findings_of(
        [build_program("lanes", "-g"), *FAULTS], tmp_path / "log", "--check", "wave-size", target="gfx90a"
    )
    assert {finding["name"]: finding["kind"] for finding in findings} == FAULTS
    assert len(findings) == len(FAULTS)
    for finding in findings:
        assert marked_line("lanes.hip", finding["name"]) == finding["source"]["line"], finding
        shuffle = (finding["other"] or {}).get("instruction", "")
        assert shuffle.startswith("ds_bpermute") == (finding["kind"] == "inactive-lane"), finding


def test_right_ones(build_program: Build, tmp_path: Path) -> None:
    command = [build_program("lanes", "-g"), *RIGHT]
    assert findings_of(command, tmp_path / "log", "--check", "wave-size", target="gfx90a") == []


BEYOND = "reduced", "last_lane"
"""Kernels that name lanes which waves of 32 lanes do not have."""


def test_lanes_beyond_the_wave(build_program: Build, tmp_path: Path) -> None:
    command = [build_program("lanes", "-g"), *BEYOND, "rotated", "whole_wave", "scanned"]
    findings = findings_of(command, tmp_path / "log", "--check", "wave-size", target="gfx1030")
    assert [finding["kind"] for finding in findings] == ["lane-beyond-wave"] * len(BEYOND)
    lines = {finding["name"]: {frame["line"] for frame in finding["frames"]} for finding in findings}
    assert all(marked_line("lanes.hip", name) in lines[name] for name in BEYOND), findings
    assert findings_of(command, tmp_path / "log", "--check", "wave-size", target="gfx90a") == []


@pytest.mark.thorough
def test_waves_of_32_lanes(build_program: Build, tmp_path: Path) -> None:
    command = [build_program("lanes", "-g"), *FAULTS]
    assert findings_of(command, tmp_path / "log", "--check", "wave-size", target="gfx1030") == []


def test_beside_init(build_program: Build, tmp_path: Path) -> None:
    """Decisions of waves that took values of inactive lanes are not those by memory, of which stores are right."""
    options = ["--check", "init,wave-size", "--init", "reads,decisions"]
    findings = findings_of([build_program("lanes", "-g"), *FAULTS], tmp_path / "log", *options, target="gfx90a")
    masks = {name: kind for name, kind in FAULTS.items() if kind == "half-mask"}
    decisions = dict.fromkeys(("branched", "addressed"), "inactive-lane")
    assert {finding["name"]: finding["kind"] for finding in findings} == masks | decisions
    assert all("never written" in finding["detail"] for finding in findings if finding["name"] in decisions)
    command = [build_program("undefined", "-g"), "memory_mask"]
    findings = findings_of(command, tmp_path / "log", *options, target="gfx90a")
    assert {finding["kind"] for finding in findings} == {"uninitialised-read", "uninitialised-mask"}


def test_unwritten_beside_init(build_program: Build, tmp_path: Path) -> None:
    """A wave that takes a value of an inactive lane may store what was never written."""
    options = ["--check", "init,wave-size", "--init", "decisions"]
    assert findings_of([build_program("lanes", "-g"), "copied"], tmp_path / "log", *options, target="gfx90a") == []


@pytest.mark.thorough
def test_captured_launches(build_program: Build, tmp_path: Path) -> None:
    program = build_program("lanes", "-g")
    for kernel, code in (("stored", 1), ("counted", 1), ("guarded", 0)):
        folder = tmp_path / kernel
        captured = run_luthier("capture", "-o", folder, "--device", "emu:gfx90a", "--", program, kernel)
        assert captured.returncode == 0, captured
        done = run_luthier("sanitize", "--check", "wave-size", folder)
        assert done.returncode == code, done


@pytest.mark.thorough
@pytest.mark.parametrize("name", SAYS)
def test_right_programs_have_no_finding(build_program: Build, tmp_path: Path, name: str) -> None:
    done = run_luthier("sanitize", "--check", "wave-size", "--device", "emu:gfx90a", "--", build_program(name))
    assert (done.returncode, "luthier: 0 findings" in done.stderr) == (0, True), done
