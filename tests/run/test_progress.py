"""Progress on a terminal: shown after a second, never mixed with what the program writes there, and gone afterwards."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import MAIN

SLOW = """
import time
from luthier import InstrumentationTask, Tool

class Slow(Tool):
    def instrument(self, task: InstrumentationTask) -> None:
        time.sleep(1.7)
"""
UNFINISHED = """
import subprocess, sys
sys.stdout.write("the program is in the middle of a line ...")
sys.stdout.flush()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
sys.stdout.write(" and goes on\\nnext line\\n")
"""
_PART = re.compile(r"\x1b(?:[78]|\[\?7[lh]|\[K)|\r|\n|[^\x1b\r\n]+")


class Screen:
    """A terminal that implements the control sequences used here; others are errors."""

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.lines = [""]
        self.shown: list[str] = []
        """Lines that were to be seen when the cursor went back."""
        self._at = self._saved = 0
        self._wraps = True

    def write(self, text: str) -> None:
        """Show text."""
        end = 0
        for part in _PART.finditer(text):
            assert part.start() == end, text[end : part.start()]
            end = part.end()
            self._write(part[0])
        assert end == len(text)

    def _write(self, part: str) -> None:
        line = self.lines[-1]
        if part == "\x1b7":
            self._saved = self._at
        elif part == "\x1b8":
            self.shown.append(line)
            self._at = self._saved
        elif part == "\x1b[K":
            self.lines[-1] = line[: self._at]
        elif part in ("\x1b[?7l", "\x1b[?7h"):
            self._wraps = part.endswith("h")
        elif part == "\r":
            self._at = 0
        elif part == "\n":
            self.lines.append("")
            self._at = 0
        elif not self._wraps:
            room = max(self.columns - self._at, 0)
            self.lines[-1] = line[: self._at].ljust(self._at) + part[:room] + line[self._at + len(part) :]
            self._at = min(self._at + len(part), self.columns - 1)
        else:
            self.lines[-1] = line[: self._at].ljust(self._at) + part + line[self._at + len(part) :]
            self._at += len(part)


def on_terminal(argv: list[str], env: dict[str, str]) -> tuple[int, Screen]:
    """Run a program with a terminal for everything."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=env, close_fds=True) as process:
        os.close(theirs)
        data = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # all have closed it
                break
            if not part:
                break
            data += part
        code = process.wait()
    os.close(ours)
    screen = Screen(80)
    screen.write(data.decode())
    return code, screen


@pytest.fixture
def slow_tool(tmp_path: Path) -> dict[str, str]:
    """An environment in which a tool is installed that takes its time."""
    (tmp_path / "slow_tool.py").write_text(SLOW)
    (tmp_path / "slow_tool-1.dist-info").mkdir()
    (tmp_path / "slow_tool-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: slow\nVersion: 1\n")
    points = "[luthier.tools]\nslow = slow_tool:Slow\n"
    (tmp_path / "slow_tool-1.dist-info" / "entry_points.txt").write_text(points)
    return {**os.environ, "PYTHONPATH": str(tmp_path), "TERM": "xterm"}


@pytest.fixture
def unfinished(build_program: Callable[[str], Path]) -> list[str]:
    """Command of a program with two kernels in the middle of a line, under that tool."""
    command = ["run", "-t", "slow", "--allow-nothing", "--", sys.executable, "-c", UNFINISHED]
    return [sys.executable, "-c", MAIN, *command, str(build_program("graph"))]


def test_a_program_in_the_middle_of_a_line(unfinished: list[str], slow_tool: dict[str, str]) -> None:
    with subprocess.Popen(
        unfinished, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=slow_tool
    ) as piped:  # in parallel, because the tool sleeps most of the time
        code, screen = on_terminal(unfinished, slow_tool)
        output, errors = piped.communicate()
    assert code == 0, screen.lines
    assert screen.lines[0] == "the program is in the middle of a line ... and goes on"
    assert screen.lines[1:4] == ["next line", "== slow", "== coverage"]
    assert screen.shown, "nothing was shown"
    assert all(line.startswith("the program is in the middle of a line ...luthier: ") for line in screen.shown)
    assert all(len(line) <= 80 for line in screen.shown)
    assert piped.returncode == 0
    assert output == "the program is in the middle of a line ... and goes on\nnext line\n"
    assert "\x1b" not in errors
    assert "patching" not in errors


@pytest.mark.thorough
@pytest.mark.parametrize("simple", [{"TERM": "dumb"}, {"JPY_PARENT_PID": "1"}], ids="".join)
def test_a_terminal_that_shows_no_progress(
    unfinished: list[str], slow_tool: dict[str, str], simple: dict[str, str]
) -> None:
    code, quiet = on_terminal(unfinished, {**slow_tool, **simple})
    assert (code, quiet.shown) == (0, [])


AWAITED = """
import sys, time
from luthier.terminal import say
from luthier_build.cli import doctor

def examine():
    for subject, seconds in (("quick", 0), ("slow", 1.5), ("last", 0)):
        time.sleep(seconds)
        yield doctor.DoctorLine(subject, "ok", "it works")

doctor.examine = examine
from luthier.cli.main import main
sys.exit(main(["doctor"]))
"""


def test_lines_that_take_long() -> None:
    """`luthier doctor` shows that it works, under the lines that it has; no progress line stays."""
    code, screen = on_terminal([sys.executable, "-c", AWAITED], {**os.environ, "TERM": "xterm"})
    assert code == 0
    assert [line.split()[1] for line in screen.lines if line] == ["quick", "slow", "last"]
    assert screen.shown
    assert all(line.startswith("examining this machine, ") for line in screen.shown)


def test_steps_with_rate_and_time_left() -> None:
    script = """
import time
from luthier.cli.progress import ProgressLine
with ProgressLine("lifting", 1000) as progress:
    for number in range(16):
        progress.step(f"kernel{number}")
        time.sleep(0.1)
print("done")
with ProgressLine("quick", 3) as progress:
    progress.step("kernel")
"""
    code, screen = on_terminal([sys.executable, "-c", script], {**os.environ, "TERM": "xterm"})
    assert (code, screen.lines) == (0, ["done", ""])
    matches = [
        re.fullmatch(r"lifting kernel(\d+), (\d+) of 1000, ([\d.]+) per second, (.*) left", one) for one in screen.shown
    ]
    assert matches
    for match in matches:
        assert match is not None
        assert int(match[2]) == int(match[1]) + 1
        assert 1 < float(match[3]) <= 10
        assert re.fullmatch(r"\d+ min \d+ s", match[4])
