"""The program's own marks and ranges (roctx), in run directories and on time lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from compiling import compiled
from kept import kept, run
from luthier.cli.main import main
from luthier.run.folder import RunFolder
from rocm_stacks import stack

from luthier_build.workspace import digest

from .conftest import PROGRAMS, Outcome
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here

SOURCE = PROGRAMS / "roctx.c"
CALLED = [
    *("push outer", "start first", "start second", "push elsewhere", "stop 100", "pop"),
    *(["push step", "pop"] * 3),
    *("stop 101", "mark of 9 bytes", "mark of 0 bytes", "mark of 5000 bytes", "pop", "pop", "push never ends"),
]
NESTED = Counter({"outer": 1, "elsewhere": 1, "step": 3, "never ends": 1})


def library() -> Path:
    """Return a library of roctx whose symbols have the version that ROCm's have."""

    def make(path: Path) -> None:
        path.with_name("map").write_text("ROCTX_4.1 { global: roctx*; local: *; };")
        link = ["-Wl,-soname,libroctx64.so.4", "-Wl,--version-script", str(path.with_name("map"))]
        run(["gcc", "-shared", "-fPIC", *link, str(SOURCE), "-o", str(path)])

    return kept(("roctx", digest(SOURCE)), make, "libroctx64.so.4")


def flags(how: str) -> list[str]:
    if how == "linked":
        return [str(library()), f"-Wl,-rpath,{library().parent}"]
    return [f'-DBY_NAME="{library() if how == "opened" else ""}"']


@pytest.mark.rows(1)
@pytest.mark.parametrize("how", ["linked", "opened", "absent"])
def test_ranges_and_marks(
    build_program: Callable[..., Path],
    luthier_run: Callable[..., Outcome],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    how: str,
) -> None:
    program, folder = build_program("ranges", *flags(how)), tmp_path / "run"
    outcome = luthier_run("emu:gfx90a", program, options=["--calls", "-o", str(folder)])
    assert (outcome.code, outcome.out) == (0, "ranges\n"), outcome
    assert outcome.err.splitlines() == ([] if how == "absent" else CALLED)

    rows = list(RunFolder(folder).rows("calls"))
    by_api = {api: [row for row in rows if row["api"] == api] for api in {row["api"] for row in rows}}
    assert by_api.keys() == {"hip", "roctx", "roctx.range", "roctx.mark"}
    assert Counter(row["name"] for row in by_api["roctx"]) == NESTED
    assert {row["name"] for row in by_api["roctx"] if row["end_ns"] is None} == {"never ends"}
    assert [row["name"] for row in by_api["roctx.range"]] == ["first", "second"]
    assert [row["name"] for row in by_api["roctx.mark"]] == ["half\ufffd way", "", "x" * 1024]
    outer, elsewhere = (next(row for row in rows if row["name"] == name) for name in ("outer", "elsewhere"))
    assert outer["thread"] != elsewhere["thread"]
    for launch in (row for row in by_api["hip"] if row["name"] == "hipLaunchKernel"):
        around = [row for row in by_api["roctx"] if row["begin_ns"] <= launch["begin_ns"] <= (row["end_ns"] or 0)]
        assert [row["name"] for row in around if row["thread"] == launch["thread"]] == ["step", "outer"]

    capfd.readouterr()
    assert main(["report", str(folder), "--format", "perfetto"]) == 0
    check_trace(json.loads(capfd.readouterr().out)["traceEvents"])


def check_trace(events: list[dict[str, Any]]) -> None:
    phases: dict[str, list[str]] = {}
    for event in events:
        if event.get("cat", "").startswith("roctx"):
            phases.setdefault(event["name"][:10], []).append(event["ph"])
    marks = {"half\ufffd way": ["i"], "": ["i"], "x" * 10: ["i"]}
    assert phases == marks | {"first": ["b", "e"], "second": ["b", "e"], "outer": ["X"], "elsewhere": ["X"]} | {
        "step": ["X"] * 3,
        "never ends": ["B"],
    }
    (outer,) = (event for event in events if event["name"] == "outer")
    steps = [event for event in events if event["name"] == "step"]
    assert all(event["tid"] == outer["tid"] for event in steps)
    ends = [event["ts"] + event["dur"] for event in steps]
    assert outer["ts"] <= steps[0]["ts"]
    assert ends[-1] <= outer["ts"] + outer["dur"]


@pytest.mark.rocm(RELEASE)
def test_above_newer_rocm(build_newer: Callable[..., Path], tmp_path: Path) -> None:
    """This HIP does not report its calls, which the run says; the program's ranges are recorded."""
    program, folder = build_newer("ranges", '-DBY_NAME=""'), tmp_path / "run"
    words = ["--device", "emu:gfx942", "--calls", "-o", folder, "--", program]
    done = run_luthier("run", *words, before=stack(RELEASE))
    assert (done.returncode, done.stdout) == (0, "ranges\n"), done
    assert Counter(row["name"] for row in RunFolder(folder).rows("calls") if row["api"] == "roctx") == NESTED


def test_not_asked_for(build_program: Callable[..., Path], luthier_run: Callable[..., Outcome], tmp_path: Path) -> None:
    """The program's library is called, and nothing else."""
    program = build_program("ranges", *flags("linked"))
    outcome = luthier_run("emu:gfx90a", program, options=["-o", str(tmp_path / "run")])
    assert (outcome.code, outcome.out) == (0, "ranges\n"), outcome
    assert outcome.err.splitlines() == CALLED
    assert list(RunFolder(tmp_path / "run").rows("calls")) == []


def test_an_allocator_that_looks_up_names(luthier_run: Callable[..., Outcome], tmp_path: Path) -> None:
    """The dynamic loader allocates before this library is ready, and gets memory after a `dlsym`."""
    source = PROGRAMS / "own_allocator.c"
    program = compiled(["gcc", "-O1", source], [source], "own_allocator")
    outcome = luthier_run("emu:gfx90a", program, options=["--calls", "-o", str(tmp_path / "run")])
    assert (outcome.code, outcome.out) == (0, "allocated\n"), outcome
