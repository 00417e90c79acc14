"""Calls by pointers into another code object than the kernel's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier

from .conftest import Outcome

Build = Callable[..., Path]
Run = Callable[..., Outcome]
NAME = "call_between_objects"


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
def test_functions_of_another_object(build_program: Build, luthier_run: Run, target: str) -> None:
    outcome = luthier_run(f"emu:{target}", build_program(NAME))
    assert (outcome.code, outcome.out, outcome.err) == (0, "called\n", "")


def test_functions_of_a_file_that_is_gone(build_program: Build, luthier_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(build_program(NAME), program)
    outcome = luthier_run("emu:gfx90a", program, "removed")
    assert (outcome.code, outcome.out, outcome.err) == (0, "called\n", "")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_they_are_counted_in_their_own_object(
    build_program: Build, luthier_run: Run, temporary: Path, target: str
) -> None:
    summary = temporary / "summary.json"
    outcome = luthier_run(f"emu:{target}", build_program(NAME), options=["--executed", "--json", summary])
    assert (outcome.code, outcome.out) == (0, "called\n")
    executed = json.loads(summary.read_text())["executed"]
    kernels = [row for row in executed if row["kernel"] == "apply"]
    (functions,) = [row for row in executed if row["kernel"] is None and row["object"] is not None]
    assert len(kernels) == 2
    assert NAME in functions["object"]
    # Each work-item calls a function twice, and those are some instructions; the longest way to 1 has 127 steps.
    assert functions["lane_instructions"] > 6 * 256 * 2
    assert functions["wave_instructions"] > 6 * 127


def test_under_a_tool_they_are_named(build_program: Build, luthier_run: Run, temporary: Path) -> None:
    """The patched kernel calls them, too; code there is not counted, which is reported."""
    summary = temporary / "summary.json"
    outcome = luthier_run("emu:gfx90a", build_program(NAME), options=["-t", "instr_count", "--json", summary])
    assert (outcome.code, outcome.out) == (0, "called\n"), outcome
    report = json.loads(summary.read_text())
    assert report["faults"] == []
    for kernel in [one for one in report["kernels"] if one["kernel"] == "apply"]:
        assert kernel["instrumented"] == kernel["launches"] == 3
        assert kernel["unknown_calls"] > 0
        assert kernel["unresolved"]


def test_checks_look_at_them(build_program: Build) -> None:
    done = run_luthier("sanitize", "--check", "waits,hazards", "--device", "emu:gfx90a", "--", build_program(NAME))
    assert (done.returncode, done.stdout) == (0, "called\n"), done
    assert done.stderr.splitlines()[-1] == "luthier: 0 findings"
    assert "luthier: checked: waits, hazards: 6 launches of 1 kernel; " in done.stderr


def test_a_pointer_to_no_code_is_a_fault(build_program: Build, luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", build_program(NAME), "wild")
    assert outcome.code != 0
    assert "where no instruction of the object begins" in outcome.err


def test_kernels_of_freed_memory_have_names(build_program: Build, luthier_run: Run, temporary: Path) -> None:
    """For a module whose file is missing, the loaded code in memory gives the names of kernels."""
    summary = temporary / "summary.json"
    options = ["--executed", "--json", summary]
    outcome = luthier_run("emu:gfx90a", build_program("modules"), options=options)
    assert (outcome.code, outcome.out) == (0, "modules\n")
    rows = [row for row in json.loads(summary.read_text())["executed"] if row["kernel"] == "scale"]
    assert [row["object"] for row in rows].count("memory") == 2
    assert sum(row["wave_instructions"] for row in rows) > 0
