"""`luthier sanitize --init decisions`: undefined values are reported only where they decide something."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import MAIN, run_luthier

from .conftest import PROGRAMS
from .sanitized import marked_line

Build = Callable[..., Path]
TARGETS = ["gfx906", "gfx90a", "gfx1030"]
MEMORY = ("memory_branch", "memory_mask", "memory_address", "arithmetic_mask")
"""Kernels that read memory which the program writes in another mode."""
DECIDE = (*MEMORY, "lds_mask", "lds_address", "register_mask", "unlaunched_branch", "local_mask")
"""Kernels, the last part of whose name is what an undefined value decides."""
QUIET = ("copied", "masked_away", "low_bits", "selected", "structs", "locals")
"""Kernels with undefined values that decide nothing."""


EVERYWHERE = "import luthier.emulator.inspection.early as early; early.early_registers = lambda *_: None"
"""Python code: any register may be undefined when a wave begins."""
HANDED = {
    "written": None,
    "part": None,
    "inner": None,
    "sync": ("now", "hipMemcpy", 56 * 4, 200 * 4),
    "stream": ("later", "hipMemcpyAsync", 56 * 4, 200 * 4),
    "device": ("later", "hipMemcpyAsync", 56 * 4, 200 * 4),
    "computed": ("now", "hipMemcpy", 256, 1),
    "structs": ("now", "hipMemcpy", 256 * 3, 1),
}
"""Ways of `handed.hip` -> the call's line, its name, how many bytes nobody has written, and where the first one is."""


def look(program: Path, log: Path, *words: str, target: str, init: str = "decisions") -> list[dict[str, Any]]:
    """Return what is found in a program."""
    options = ["--check", "init", "--init", init, "--device", f"emu:{target}", "--json", str(log)]
    done = run_luthier("sanitize", *options, "--", program, *words)
    report: dict[str, Any] = json.loads(log.read_text())
    assert (done.stdout.splitlines()[-1:], report["exit_code"]) == (["done"], 0), done
    assert done.returncode == bool(report["findings"]), done
    findings: list[dict[str, Any]] = report["findings"]
    return findings


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", DECIDE)
def test_decisions(build_program: Build, tmp_path: Path, kernel: str, target: str) -> None:
    (finding,) = look(build_program("undefined", "-g"), tmp_path / "log", kernel, target=target)
    lines = {frame["line"] for frame in finding["frames"] if frame["file"].endswith("undefined.hip")}
    assert (finding["kind"], finding["name"]) == (f"uninitialised-{kernel.rpartition('_')[2]}", kernel)
    assert marked_line("undefined.hip", kernel) in lines


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("kernel", "mode"), [*((name, "unwritten") for name in QUIET), *((name, "written") for name in MEMORY)]
)
def test_nothing_is_decided(build_program: Build, tmp_path: Path, kernel: str, mode: str, target: str) -> None:
    assert look(build_program("undefined", "-g"), tmp_path / "log", kernel, mode, target=target) == []


@pytest.mark.parametrize("kernel", ["register_mask", "arithmetic_mask"])
def test_tracking_everywhere_finds_the_same(build_program: Build, tmp_path: Path, kernel: str) -> None:
    """Waves that track registers all the time have the same findings as those that do only where it is needed."""
    program = build_program("undefined", "-g")
    options = ["sanitize", "--error-exitcode", "0", "--device", "emu:gfx90a", "--json"]
    logs = [tmp_path / "log", tmp_path / "everywhere"]
    run_luthier(*options, logs[0], "--", program, kernel)
    command = [sys.executable, "-c", f"{EVERYWHERE}; {MAIN}", *options, logs[1], "--", program, kernel]
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
    usual, everywhere = (
        [re.sub(r"\b0x\w+|\b\d{12,}\b", "address", repr({**finding, "process": 0})) for finding in found]
        for found in (json.loads(log.read_text())["findings"] for log in logs)
    )
    assert usual == everywhere
    assert usual


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("way", HANDED)
def test_copies(build_program: Build, tmp_path: Path, way: str, target: str) -> None:
    """Undefined bytes copied to the host are reported exactly, at the call, without a decision."""
    program, expected = build_program("handed", "-g"), HANDED[way]
    assert look(program, tmp_path / "log", way, target=target) == []
    findings = look(program, tmp_path / "log", way, target=target, init="decisions,copies")
    if expected is None:
        assert findings == []
        return
    (copy,) = findings
    text = (PROGRAMS / "handed.hip").read_text().splitlines()
    lines = {number for number, line in enumerate(text, 1) if line.endswith(f"// line: {expected[0]}")}
    assert {frame["line"] for frame in copy["frames"] if frame["file"].endswith("handed.hip")} == lines
    assert (copy["kind"], copy["call"], copy["size"], copy["distance"]) == ("uninitialised-copy", *expected[1:])


