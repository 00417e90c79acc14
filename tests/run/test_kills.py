"""Processes that are killed at any moment: what is kept is what a whole run keeps, and the next run is right."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import PATIENCE, session, start_luthier
from effort import EVERYTHING
from kept import ROOT

KILLS = 25 if EVERYTHING else 5
"""Of each test; 1,000 in `make test-all`."""
PROJECT = ROOT / "examples/tools/instr_count"
COMMANDS = {
    "run": ("run", "-t", "instr_count", "--json", "{out}/run.json", "--", "{program}"),
    "trace": ("run", "-t", "mem_trace", "--json", "{out}/run.json", "--", "{program}"),
    "patch": ("patch", "{program}", "-t", "instr_count", "-o", "{out}/patched"),
    "build": (
        *("build", "--project", PROJECT, f"{PROJECT}/luthier_instr_count/device.hip", "--target", "gfx90a"),
        *("--build-dir", "{cache}/build", "-o", "{out}/module"),
    ),
}


class Whole(NamedTuple):
    """An undisturbed run with an empty cache."""

    results: Mapping[str, Any]
    entries: Mapping[Any, bytes]
    seconds: float


def results(folder: Path) -> dict[str, Any]:
    """Return what a command has written, but for what differs from run to run."""
    contents: dict[str, Any] = {}
    for path in folder.rglob("*"):
        if path.suffix == ".json" and path.name.startswith("run"):
            tables = [table for tool in json.loads(path.read_text())["tools"] for table in tool["tables"]]
            contents[path.name] = [
                table["rows"] if "value" in table["columns"] else len(table["rows"]) for table in tables
            ]
        elif path.is_file():
            contents[path.name] = path.read_bytes()
    return contents


def entries(cache: Path) -> dict[Any, bytes]:
    """Return what is kept, by its key or name: all that a later run would believe."""
    contents: dict[Any, bytes] = {}
    for path in cache.rglob("*"):
        if path.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as database, suppress(sqlite3.OperationalError):  # without a table yet
                for key, checksum, value in database.execute("SELECT key, checksum, value FROM kept"):
                    contents[path.name, key] = checksum + value
        elif path.suffix == ".record":  # marks the file as complete
            made = path.with_suffix("")
            if made.suffix == ".pch":  # its name depends on folders; builds that use it must give the same results
                continue
            contents[made.name] = hashlib.sha256(made.read_bytes()).digest() if made.exists() else b""
    return contents


@pytest.fixture(scope="module")
def begin(build_program: Callable[..., Path]) -> Callable[[str, Path, Path], Any]:
    """``begin(command, folder, cache)``: start a command."""

    def start(command: str, folder: Path, cache: Path) -> Any:
        shutil.rmtree(folder, ignore_errors=True)
        for place in (folder / "made", folder.with_name("tmp")):
            place.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
        places = {"out": folder / "made", "cache": cache, "program": build_program("graph")}
        words = [str(word).format(**places) for word in COMMANDS[command]]
        env = os.environ | {"LUTHIER_CACHE_DIR": str(cache), "TMPDIR": str(folder.with_name("tmp"))}
        return start_luthier(*words, env=env, files=folder)

    return start


@pytest.fixture(scope="module")
def whole(begin: Callable[[str, Path, Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """``whole(command)``: what an undisturbed run leaves."""
    known: dict[str, Whole] = {}

    def run(command: str) -> Whole:
        if command not in known:
            folder = tmp_path_factory.mktemp(command)
            started = time.monotonic()
            process = begin(command, folder / "run", folder / "cache")
            process.join(PATIENCE)
            assert process.exitcode == 0, (folder / "run/err").read_text()
            seconds = time.monotonic() - started
            known[command] = Whole(results(folder / "run/made"), entries(folder / "cache"), seconds)
            assert known[command].results
            assert known[command].entries
        return known[command]

    return run


def await_end(process: Any) -> None:
    """Wait until all processes of a session have ended."""
    deadline = time.monotonic() + PATIENCE
    process.join(PATIENCE)
    while process.is_alive() or session(process.pid):
        assert time.monotonic() < deadline, session(process.pid)
        time.sleep(0.02)


@pytest.mark.rows(1, "command")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=[pytest.mark.thorough] * (name == "build")) for name in COMMANDS]
)
def test_kills(
    command: str, seed: int, begin: Callable[[str, Path, Path], Any], whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    chance, expected, cache = random.Random(f"{command} {seed}"), whole(command), tmp_path / "cache"
    for number in range(KILLS):
        if chance.random() < 0.5:
            shutil.rmtree(cache, ignore_errors=True)
        process = begin(command, tmp_path / "run", cache)
        time.sleep(chance.uniform(0, 1.2) * expected.seconds)
        with suppress(ProcessLookupError):
            os.kill(chance.choice([process.pid, *session(process.pid)]), signal.SIGKILL)
        await_end(process)
        kept = entries(cache)
        wrong = [key for key, value in kept.items() if expected.entries.get(key) != value]
        assert not wrong, (number, wrong)
        if process.exitcode == 0:  # no process was killed, or a child was replaced
            assert results(tmp_path / "run/made") == expected.results, number
    process = begin(command, tmp_path / "run", cache)
    await_end(process)
    assert process.exitcode == 0, (tmp_path / "run/err").read_text()
    assert results(tmp_path / "run/made") == expected.results
    assert entries(cache) == expected.entries
    assert not [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("luthier")]
