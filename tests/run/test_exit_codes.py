"""Exit codes of `luthier run`: nothing to instrument, nothing instrumented, and tools that fail."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import MAIN, run_luthier
from luthier.cli.main import main
from luthier.run.folder import SUMMARY
from strict_json_reader import strictly

TOOLS = """
import math
from luthier import Table, Tool

class Idle(Tool):
    def instrument(self, task): ...
    def report(self, run):
        yield Table("seen", ("kernel", "waves"), [(one.name, 7) for one in run.kernels])

class Unable(Idle):
    def instrument(self, task):
        task.leave_out("there is no way")

class Numberless(Idle):
    def report(self, run):
        yield Table("", ("variable", "value"), [("a", math.nan), ("b", -math.inf), ("c", 0.5)])

class BadReport(Idle):
    def report(self, run):
        raise KeyError("oops")  # line 20

class BadInstrument(Idle):
    def instrument(self, task):
        {}["oops"]  # line 24
"""
NAMES = {"idle": "Idle", "unable": "Unable", "numberless": "Numberless"}
NAMES |= {"bad_report": "BadReport", "bad_instrument": "BadInstrument"}
Ended = Callable[..., tuple[int, str]]


@pytest.fixture
def ended(tmp_path: Path, build_program: Callable[..., Path]) -> Ended:
    """``ended(tool, *options)``: the exit code and standard error of a program under the tool."""
    info = tmp_path / "some_tools-1.0.dist-info"
    info.mkdir()
    (tmp_path / "some_tools.py").write_text(TOOLS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: some-tools\nVersion: 1.0\n")
    points = "".join(f"{name} = some_tools:{cls}\n" for name, cls in NAMES.items())
    (info / "entry_points.txt").write_text(f"[luthier.tools]\n{points}")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    def run(tool: str, *options: str) -> tuple[int, str]:
        command = [sys.executable, "-c", MAIN, "run", "-t", tool, *options, "--", str(build_program("graph"))]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stderr

    return run


def test_programs_without_gpu_and_names_without_kernel(build_program: Callable[..., Path]) -> None:
    done = run_luthier("run", "-t", "opcode_histogram", "--", "true")
    assert done.returncode == 1
    assert "the program did not load ROCr (libhsa-runtime64.so.1)" in done.stderr
    done = run_luthier("run", "-t", "opcode_histogram", "-k", "none", "--", build_program("graph"))
    assert done.returncode == 1
    assert "no launch was selected; the program launched scale, shift" in done.stderr


@pytest.mark.parametrize("options", [(), ("--json", "out.json")])
def test_the_signal_that_ends_the_program_is_named(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Without tools and their tables, too."""
    files = [str(tmp_path / word) if word == "out.json" else word for word in options]
    done = run_luthier("run", *files, "--", "sh", "-c", "kill -TERM $$")
    assert done.returncode == -15
    assert "the program was ended by SIGTERM" in done.stderr


def test_records_that_are_not_kept(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """Without a run folder, a run says how many records of a tool it did not keep; with one, it keeps them."""
    for options, expected in ((("-o", str(tmp_path / "run")), False), ((), True)):
        done = run_luthier("run", "-t", "mem_trace", *options, "--", build_program("graph"))
        assert done.returncode == 0
        assert ("records of mem_trace's channel accesses were not kept: -o RUN" in done.stderr) == expected, done.stderr


def test_nothing_to_instrument_is_no_error(ended: Ended) -> None:
    code, output = ended("idle")
    assert code == 0, output
    assert "no tool requested a hook" in output
    code, output = ended("unable")
    assert code == 1
    assert "luthier run: error: nothing was instrumented: nothing could be instrumented: there is no way" in output


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("tool", "function", "line"), [("bad_report", "report", 20), ("bad_instrument", "instrument", 24)]
)
def test_a_tool_that_fails(ended: Ended, tmp_path: Path, tool: str, function: str, line: int) -> None:
    """It is an error, also if nothing must be instrumented, and names tool, file, line and kernel."""
    code, output = ended(tool, "--allow-nothing")
    assert code == 1
    wanted = f"tool {tool} failed in {function} at {tmp_path / 'some_tools.py'}:{line}: KeyError: 'oops'"
    assert f"luthier run: error: {wanted}" in output
    assert ("(kernel " in output) == (tool == "bad_instrument")


def test_results_are_json_whatever_the_numbers(ended: Ended, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are text in files, and numbers again in reports and conditions."""
    run, all_of_it = str(tmp_path / "run"), tmp_path / "all.json"
    code, output = ended("numberless", "-o", run, "--json", str(all_of_it))
    assert code == 0, output
    rows = [["a", "nan"], ["b", "-inf"], ["c", 0.5]]
    for path in (all_of_it, Path(run) / SUMMARY):
        (tool,) = strictly(path.read_text())["tools"]
        assert tool["tables"][0]["rows"] == rows
    assert main(["report", run, "--all"]) == 0
    assert "\n\nnumberless\n  variable  value\n  a           nan\n  b          -inf\n" in capfd.readouterr().out
    assert main(["report", run, "--fail-if", "numberless.a > 0", "--fail-if", "numberless.c < 0"]) == 0
    assert main(["report", run, "--fail-if", "numberless.b < 0"]) == 1
