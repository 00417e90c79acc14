"""The host's stacks of launches and allocations, in run folders, reports and findings."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import run_luthier
from compiling import compiled
from kept import kept
from kept import run as build
from luthier.cli.main import main
from luthier.report.stacks import LaunchStacks, by_stack
from luthier.run.api_calls import columns_of
from luthier.run.folder import RunFolder
from luthier.run.host_stacks import HostStacks
from luthier.run.schema import FRAMES
from luthier.run.tables import TableWriter
from luthier.wire.structures import ForeignText, PathText
from luthier.wire.tool_requests import NewStack, StackFrame

from luthier_build.workspace import digest

from .conftest import PROGRAMS, Outcome
from .sanitized import findings_of
from .test_ranges import library


@pytest.fixture(scope="session")
def through() -> Path:
    source = PROGRAMS / "through.c"
    return compiled(["gcc", "-shared", "-fPIC", "-O1", "-g", source], [source], "libthrough.so")


@pytest.fixture
def launched(
    build_program: Callable[..., Path], luthier_run: Callable[..., Outcome], through: Path, tmp_path: Path
) -> Any:
    """The run folder, and the offsets in the program that `backtrace()` saw at each launch."""
    program, folder = build_program("launched_from", "-g", str(library()), f"-Wl,-rpath,{library().parent}"), tmp_path
    outcome = luthier_run("emu:gfx90a", program, through, options=["-o", folder / "run"])
    assert outcome.code == 0, outcome
    seen = [line.split() for line in outcome.out.splitlines()]
    return RunFolder(folder / "run"), program, [(name, [int(one, 16) for one in rest]) for name, *rest in seen]


def places_in(run: RunFolder, program: Path) -> list[tuple[str, list[int]]]:
    """Return the kernel of each launch, and the offsets of its calls in the program, innermost first."""
    frames = {(row["process"], row["frame"]): row for row in run.rows("frames")}
    stacks = {(row["process"], row["stack"]): row for row in run.rows("stacks")}
    assert all(stack["whole"] for stack in stacks.values())
    launches = []
    for row in run.rows("launches"):
        calls = [frames[row["process"], one] for one in stacks[row["process"], row["stack"]]["frames"]]
        own = [(call["offset"], call["frame"]) for call in calls if call["object"] == str(program)]
        # Inlined functions have frames of their own, with one offset.
        outer = [own[at - 1] if at else (None, None) for at in range(len(own))]
        offsets = [
            one for (one, frame), (before, last) in zip(own, outer, strict=True) if one != before or frame == last
        ]
        launches.append((row["time_ns"], row["kernel"], offsets[::-1]))
    return [(name, offsets) for _, name, offsets in sorted(launches)]


def test_equal_to_backtrace(launched: Any) -> None:
    """The calls before the function that launches are those of `backtrace()`: a recursion, a frame of variable size,
    a callback of the C library, a library, threads and a forked process."""
    run, program, seen = launched
    places = places_in(run, program)
    assert len(places) == len(seen) == 17
    for (kernel, offsets), (name, wanted) in zip(places, seen, strict=True):
        assert name in kernel
        # Innermost are the compiler's stub and the function that launches, which `backtrace()` left out.
        assert offsets[len(offsets) - len(wanted) :] == wanted, (name, [*map(hex, offsets)], [*map(hex, wanted)])
    threads = {row["thread"] for row in run.rows("launches")}
    assert len(threads) == 3
    assert len({row["process"] for row in run.rows("launches")}) == 2


def test_reports(launched: Any, capfd: pytest.CaptureFixture[str]) -> None:
    run, *_ = launched
    by_range = {row[0]: row[2] for row in by_stack(run, "range").rows}
    assert by_range == {"(no range)": 13, "outer": 2, "outer / inner; step": 2}
    stacks = LaunchStacks.of(run)
    paths = Counter[str]()
    for row in stacks.rows:
        names = [stacks.frames[number].name for number in row.frames[row.starts :]]
        paths[", ".join(names)] += row.numbers["launches"] or 0
    assert paths["main, launch_fill, hipLaunchKernel"] == 12
    assert paths["main, recursive, recursive, recursive, recursive, launch_fill, hipLaunchKernel"] == 1
    assert paths["main, through, inside, launch_drain, hipLaunchKernel"] == 1

    capfd.readouterr()
    assert main(["report", str(run.path), "--format", "folded", "--number", "launches"]) == 0
    folded = [line.rpartition(" ") for line in capfd.readouterr().out.splitlines()]
    assert sum(int(value) for *_, value in folded) == 17
    assert any(
        path.endswith("compare (launched_from.hip:72);launch_drain (launched_from.hip:48);hipLaunchKernel;drain")
        for path, *_ in folded
    )
    assert main(["report", str(run.path), "--format", "speedscope"]) == 0
    speedscope = json.loads(capfd.readouterr().out)
    names = [frame["name"] for frame in speedscope["shared"]["frames"]]
    for profile in speedscope["profiles"]:
        assert profile["endValue"] == sum(profile["weights"])
        assert all(number < len(names) for sample in profile["samples"] for number in sample)
    assert [one["endValue"] for one in speedscope["profiles"] if one["name"] == "launches"] == [17]
    assert main(["report", str(run.path), "--format", "folded", "--number", "lanes"]) == 1
    assert "the run has no lanes by stack" in capfd.readouterr().err


def test_not_wanted(
    build_program: Callable[..., Path],
    luthier_run: Callable[..., Outcome],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    outcome = luthier_run("emu:gfx90a", build_program("saxpy"), options=["-o", tmp_path / "run", "--no-stacks"])
    assert outcome.code == 0
    run = RunFolder(tmp_path / "run")
    assert {row["stack"] for row in run.rows("launches")} == {None}
    assert main(["report", str(tmp_path / "run"), "--by", "stack"]) == 1
    assert "has no stacks of launches" in capfd.readouterr().err


def test_python(scale_kernel: Path, tmp_path: Path) -> None:
    """Functions of Python by line, also where the binding has released the interpreter's lock, and in a thread."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    script, code = PROGRAMS / "launched_from.py", scale_kernel
    words = ["--device", "emu:gfx90a", "-o", tmp_path / "run", "--", sys.executable, script, code]
    done = run_luthier("run", *words)
    assert done.returncode == 0, done
    launches = {row[0]: row[2] for row in by_stack(RunFolder(tmp_path / "run"), "python").rows}
    lines = script.read_text().splitlines()
    line = {text: at for at, one in enumerate(lines, 1) for _, mark, text in [one.partition("  # ")] if mark}
    inner = f"Model.forward ({script.name}:{line['forward']}) > launch ({script.name}:{line['launch']})"
    step = f"train ({script.name}:{line['step']}) > {inner}"
    assert launches[f"<module> ({script.name}:{line['train']}) > {step}"] == 3
    assert launches[f"<module> ({script.name}:{line['once']}) > launch ({script.name}:{line['launch']})"] == 1
    assert next(count for path, count in launches.items() if "Thread" in path and path.endswith(step)) == 2


