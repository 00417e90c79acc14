"""`luthier sanitize` on programs that look up HIP's functions with the dynamic linker has the same findings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from compiling import compiled

from .conftest import PROGRAMS
from .sanitized import findings_of

HIP = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5"
CHECKS = "memory,leak,host"
BUGS = {
    "none": set[str](),
    "above": {"out-of-bounds"},
    "copy": {"copy-out-of-bounds"},
    "twice": {"double-free", "call-error"},
    "leak": {"leak"},
}
"""What is wrong, and the kinds that tell of it."""


@pytest.fixture(scope="session")
def build_looked_up() -> Callable[[bool], tuple[Path, Path]]:
    """``build_looked_up(linked)``: a program and its code object."""

    def build(linked: bool) -> tuple[Path, Path]:
        source, kernel = PROGRAMS / "looked_up.cpp", PROGRAMS / "looked_up_kernel.hip"
        flags = ["-DLINKED", "-lamdhip64"] if linked else [f'-DHIP_LIBRARY="{HIP}"', "-ldl"]
        program = compiled(["g++", "-std=c++17", "-O1", source, *flags], [source], "looked_up")
        command = ["env", "HIP_PLATFORM=amd", "hipcc", "--genco", "--offload-arch=gfx90a", "-O1", "-w", kernel]
        return program, compiled(command, [kernel], "kernel.co")

    return build


def kept_facts_of(command: tuple[Path, Path], bug: str, log: Path) -> list[tuple[Any, ...]]:
    """Return what is found, without what differs from run to run."""
    findings = findings_of([*command, bug], log, "--check", CHECKS, target="gfx90a")
    kept = ("kind", "kernel", "call", "detail", "size", "side", "distance", "count")
    return [tuple(finding[name] for name in kept) for finding in findings]


@pytest.mark.rows(1)
@pytest.mark.parametrize("bug", BUGS)
def test_looked_up(build_looked_up: Callable[[bool], tuple[Path, Path]], tmp_path: Path, bug: str) -> None:
    findings = kept_facts_of(build_looked_up(False), bug, tmp_path / "log")
    assert {one[0] for one in findings} == BUGS[bug]
    assert findings == kept_facts_of(build_looked_up(True), bug, tmp_path / "log")


def test_hip_python(tmp_path: Path) -> None:
    """Memory allocated by a Python binding is known to the byte."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    script = "from hip import hip; kept = hip.hipMalloc(60)[1]; hip.hipFree(hip.hipMalloc(40)[1])"
    words = ["--check", "memory,leak,host", "--device", "emu:gfx90a", "--json", tmp_path / "log"]
    done = run_luthier("sanitize", *words, "--", sys.executable, "-c", script)
    (finding,) = json.loads((tmp_path / "log").read_text())["findings"]
    assert (done.returncode, finding["kind"], finding["allocation"]["size"]) == (1, "leak", 60), done
