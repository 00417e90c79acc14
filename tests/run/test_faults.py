"""Faults reach the program as on hardware, and the user with all known details."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from commands import MAIN, PATIENCE
from luthier.run import parse_devices, program, topology
from luthier.wire.messages import SOCKET_VARIABLE
from luthier.wire.topology import FILES_VARIABLE

from .conftest import Outcome

Build = Callable[[str], Path]
Run = Callable[..., Outcome]


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("what", "ours", "theirs"),
    [
        ("address", "global_store_dword", "Memory access fault by GPU node-1"),
        ("null", "at address 0x0, lane 0: a null pointer", "Memory access fault by GPU node-1"),
        ("jump", "where no instruction of the object begins", "Memory access fault by GPU node-1"),
        ("trap", "trap 2 at", "HSA_STATUS_ERROR_EXCEPTION"),
        ("abort", "trap 2 at", "HSA_STATUS_ERROR_EXCEPTION"),
        ("assert", "trap 2 at", "HSA_STATUS_ERROR_EXCEPTION"),
    ],
)
def test_a_fault_on_the_device(build_program: Build, luthier_run: Run, what: str, ours: str, theirs: str) -> None:
    outcome = luthier_run("emu:gfx90a", build_program("faults"), what)
    assert outcome.code == -signal.SIGABRT, outcome
    assert outcome.out == ""
    if what == "assert":
        text = 'void asserts(const int *): Device-side assertion `values[threadIdx.x] == 0 && "all are 0"\' failed.\n'
        assert text in outcome.err
    kernel = {"address": "outside", "null": "outside", "abort": "end_all", "assert": "asserts"}.get(what, what)
    error = next(line for line in outcome.err.splitlines() if line.startswith("luthier: "))
    assert ours in error
    assert "wave 0 of work-group 0" in error
    assert f"{kernel}" in error
    assert "target gfx90a" in error
    assert theirs in outcome.err


def test_the_service_is_killed(build_program: Build) -> None:
    """A kernel that would need it fails; nothing hangs."""
    command = [sys.executable, "-c", MAIN, "run", "--", str(build_program("faults")), "late"]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdin is not None
    assert run.stdout is not None
    assert run.stdout.readline() == "ready\n"
    run.kill()
    out, err = run.communicate("\n", timeout=PATIENCE)  # the program has the pipes, too: until it has ended
    assert out == ""
    assert "the Luthier service has ended" in err


def test_a_kernel_that_never_ends_is_interrupted(build_program: Build) -> None:
    command = [sys.executable, "-c", MAIN, "run", "--", str(build_program("faults")), "forever"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            assert run.stdout is not None
            assert run.stdout.readline() == "ready\n"
            time.sleep(1)  # for the launch
            os.killpg(run.pid, signal.SIGINT)  # as the terminal does
            assert run.wait(PATIENCE) == -signal.SIGINT
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)


def test_without_luthier_run(build_program: Build, tmp_path: Path) -> None:
    topology.write(tmp_path, parse_devices("emu:gfx90a"))
    environment = program.environment(os.environ, tmp_path, tools=False)
    environment["LD_PRELOAD"] = str(program.library_folder() / program.LIBRARY)
    environment[FILES_VARIABLE] = str(tmp_path)
    del environment[SOCKET_VARIABLE]
    command = [build_program("saxpy")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "the virtual device works only under `luthier run`" in done.stderr
