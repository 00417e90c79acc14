"""`luthier sanitize`: memory that is known to the byte, and reports about other memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier

from .conftest import PROGRAMS

Build = Callable[..., Path]
VARIABLES = {
    "none": ("", 0, None),
    "device": ("table", 100, ("read", "after", 0, 4, 400)),
    "far": ("table", 110, ("read", "after", 40, 4, 400)),
    "front": ("table", -1, ("read", "before", 4, 4, 400)),
    "written": ("write table", 101, ("write", "after", 4, 4, 400)),
    "atomic": ("add table", 100, ("atomic", "after", 0, 4, 400)),
    "constant": ("halves", 8, ("read", "after", 2, 2, 14)),
    "static": ("mine", 3, ("read", "after", 0, 4, 12)),
    "static, written": ("write mine", 4, ("write", "after", 4, 4, 12)),
    "C": ("letters", 6, ("read", "after", 1, 1, 5)),
    "read only": ("steps", -2, ("read", "before", 16, 8, 24)),
}
"""Case of `module_memory.hip` -> what it accesses, the index; access, side, distance, its size and the variable's."""
TO_THE_BYTE = (
    *("hipMalloc", "hipExtMallocWithFlags", "hipMallocManaged", "hipHostMalloc", "hipHostAlloc", "hipMemAllocHost"),
    *("hipMallocAsync", "hipMallocPitch", "hipMemAllocPitch", "hipMalloc3D"),
)
BY_PAGES = ("hipHostRegister", "hipMallocArray", "hipMalloc3DArray")


def report_of(program: Path, log: Path, target: str, *words: str | Path) -> dict[str, Any]:
    done = run_luthier("sanitize", "--device", f"emu:{target}", "--json", log, "--", program, *words)
    report: dict[str, Any] = json.loads(log.read_text())
    assert (done.stdout[:4], report["exit_code"], done.returncode) == ("done", 0, bool(report["findings"])), done
    return {**report, "stdout": done.stdout, "stderr": done.stderr}


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", ["gfx906", "gfx90a", "gfx1030"])
@pytest.mark.parametrize("case", VARIABLES)
def test_variables(build_program: Build, tmp_path: Path, case: str, target: str) -> None:
    """An access beyond a variable of the code object is found, by its name."""
    name, index, expected = VARIABLES[case]
    words = [name, str(index)] if name else []
    report = report_of(build_program("module_memory", "-g"), tmp_path / "log", target, *words)
    if expected is None:
        assert report["findings"] == []
        return
    (finding,) = report["findings"]
    access, side, distance, size, whole = expected
    assert (finding["kind"], finding["side"], finding["distance"]) == ("out-of-bounds", side, distance)
    assert (finding["size"], finding["allocation"]["size"]) == (size, whole)
    variable = name.split()[-1]
    assert variable in finding["allocation"]["variable"]
    assert f"the variable {variable} of {whole} bytes at 0x" in report["stderr"]
    assert f"out-of-bounds: {access} of {size} bytes at 0x" in report["stderr"]
    assert finding["source"]["file"].endswith("module_memory.hip")


def test_variables_alone(build_program: Build, tmp_path: Path) -> None:
    """Variables are known outside the allocations of the process, whose reports do not change."""
    words = "write table", "100", "no allocation"
    report = report_of(build_program("module_memory", "-g"), tmp_path / "log", "gfx90a", *words)
    assert [found["allocation"]["variable"] for found in report["findings"]] == ["table"]
    assert [one["kernel"] for one in report["not_checked"]] == ["_Z11write_tablePil"]


def test_no_file(build_program: Build, tmp_path: Path) -> None:
    """Variables of a code object whose file is missing are unknown, which is reported."""
    library = tmp_path / "library.so"
    shutil.copy(build_program("opened_late", "-DLIBRARY", "-shared", "-fPIC"), library)
    done = run_luthier("sanitize", "--", build_program("opened_late"), tmp_path, library, "removed")
    assert (done.returncode, done.stdout) == (0, "squares\n"), done
    assert "not checked: bounds of the variables of the code object, in launches of" in done.stderr
    assert ": its file is gone" in done.stderr


@pytest.mark.rows(5)
@pytest.mark.parametrize("beyond", [0, 4])
@pytest.mark.parametrize("kind", TO_THE_BYTE)
def test_kinds(build_program: Build, tmp_path: Path, kind: str, beyond: int) -> None:
    report = report_of(build_program("memory_kinds", "-g"), tmp_path / "log", "gfx90a", kind, str(beyond))
    assert report["not_checked"] == []
    if not beyond:
        assert report["findings"] == []
        return
    (finding,) = report["findings"]
    assert (finding["kind"], finding["side"], finding["distance"]) == ("out-of-bounds", "after", 0)
    assert finding["allocation"]["size"] == int(report["stdout"].split()[1])
    assert (
        f"{kind}(&"
        in (PROGRAMS / "memory_kinds.hip").read_text().splitlines()[finding["allocated"]["frames"][0]["line"] - 1]
    )


@pytest.mark.parametrize("kind", BY_PAGES)
def test_pages(build_program: Build, tmp_path: Path, kind: str) -> None:
    """Memory that is known only by pages is marked so, also in SARIF, next to other memory and alone."""
    log, sarif = tmp_path / "log", tmp_path / "sarif"
    words = ["--json", log, "--sarif", sarif, "--", build_program("memory_kinds", "-g"), kind, "0"]
    done = run_luthier("sanitize", *words)
    assert done.returncode == 0, done
    wanted = f"bounds to the byte of memory by {kind}"
    assert wanted in [one["what"] for one in json.loads(log.read_text())["not_checked"]]
    assert f"luthier: not checked: {wanted}: only its pages are known" in done.stderr
    (run,) = json.loads(sarif.read_text())["runs"]
    notes = [note["message"]["text"] for one in run["invocations"] for note in one["toolExecutionNotifications"]]
    assert f"not checked: {wanted}: only its pages are known" in notes