@pytest.mark.thorough
def test_copies_are_of_programs(build_program: Build, tmp_path: Path) -> None:
    """Captured launches copy nothing."""
    assert run_luthier("capture", "-o", tmp_path, "--", build_program("handed", "-g"), "sync").returncode == 0
    done = run_luthier("sanitize", "--check", "init", "--init", "copies", tmp_path)
    assert (done.returncode, "--init copies works for programs, not for captures" in done.stderr) == (1, True), done


@pytest.mark.thorough
@pytest.mark.parametrize("kernel", ["copied", "memory_mask"])
def test_reads_are_told_as_before(build_program: Build, kernel: str) -> None:
    """Without the option, reads are reported; with both words, both kinds."""
    program = build_program("undefined", "-g")
    done = run_luthier("sanitize", "--check", "init", "--", program, kernel)
    assert ("uninitialised-read" in done.stderr, "uninitialised-mask" in done.stderr) == (True, False), done
    done = run_luthier("sanitize", "--check", "init", "--init", "reads,decisions", "--", program, kernel)
    assert ("uninitialised-read" in done.stderr, "uninitialised-mask" in done.stderr) == (True, kernel != "copied"), (
        done
    )


@pytest.mark.rows(1)
@pytest.mark.parametrize("kernel", ["lds_mask", "register_mask", "copied"])
def test_other_commands(build_program: Build, tmp_path: Path, kernel: str) -> None:
    """The same is found in captured launches, and by `luthier run`."""
    program, device = build_program("undefined", "-g"), ["--device", "emu:gfx90a"]
    options = ["--init", "decisions"]
    assert run_luthier("capture", "-o", tmp_path, *device, "--", program, kernel).returncode == 0
    for done in (
        run_luthier("sanitize", "--check", "init", *options, tmp_path),
        run_luthier("run", "--check", "init", *options, *device, "--", program, kernel),
    ):
        assert ("uninitialised-mask" in done.stderr) == (kernel != "copied") == bool(done.returncode), done


CLEAN = (
    "streams",
    "reduction",
    "stack",
    "histogram",
    "sort",
    "managed",
    "boxes",
    "host_memory",
    "grid_barrier",
    "print",
)
MORE = ("pointers", "variables", "graph", "processes", "scan", "transpose", "physics", "sparse", "fourier", "exchange")


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(pytest.param(name, target, marks=pytest.mark.rows()) for name in CLEAN for target in TARGETS[1:]),
        *(pytest.param(name, target, marks=pytest.mark.thorough) for name in MORE for target in TARGETS[1:]),
    ],
)
def test_clean(build_program: Build, name: str, target: str) -> None:
    words = ["--check", "init", "--init", "decisions,copies", "--device", f"emu:{target}", "--", build_program(name)]
    done = run_luthier("sanitize", *words)
    assert (done.returncode, "luthier: 0 findings" in done.stderr) == (0, True), done


def test_wrong_word() -> None:
    done = run_luthier("sanitize", "--check", "init", "--init", "reeds", "--", "true")
    assert (done.returncode, "--init takes reads, decisions, copies, not 'reeds'" in done.stderr) == (1, True), done
