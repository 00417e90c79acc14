"""`luthier sanitize`: planted bugs are found at their lines by the right kind, nothing is where there is none."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from luthier.errors import LuthierError
from luthier.findings import suppressions
from luthier.findings.finding import Finding, NearbyAllocation
from rocm_stacks import stack

from .conftest import PROGRAMS
from .sanitized import marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
Build = Callable[..., Path]
line_of = partial(marked_line, "planted.hip")
BUGS = {
    "none": None,
    "above": ("out-of-bounds", "after", 0, 1),
    "below": ("out-of-bounds", "before", 4, 1),
    "halved": ("out-of-bounds", "after", 4 * (1000 - 32) - 2000, 32),
    "freed": ("use-after-free", "inside", 4 * (1000 - 32), 32),
    "twice": ("double-free", "inside", 0, 1),
    "inside": ("invalid-free", "inside", 4, 1),
    "leak": ("leak", "inside", 0, 1),
}
"""Bug -> kind, side, distance, and how many lanes; the program has them in `planted.hip`."""
TARGETS = ("gfx906", "gfx90a", "gfx1030")
CONTAINERS = ("device", "managed", "host")
ALL = "memory,race,init,barrier,waits,hazards"
ACCESSES = ("read", "write", "atomic")
PLACES = ("allocated", "freed")


def combinations() -> list[tuple[str, str, str, str]]:
    """Return rows in which each bug meets each target, each container and each access, with as few rows as there can
    be: three for each bug, a Latin square of the rest; but `below`."""
    rows = []
    for number, bug in enumerate(BUGS):
        for row in range(3):
            column = (row + number) % 3
            # What lies in front of memory of the host differs from run to run: nothing, or memory of ROCr's own.
            container = "device" if bug == "below" else CONTAINERS[column]
            rows.append((bug, TARGETS[row], container, ACCESSES[(row + 2 * column) % 3]))
    return rows


def sanitize(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return run_luthier("sanitize", *arguments)


@pytest.mark.rows(1)
@pytest.mark.parametrize(("bug", "target", "container", "access"), combinations())
def test_planted(build_program: Build, tmp_path: Path, bug: str, target: str, container: str, access: str) -> None:
    log = tmp_path / "findings.json"
    program = build_program("planted", "-g")
    done = sanitize(
        "--check", "memory,leak", "--device", f"emu:{target}", "--json", log, "--", program, container, bug, access
    )
    report: dict[str, Any] = json.loads(log.read_text())
    expected = BUGS[bug]
    assert (done.stdout, report["exit_code"]) == ("done\n", 0), done
    assert done.returncode == (0 if expected is None else 1), done
    if expected is None:
        assert report["findings"] == []
        return
    kind, side, distance, lanes = expected
    (finding,) = report["findings"]
    assert (finding["kind"], finding["count"]) == (kind, lanes)
    if bug != "halved" or finding["side"] == "after":  # the allocation behind it may be nearer
        assert (finding["side"], finding["distance"]) == (side, distance)
        assert finding["allocation"]["size"] == (2000 if bug == "halved" else 4000)
    if finding["kernel"]:
        assert finding["name"] == {"read": "reads", "write": "writes", "atomic": "adds"}[access]
        places = {frame["line"] for frame in finding["frames"] if frame["file"].endswith("planted.hip")}
        assert places == {line_of(access)}
        assert finding["size"] == 4
    else:
        assert bug in ("twice", "inside", "leak")
        assert f"luthier: {kind}: " in done.stderr
        assert [frame["line"] for frame in finding["frames"]]
    lines = {name: [frame["line"] for frame in (finding[name] or {"frames": []})["frames"]] for name in PLACES}
    # The nearest allocation may be another one's of this container: all are asked for at the same place.
    assert lines["allocated"] == [line_of(f"allocated {container}")]
    given_back = bug in ("freed", "twice")
    assert lines["freed"] == (
        [line_of(f"given back {'host' if container == 'host' else 'device'}")] if given_back else []
    )


@pytest.mark.parametrize("bug", ["above", "freed"])
def test_a_pool(build_program: Build, tmp_path: Path, bug: str) -> None:
    log, program = tmp_path / "log", build_program("planted", "-g")
    done = sanitize("--device", "emu:gfx90a", "--json", log, "--", program, "pool", bug, "read")
    assert done.stdout == "done\n", done
    (finding,) = json.loads(log.read_text())["findings"]
    assert (finding["kind"], finding["side"], finding["distance"], finding["count"]) == BUGS[bug]
    assert [frame["line"] for frame in finding["allocated"]["frames"]] == [line_of("allocated pool")]


def test_formats(build_program: Build, tmp_path: Path) -> None:
    """SARIF names the line, and what `--gen-suppressions` writes leaves everything out."""
    program, sarif, known = build_program("planted", "-g"), tmp_path / "found.sarif", tmp_path / "known"
    done = sanitize(
        "--error-exitcode", "9", "--sarif", sarif, "--gen-suppressions", known, "--", program, "device", "above"
    )
    assert done.returncode == 9, done
    (run,) = json.loads(sarif.read_text())["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "out-of-bounds"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line_of("read")
    again = sanitize("--suppress", known, "--", program, "device", "above")
    assert again.returncode == 0, again
    assert "0 findings, 1 suppressed" in again.stderr


def test_a_plugin_with_hip_of_its_own(build_program: Build) -> None:
    """Libraries that are loaded for themselves alone, as frameworks of Python do, call HIP all the same."""
    plugin = build_program("planted", "-g", "-shared", "-fPIC")
    words = "b'planted', b'device', b'above', b'read'"
    code = f"import ctypes; ctypes.CDLL({str(plugin)!r}).main(4, (ctypes.c_char_p * 5)({words}))"
    done = run_luthier("sanitize", "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (1, "done\n"), done
    assert "out-of-bounds: read of 4 bytes" in done.stderr


@pytest.mark.rows(1)
@pytest.mark.parametrize("tools", [[], ["-t", "instr_count"]])
def test_under_run(build_program: Build, tools: list[str]) -> None:
    """`luthier run --check` has the same findings, with and without a tool, and reports what it leaves out."""
    for bug, code, summary in (("above", 1, "1 finding"), ("none", 0, "0 findings")):
        words = [*tools, "--check", "memory,race", "--", build_program("planted", "-g"), "device", bug, "read"]
        done = run_luthier("run", *words)
        assert (done.returncode, done.stdout) == (code, "done\n"), done
        assert f"luthier: {summary}" in done.stderr
        assert ("out-of-bounds: read of 4 bytes" in done.stderr) == bool(code)
        assert ("not checked by race" in done.stderr) == bool(tools)
        unknown = "bounds of the variables of the code object, in launches of reads: the kernel is instrumented"
        assert (unknown in done.stderr) == bool(tools)


def test_files_under_run(build_program: Build, tmp_path: Path) -> None:
    """`luthier run --check` writes findings like `luthier sanitize`, and applies suppressions."""
    program = str(build_program("planted", "-g"))
    sarif, known, log = (str(tmp_path / name) for name in ("sarif", "known", "log"))

    def look(*options: str) -> subprocess.CompletedProcess[str]:
        return run_luthier("run", *options, "--", program, "device", "above", "read")

    first = ["--sarif", sarif, "--gen-suppressions", known, "--json", log, "--error-exitcode", "7"]
    done = look("--check", "memory", *first)
    assert done.returncode == 7, done
    (result,) = json.loads(Path(sarif).read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == line_of("read")
    (finding,) = json.loads(Path(log).read_text())["findings"]
    assert (finding["kind"], finding["side"]) == ("out-of-bounds", "after")
    again = look("--check", "memory", "--suppress", known)
    assert (again.returncode, "0 findings, 1 suppressed" in again.stderr) == (0, True), again
    alone = look("--sarif", sarif)
    assert (alone.returncode, "--sarif applies to findings" in alone.stderr) == (1, True), alone


def test_no_memory_at_all(build_program: Build, tmp_path: Path) -> None:
    """An access that faults on hardware faults here and is a finding."""
    log = tmp_path / "findings.json"
    done = sanitize("--json", log, "--", build_program("faults"), "null")
    assert done.returncode == 1, done
    assert [found["kind"] for found in json.loads(log.read_text())["findings"]] == ["invalid-address"]


STOPS = {
    "lds": ("out-of-bounds", ""),
    "generic": ("out-of-bounds", ""),
    "scratch": ("fault", "access to 4 bytes of scratch at offset "),
    "trap": ("fault", "trap 2"),
    "null": ("invalid-address", "a null pointer"),
    "offset": ("invalid-address", "a null pointer plus 4096"),
    "wild": ("invalid-address", ""),
    "heap": ("invalid-address", "the host's heap: no device may access it"),
    "stack": ("invalid-address", "the host's stack: no device may access it"),
    "file": ("invalid-address", "the file {} in memory of the host: no device may access it"),
}
"""What `stops.hip` does -> kind, and the beginning of the detail."""


def check_stop(program: Path, log: Path, what: str, target: str, *words: str, before: Sequence[str] = ()) -> None:
    """Whatever stops a kernel is a finding, whether the program has memory of HIP (with a word more) or not."""
    sarif = log.with_name("sarif")
    options = ["--error-exitcode", "9", "--device", f"emu:{target}", "--json", log, "--sarif", sarif]
    done = run_luthier("sanitize", *options, "--", program, what, *words, before=before)
    report = json.loads(log.read_text())
    (finding,) = (one for one in report["findings"] if one["level"] == "error")
    goes_on = finding["instruction"].startswith("ds_")  # newer compilers make that of generic pointers, too
    assert (done.returncode, report["exit_code"]) == (9, 0 if goes_on else -signal.SIGABRT), done
    kind, detail = STOPS[what]
    assert finding["kind"] == kind, done
    assert finding["detail"].startswith(detail.format(program)), finding
    assert bool(finding["detail"]) == bool(detail), finding
    kernel = what if what in ("lds", "generic", "scratch", "trap") else "store"
    lines = (PROGRAMS / "stops.hip").read_text().splitlines()
    assert {lines[frame["line"] - 1].rpartition("line: ")[2] for frame in finding["frames"]} == {kernel}
    assert (finding["name"], finding["in_lds"]) == (kernel, kind == "out-of-bounds")
    lds = {"address": 0, "size": 1024, "number": 0, "variable": "", "object": "", "name": ""}
    assert finding["allocation"] == (lds if finding["in_lds"] else None)
    assert (finding["allocated"], finding["freed"]) == (None, None)
    assert [one["name"] for one in report["not_checked"]] == ([] if words else [kernel])
    *lines_before, last = done.stderr.splitlines()
    (run,) = json.loads(sarif.read_text())["runs"]
    notes = [note for one in run.get("invocations", ()) for note in one["toolExecutionNotifications"]]
    assert [f"luthier: {note['message']['text']}" for note in notes] == ([] if words else [lines_before[-1]])
    assert last.startswith("luthier: 1 finding")
    assert words or f"bounds to the byte, in launches of {kernel}: only the" in lines_before[-1]


@pytest.mark.rows(5)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
@pytest.mark.parametrize("words", [[], ["allocated"]], ids=["without", "allocated"])
@pytest.mark.parametrize("what", STOPS)
def test_stops(build_program: Build, tmp_path: Path, what: str, words: list[str], target: str) -> None:
    check_stop(build_program("stops", "-g"), tmp_path / "log", what, target, *words)


@pytest.mark.parametrize(("what", "side"), [("behind", "after"), ("front", "before")])
def test_what_reaches_the_next_allocation(build_program: Build, tmp_path: Path, what: str, side: str) -> None:
    """It is reported once, with the allocation that it adjoins, even if another one is nearer."""
    log = tmp_path / "log"
    done = sanitize("--check", "memory", "--json", log, "--", build_program("stops", "-g"), what, "allocated")
    (finding,) = json.loads(log.read_text())["findings"]
    assert (finding["kind"], finding["side"], finding["name"]) == ("out-of-bounds", side, "gap"), done
    assert finding["count"] > 500


@pytest.mark.thorough
@pytest.mark.rocm(RELEASE)
@pytest.mark.rows
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("what", STOPS)
def test_stops_on_newer_targets(build_newer: Build, tmp_path: Path, what: str, target: str) -> None:
    check_stop(build_newer("stops", "-g"), tmp_path / "log", what, target, before=stack(RELEASE))


def test_stops_of_raw_hsa(raw_program: Callable[..., list[Path]], tmp_path: Path) -> None:
    """A program without HIP, under `luthier run --check`: the finding, and its exit code though ROCr aborts."""
    log, sarif = tmp_path / "log", tmp_path / "sarif"
    options = ["--device", "emu:gfx90a", "--check", "memory", "--error-exitcode", "7", "--json", log, "--sarif", sarif]
    done = run_luthier("run", *options, "--", *raw_program("gfx90a"), "null")
    report = json.loads(log.read_text())
    assert (done.returncode, report["exit_code"]) == (7, -signal.SIGABRT), done
    (finding,) = report["findings"]
    assert (finding["kind"], finding["name"]) == ("invalid-address", "mark")
    assert finding["detail"].startswith("a null pointer")
    (run,) = json.loads(sarif.read_text())["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["invalid-address"]
    assert (report["not_checked"], "invocations" in run) == ([], False)
    assert done.stderr.splitlines()[-1] == "luthier: 1 finding"


@pytest.mark.rocm(RELEASE)
@pytest.mark.rows
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize(
    ("bug", "kind", "kernel"), [("lds", "out-of-bounds", "sum"), ("null", "invalid-address", "axpy")]
)
def test_stops_of_opencl(tmp_path: Path, bug: str, kind: str, kernel: str, target: str) -> None:
    log = tmp_path / "log"
    words = ["--device", f"emu:{target}", "--json", log, "--", "python3", PROGRAMS / "opencl.py", bug]
    done = run_luthier("sanitize", *words, before=stack(RELEASE))
    assert done.returncode == 1, done
    errors = [one for one in json.loads(log.read_text())["findings"] if one["level"] == "error"]
    assert {(one["kind"], one["name"], one["detail"]) for one in errors} == {
        (kind, kernel, "a null pointer" if bug == "null" else "")
    }, done


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["streams", "sparse", "grid_barrier"])
def test_clean(build_program: Build, name: str) -> None:
    done = sanitize("--check", ALL, "--", build_program(name))
    assert done.returncode == 0, done
    assert "luthier: 0 findings" in done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        "boxes",
        "saxpy",
        "reduction",
        "exchange",
        "fourier",
        "graph",
        "histogram",
        "host_memory",
        "managed",
        "physics",
        "scan",
        "sort",
        "transpose",
    ],
)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_more_clean(build_program: Build, name: str, target: str) -> None:
    done = sanitize("--check", ALL, "--device", f"emu:{target}", "--", build_program(name))
    assert "luthier: 0 findings" in done.stderr, done


def test_wrong_options(tmp_path: Path) -> None:
    done = sanitize("--check", "memory,thoughts", "--", "true")
    assert (
        done.returncode,
        "no check 'thoughts'; choose from memory, leak, race, init, barrier, early-exit, waits, hazards, fp"
        in done.stderr,
    ) == (
        1,
        True,
    )
    with pytest.raises(LuthierError, match="no kind of finding matches"):
        suppressions.parse("out-of-bound", "file")
    with pytest.raises(LuthierError, match="line 2: a suppression has"):
        suppressions.parse("# one\nleak a b c", "file")


@pytest.mark.parametrize(
    ("line", "fits"),
    [("*", True), ("out-*  _Z3sum*", True), ("out-of-bounds sum", True), ("leak", False), ("* other", False)],
)
def test_suppression(line: str, fits: bool) -> None:
    finding = Finding("out-of-bounds", 1, "_Z3sumPf", "object", 4, "global_load_dword v1, v[2:3], off")
    (suppression,) = suppressions.parse(line, "file")
    assert suppression.fits(finding) is fits


@pytest.mark.parametrize(("address", "side", "distance"), [(96, "before", 4), (100, "inside", 0), (108, "after", 0)])
def test_place(address: int, side: str, distance: int) -> None:
    finding = Finding("out-of-bounds", 1, "k", address=address, allocation=NearbyAllocation(100, 8, 1))
    assert (finding.side, finding.distance) == (side, distance)
