"""Arrays, textures and surfaces of HIP, on devices whose images lie in tiles."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_luthier
from rocm_stacks import built, stack

from .conftest import PROGRAMS, Outcome

LINES = 11


def check_right(out: str) -> None:
    lines = out.splitlines()
    assert len(lines) == LINES
    assert all(line.endswith(" wrong") for line in lines)
    numbers = [word for line in lines for word in line.split(": ")[1].split() if word.isdigit()]
    assert set(numbers) == {"0"}, out


def test_textures(build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome], tmp_path: Path) -> None:
    """Alone, and under a tool, which counts as many instructions as the device does."""
    program = build_program("textures")
    counts = {}
    for name, options in (("executed", ["--executed"]), ("tool", ["-t", "instr_count:per_wave=true"])):
        summary = tmp_path / f"{name}.json"
        outcome = luthier_run("emu:gfx1030", program, options=[*options, "--json", summary])
        assert outcome.code == 0, outcome
        check_right(outcome.out)
        counts[name] = json.loads(summary.read_text())
    own = [one for one in counts["executed"]["executed"] if one["kernel"] and not one["kernel"].startswith("__amd_")]
    (variable,) = counts["tool"]["variables"]
    assert int(variable["value"]) == sum(one["wave_instructions"] for one in own) > 0


@pytest.mark.thorough
@pytest.mark.parametrize("release", [pytest.param(one, marks=pytest.mark.rocm(one)) for one in ("6.4", "7.2")])
@pytest.mark.parametrize("target", ["gfx1030", "gfx1032", "gfx1100", "gfx1102", "gfx1103", "gfx1200", "gfx1201"])
def test_textures_of_newer_rocm(release: str, target: str) -> None:
    program = built(PROGRAMS / "textures.hip", (target,), release=release)
    done = run_luthier("run", "--device", f"emu:{target}", "--", program, before=stack(release))
    assert done.returncode == 0, done
    check_right(done.stdout)
