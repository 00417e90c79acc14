"""ROCm's debugger library above a virtual device: a client that uses it as AMD's GDB does."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import run_luthier
from luthier.cli.main import main
from rocm_stacks import built, stack

from .conftest import PROGRAMS

RELEASE = "6.4"
PACKAGES = "amd-dbgapi-dev", "librocm-dbgapi0"
SEEN = """\
a second client: There is a restriction that prevents debugging
runtime events: 1
agent {target}, {units} units
code objects of the program: 1
has compute queues: 1
stopped: 4 of 4 waves
group 0 wave 0: exec ffffffffffffffff s40 600d s42 0 v40 0 126 a3 2
group 0 wave 1: exec ffffffffffffffff s40 600d s42 0 v40 128 254 a3 130
group 1 wave 0: exec ffffffffffffffff s40 600d s42 0 v40 0 126 a3 2
group 1 wave 1: exec ffffffffffffffff s40 600d s42 0 v40 128 254 a3 130
dispatch of 256 items, in the loop: 1
steps: 4 8 12 0, counted 1
at the breakpoint: 4 waves, reason 1 behind it 4, reason 1 behind it 4, reason 1 behind it 4, reason 1 behind it 4
over the breakpoint: 4, counted 1
the program: right
its exit code: 0
"""
"""Facts that the client finds; registers are those that the program's assembly sets."""


@pytest.mark.rocm(RELEASE, *PACKAGES)
@pytest.mark.parametrize("target", ["gfx90a", pytest.param("gfx942", marks=pytest.mark.thorough)])
def test_a_session(target: str) -> None:
    """Attach, stop waves, read and write registers, step, stop at a breakpoint, step over it, detach."""
    program = built(PROGRAMS / "attached.hip", [target], release=RELEASE, packages=PACKAGES)
    client = built(PROGRAMS / "debugger.cpp", [target], "-lrocm-dbgapi", release=RELEASE, packages=PACKAGES)
    command = "run", "--debugger", "--device", f"emu:{target}", "--", client, program
    done = run_luthier(*command, before=stack(RELEASE, *PACKAGES))
    assert done.returncode == 0, done.stderr
    assert done.stdout == SEEN.format(target=target, units=32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "emu:gfx1030"], "--debugger works on gfx90a and gfx942, not on gfx1030"),
        (["--device", "emu:gfx90a", "--check", "races"], "give it without --check"),
        (["--device", "emu:gfx90a", "--project"], "give it without --project"),
        (["--device", "emu:gfx90a", "-o", "{folder}", "--capture"], "give it without --capture"),
        (["--device", "hip"], "--debugger works on virtual devices only"),
    ],
)
def test_what_cannot_be_debugged(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [option.format(folder=tmp_path / "results") for option in options]
    assert main(["run", "--debugger", *options, "--", "true"]) != 0
    assert message in capsys.readouterr().err
