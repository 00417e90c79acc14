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


@pytest.mark.parametrize("target", ["gfx906", "gfx1030"])
def test_textures(
    build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome], tmp_path: Path, target: str
) -> None:
    """Alone, and under a tool, which counts as many instructions as the device does."""
    program = build_program("textures")
    counts = {}
    for name, options in (("executed", ["--executed"]), ("tool", ["-t", "instr_count:per_wave=true"])):
        summary = tmp_path / f"{name}.json"
        outcome = luthier_run(f"emu:{target}", program, options=[*options, "--json", summary])
        assert outcome.code == 0, outcome
        check_right(outcome.out)
        counts[name] = json.loads(summary.read_text())
    own = [one for one in counts["executed"]["executed"] if one["kernel"] and not one["kernel"].startswith("__amd_")]
    (variable,) = counts["tool"]["variables"]
    assert int(variable["value"]) == sum(one["wave_instructions"] for one in own) > 0


def test_hooks_leave_coordinates_alone(
    build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome]
) -> None:
    """On GFX9 LLVM names the first register of coordinates alone."""
    outcome = luthier_run("emu:gfx906", build_program("textures"), options=["-t", "mem_trace"])
    assert outcome.code == 0, outcome
    check_right("".join(line for line in outcome.out.splitlines(keepends=True) if line.endswith(" wrong\n")))


def test_arrays_and_surfaces_without_samples(
    build_program: Callable[[str], Path], luthier_run: Callable[..., Outcome]
) -> None:
    outcome = luthier_run("emu:gfx90a", build_program("textures"))
    assert outcome.code == 0, outcome
    lines = outcome.out.splitlines()
    assert len(lines) == LINES
    assert all(line.endswith(" 0 copied wrong") for line in lines[:-2])
    assert lines[-2].endswith(": 0 wrong")


@pytest.mark.thorough
@pytest.mark.parametrize("release", [pytest.param(one, marks=pytest.mark.rocm(one)) for one in ("6.4", "7.2")])
@pytest.mark.parametrize(
    "target",
    [
        "gfx900",
        "gfx906",
        "gfx908",
        "gfx1010",
        "gfx1012",
        "gfx1030",
        "gfx1032",
        "gfx1100",
        "gfx1102",
        "gfx1103",
        "gfx1200",
        "gfx1201",
    ],
)
def test_textures_of_newer_rocm(release: str, target: str) -> None:
    program = built(PROGRAMS / "textures.hip", (target,), release=release)
    done = run_luthier("run", "--device", f"emu:{target}", "--", program, before=stack(release))
    assert done.returncode == 0, done
    check_right(done.stdout)
