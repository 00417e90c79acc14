"""`luthier sanitize --device hip`: hooks check what virtual devices check themselves.

For GPUs stand the virtual devices of a run around it, as in test_machine_gpus.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from luthier.findings.kinds import CHECKS
from luthier.run.hook_checks import HOOK_TOOLS, NOT_ON_GPUS

from .test_machine_gpus import around

CHECKED = ",".join(HOOK_TOOLS)
Build = Callable[..., Path]


def sanitized(log: Path, device: str, program: Sequence[str | Path], *options: str, before: Sequence[str] = ()) -> Any:
    """Return the report of a run, whose exit code and text it must agree with."""
    done = run_luthier("sanitize", *options, "--device", device, "--json", log, "--", *program, before=before)
    report = json.loads(log.read_text())
    assert (done.stdout, report["exit_code"], done.returncode) == ("done\n", 0, bool(report["findings"])), done
    for row in report["not_checked"]:
        assert f"{row['what']}" in done.stderr
    return report


def compared(findings: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what hooks and virtual devices both know of findings."""
    rows = []
    for finding in findings:
        other = finding["other"] and (finding["other"]["offset"], finding["other"]["size"])
        size = finding["allocation"] and finding["allocation"]["size"]
        source = finding["source"] and finding["source"]["line"] if finding["kernel"] else None
        where = finding["kernel"], finding["offset"] if finding["kernel"] else 0, source, finding["side"], size
        rows.append((finding["kind"], *where, finding["count"], finding["level"], other))
    return sorted(rows, key=str)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_hooks_find_what_virtual_devices_find(build_program: Build, tmp_path: Path, target: str) -> None:
    program, log = build_program("hook_checks", "-g"), tmp_path / "log"
    options = "--check", CHECKED
    device = sanitized(log, f"emu:{target}", [program], *options)
    hooks = sanitized(log, "hip", [program], *options, before=around(f"emu:{target}"))
    assert compared(hooks["findings"]) == compared(device["findings"])
    assert {one["kind"] for one in hooks["findings"]} == {"out-of-bounds", "race", "nan", "double-free"}
    assert hooks["checked"]["checks"] == list(HOOK_TOOLS)
    assert (hooks["checked"]["launches"], hooks["checked"]["kernels"]) == (3, 3)
    assert len(hooks["not_checked"]) == 2  # what only virtual devices see, of memory and of races


def test_a_right_program_and_what_is_not_checked(build_program: Build, tmp_path: Path) -> None:
    """The default names each check that cannot run on a GPU; a right program has no finding."""
    program = [build_program("hook_checks", "-g"), "right"]
    report = sanitized(tmp_path / "log", "hip:0", program, before=around("emu:gfx90a"))
    assert report["findings"] == []
    assert report["checked"]["checks"] == ["memory", "race"]
    left_out = [name for row in report["not_checked"] for name in row["what"].split(", ") if name in CHECKS]
    assert left_out == ["leak", "init", "barrier", "early-exit", "host"]


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("check", "kernel", "left_out", "kinds"),
    [
        ("fp", "beyond", ["roots", "unordered"], []),  # without a float, it is examined by that
        ("memory", "none of them", ["beyond", "roots", "unordered"], ["double-free"]),  # which no kernel does
    ],
)
def test_launches_that_are_left_out_are_named(
    build_program: Build, tmp_path: Path, check: str, kernel: str, left_out: list[str], kinds: list[str]
) -> None:
    program, log = [build_program("hook_checks", "-g")], tmp_path / "log"
    options = "--check", check, "-k", kernel
    report = sanitized(log, "hip", program, *options, before=around("emu:gfx90a"))
    assert [finding["kind"] for finding in report["findings"]] == kinds
    assert (report["checked"]["launches"], report["checked"]["observed_launches"]) == (3, 3 - len(left_out))
    names = [row["name"].partition("(")[0] for row in report["not_checked"] if row["what"] == "launches"]
    assert sorted(names) == left_out


def test_a_program_without_a_launch_is_not_checked() -> None:
    done = run_luthier("sanitize", "--device", "hip", "--", "echo", "done", before=around("emu:gfx90a"))
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "not checked: launches: no process of the program loaded ROCr" in done.stderr
    assert "in-flight" not in done.stderr  # it cannot run there


@pytest.mark.parametrize(
    ("words", "says"),
    [
        *((["--check", check], f"the check {check} cannot run on hip:0: {why}") for check, why in NOT_ON_GPUS.items()),
        (["--check", "fp", "--fp", "denormal"], "--fp denormal"),
        (["--budget", "3"], "--budget works on virtual devices only"),
        (["--init", "reads"], "--init needs the check init"),
    ],
)
def test_what_needs_a_virtual_device_is_refused(words: Sequence[str], says: str) -> None:
    done = run_luthier("sanitize", *words, "--device", "hip:0", "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
