"""`luthier sanitize --check waits,hazards`: bugs in inline assembly are reported at their lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from luthier.findings.finding import Finding, Other
from luthier.findings.sarif import sarif
from luthier.objects.source import SourceFrame
from rocm_stacks import stack

from .sanitized import findings_of, marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
BUGS = {
    "loads": [("missing-wait", "v_lshlrev_b32", "global_load", "vmcnt(0)")],
    "addresses": [("hazard", "global_load", "v_readfirstlane", f"by s{number};") for number in (20, 21)],
}
"""Kernel -> kind, instruction, the one before, and what is said of them."""


def look(
    program: Path, log: Path, *arguments: str, target: str, checks: str, before: list[str]
) -> list[dict[str, Any]]:
    """Return what is found in a program."""
    return findings_of([program, *arguments], log, "--check", checks, target=target, before=before)


def check(program: Path, log: Path, kernel: str, target: str, before: list[str]) -> None:
    findings = look(program, log, kernel, "bug", target=target, checks="waits,hazards", before=before)
    line = marked_line("timing.hip", kernel) + 1
    assert len(findings) == len(BUGS[kernel])
    for finding, (kind, instruction, other, detail) in zip(findings, BUGS[kernel], strict=True):
        assert (finding["kind"], finding["name"], finding["count"], finding["first_launch"]) == (kind, kernel, 2, 0)
        assert finding["instruction"].startswith(instruction)
        assert finding["other"]["instruction"].startswith(other)
        assert detail in finding["detail"].replace("loadcnt", "vmcnt")
        assert [frame["line"] for frame in finding["frames"]] == [line]
        assert [frame["line"] for frame in finding["other"]["frames"]] == [line]
        assert (finding["lane"], finding["wave"]) == (0 if kind == "missing-wait" else -1, 0)
        assert finding["group"] in range(4)


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("kernel", "target"),
    [("loads", "gfx906"), ("loads", "gfx90a"), ("loads", "gfx1030"), ("addresses", "gfx906"), ("addresses", "gfx90a")],
)
def test_planted(build_program: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_program("timing", "-g"), tmp_path / "log", kernel, target, [])


@pytest.mark.rows(1)
@pytest.mark.rocm(RELEASE)
@pytest.mark.parametrize(("kernel", "target"), [("loads", "gfx1201"), ("loads", "gfx942"), ("addresses", "gfx942")])
def test_planted_on_newer_targets(build_newer: Build, tmp_path: Path, kernel: str, target: str) -> None:
    check(build_newer("timing", "-g"), tmp_path / "log", kernel, target, stack(RELEASE))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
@pytest.mark.parametrize("kernel", BUGS)
def test_without_a_bug(build_program: Build, tmp_path: Path, kernel: str, target: str) -> None:
    """Together with all other checks, which have their own facts about instructions."""
    checks = "memory,race,init,barrier,waits,hazards"
    program = build_program("timing", "-g")
    assert look(program, tmp_path / "log", kernel, "none", target=target, checks=checks, before=[]) == []


def test_each_alone(build_program: Build, tmp_path: Path) -> None:
    program, log = build_program("timing", "-g"), tmp_path / "log"
    for kernel, other in (("loads", "hazards"), ("addresses", "waits")):
        assert look(program, log, kernel, "bug", target="gfx90a", checks=other, before=[]) == []


@pytest.mark.thorough
def test_code_of_other_objects(build_program: Build) -> None:
    """Late results are given back behind calls of code that comes while a kernel runs."""
    done = run_luthier("sanitize", "--check", "waits,hazards", "--", build_program("call_between_objects"))
    assert (done.returncode, done.stdout) == (0, "called\n"), done
    assert "luthier: 0 findings" in done.stderr


def test_formats() -> None:
    frames = (SourceFrame("loads", "a.hip", 3, 1),)
    finding = Finding("missing-wait", 1, "loads", "object", 8, "v_lshlrev_b32_e32 v5, 1, v4", frames)
    finding.detail, finding.other = "reads v4", Other("object", 0, "global_load_dword v4, v[2:3], off", frames)
    (result,) = sarif([finding], "0")["runs"][0]["results"]
    assert result["message"]["text"] == "missing-wait: reads v4"
    assert result["relatedLocations"][0]["message"]["text"] == "the operation that is not waited for"
