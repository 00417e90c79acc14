"""The command itself, the service, and the library's functions."""

from __future__ import annotations

import signal
import stat
from collections.abc import Callable

import pytest
from commands import run_luthier

from .conftest import Outcome

Run = Callable[..., Outcome]


def test_the_exit_code_and_the_streams_are_the_programs(luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", "sh", "-c", "cat; echo two >&2; exit 7", stdin="one\n")
    assert outcome == Outcome(7, "one\n", "two\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT, signal.SIGINT])
def test_a_signal_that_ends_the_program(luthier_run: Run, number: int) -> None:
    assert luthier_run("emu:gfx90a", "sh", "-c", f"kill -{int(number)} $$").code == -number


def test_a_signal_is_passed_on(luthier_run: Run) -> None:
    script = "trap 'echo told; exit 3' TERM; kill -TERM $PPID; while :; do sleep 0.1; done"
    assert luthier_run("emu:gfx90a", "sh", "-c", script) == Outcome(3, "told\n", "")


@pytest.mark.parametrize(
    ("devices", "command", "says"),
    [
        ("emu:gfx90a", ["/no/such/program"], "cannot run /no/such/program"),
        ("emu:gfx90a", [], "no program given"),
        ("emu:gfx1250", ["true"], "there is no virtual gfx1250; choose from gfx900, gfx902"),
        ("emu:gfx7", ["true"], "unknown target"),
        ("cuda:0", ["true"], "no device 'cuda:0'"),
        ("emu:gfx90a:xnack+", ["true"], "XNACK"),
    ],
)
def test_refusals(luthier_run: Run, devices: str, command: list[str], says: str) -> None:
    outcome = luthier_run(devices, *command)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("luthier run: error: ")
    assert says in outcome.err


@pytest.mark.parametrize("option", [("--init", "decisions"), ("--fp", "flow,nan"), ("--sarif", "out.sarif")])
def test_options_of_checks_need_one(luthier_run: Run, option: tuple[str, str]) -> None:
    outcome = luthier_run("emu:gfx90a", "true", options=option)
    assert (outcome.code, outcome.out) == (1, "")
    assert f"{option[0]} applies to findings" in outcome.err


@pytest.mark.parametrize("option", [("--init", "reads"), ("--fp", "flow,nan")])
@pytest.mark.parametrize("command", [("run", "--check", "race,host"), ("sanitize", "--check", "race,host")])
def test_options_of_one_check_need_that(command: tuple[str, ...], option: tuple[str, str]) -> None:
    done = run_luthier(*command, *option, "--", "true")
    assert (done.returncode, done.stdout) == (1, "")
    message = f"{option[0]} needs the check {option[0][2:]}, which is not among race,host"
    assert message in done.stderr


def test_only_the_user_may_reach_the_service(luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", "sh", "-c", 'stat -c %f "$(dirname "$LUTHIER_RUN_SOCKET")"')
    assert stat.S_IMODE(int(outcome.out, 16)) == 0o700


def test_a_tool_behind_the_program_is_warned_of() -> None:
    late = run_luthier("run", "true", "-t", "coalescing:top=3")
    assert late.returncode == 0
    assert "warning: -t coalescing:top=3 is behind the program" in late.stderr
    for words in (
        ("--", "true", "-t", "coalescing"),
        ("true", "-t", "4"),
        ("-t", "wait_check", "--allow-nothing", "true"),
    ):
        assert "is behind the program" not in run_luthier("run", *words).stderr
