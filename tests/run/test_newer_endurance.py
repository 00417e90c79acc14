"""Starts and ends of programs above today's ROCm: many at once, killed at any moment. Nothing is left of them."""

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
program, seed, starts, most = sys.argv[1], *map(int, sys.argv[2:])
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
    if starts and len(running) < most:
        starts -= 1
        process = subprocess.Popen([program], stdout=subprocess.PIPE)
        # Every third one may be killed: before it has the device, while its kernel runs, or when it ends.
        kills = chance.random() < 1 / 3
        running.append((process, time.monotonic() + chance.uniform(0, 0.3 * most) if kills else None))
        continue
    running = [one for one in running if not ended(one)]
    time.sleep(0.01)
print(json.dumps(counts))
"""
"""Starts a program so often, so many of them at once, and kills some."""
OWN_SHARED_MEMORY = [
    *("unshare", "--mount", "sh", "-c"),
    'mount -t tmpfs none /dev/shm || exit; "$@" || exit; ls -A /dev/shm "$TMPDIR"',
    "sh",
]
"""A command with a /dev/shm of its own; what is left there, and in TMPDIR, is printed at the end."""


@pytest.mark.parametrize("tools", [(), ("-t", "instr_count")] if EVERYTHING else [("-t", "instr_count")])
@pytest.mark.parametrize(("starts", "most"), [(1000, 4), (64, 64)] if EVERYTHING else [(12, 6)])
def test_nothing_is_left(build_newer: Build, temporary: Path, starts: int, most: int, tools: tuple[str, ...]) -> None:
    """All starts in one run: each is right or was killed, and shared memory and TMPDIR are as before."""
    if subprocess.run(
        [*OWN_SHARED_MEMORY, "true"], capture_output=True, env={**os.environ, "TMPDIR": str(temporary)}
    ).returncode:
        pytest.skip("mounting needs rights that this user has not")
    program = str(build_newer("saxpy"))
    run = [LUTHIER, "run", *tools, "--device", "emu:gfx1100", "--"]
    command = [*stack(RELEASE), *run, "python3", "-c", STARTER, program, "7", str(starts), str(most)]
    begun = time.monotonic()
    done = subprocess.run(
        [*OWN_SHARED_MEMORY, *command],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert done.returncode == 0, done
    counted, *left = done.stdout.splitlines()
    counts = json.loads(counted)
    print(f"{starts} starts, {most} at once: {counts}, {time.monotonic() - begun:.0f} s")
    assert (counts["wrong"], sum(counts.values())) == (0, starts), done
    assert min(counts["right"], counts["killed"]) > 0
    # ROCm's compiler library keeps its files in folders comgr-…, which stay when it is killed, on a GPU, too.
    own = [line for line in left if line and not (counts["killed"] and line.startswith("comgr-"))]
    assert own == ["/dev/shm:", f"{temporary}:"]
