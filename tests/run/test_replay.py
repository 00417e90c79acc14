"""What can be done with captured launches beside replaying them: tools, checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import MAIN, PATIENCE

Luthier = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def luthier() -> Luthier:
    """``luthier(*words)``: run the command with these arguments."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-c", MAIN, *map(str, words)]
        return subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ})

    return run


@pytest.fixture(scope="module")
def captured(
    build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], list[Path]]:
    """``captured(name, target)``: the captures of a program's launches, which must not be changed."""
    made: dict[tuple[str, str], list[Path]] = {}

    def capture(name: str, target: str = "gfx90a") -> list[Path]:
        if (name, target) not in made:
            folder = tmp_path_factory.mktemp(f"{name}-{target}") / "kept"
            words = ["capture", "--device", f"emu:{target}", "-o", str(folder), "--", str(build_program(name))]
            subprocess.run(
                [sys.executable, "-c", MAIN, *words], check=True, capture_output=True, timeout=PATIENCE, env=os.environ
            )
            made[name, target] = sorted(folder.iterdir())
        return made[name, target]

    return capture


# Tools --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["gfx90a", "gfx1030"])
def test_tools_count_as_the_replay_does(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path, target: str
) -> None:
    files = captured("reduction", target)
    truth = json.loads(luthier("replay", "--json", *files).stdout)
    run = temporary / "run"
    done = luthier("replay", "--json", "-t", "instr_count:per_wave", "-t", "opcode_histogram", "-o", run, *files)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert {row["what"] for row in told["replays"]} == {"equal"}
    assert all(a["instructions"] > b["instructions"] for a, b in zip(told["replays"], truth, strict=True))
    tables = {tool["tool"]: tool["tables"] for tool in told["tools"]}
    ((_, counted),) = tables["instr_count"][0]["rows"]
    by_kernel = [table["rows"][-1][1] for table in tables["opcode_histogram"]]
    assert by_kernel == [row["instructions"] for row in truth]
    assert counted == sum(by_kernel)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["exit_code"] == 0
    assert summary["devices"] == [f"emu:{target}"]
    launches = luthier("report", run, "--format", "json")
    assert launches.returncode == 0, launches.stderr
    assert summary["tables"]["launches"] == len(files)
    assert summary["tables"]["kernels"] == len(files)


def test_tools_get_records(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    done = luthier("replay", "-t", "mem_trace", captured("histogram")[0])
    assert done.returncode == 0, done.stderr
    assert "== mem_trace" in done.stdout
    assert "1 of 1" in done.stdout
    records = [line.split() for line in done.stdout.splitlines()]
    at = records.index(["process", "device", "records", "dropped", "lost"])
    # One for each access of an active lane: all bytes of the input, and what 13 work-groups add to 256 bins.
    assert records[at + 1][2:] == [str(60000 + 13 * 256), "0", "0"]


def test_a_difference_under_tools_is_told(
    captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path
) -> None:
    spoilt = spoil(captured("histogram")[0], temporary / "spoilt.lcap")
    done = luthier("replay", "-t", "instr_count", spoilt)
    assert done.returncode == 1
    assert "bytes differ" in done.stdout


def test_options_of_tools(captured: Callable[..., list[Path]], luthier: Luthier, temporary: Path) -> None:
    file = captured("histogram")[0]
    for words, message in (
        (["-t", "no_such_tool"], "no_such_tool"),
        (["-t", "instr_count:nothing=1"], "nothing"),
        (["-o", temporary / "run"], "-t"),
        (["-t", "instr_count", "--check", "races"], "--check"),
    ):
        done = luthier("replay", file, *words)
        assert (done.returncode, message in done.stderr) == (1, True), done


# Checks -------------------------------------------------------------------------------------------------------------


def test_checks_find_what_one_work_group_does(captured: Callable[..., list[Path]], luthier: Luthier) -> None:
    gather, mix = captured("defects")
    done = luthier("replay", "--check", "races,bounds", gather)
    assert (done.returncode, "equal" in done.stdout) == (0, True), done
    done = luthier("replay", "--json", "--check", "races", "--check", "waits", mix)
    (row,) = json.loads(done.stdout)
    assert done.returncode == 1
    assert row["what"] == "equal, 2 findings"
    assert all(text.startswith("race in") and "work-group 57" in text for text in row["findings"])
    assert luthier("replay", "--check", "waits,hazards", mix).returncode == 0
    wrong = luthier("replay", "--check", "rases", mix)
    assert wrong.returncode == 1
    assert "races" in wrong.stderr


def spoil(file: Path, output: Path) -> Path:
    """Write a capture of which another byte is expected."""
    import dataclasses

    from luthier.capture import read_capture, write_capture

    capture = read_capture(file)
    pages = capture.pages.copy()
    pages[int(capture.after["page"][0]), 5] ^= 1
    write_capture(output, dataclasses.replace(capture, pages=pages))
    return output
