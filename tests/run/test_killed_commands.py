"""Commands with a process that is killed while it waits or works: the others end, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LUTHIER, PATIENCE, end_of_session, run_luthier, session

PROGRAM, DEBUGGER, WORKER = "soak", "luthier.cli.debug", "luthier.replay.worker"
COMMANDS = {
    "console": (("debug", "{capture}"), DEBUGGER),
    "adapter": (("debug", "--dap", "{capture}"), DEBUGGER),
    "console of a program": (("debug", "--", "{program}", "soak", "10"), DEBUGGER),
    "program to debug": (("debug", "--launch", "9999999", "--", "{program}", "soak", "1000000"), PROGRAM),
    "program to capture": (
        ("capture", "--launches", "9999999:", "-o", "{out}/c", "--", "{program}", "soak", "1000000"),
        PROGRAM,
    ),
    "minimise": (("minimise", "{capture}", "--check", "races", "-o", "{out}/less.lcap"), WORKER),
}


@pytest.fixture(scope="module")
def capture(build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launch that races."""
    folder = tmp_path_factory.mktemp("captures")
    done = run_luthier("capture", "-k", "mix", "-o", folder, "--", build_program("defects"))
    assert done.returncode == 0, done
    (capture,) = folder.glob("*.lcap")
    return capture


def process_of(leader: subprocess.Popen[str], word: str) -> int:
    """Return the process of a session that has a word in its command line, once there is one."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for pid in session(leader.pid):
            with contextlib.suppress(OSError):  # it has ended
                if word in Path(f"/proc/{pid}/cmdline").read_text():
                    return pid
        assert leader.poll() is None, leader.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.rows(6)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("is_leader", [True, False], ids=["luthier", "other"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_process_is_killed(
    command: str,
    is_leader: bool,
    number: signal.Signals,
    build_program: Callable[..., Path],
    capture: Path,
    tmp_path: Path,
) -> None:
    words, other = COMMANDS[command]
    temporary, out = tmp_path / "tmp", tmp_path / "out"
    temporary.mkdir()
    out.mkdir()
    places = {"capture": capture, "program": build_program("endurance"), "out": out}
    argv = [LUTHIER, *(word.format(**places) for word in words)]
    env = os.environ | {"TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env, start_new_session=True)
    assert process.stdin is not None
    child = process_of(process, other)
    time.sleep(0.1)  # it begins
    os.kill(process.pid if is_leader else child, number)
    _, output = end_of_session(process)
    assert process.returncode not in (0, None)
    assert "Traceback" not in output
    assert not [path.name for path in out.rglob("*") if path.is_file()]
    if is_leader and number == signal.SIGKILL:  # cannot clean up: the next command does
        assert run_luthier("run", "--", "true", env=env).returncode == 0
    assert not [path.name for path in temporary.iterdir() if path.name.startswith("luthier")]
