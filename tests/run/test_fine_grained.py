"""Float atomics that hardware may leave out on fine-grained memory are findings, other atomics are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocm_stacks import stack

from .conftest import TARGETS
from .sanitized import findings_of, marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
MEMORY = {
    "device": None,
    "coarse": None,
    "host": "pinned host",
    "advised": None,
    "managed": "managed or registered",
    "registered": "pinned host",
}
"""Memory of fine_grained.hip -> what a finding calls it; None if it is coarse-grained."""


def look(program: Path, tmp_path: Path, memory: str, kernel: str, target: str, **more: Any) -> list[dict[str, Any]]:
    """Return what the default checks find in a program; it checks its result itself."""
    return findings_of([program, memory, kernel], tmp_path / "log", target=target, **more)


def check(findings: list[dict[str, Any]], kernel: str, memory: str, text: str, lanes: int = 64) -> None:
    (finding,) = findings
    assert (finding["kind"], finding["count"], finding["side"], finding["distance"]) == (
        *("unsafe-atomic", lanes),
        *(("inside", 0) if finding["allocation"] else ("", 0)),
    ), finding
    assert marked_line("fine_grained.hip", kernel) in {frame["line"] for frame in finding["frames"]}, finding
    assert f"on fine-grained {text} memory" in finding["detail"], finding
    if memory != "registered":  # of which only pages are known
        assert finding["allocated"]["stack"][0]["line"] == marked_line("fine_grained.hip", memory), finding


@pytest.mark.rows
@pytest.mark.parametrize("target", TARGETS[1:])
@pytest.mark.parametrize("memory", MEMORY)
def test_kinds_of_memory(build_program: Build, tmp_path: Path, memory: str, target: str) -> None:
    findings = look(build_program("fine_grained", "-g"), tmp_path, memory, "floats", target)
    if (text := MEMORY[memory]) is None:
        assert findings == []
    else:
        check(findings, "floats", memory, text)


@pytest.mark.rows
@pytest.mark.parametrize("kernel", ["doubles", "safe", "standard", "integers", "in_lds"])
def test_kinds_of_atomics(build_program: Build, tmp_path: Path, kernel: str) -> None:
    findings = look(build_program("fine_grained", "-g"), tmp_path, "host", kernel, "gfx90a")
    if kernel == "doubles":
        check(findings, kernel, "host", "pinned host")
    else:
        assert findings == []


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows(5)
@pytest.mark.parametrize(
    ("memory", "kernel", "target", "text"),
    [
        ("fine", "floats", "gfx90a", "device"),
        ("registered", "floats", "gfx90a", "managed or registered"),
        ("managed", "doubles", "gfx90a", "managed or registered"),
        ("host", "standard", "gfx1100", "pinned host"),
        ("host", "standard", "gfx90a", ""),
        ("host", "standard", "gfx942", ""),
        ("host", "doubles", "gfx942", "pinned host"),  # HIP selects the scope of the system
        ("host", "standard", "gfx1201", ""),
        ("device", "floats", "gfx90a", ""),
    ],
)
def test_newer_rocm(build_newer: Build, tmp_path: Path, memory: str, kernel: str, target: str, text: str) -> None:
    program = build_newer("fine_grained", "-g")
    findings = look(program, tmp_path, memory, kernel, target, before=stack(RELEASE))
    if text:
        waves = 2 if target == "gfx1100" else 1  # newer compilers first sum the numbers of a wave
        check(findings, kernel, memory, text, lanes=waves)
    else:
        assert findings == []
