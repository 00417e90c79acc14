"""`luthier sanitize --checks host`: what the host does wrong with HIP is told at the line of the call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import PROGRAMS
from .test_sanitize import sanitize

Build = Callable[..., Path]
BUGS = {
    "none": None,
    "seen": None,
    "error": ("call-error", "hipMemcpy", "hipErrorInvalidValue"),
    "unseen": ("unseen-error", "hipLaunchKernel", "hipErrorInvalidConfiguration"),
    "unseen at the end": ("unseen-error", "hipLaunchKernel", "hipErrorInvalidConfiguration"),
    "copy": ("copy-out-of-bounds", "hipMemcpy", ""),
    "copy back": ("copy-out-of-bounds", "hipMemcpy", ""),
    "fill": ("copy-out-of-bounds", "hipMemset", ""),
    "freed": ("copy-after-free", "hipMemset", ""),
    "busy": ("busy-stream", "hipStreamDestroy", ""),
}
"""Bug of `host_errors.hip` -> kind, function and error."""


def line_of(bug: str) -> int:
    text = (PROGRAMS / "host_errors.hip").read_text().splitlines()
    return next(number for number, line in enumerate(text, 1) if line.endswith(f"// line: {bug}"))


@pytest.mark.parametrize("bug", BUGS)
def test_bug(build_program: Build, tmp_path: Path, bug: str) -> None:
    log = tmp_path / "log"
    done = sanitize("--checks", "host", "--json", log, "--", build_program("host_errors", "-g"), bug)
    told, expected = json.loads(log.read_text()), BUGS[bug]
    assert (done.stdout, told["exit_code"], done.returncode) == ("done\n", 0, int(expected is not None)), done
    if expected is None:
        assert told["findings"] == []
        return
    (found,) = told["findings"]
    assert (found["kind"], found["call"], found["detail"]) == expected
    assert {frame["line"] for frame in found["frames"] if frame["file"].endswith("host_errors.hip")} == {line_of(bug)}
    if expected[0].startswith("copy"):
        assert found["allocation"]["size"] == 4000
        assert re.search(r"[0-9]+ bytes at 0x[0-9a-f]+, at byte [0-9]+ of an allocation of 4000 bytes", done.stderr)


@pytest.mark.parametrize("name", ["streams", "graph"])
def test_clean(build_program: Build, name: str) -> None:
    done = sanitize("--checks", "host", "--", build_program(name))
    assert (done.returncode, "luthier: 0 findings" in done.stderr) == (0, True), done
