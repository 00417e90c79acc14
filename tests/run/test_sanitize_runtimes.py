"""`luthier sanitize` on programs that ask other runtimes than HIP for memory: it is known to the byte, and by whom."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from compiling import compiled
from rocm_stacks import stack

from .conftest import PROGRAMS
from .test_foreign import offloaded_by_gcc

BUGS = {
    "none": None,
    "above": ("out-of-bounds", "after", 0, 1),
    "below": ("out-of-bounds", "before", 4, 1),
    "freed": ("use-after-free", "inside", 4 * (1024 - 32), 32),
    "twice": ("double-free", "inside", 0, 1),
    "leak": ("leak", "inside", 0, 1),
}
"""Bug of `raw_memory.cpp` -> kind, side, distance, and how many lanes."""


def report_of(command: list[str | Path], target: str, log: Path, *before: str) -> dict[str, Any]:
    """Run a program under the checks of memory."""
    words = ["--check", "memory,leak", "--device", f"emu:{target}", "--json", log, "--", *command]
    done = run_luthier("sanitize", *words, before=before)
    report: dict[str, Any] = json.loads(log.read_text())
    assert (report["exit_code"], done.returncode) == (0, int(bool(report["findings"]))), done
    assert done.stdout.startswith("done"), done
    for finding in report["findings"]:
        assert f"luthier: {finding['kind']}: " in done.stderr, done
    return {**report, "stderr": done.stderr}


def lines_of(call: dict[str, Any] | None) -> list[int]:
    return [] if call is None else [frame["line"] for frame in call["frames"]]


def marked(program: str, *marks: str) -> list[int]:
    """Return the lines of a program that end with such marks."""
    text = (PROGRAMS / program).read_text().splitlines()
    return [number for number, line in enumerate(text, 1) for mark in marks if line.endswith(f"// line: {mark}")]


@pytest.mark.rows
@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.parametrize("container", ["pool", "region", "arguments"])
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_hsa(compile_object: Callable[..., Path], tmp_path: Path, target: str, container: str, bug: str) -> None:
    if (container, bug) == ("arguments", "below"):
        pytest.skip("what is before memory of the host differs from run to run")
    source = PROGRAMS / "raw_memory.cpp"
    command = ["g++", "-std=c++17", "-g", source, "-lhsa-runtime64"]
    program = compiled(command, [source, source.with_name("hsa_program.h")], "raw_memory")
    code = compile_object(PROGRAMS / "raw_memory_kernel.hip", target, "-w", "-mcode-object-version=4")
    report = report_of([program, code, container, bug], target, tmp_path / "log")
    expected = BUGS[bug]
    if expected is None:
        assert report["findings"] == []
        return
    (finding,) = report["findings"]
    assert (finding["kind"], finding["side"], finding["distance"], finding["count"]) == expected
    assert finding["allocation"]["size"] == 4096
    assert set(lines_of(finding["allocated"])) <= set(marked("raw_memory.cpp", "pool", "region"))
    given_back = marked("raw_memory.cpp", "free") if bug in ("freed", "twice") else []
    assert lines_of(finding["freed"]) == given_back
    if not finding["kernel"]:
        assert [frame["line"] for frame in finding["frames"]] == (given_back or lines_of(finding["allocated"]))


@pytest.mark.rows(3)
@pytest.mark.parametrize("bug", ["none", "above", "freed", "leak", "mapped"])
def test_openmp(tmp_path: Path, bug: str) -> None:
    """Variables of one construct are together in memory that GCC's runtime asks for: bounds are its."""
    program = offloaded_by_gcc(PROGRAMS / "openmp_memory.c", "gcc-12", "-fopenmp", "-g")
    report = report_of([program, bug], "gfx906", tmp_path / "log")
    pages = [one["what"] for one in report["not_checked"] if not one["kernel"]]
    assert pages == ["bounds of each variable that OpenMP maps"]
    findings = report["findings"]
    if bug == "none":
        assert findings == []
        return
    (finding, *more) = findings
    kind = {"above": "out-of-bounds", "freed": "use-after-free", "leak": "leak", "mapped": "out-of-bounds"}[bug]
    assert (finding["kind"], more) == (kind, [])
    if bug == "mapped":
        assert 4000 <= finding["allocation"]["size"] < 4064
        return
    assert finding["allocation"]["size"] == 4000
    assert lines_of(finding["allocated"]) == marked("openmp_memory.c", "allocated")
    assert lines_of(finding["freed"]) == (marked("openmp_memory.c", "freed") if bug == "freed" else [])


@pytest.mark.rows(5)
@pytest.mark.parametrize("bug", ["none", "above", "leak"])
@pytest.mark.parametrize("container", ["device", "copied", "host", "used", "part", "image", "svm", "table", "counts"])
@pytest.mark.parametrize(
    ("release", "target"),
    [
        pytest.param("6.4", "gfx1100", marks=pytest.mark.rocm("6.4")),
        pytest.param("5.7", "gfx90a", marks=[pytest.mark.rocm("5.7"), pytest.mark.thorough]),
    ],
)
def test_opencl(tmp_path: Path, release: str, target: str, container: str, bug: str) -> None:
    """Buffers that are copied to, mapped, in host memory, or sub-buffers; shared memory; and variables."""
    command: list[str | Path] = ["python3", PROGRAMS / "opencl_memory.py", container, bug]
    report = report_of(command, target, tmp_path / "log", *stack(release))
    is_known = container != "used"
    by = {"used": "clCreateBuffer with CL_MEM_USE_HOST_PTR", "image": "clCreateImage"}.get(container)
    expected = [f"bounds to the byte of memory by {by}"] if by else []
    assert [one["what"] for one in report["not_checked"] if not one["kernel"]] == expected
    if bug == "none" or not is_known:
        assert report["findings"] == []
        return
    (finding,) = report["findings"]
    kind, distance = {"above": ("out-of-bounds", 0), "leak": ("leak", 0)}[bug]
    assert (finding["kind"], finding["distance"]) == (kind, distance)
    size = {"table": 400, "counts": 132}.get(container, 4096) if bug == "above" else 4096
    assert finding["allocation"]["size"] == size
    assert finding["allocation"]["variable"] == (container if size != 4096 else "")
    assert (finding["allocated"] is None) == (size != 4096)
