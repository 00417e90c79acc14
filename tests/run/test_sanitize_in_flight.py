"""`luthier sanitize --check in-flight`: the host's uses of memory that an asynchronous copy may still use."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier
from rocm_stacks import stack

from .sanitized import findings_of, marked_line
from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here

Build = Callable[..., Path]
line_of = partial(marked_line, "in_flight.hip")
WRONG = {
    "writes": ("write-in-flight", "writes", "to device", "the host writes"),
    "writes by memset": ("write-in-flight", "sets", "to device", "the host writes"),
    "writes in a thread": ("write-in-flight", "writes", "to device", "the host writes"),
    "writes by read": ("write-in-flight", "takes in", "to device", "read writes"),
    "writes after another stream": ("write-in-flight", "writes", "to device", "the host writes"),
    "writes after an early event": ("write-in-flight", "writes", "to device", "the host writes"),
    "writes in a host function": ("write-in-flight", "writes", "to device", "the host writes"),
    "reads": ("access-in-flight", "reads", "to host", "the host reads"),
    "reads by write": ("access-in-flight", "passes out", "to host", "write reads"),
    "writes what is written": ("access-in-flight", "writes", "to host", "the host writes"),
}
"""Use -> kind, line of the use, line of the copy, beginning of the description."""
RIGHT = (
    *("frees in order", "reads what is read", "stream", "device", "event", "event of a stream that waits", "query"),
    *("copy of the null stream", "host function", "pageable", "round trip", "freed at once", "own handler"),
    "event that is recorded in another way",
)
MEMORY = ("allocated", "registered", "managed")
TARGETS = ("gfx90a", "gfx1030")


def found_by(build_program: Build, log: Path, use: str, memory: str, target: str) -> list[dict[str, Any]]:
    program = build_program("in_flight", "-g")
    return findings_of([program, use, memory], log, "--check", "in-flight", target=target)


def own_lines(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["line"] for frame in frames if frame["file"].endswith("in_flight.hip")]


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("use", WRONG)
def test_use(build_program: Build, tmp_path: Path, use: str, memory: str, target: str) -> None:
    kind, line, copy, text = WRONG[use]
    (finding,) = found_by(build_program, tmp_path / "log", use, memory, target)
    assert (finding["kind"], finding["count"]) == (kind, 1)
    assert own_lines(finding["frames"]) == [line_of(line)]
    assert own_lines(finding["accessed"]["stack"])[0] == line_of(line)
    assert own_lines(finding["enqueued"]["frames"]) == [line_of(copy)]
    assert finding["detail"].startswith(f"{text} memory before it synchronises with hipMemcpyAsync of 65536 bytes")
    if memory == "registered":
        assert finding["allocation"]["size"] == 65536
    else:
        assert own_lines(finding["allocated"]["frames"])


@pytest.mark.parametrize("target", TARGETS)
def test_free_in_another_stream(build_program: Build, tmp_path: Path, target: str) -> None:
    (finding,) = found_by(build_program, tmp_path / "log", "frees", "allocated", target)
    assert finding["kind"] == "free-in-flight"
    assert own_lines(finding["frames"]) == [line_of("frees")]
    assert own_lines(finding["enqueued"]["frames"]) == [line_of("to freed")]


@pytest.mark.rows(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("use", RIGHT)
def test_right_use(build_program: Build, tmp_path: Path, use: str, memory: str, target: str) -> None:
    assert found_by(build_program, tmp_path / "log", use, memory, target) == []


def test_copies_beyond_the_limit_are_reported(build_program: Build, tmp_path: Path) -> None:
    program, log = build_program("in_flight", "-g"), tmp_path / "log"
    words = ["sanitize", "--check", "in-flight", "--device", "emu:gfx90a", "--json", log, "--", program, "crowd"]
    done = run_luthier(*words, "allocated")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert "not checked: copies in flight: 4,096 later ones were in flight" in done.stderr
    assert "copies in flight" in {row["what"] for row in json.loads(log.read_text())["not_checked"]}


@pytest.mark.rocm(RELEASE)
def test_newer_rocm(build_newer: Build, tmp_path: Path) -> None:
    program = build_newer("in_flight", "-g")
    for use, kinds in {"writes": ["write-in-flight"], "reads": ["access-in-flight"], "round trip": []}.items():
        words: list[str | Path] = [program, use, "allocated"]
        findings = findings_of(words, tmp_path / "log", "--check", "in-flight", target="gfx1100", before=stack(RELEASE))
        assert [finding["kind"] for finding in findings] == kinds
