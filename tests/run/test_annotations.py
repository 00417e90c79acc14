"""`luthier_annotate.h`: parts of an allocation that a caching allocator gives out have bounds, ends and contents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier

from .sanitized import findings_of, marked_line

Build = Callable[..., Path]
WAYS = {
    "over": ("out-of-bounds", "fills", "after", 400),
    "behind": ("out-of-bounds", "fills", "after", 1024),
    "late": ("use-after-free", "fills", "inside", 512),
    "unwritten": ("uninitialised-mask", "adds", "", None),
    "twice": ("double-free", "", "inside", 512),
    "reused": None,
    "right": None,
}
"""Way of caching.hip -> kind, line, side and size of the part; None if it is right."""


@pytest.mark.rows(3)
@pytest.mark.parametrize("way", WAYS)
def test_parts(build_program: Build, tmp_path: Path, way: str) -> None:
    command = [build_program("caching", "-g"), way]
    options = ["--check", "memory,leak,init", "--init", "decisions"]
    findings = findings_of(command, tmp_path / "log", *options, target="gfx90a")
    expected = WAYS[way]
    if expected is None:
        assert findings == []
        return
    (finding,) = findings
    kind, line, side, size = expected
    assert (finding["kind"], finding["side"]) == (kind, side), finding
    if line:
        assert finding["source"]["line"] == marked_line("caching.hip", line), finding
    if size is not None:
        assert finding["allocation"]["size"] == size, finding
        assert finding["allocated"]["source"]["line"] == marked_line("caching.hip", "get"), finding


@pytest.mark.parametrize(
    ("way", "message"), [("whole", " is not in a part\n"), ("nested", " overlap a live part, and are left out")]
)
def test_refused(build_program: Build, way: str, message: str) -> None:
    program = build_program("caching", "-g")
    done = run_luthier("sanitize", "--check", "memory", "--device", "emu:gfx90a", "--", program, way)
    assert (done.returncode, done.stderr.count(message), "0 findings" in done.stderr) == (0, 1, True), done


def test_unchecked(build_program: Build) -> None:
    """Without checks the functions do nothing."""
    done = run_luthier("run", "-t", "memcheck", "--device", "emu:gfx90a", "--", build_program("caching", "-g"), "twice")
    assert (done.returncode, "luthier_free" in done.stderr) == (0, False), done
