"""`luthier sanitize --check race` of kernels and copies on two streams: only unordered accesses are reported."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import run_luthier

from .conftest import PROGRAMS
from .sanitized import findings_of, marked_line

Build = Callable[..., Path]
line_of = partial(marked_line, "stream_races.hip")
SOURCE = PROGRAMS / "stream_races.hip"
RACES = {
    "write-write": ("writes", "writes"),
    "write-read": ("reads", "writes"),
    "read-write": ("writes", "reads"),
    "atomic-write": ("writes", "adds"),
    "event-too-early": ("reads", "writes"),
    "copy-from": ("writes", "copy-from"),
    "copy-before": ("writes", "copy-before"),
    "other-seen": ("reads", "writes"),
    "copy-to": ("reads", "copy-to"),
    "fill": ("writes", "fill"),
    "fill-behind": ("reads", "writes"),
}
"""Pair -> the two lines of `SOURCE` that race. Of two kernels the one that ends first is the other one."""
ORDERED = (
    *("event", "event-sync", "stream-sync", "device-sync", "query", "one-stream", "default-stream", "callback"),
    *("late-event", "thread", "fill-between", "elsewhere", "same-value", "atomics", "reads", "flag", "host-flag"),
    *("copied-flag", "freed"),
)
TARGETS = ("gfx90a", "gfx1030")


def found_by(program: Path, log: Path, target: str, *pairs: str, **environment: str) -> list[dict[str, Any]]:
    return findings_of([program, *pairs], log, "--check", "race", target=target, env={**os.environ, **environment})


def lines_of(finding: dict[str, Any]) -> set[int]:
    return {frame["line"] for frame in finding["frames"] if frame["file"].endswith(SOURCE.name)}


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("pair", RACES)
def test_race(build_program: Build, tmp_path: Path, pair: str, target: str) -> None:
    check(pair, found_by(build_program("stream_races", "-g"), tmp_path / "log", target, pair))


@pytest.mark.parametrize("pair", ["copy-from", "copy-to"])
def test_race_with_copy_by_kernel(build_program: Build, tmp_path: Path, pair: str) -> None:
    program = build_program("stream_races", "-g")
    check(pair, found_by(program, tmp_path / "log", "gfx90a", pair, HSA_ENABLE_SDMA="0"))


def check(pair: str, findings: list[dict[str, Any]]) -> None:
    """Compare what was found in a run of a pair that races."""
    (race,) = findings
    assert (race["kind"], race["size"], race["count"]) == ("race", 4, 1024)
    assert race["allocation"]["size"] == 4096
    places = [(race["name"], lines_of(race))]
    other = race["other"]
    if other["call"]:
        is_fill = pair == "fill"
        assert (other["call"], other["size"]) == ("hipMemsetAsync" if is_fill else "hipMemcpyAsync", 4096)
        assert other["writes"] == (is_fill or pair == "copy-to")
        (own,) = places
        assert own == (RACES[pair][0], {line_of(RACES[pair][0])})
        assert line_of(RACES[pair][1]) in lines_of(other)
        return
    assert (other["address"], other["size"]) == (race["address"], 4)
    assert {line_of(name) for name in RACES[pair]} == lines_of(race) | lines_of(other)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("engines", "10")
def test_no_race(build_program: Build, tmp_path: Path, target: str, engines: str) -> None:
    program = build_program("stream_races", "-g")
    assert found_by(program, tmp_path / "log", target, *ORDERED, HSA_ENABLE_SDMA=engines) == []


def test_text(build_program: Build) -> None:
    program = build_program("stream_races", "-g")
    done = run_luthier("sanitize", "--check", "race", "--", program, "write-write", "copy-from")
    assert done.returncode == 1, done
    assert ", kernel writes, launch 1\n" in done.stderr
    assert "the other access is a copy that reads 4096 bytes from 0x" in done.stderr
    assert "by hipMemcpyAsync, last called at 0x" in done.stderr


def test_fill_around_what_a_kernel_accesses(build_program: Build, tmp_path: Path) -> None:
    """The fill is described by its own first byte. What races with it in one line of the kernel is one error, also
    where the host's calls have no names."""
    program, log = build_program("stream_races", "-Xarch_device", "-g", "-Xarch_host", "-s"), tmp_path / "log"
    done = run_luthier("sanitize", "--check", "race", "--json", log, "--", program, "fill-around")
    races = json.loads(log.read_text())["findings"]
    assert sorted(race["address"] - race["allocation"]["address"] for race in races) == [1024, 2048]
    for race in races:
        assert race["other"]["frames"] == []
        assert (race["other"]["address"], race["other"]["size"]) == (race["allocation"]["address"], 4096)
    assert done.stderr.count("luthier: race: ") == 1, done.stderr
    assert "luthier:     the same at 1 other instruction of the line: 0x" in done.stderr


def test_launches_that_are_not_observed(build_program: Build, tmp_path: Path) -> None:
    """They race with nothing, nor do they count as the fill of the same memory that came before."""
    words = "--check", "race", "--kernel", "reads"
    pairs = "fill", "write-read", "read-write", "event-too-early"
    program = build_program("stream_races", "-g")
    assert findings_of([program, *pairs], tmp_path / "log", *words, target="gfx90a") == []
