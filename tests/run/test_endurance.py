"""Endurance: 100,000 launches in constant memory, storms of processes, kills at any moment, folders that are read-only
or full, users without a passwd entry."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import MAIN, PATIENCE, session
from effort import EVERYTHING

Build = Callable[[str], Path]
Do = Callable[..., subprocess.CompletedProcess[str]]
LUTHIER = [sys.executable, "-c", MAIN]
RUN = [*LUTHIER, "run", "--device", "emu:gfx90a"]
GROWTH = 2048
"""KiB that a process may grow by, from the first tenth of its launches to the last."""


def _do(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment}
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE, env=variables)


def _launches(table: str) -> int:
    """Return the number of launches of `add` under a tool, from the printed coverage."""
    match = re.search(r"^\s+add\s+(\d+) of \1\s", table, re.MULTILINE)
    assert match, table
    return int(match[1])


@pytest.mark.parametrize("options", [["-t", "instr_count"], *([[], ["-t", "instr_count", "-o"]] if EVERYTHING else [])])
def test_memory_stays_the_same(build_program: Build, tmp_path: Path, options: list[str]) -> None:
    launches = 100_000 if EVERYTHING else 5_000
    folder = [tmp_path / "run"] if options[-1:] == ["-o"] else []
    done = _do(*RUN, *options, *folder, "--", build_program("endurance"), "soak", str(launches))
    assert done.returncode == 0, done
    rows = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [launches // 10 * part for part in range(1, 11)]
    # What a run folder is written from is held until enough of it is there: some 200 bytes a launch. Both processes
    # map the ring of launches; each launch touches 64 bytes until the ring wraps.
    allowed = (0, GROWTH + (launches // 16 if folder else 0), GROWTH + (launches // 5 if folder else 0))
    # What leaks grows in each step; once in a run the service loads a compiler, for code that is hot.
    for values, most in zip(zip(*rows, strict=True), allowed, strict=True):
        steps = [after - before for before, after in itertools.pairwise(values)]
        assert statistics.median(steps) * len(steps) <= most or not most, values
    if options:
        assert _launches(done.stderr) == launches + launches // 100


@pytest.mark.thorough
def test_a_storm_of_processes(build_program: Build) -> None:
    number = 64 if EVERYTHING else 8
    done = _do(*RUN, "-t", "instr_count", "--", build_program("endurance"), "storm", str(number))
    assert (done.returncode, done.stdout) == (0, f"{number} processes, {number // 4} killed\n"), done
    # Launches of killed processes may or may not have run.
    lived = number - number // 4 + 1
    match = re.search(r"^\s+add\s+(\d+) of (\d+)\s", done.stderr, re.MULTILINE)
    assert match, done.stderr
    assert 20 * lived <= int(match[1]) == int(match[2]) <= 20 * (number + 1)


@pytest.mark.rows(4)  # each with an empty cache
@pytest.mark.parametrize("command", [["run", "-t", "instr_count"], ["run"], ["sanitize"]], ids=lambda argv: argv[0])
@pytest.mark.parametrize("limit", [60, 90, 110, 120, 130, 140, 300])
def test_little_memory(raw_program: Callable[..., list[Path]], tmp_path: Path, command: list[str], limit: int) -> None:
    """MB of data for each process: the run is right, or it says that memory is short; it always ends."""
    # The program waits for a kernel that has failed, as on hardware.
    words = [*LUTHIER, *command, "--device", "emu:gfx90a", "--time-limit", "60", "--", *raw_program("gfx90a")]
    done = _do("prlimit", f"--data={limit}000000", *words, LUTHIER_CACHE_DIR=str(tmp_path / "cache"))
    assert "Traceback" not in done.stderr, done.stderr
    is_right = done.returncode == 0 and "2100 items" in done.stdout
    assert is_right or (done.returncode != 0 and re.search("memory|bad_alloc", done.stderr, re.IGNORECASE)), done
    assert is_right or limit < 300, done


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(30 if EVERYTHING else 1))
def test_kills_at_any_moment(build_program: Build, tmp_path: Path, temporary: Path, seed: int) -> None:
    """Whichever process is killed, the other one ends, and the next run, with the remaining cache, is correct."""
    chance, program = random.Random(seed), build_program("endurance")
    places = {"LUTHIER_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(temporary)}
    command = [*RUN, "-t", "instr_count", "-o", str(tmp_path / "killed"), "--", str(program), "soak", "1000000"]
    for whom in ("luthier", "program"):
        shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        quiet = subprocess.DEVNULL
        running = subprocess.Popen(
            command, stdout=quiet, stderr=quiet, env={**os.environ, **places}, start_new_session=True
        )
        time.sleep(chance.uniform(0.1, 6))
        processes = session(running.pid)
        os.kill(chance.choice(processes) if processes and whom == "program" else running.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while running.poll() is None or session(running.pid):
            assert time.monotonic() < deadline, (whom, processes, session(running.pid))
            time.sleep(0.05)
    done = _do(*RUN, "-t", "instr_count", "-o", tmp_path / "run", "--", program, "soak", "1000", **places)
    assert (done.returncode, _launches(done.stderr)) == (0, 1010), done
    assert [path.name for path in temporary.iterdir() if path.name.startswith("luthier")] == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "none", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs rights that this user has not")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.rows(1)
@pytest.mark.parametrize("kind", ["read-only", "full"])
@pytest.mark.parametrize("variable", ["LUTHIER_CACHE_DIR", "XDG_CACHE_HOME", "TMPDIR", "RUN"])
def test_places_that_cannot_be_written(build_program: Build, small_disk: Path, kind: str, variable: str) -> None:
    """The run is right, or it says what is wrong; nothing is in between."""
    if kind == "full":
        with contextlib.suppress(OSError), open(small_disk / "filling", "wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    else:
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    environment = {} if variable == "RUN" else {variable: str(small_disk)}
    if variable == "XDG_CACHE_HOME":
        environment["LUTHIER_CACHE_DIR"] = os.devnull  # no folder can be made there either
    options = ["-o", small_disk / "run"] if variable == "RUN" else []
    program = build_program("endurance")
    done = _do(*RUN, "-t", "instr_count", *options, "--", program, "soak", "1000", **environment)
    assert "Traceback" not in done.stderr, done.stderr
    if variable in ("LUTHIER_CACHE_DIR", "XDG_CACHE_HOME"):  # only time is lost
        assert done.returncode == 0, done
    if done.returncode == 0:
        assert _launches(done.stderr) == 1010
    else:
        assert str(small_disk) in done.stderr, done.stderr


@pytest.mark.rows(1)
@pytest.mark.parametrize("home", ["/nonexistent", ""])
def test_a_user_whom_the_system_does_not_know(build_program: Build, home: str) -> None:
    """As in containers: a user without a passwd entry; in a user namespace, files are unchanged."""
    other = ["unshare", "--user", "--map-user=54321", "--map-group=54321"]
    if subprocess.run([*other, "true"], capture_output=True).returncode:
        pytest.skip("this system has no namespaces of users for this one")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LUTHIER", "XDG", "HOME"))}
    done = subprocess.run(
        [*other, *RUN, "-t", "instr_count", "--", build_program("endurance"), "soak", "1000"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=variables | ({"HOME": home} if home else {}),
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert (done.returncode, _launches(done.stderr)) == (0, 1010), done
