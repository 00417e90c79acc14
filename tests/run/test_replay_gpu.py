"""`luthier replay --device hip:0`: captured launches on GPUs. The virtual device of a run around stands for one."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commands import LUTHIER, run_luthier
from luthier.capture import read_capture, write_capture

from .conftest import TARGETS

pytestmark = pytest.mark.rows()
PROGRAMS = ("histogram", "saxpy", "sort", "linked", "transpose", "scan", "compiled_late", "arguments")
Captured = Callable[[str, str], list[Path]]


def replayed(target: str, *words: object) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and rows of a replay on a GPU of a target."""
    before = [LUTHIER, "run", "--device", f"emu:{target}", "--"]
    done = run_luthier("replay", "--device", "hip:0", "--json", *words, before=before)
    assert not done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_leave_what_was_recorded(captured: Captured, name: str, target: str) -> None:
    """Also with pointers in memory and variables of the code object (`linked`)."""
    files = captured(name, target)[:3]
    code, rows = replayed(target, "--relocate", *files)
    assert (code, {row["what"] for row in rows}, len(rows)) == (0, {"equal"}, len(files))


@pytest.mark.thorough
def test_a_difference_has_its_place(captured: Captured, tmp_path: Path) -> None:
    capture = read_capture(captured("histogram", "gfx90a")[0])
    pages = capture.pages.copy()
    address, page = capture.after[0].tolist()
    pages[page, 5] ^= 1
    write_capture(tmp_path / "other.lcap", msgspec.structs.replace(capture, pages=pages))
    code, (row,) = replayed("gfx90a", tmp_path / "other.lcap")
    begin, size = next(one for one in capture.manifest.ranges if one[0] <= address < sum(one))
    assert code == 1
    assert row["what"].startswith(f"1 bytes differ; the first is {address + 5 - begin} bytes into the {size} bytes at")


def test_another_target_cannot_run_it(captured: Captured) -> None:
    code, (row,) = replayed("gfx1030", captured("histogram", "gfx90a")[0])
    assert (code, row["status"]) == (2, 2)
    assert "code for gfx90a on a device that is gfx1030" in row["what"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--device", "hip:0", "-t", "instr_count"], "--tool is for emulated devices"),
        (["--device", "hip:0", "--check", "race"], "--check is for emulated devices"),
        (["--device", "hip:0", "--scheduler", "local"], "--scheduler is for emulated devices"),
        (["--relocate"], "--relocate is for GPUs"),
    ],
)
def test_what_is_refused(captured: Captured, words: Sequence[str], says: str) -> None:
    done = run_luthier("replay", *words, captured("histogram", "gfx90a")[0])
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
