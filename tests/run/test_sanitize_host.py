"""`luthier sanitize --check host`: wrong uses of HIP by the host are reported at the line of the call."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from commands import run_luthier
from rocm_stacks import stack

from .conftest import PROGRAMS
from .sanitized import marked_line
from .test_newer_rocm import RELEASE, build_newer
from .test_sanitize import sanitize

__all__ = ["build_newer"]  # a fixture: pytest finds it here

Build = Callable[..., Path]
line_of = partial(marked_line, "host_errors.hip")
BUGS = {
    "none": None,
    "seen": None,
    "error": ("call-error", "hipMemcpy", "hipErrorInvalidValue"),
    "unseen": ("unseen-error", "hipLaunchKernel", "hipErrorInvalidConfiguration"),
    "unseen at the end": ("unseen-error", "hipLaunchKernel", "hipErrorInvalidConfiguration"),
    "copy": ("copy-out-of-bounds", "hipMemcpy", ""),
    "copy back": ("copy-out-of-bounds", "hipMemcpy", ""),
    "direction": ("copy-direction", "hipMemcpy", ""),
    "fill": ("copy-out-of-bounds", "hipMemset", ""),
    "freed": ("copy-after-free", "hipMemset", ""),
    "busy": ("busy-stream", "hipStreamDestroy", ""),
}
"""Bug of `host_errors.hip` -> kind, function and error."""
_TOO_MANY = "2,048 work-items in a work-group, but the device has at most 1,024"
REASONS = {
    "unseen": ("_Z5smallPi", [1, 1, 1], [2048, 1, 1], _TOO_MANY),
    "items": (
        *("_Z5smallPi", [2, 1, 1], [128, 1, 1]),
        "128 work-items in a work-group, but the kernel was compiled for at most 64",
    ),
    "lds": (
        *("_Z4tilePi", [1, 1, 1], [256, 1, 1]),
        "82,944 bytes of LDS (1,024 of the kernel and 81,920 of the launch), but the device has 65,536",
    ),
    "grid": (
        *("_Z5smallPi", [1 << 26, 3, 1], [64, 1, 1]),
        "4,294,967,296 work-items in x, but at most 4,294,967,295 are allowed",
    ),
    "cooperative": ("_Z5smallPi", [1, 1, 1], [64, 32, 1], _TOO_MANY),
    "cooperative grid": (
        *("_Z5smallPi", [1 << 20, 1, 1], [64, 1, 1]),
        "a cooperative grid of 1,048,576 work-groups, but the device holds 256 at once",
    ),
}
"""Bug -> kernel, work-groups, work-items of each, and why the launch fails."""


def check(done: subprocess.CompletedProcess[str], log: Path, bug: str, expected: tuple[str, str, str] | None) -> None:
    """Compare what was found in a run of a bug."""
    report = json.loads(log.read_text())
    assert (done.stdout, report["exit_code"], done.returncode) == ("done\n", 0, int(expected is not None)), done
    if expected is None:
        assert report["findings"] == []
        return
    (finding,) = report["findings"]
    assert (finding["kind"], finding["call"], finding["detail"]) == expected
    assert {frame["line"] for frame in finding["frames"] if frame["file"].endswith("host_errors.hip")} == {line_of(bug)}
    if expected[0].startswith("copy"):
        assert finding["allocation"]["size"] == 4000
        assert re.search(r"[0-9]+ bytes at 0x[0-9a-f]+, at byte [0-9]+ of an allocation of 4000 bytes", done.stderr)


@pytest.mark.rows(1)
@pytest.mark.parametrize("bug", BUGS)
def test_bug(build_program: Build, tmp_path: Path, bug: str) -> None:
    log = tmp_path / "log"
    done = sanitize("--check", "host", "--json", log, "--", build_program("host_errors", "-g"), bug)
    check(done, log, bug, BUGS[bug])


@pytest.mark.parametrize("bug", REASONS)
def test_reason(build_program: Build, tmp_path: Path, bug: str) -> None:
    """A failed launch reports its parameters and the exceeded limit."""
    log, (kernel, groups, items, reason) = tmp_path / "log", REASONS[bug]
    done = sanitize("--check", "host", "--json", log, "--", build_program("host_errors", "-g"), bug)
    (finding,) = json.loads(log.read_text())["findings"]
    assert finding["source"]["line"] == line_of(bug)
    lds = 80 << 10 if bug == "lds" else 0
    assert finding["launch"] == {"kernel": kernel, "groups": groups, "items": items, "lds": lds, "reason": reason}
    assert f" returned {finding['detail']}: {reason}\n" in done.stderr
    sizes = (" x ".join(f"{size:,}" for size in of) for of in (groups, items))
    assert "kernel {}, {} work-groups of {} work-items".format(finding["launch"]["kernel"][3:-2], *sizes) in done.stderr


@pytest.mark.rocm(RELEASE)
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("groups", "a cooperative grid of 1,048,576 work-groups, but the device holds 256 at once"),
        ("items", "2,048 work-items in a work-group, but the device has at most 1,024"),
        ("nothing", ""),
    ],
)
def test_reason_of_a_module(build_newer: Build, compile_object: Build, tmp_path: Path, what: str, reason: str) -> None:
    """The same of cooperative launches of a module's kernel, which HIP has since ROCm 6."""
    code = compile_object(PROGRAMS / "host_errors.hip", "gfx90a", "-w", "-mcode-object-version=5", f"-I{PROGRAMS}")
    log, program = tmp_path / "log", build_newer("host_errors", "-g")
    words = ["--check", "host", "--device", "emu:gfx90a", "--json", log, "--", program, f"{what} of a module", code]
    done = run_luthier("sanitize", *words, before=stack(RELEASE))
    assert done.stdout == "done\n", done
    findings = json.loads(log.read_text())["findings"]
    reasons = [(one["kind"], one["call"], one["source"]["line"], one["launch"]["reason"]) for one in findings]
    expected = [("call-error", "hipModuleLaunchCooperativeKernel", line_of("of a module"), reason)]
    assert reasons == (expected if reason else [])