def test_paths_that_are_not_unicode(tmp_path: Path) -> None:
    path = PathText(b"/x/caf\xe9/app")
    frames = (StackFrame(False, path, ForeignText(b""), 16), StackFrame(True, path, ForeignText(b"train"), 7))
    stacks = HostStacks()
    stacks.add(NewStack(1, True, frames, np.arange(2, dtype="<u8").tobytes(), ()))
    rows, _ = stacks.rows()
    with TableWriter(tmp_path, FRAMES) as writer:
        writer.append(columns_of(rows), process=1)
    shown = pq.read_table(writer.path).to_pylist()
    assert [(row["object"], row["file"]) for row in shown] == [("/x/caf\ufffd/app", None), (None, "/x/caf\ufffd/app")]


def test_python_allocation(scale_kernel: Path, tmp_path: Path) -> None:
    """A leak names the Python functions that allocated the memory."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    script, code = PROGRAMS / "launched_from.py", scale_kernel
    words = ["--check", "leak", "--device", "emu:gfx90a", "--json", tmp_path / "log", "--sarif", tmp_path / "sarif"]
    done = run_luthier("sanitize", *words, "--", sys.executable, script, code)
    (finding,) = json.loads((tmp_path / "log").read_text())["findings"]
    stack = [frame["name"] for frame in finding["allocated"]["stack"] if frame["file"] == str(script)]
    assert (done.returncode, finding["kind"], stack) == (1, "leak", ["keep", "<module>"]), done
    assert finding["source"]["file"] == str(script)
    (result,) = json.loads((tmp_path / "sarif").read_text())["runs"][0]["results"]
    (shown,) = result["stacks"]
    assert [frame["location"]["message"]["text"] for frame in shown["frames"]][:2] == stack


def test_allocation(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """A use after free has the stacks of the allocation and of the free."""
    finding = next(
        one
        for one in findings_of([build_program("planted", "-g"), "device", "freed"], tmp_path / "log", target="gfx90a")
        if one["kind"] == "use-after-free"
    )
    for which in ("allocated", "freed"):
        names = [frame["name"] for frame in finding[which]["stack"] if frame["line"]]
        assert names[-1] == "main", names


def interpreter(version: str) -> str | None:
    """Return a Python of a version, from the path or from pyenv, whose shims need not lead to one."""
    own = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for path in filter(None, (shutil.which(f"python{version}"), *own)):
        shown = subprocess.run([path, "--version"], capture_output=True, text=True)
        if shown.returncode == 0 and shown.stdout.startswith(f"Python {version}."):
            return path
    return None


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(version, marks=[] if version == "3.{1}".format(*sys.version_info) else pytest.mark.thorough)
        for version in ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
    ],
)
def test_python_versions(version: str) -> None:
    """What is read from the interpreter's memory is what the interpreter says itself, in each version."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed")
    folder = PROGRAMS.parents[2] / "runtime/native"
    sources = [*sorted((folder / "stacks").glob("*.cpp")), PROGRAMS / "python_places.cpp"]
    flags = ["-std=c++20", "-O1", "-shared", "-fPIC", f"-I{folder / 'stacks'}", f"-I{folder / 'wire'}"]
    key = ("python places", *map(digest, sources), *map(digest, sorted((folder / "stacks").glob("*.h"))))
    built = kept(key, lambda path: build(["g++", *flags, *map(str, sources), "-o", str(path)]), "places.so")
    done = subprocess.run([python, PROGRAMS / "python_places.py", built], capture_output=True, text=True, check=True)
    assert done.stdout == "10 places\n"
