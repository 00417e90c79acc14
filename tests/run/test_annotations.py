"""`luthier_annotate.h`: parts of an allocation that a caching allocator gives out have bounds, ends and contents."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier

from .conftest import PROGRAMS
from .sanitized import findings_of, marked_line

Build = Callable[..., Path]
WAYS = {
    "over": ("out-of-bounds", "fills", "after", 400, "bias"),
    "behind": ("out-of-bounds", "fills", "after", 1024, ""),
    "late": ("use-after-free", "fills", "inside", 512, "weights"),
    "unwritten": ("uninitialised-mask", "adds", "", None, None),
    "twice": ("double-free", "", "inside", 512, "weights"),
    "reused": None,
    "right": None,
}
"""Way of caching.hip -> kind, line, side, and size and name of the part; None if it is right."""


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
    kind, line, side, size, name = expected
    assert (finding["kind"], finding["side"]) == (kind, side), finding
    if line:
        assert finding["source"]["line"] == marked_line("caching.hip", line), finding
    if size is not None:
        assert (finding["allocation"]["size"], finding["allocation"]["name"]) == (size, name), finding
        assert finding["allocated"]["source"]["line"] == marked_line("caching.hip", "get"), finding


def test_from_python(scale_kernel: Path) -> None:
    """An allocator in Python names its parts through ctypes; a kernel writes beyond one, into the next."""
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    script = PROGRAMS / "caching.py"
    words = ["--check", "memory", "--device", "emu:gfx90a", "--", sys.executable, script, scale_kernel]
    done = run_luthier("sanitize", *words)
    line = next(at for at, text in enumerate(script.read_text().splitlines(), 1) if text.endswith("# announced"))
    assert done.returncode == 1, done
    assert "0 bytes after the end of the part bias of 1600 bytes at" in done.stderr, done
    assert f"{script.name}:{line} (Cache.get)\n" in done.stderr, done
    assert "1 finding\n" in done.stderr, done


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
