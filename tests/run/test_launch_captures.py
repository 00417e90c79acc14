"""Launches captured through ROCm's runtime, as on GPUs: what `luthier capture --device hip` and `Launch.capture` write.

A virtual device's own captures are what they are compared with: they have the pages that the launch accessed, whatever
leads there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from commands import LUTHIER, run_luthier
from luthier import Tool
from luthier.capture import Capture, read_capture
from luthier.replay.launches import Replay
from luthier.replay.processes import replayed_elsewhere
from luthier.tool.observation import Launch

from .conftest import TARGETS, RunUnderTools

PROGRAMS = (
    *("arguments", "histogram", "reduction", "saxpy", "sort", "pointers", "streams", "variables", "graph", "stack"),
    *("managed", "host_memory", "transpose", "scan"),
)
"""Those that execute the same instructions each time: not sparse, whose work-groups race for nodes."""
Build = Callable[[str], Path]


def captured(program: Path, target: str, folder: Path, *, machine: bool) -> list[Capture]:
    """The captures of a program's launches, by kernel and number."""
    before = [LUTHIER, "run", "--device", f"emu:{target}", "--"] if machine else []
    device = "hip" if machine else f"emu:{target}"
    made = run_luthier("capture", "--device", device, "-o", folder, "--", program, before=before)
    assert made.returncode == 0, made.stderr
    assert made.stderr.endswith("; not captured: 0\n")
    captures = [read_capture(path) for path in folder.iterdir()]
    return sorted(captures, key=lambda capture: (capture.manifest.kernel, capture.manifest.number))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_what_a_virtual_device_captures(build_program: Build, temporary: Path, name: str, target: str) -> None:
    """As many launches, with as many executions of each instruction, and replays equal to the byte."""
    program = build_program(name)
    by_device = captured(program, target, temporary / "device", machine=False)
    by_runtime = captured(program, target, temporary / "runtime", machine=True)
    assert len(by_device) == len(by_runtime) > 0
    for capture, other in zip(by_device, by_runtime, strict=True):
        for field in ("kernel", "number", "grid", "block", "group_segment", "private_segment", "cooperative", "target"):
            assert getattr(capture.manifest, field) == getattr(other.manifest, field), field
        assert other.manifest.counted
        assert other.manifest.replayed
        assert np.array_equal(capture.counts, other.counts)
    done = run_luthier("replay", "--json", temporary / "runtime")
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}, len(rows)) == (0, {"equal"}, len(by_runtime))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_a_tool_has_launches_captured(
    build_program: Build, under_tools: Callable[..., RunUnderTools], vectors: type[Tool], temporary: Path, target: str
) -> None:
    """The original kernel is captured, while the patched one runs: to the run directory, or to a file."""
    named = temporary / "named.lcap"

    class Chosen(vectors):  # type: ignore[valid-type, misc]
        """Has two launches of each kernel captured."""

        def at_kernel_launch(self, launch: Launch) -> None:
            if launch.number < 2:
                launch.capture(named if launch.number else None)

    ran = under_tools(f"emu:{target}", [Chosen()], build_program("sort"), folder=temporary / "run")
    assert ran.code == 0, ran.err
    (kernel,) = ran.kernels().values()
    assert kernel["instrumented"] == kernel["launches"] > 1
    (first,) = (temporary / "run" / "captures").iterdir()
    for number, path in enumerate((first, named)):
        capture = read_capture(path)
        assert (capture.manifest.number, capture.manifest.counted, len(capture.counts)) == (number, False, 0)
        assert replayed_elsewhere(Replay(file=str(path), reduce=True)).what == "equal"
        assert len(read_capture(path).counts)
        done = run_luthier("replay", "--json", path)
        assert (done.returncode, json.loads(done.stdout)[0]["what"]) == (0, "equal")


@pytest.mark.rows(1)
@pytest.mark.parametrize("tools", [[], ["-t", "instr_count"]])
def test_a_run_captures_what_it_selects(build_program: Build, tmp_path: Path, tools: list[str]) -> None:
    """At its end what no launch accessed is left out, as of other captures."""
    options = [*tools, "--capture", "--kernel", "*", "--launches", "1:3", "-o", tmp_path / "run"]
    done = run_luthier("run", "--device", "emu:gfx90a", *options, "--", build_program("sort"))
    assert done.returncode == 0, done.stderr
    captures = [read_capture(path) for path in (tmp_path / "run" / "captures").iterdir()]
    assert {one.manifest.number for one in captures} == {1, 2}
    assert all(one.manifest.replayed and one.manifest.counted and one.manifest.left_out for one in captures)
    assert f"{len(captures)} launches captured" in done.stderr
    assert run_luthier("replay", tmp_path / "run" / "captures").returncode == 0


def test_a_launch_with_too_much_memory_is_refused(build_program: Build, temporary: Path) -> None:
    outer = [LUTHIER, "run", "--device", "emu:gfx90a", "--"]
    words = ["capture", "--device", "hip", "--most", "8K", "-o", temporary / "none", "--", build_program("saxpy")]
    done = run_luthier(*words, before=outer)
    assert done.returncode == 1
    assert "more than 8192 bytes of memory (--most)" in done.stderr
    assert not [*(temporary / "none").iterdir()]


def test_captures_need_a_place(build_program: Build) -> None:
    done = run_luthier("run", "--capture", "--", build_program("saxpy"))
    assert (done.returncode, "give a folder with -o" in done.stderr) == (1, True)


@pytest.mark.thorough
def test_a_launch_that_does_not_end_is_told(build_program: Build, tmp_path: Path) -> None:
    """Its kernel waits for another one's, which waits for its turn until the program is ended."""
    options = ["--capture", "-o", tmp_path / "run", "--time-limit", "6"]
    done = run_luthier("run", "--device", "emu:gfx90a", *options, "--", build_program("handshake"))
    assert done.returncode == 124, done.stderr
    assert "not captured: launch 0 of _Z8wait_for" in done.stderr
    assert "the program ended before it" in done.stderr
