"""What is said of kernels that run for long."""

from __future__ import annotations

import re
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
@pytest.mark.covering(1)
@pytest.mark.parametrize("options", [[], ["-t", "instr_count"]])
def test_a_kernel_that_never_ends_is_named(build_program: Callable[..., Path], options: list[str]) -> None:
    """After 10 s, and 20, not between; in nothing that is the program's own."""
    lines = 2 if EVERYTHING else 1  # the kernel takes all cores that long
    program = [str(build_program("faults")), "forever"]
    done = run_luthier("run", "--time-limit", str(4 + 10 * lines), *options, "--", *program)
    assert (done.returncode, done.stdout) == (124, "ready\n")
    found = LINE.findall(done.stderr)
    seconds = [int(one) for one, _ in found]
    executed = [int(count.replace(",", "")) for _, count in found]
    assert len(found) == lines, done.stderr
    assert all(10 * number <= one <= 10 * number + 2 for number, one in enumerate(seconds, 1))
    assert executed[0] > 0
    if EVERYTHING:
        assert 1.2 * executed[0] < executed[1], "it goes on"


def test_one_that_ends_soon_is_not(build_program: Callable[..., Path]) -> None:
    done = run_luthier("run", "--", build_program("streams"))
    assert done.returncode == 0
    assert "has been running" not in done.stderr