@pytest.mark.rows(1)
@pytest.mark.parametrize("given", ["arguments", "late arguments", "all arguments"])
def test_size_of_arguments(build_program: Build, compile_object: Build, tmp_path: Path, given: str) -> None:
    """A launch with a too small argument buffer is reported, also before the kernel is known."""
    code = compile_object(PROGRAMS / "host_errors.hip", "gfx90a", "-w", "-mcode-object-version=4", f"-I{PROGRAMS}")
    log, program = tmp_path / "log", build_program("host_errors", "-g")
    words = ["--check", "host", "--device", "emu:gfx90a", "--json", log, "--", program, given, code]
    done = sanitize(*words)
    taken = "4 bytes of arguments for _Z5smallPi, which takes 8"
    expected = None if given == "all arguments" else ("short-arguments", "hipModuleLaunchKernel", taken)
    check(done, log, "arguments", expected)
    assert (f"short-arguments: hipModuleLaunchKernel passes {taken}" in done.stderr) == bool(expected)


@pytest.mark.thorough
@pytest.mark.rocm(RELEASE)
@pytest.mark.rows
@pytest.mark.parametrize("bug", BUGS)
def test_bug_with_newer_hip(build_newer: Build, tmp_path: Path, bug: str) -> None:
    log, program, expected = tmp_path / "log", build_newer("host_errors", "-g"), BUGS[bug]
    if expected is not None and expected[0] == "unseen-error":  # another error for the same
        expected = *expected[:2], "hipErrorInvalidValue"
    words = ["--check", "host", "--device", "emu:gfx1201", "--json", log, "--", program, bug]
    done = run_luthier("sanitize", *words, before=stack(RELEASE))
    check(done, log, bug, expected)


def test_formats(build_program: Build, tmp_path: Path) -> None:
    """SARIF has the line of the call, and what `--gen-suppressions` writes leaves it out."""
    program, sarif, known = build_program("host_errors", "-g"), tmp_path / "sarif", tmp_path / "known"
    words = ["--check", "host", "--sarif", sarif, "--gen-suppressions", known]
    done = sanitize(*words, "--", program, "error")
    assert "call-error: hipMemcpy returned hipErrorInvalidValue" in done.stderr
    (result,) = json.loads(sarif.read_text())["runs"][0]["results"]
    assert result["ruleId"] == "call-error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line_of("error")
    again = sanitize("--check", "host", "--suppress", known, "--", program, "error")
    assert (again.returncode, "0 findings, 1 suppressed" in again.stderr) == (0, True), again


@pytest.mark.rows(3)
@pytest.mark.parametrize("name", ["streams", "graph", "modules"])
def test_clean(build_program: Build, name: str) -> None:
    done = sanitize("--check", "host", "--", build_program(name))
    assert (done.returncode, "luthier: 0 findings" in done.stderr) == (0, True), done
