"""`--device hip`: programs on the machine's GPUs. For them stand the virtual devices of a run around the one that is
tested, which finds these as it would find GPUs: through ROCm alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from commands import LUTHIER, run_luthier
from luthier.errors import DeviceError
from luthier.run.machine_gpus import MachineGpus, parse_machine_gpus
from rocm_stacks import built, stack

from .conftest import ONE_A_FAMILY, PROGRAMS


def around(target: str) -> list[str]:
    """The words of a run whose virtual devices are another one's GPUs."""
    return [LUTHIER, "run", "--device", target, "--"]


@pytest.mark.thorough
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_tools_find_what_they_find_on_virtual_devices(
    build_program: Callable[[str], Path], tmp_path: Path, target: str
) -> None:
    """Counts, tables and output are those of the same program and tool where `luthier run` makes the device."""
    program = build_program("histogram")
    results = []
    for name, device, before in (("virtual", f"emu:{target}", []), ("machine", "hip", around(f"emu:{target}"))):
        options = ["-t", "instr_count", "-t", "mem_trace", "--json", tmp_path / f"{name}.json", "-o", tmp_path / name]
        done = run_luthier("run", "--device", device, *options, "--", program, before=before)
        assert done.returncode == 0, done.stderr
        summary = json.loads((tmp_path / f"{name}.json").read_text())
        kernels = [(one["kernel"], one["launches"], one["instrumented"]) for one in summary["kernels"]]
        counted = next(one for one in summary["tools"] if one["tool"] == "instr_count")
        results.append((done.stdout, kernels, counted))
        assert json.loads((tmp_path / name / "summary.json").read_text())["devices"] == [device]
    assert results[0] == results[1]
    assert sum(launches for _, launches, _ in results[0][1]) > 0


def test_without_tools_the_program_just_runs(build_program: Callable[[str], Path]) -> None:
    program = build_program("saxpy")
    plain = run_luthier("run", "--device", "emu:gfx90a", "--", program)
    done = run_luthier("run", "--device", "hip:0", "--", program, before=around("emu:gfx90a"))
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, "")
    assert plain.returncode == 0


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("device", "hidden", "seen"),
    [("hip", None, ""), ("hip:1", None, "1"), ("hip:1,hip:0", "2,0", "0,2"), ("hip:0", "GPU-1234", "GPU-1234")],
)
def test_the_program_sees_those_that_are_named(device: str, hidden: str | None, seen: str) -> None:
    base = {name: value for name, value in os.environ.items() if name != "ROCR_VISIBLE_DEVICES"}
    if hidden is not None:
        base["ROCR_VISIBLE_DEVICES"] = hidden
    shown = ["sh", "-c", "echo $ROCR_VISIBLE_DEVICES; echo $LD_PRELOAD | tr : '\\n' | wc -l"]
    done = run_luthier("run", "--device", device, "--", *shown, before=around("emu:gfx90a,emu:gfx1030"), env=base)
    assert (done.returncode, done.stdout) == (0, f"{seen}\n1\n"), done.stderr  # the outer one's shim alone


def test_the_named_one_runs_the_kernels(build_program: Callable[[str], Path], tmp_path: Path) -> None:
    options = ["-t", "instr_count", "--json", tmp_path / "all.json", "-o", tmp_path / "run"]
    outer = around("emu:gfx90a,emu:gfx1030")
    done = run_luthier("run", "--device", "hip:1", *options, "--", build_program("saxpy"), before=outer)
    assert done.returncode == 0, done.stderr
    shown = run_luthier("report", tmp_path / "run", "--format", "json")
    assert "gfx1030" in shown.stdout
    assert "gfx90a" not in shown.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["run", "--device", "hip:0", "--executed", "--", "true"], "--executed works on virtual devices only"),
        (["run", "--device", "hip:0", "--check", "race", "--", "true"], "--check works on virtual devices only"),
        (["debug", "--device", "hip", "--", "true"], "captures are replayed on emulated devices"),
        (["run", "--device", "hip:0,emu:gfx90a", "--", "true"], "'emu:gfx90a' is not a GPU of this machine"),
        (["run", "--device", "emu:gfx90a,hip:0", "--", "true"], "no device 'hip:0'"),
    ],
)
def test_what_only_virtual_devices_do_is_refused(words: Sequence[str], says: str) -> None:
    done = run_luthier(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr


def test_no_gpu_is_said_first() -> None:
    if os.path.exists("/dev/kfd"):
        pytest.skip("there is one here")
    done = run_luthier("run", "--device", "hip", "--", "echo", "started")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no AMD GPU" in done.stderr


def test_inside_of_a_run_with_tools(build_program: Callable[[str], Path]) -> None:
    """Two runs cannot both have tools in one program."""
    outer = [LUTHIER, "run", "--allow-nothing", "-t", "instr_count", "--"]
    done = run_luthier("run", "--device", "hip", "--", "echo", "started", before=outer)
    assert (done.returncode, done.stdout) == (1, "")
    assert "inside another `luthier run`" in done.stderr


@pytest.mark.parametrize("text", ["hip:", "hip:x", "hip:-1", "hip:0,hip:0", "hip:0,", "hip,hip:1", "hipp"])
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(DeviceError):
        parse_machine_gpus(text)


def test_numbers_beyond_what_is_visible() -> None:
    assert parse_machine_gpus(" hip ") == MachineGpus()
    with pytest.raises(DeviceError, match="there is no hip:2"):
        MachineGpus((0, 2)).environment({"ROCR_VISIBLE_DEVICES": "5,6"})


@pytest.mark.rocm("6.4")
@pytest.mark.parametrize("target", ["gfx942", pytest.param("gfx1201", marks=pytest.mark.thorough)])
def test_todays_rocm(tmp_path: Path, target: str) -> None:
    """Counts equal those of the virtual device under the same tool, and captures are replayed without ROCm."""
    program = built(PROGRAMS / "histogram.hip", [target], release="6.4")
    counted = []
    for device, outer in ((f"emu:{target}", []), ("hip", around(f"emu:{target}"))):
        words = ["run", "--device", device, "-t", "instr_count", "--json", tmp_path / "run.json", "--", program]
        run_luthier(*words, before=[*stack("6.4"), *outer]).check_returncode()
        counted.append(json.loads((tmp_path / "run.json").read_text())["tools"])
    assert counted[0] == counted[1]
    words = ["capture", "--device", "hip", "-o", tmp_path / "kept", "--", program]
    run_luthier(*words, before=[*stack("6.4"), *around(f"emu:{target}")]).check_returncode()
    done = run_luthier("replay", "--json", tmp_path / "kept")
    assert {row["what"] for row in json.loads(done.stdout)} == {"equal"}
