"""Messages about kernels that run for long."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier
from effort import EVERYTHING

LINE = re.compile(
    r"luthier run: kernel forever has been running for (\d+) s \(process \d+; waves have executed ([\d,]+) of its "
    r"instructions\)"
)


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.parametrize("options", [[], ["-t", "instr_count"]])
def test_a_kernel_that_never_ends_is_named(build_program: Callable[..., Path], options: list[str]) -> None:
    """After 10 s, and 20, not between; in nothing that is the program's own."""
    lines = 2 if EVERYTHING else 1  # the kernel takes all cores that long
    program = [str(build_program("faults")), "forever"]
    done = run_luthier("run", "--time-limit", str(4 + 10 * lines), *options, "--", *program)
    assert (done.returncode, done.stdout) == (124, "ready\n")
    reports = LINE.findall(done.stderr)
    seconds = [int(one) for one, _ in reports]
    executed = [int(count.replace(",", "")) for _, count in reports]
    assert len(reports) == lines, done.stderr
    assert all(10 * number <= one <= 10 * number + 2 for number, one in enumerate(seconds, 1))
    assert executed[0] > 0
    if EVERYTHING:
        assert 1.2 * executed[0] < executed[1], "it goes on"


def test_why_a_kernel_did_not_end(build_program: Callable[..., Path], tmp_path: Path) -> None:
    """Its work-groups wait for more work-groups than the device holds. Executed instructions are reported, too."""
    log = tmp_path / "results.json"
    options = ["--check", "memory", "--executed", "--json", str(log)]
    done = run_luthier("run", *options, "--", str(build_program("persistent", "-g")), "500")
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
    report, output = json.loads(log.read_text()), done.stderr
    assert "luthier run: kernel persistent of process" in output
    assert "64 of 500 work-groups have begun, 0 have ended" in output
    assert "436 cannot begin before others end, since the device holds 64 work-groups of this kernel at once" in output
    assert re.search(rf"waves of 64 work-groups loop at .*persistent\.hip:{line_of('waits here')}\b", output)
    assert output.splitlines()[-1] == "luthier: 0 findings; the run was stopped before kernel persistent ended"
    (launch,) = report["unfinished"]
    assert report["ended_before"] == "kernel persistent"
    assert (launch["work_groups"], launch["begun"], launch["ended"], launch["resident"]) == (500, 64, 0, 64)
    assert (launch["is_full"], launch["repeats"]) == (True, True)
    (row,) = (row for row in report["executed"] if "persistent" in (row["kernel"] or ""))
    assert min(row["wave_instructions"], row["lane_instructions"]) > 10_000
    (note,) = report["executed_notes"]
    assert re.fullmatch(
        r"process \d+ was ended and has not reported all that it executed: its last counts are from .* earlier", note
    )
    assert f"  {note}\n" in output


def line_of(text: str) -> int:
    lines = (Path(__file__).parent / "programs" / "persistent.hip").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_program_that_was_ended_before_any_kernel(tmp_path: Path) -> None:
    log = tmp_path / "findings.json"
    done = run_luthier("sanitize", "--json", log, "--time-limit", "0.3", "--", "sleep", "60")
    assert done.stderr.splitlines()[-1] == "luthier: 0 findings; the run was stopped before the program ended"
    report = json.loads(log.read_text())
    assert (done.returncode, report["ended_before"], report["unfinished"]) == (124, "the program", [])


def test_nothing_was_executed(build_program: Callable[..., Path]) -> None:
    done = run_luthier("run", "--executed", "--", "true")
    assert (done.returncode, done.stderr) == (0, "== executed\n  no kernel was executed\n")


def test_one_that_ends_soon_is_not(build_program: Callable[..., Path]) -> None:
    done = run_luthier("run", "--", build_program("streams"))
    assert done.returncode == 0
    assert "has been running" not in done.stderr
