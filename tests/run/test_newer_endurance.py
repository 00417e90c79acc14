"""Starts and ends of programs on current ROCm: many in parallel, killed at any moment. Nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LUTHIER
from effort import EVERYTHING
from rocm_stacks import stack

from .test_newer_rocm import RELEASE, build_newer

__all__ = ["build_newer"]  # a fixture: pytest finds it here
pytestmark = pytest.mark.rocm(RELEASE)

Build = Callable[[str], Path]
LIMIT = 3000 if EVERYTHING else 200
STARTER = """
import json, random, signal, subprocess, sys, time
seed, starts, most, life = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
chance, running, counts = random.Random(seed), [], {"right": 0, "killed": 0, "wrong": 0}

def ended(one):
    process, dies_at = one
    if process.poll() is None:
        if dies_at is not None and time.monotonic() > dies_at:
            process.kill()
        return False
    text = process.stdout.read()
    right = process.returncode == 0 and text == b"gfx1100, waves of 32\\n"
    how = "right" if right else "killed" if dies_at is not None and process.returncode == -signal.SIGKILL else "wrong"
    counts[how] += 1
    if how == "wrong":
        print(process.returncode, text, file=sys.stderr)
    return True

while starts or running:
    # The last one comes alone and lives: a run removes the folders of those that were killed.
    if starts and len(running) < (most if starts > 1 else 1):
        process = subprocess.Popen(sys.argv[5:], stdout=subprocess.PIPE)
        # Every third one may be killed: before it has the device, while its kernel runs, or when it ends.
        kills = starts > 1 and chance.random() < 1 / 3
        running.append((process, time.monotonic() + chance.uniform(0, life) if kills else None))
        starts -= 1
        continue
    running = [one for one in running if not ended(one)]
    time.sleep(0.01)
print(json.dumps(counts))
"""
"""Starts a command so often, so many of them at once, and kills some within so many seconds."""
WATCHER = """
import os, pathlib, subprocess, sys, time

def processes():
    found = [pathlib.Path("/proc", name, "comm") for name in os.listdir("/proc") if name.isdigit()]
    return [path.read_text().strip() for path in found if path.parent.name not in ("1", str(os.getpid()))]

done, deadline = subprocess.run(sys.argv[1:]), time.monotonic() + 30
while processes() and time.monotonic() < deadline:
    time.sleep(0.1)
print("still there:", processes())
sys.exit(done.returncode)
"""
"""Runs a command, and tells which other processes of its name space have not ended 30 seconds later."""
OWN_SHARED_MEMORY = [
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs none /dev/shm || exit; "$@" || exit; ls -A /dev/shm "$TMPDIR"',
    "sh",
]
"""A command with a /dev/shm of its own; what is left there, and in TMPDIR, is printed at the end."""
STORMS = [(False, 1000, 4), (False, 1000, 64), (True, 200, 16)] if EVERYTHING else [(False, 12, 6), (True, 8, 4)]
"""Whether each start is a `luthier run` of its own, or all are in one; how many there are; how many at once."""


@pytest.mark.rows(1)
@pytest.mark.parametrize("tools", [(), ("-t", "instr_count")] if EVERYTHING else [("-t", "instr_count")])
@pytest.mark.parametrize(("apart", "starts", "most"), STORMS)
def test_nothing_is_left(
    build_newer: Build, temporary: Path, apart: bool, starts: int, most: int, tools: tuple[str, ...]
) -> None:
    """Each start is right or was killed; no process is left, and shared memory and TMPDIR are as before."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    if subprocess.run([*OWN_SHARED_MEMORY, "true"], capture_output=True, env=environment).returncode:
        pytest.skip("mounting needs rights that this user has not")
    run = [LUTHIER, "run", *tools, "--device", "emu:gfx1100", "--"]
    starter = ["python3", "-c", STARTER, "7", str(starts), str(most), str(most * (1 if apart else 0.3))]
    storm = [*starter, *run] if apart else [*run, *starter]
    command = [*stack(RELEASE), "python3", "-c", WATCHER, *storm, str(build_newer("saxpy"))]
    begun = time.monotonic()
    done = subprocess.run(
        [*OWN_SHARED_MEMORY, *command], capture_output=True, text=True, timeout=LIMIT, env=environment
    )
    assert done.returncode == 0, done
    counted, processes, *left = done.stdout.splitlines()
    counts = json.loads(counted)
    print(f"{starts} starts, {most} at once: {counts}, {time.monotonic() - begun:.0f} s")
    assert (counts["wrong"], sum(counts.values())) == (0, starts), done
    assert min(counts["right"], counts["killed"]) > 0
    assert processes == "still there: []"
    # ROCm's compiler library keeps its files in folders comgr-…, which stay when it is killed, on a GPU, too.
    own = [line for line in left if line and not (counts["killed"] and line.startswith("comgr-"))]
    assert own == ["/dev/shm:", f"{temporary}:"]
