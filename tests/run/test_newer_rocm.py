"""Today's ROCm: HIP and ROCr 6.4 from Debian's own packages, in the root that ``scripts/rocm-stack`` makes.

A part runs where that is there; all of it in `make test-all`.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import LUTHIER, PATIENCE, run_luthier
from effort import EMULATED
from kept import ROOT
from luthier.lifting import lift
from luthier.objects import load_objects
from rocm_stacks import SUITES, built, stack

from .conftest import PROGRAMS, Outcome
from .test_programs import SAYS, in_order

RELEASE = "6.4"
pytestmark = pytest.mark.rocm(RELEASE)
with_suites = pytest.mark.rocm(RELEASE, *SUITES)

TARGETS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
COUNTED = ("reduction", "graph", "grid_barrier", "modules", "streams", "variables")
"""Programs that run under a tool, too."""
QUICK = {
    ("streams", "gfx942"),
    ("variables", "gfx1100"),
    ("streams", "gfx1201"),
    ("variables", "gfx90a"),
    ("boxes", "gfx1201"),
}
"""What `make test` has of the tables below."""
OPERATIONS = "/usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-backend-ops"
RANDOM = "/usr/libexec/rocm/librocrand1-tests"

Build = Callable[..., Path]


def table(names: tuple[str, ...]) -> list[object]:
    """Return each program on each target; most are left to `make test-all`."""
    return [
        pytest.param(name, target, marks=[] if (name, target) in QUICK else [pytest.mark.thorough])
        for name in names
        for target in TARGETS
    ]


@pytest.fixture(scope="session")
def build_newer() -> Build:
    """``build_newer(name, *flags)``: the program of ``programs/<name>.hip``, built by the root's own hipcc."""

    def build(name: str, *flags: str) -> Path:
        return built(PROGRAMS / f"{name}.hip", TARGETS, *flags, release=RELEASE)

    return build


def run(*arguments: str | Path, packages: tuple[str, ...] = ()) -> Outcome:
    """``luthier run`` in the root."""
    done = run_luthier("run", *arguments, before=stack(RELEASE, *packages))
    # Debian's ROCr is built with checks that warn of what HIP does with signals.
    err = [line for line in done.stderr.splitlines() if not line.startswith("Warning: ")]
    return Outcome(done.returncode, done.stdout, "\n".join(err))


def counted(summary: Path) -> int:
    """Return what `instr_count` has counted, if every kernel that it should see is covered."""
    report = json.loads(summary.read_text())
    assert report["faults"] == []
    own = [kernel for kernel in report["kernels"] if not kernel["skipped"]]
    assert own
    assert all(kernel["covered"] for kernel in own), own
    (variable,) = report["variables"]
    return int(variable["value"])


def check_counts(tmp_path: Path, target: str, *command: str | Path, packages: tuple[str, ...] = ()) -> str:
    """Return what a program prints alone; under a tool as many instructions are counted as the device counts."""
    executed, summary = tmp_path / "executed.json", tmp_path / "summary.json"
    program = "--device", f"emu:{target}", "--", *command
    alone = run("--executed", "--json", executed, *program, packages=packages)
    tool = run("-t", "instr_count:per_wave=true", "--json", summary, *program, packages=packages)
    assert alone.code == tool.code == 0, (alone, tool)
    kernels = json.loads(executed.read_text())["executed"]
    own = (one["wave_instructions"] for one in kernels if one["kernel"] and not one["kernel"].startswith("__amd_"))
    assert counted(summary) == sum(own) > 0
    return alone.out


@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=[] if one == "gfx1201" else [pytest.mark.thorough]) for one in EMULATED],
)
def test_rocminfo(target: str) -> None:
    """Every device, with images; ROCr does not start if it lacks facts about a chip's images."""
    outcome = run("--device", f"emu:{target}", "--", "rocminfo")
    assert (outcome.code, outcome.err) == (0, ""), outcome
    assert re.findall(r"^  Name: +(gfx\w+)", outcome.out, re.MULTILINE) == [target]
    assert f"Luthier virtual {target}" in outcome.out


@pytest.mark.rows(1)
@pytest.mark.parametrize(("name", "target"), table(tuple(SAYS)))
def test_a_program_is_right(build_newer: Build, name: str, target: str) -> None:
    outcome = run("--device", f"emu:{target}", "--", build_newer(name))
    assert (outcome.code, in_order(name, outcome.out), outcome.err) == (0, SAYS[name], "")


@pytest.mark.rows(1)
@pytest.mark.parametrize(("name", "target"), table(COUNTED))
def test_a_program_under_a_tool(build_newer: Build, tmp_path: Path, name: str, target: str) -> None:
    summary = tmp_path / "summary.json"
    options = ["-t", "instr_count", "--json", summary]
    outcome = run(*options, "--device", f"emu:{target}", "--", build_newer(name))
    assert (outcome.code, outcome.out) == (0, SAYS[name]), outcome
    assert counted(summary) > 0


@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[] if one == "gfx1201" else [pytest.mark.thorough]) for one in TARGETS]
)
def test_counts_of_kernels_that_wait(build_newer: Build, tmp_path: Path, target: str) -> None:
    """Work-groups look for each other another number of times in each run, and say so: all else is counted alike."""
    program = build_newer("spins")
    (object,) = (one for one in load_objects(program) if one.target.target.name == target)
    lifted = lift(object, next(iter(object.kernels)))
    (waiting,) = (lifted.blocks[one.block] for one in lifted.instructions if one.text == "s_sleep 2")
    assert waiting.index in {edge.to for edge in waiting.successors}
    length = waiting.last - waiting.first + 1
    executed, summary = tmp_path / "executed.json", tmp_path / "summary.json"
    on = "--device", f"emu:{target}", "--", program
    alone = run("--executed", "--json", executed, *on)
    tool = run("-t", "instr_count:per_wave=true", "--json", summary, *on)
    assert alone.code == tool.code == 0, (alone, tool)
    (own,) = (one for one in json.loads(executed.read_text())["executed"] if "spins" in (one["kernel"] or ""))
    assert counted(summary) - int(tool.out) * length == own["wave_instructions"] - int(alone.out) * length > 0


@pytest.mark.rows(1)
@pytest.mark.parametrize("tools", [(), ("-t", "instr_count")], ids=["alone", "tool"])
def test_what_the_device_says_of_itself(build_newer: Build, tools: tuple[str, ...]) -> None:
    outcome = run(*tools, "--device", "emu:gfx1100", "--", build_newer("saxpy"))
    assert (outcome.code, outcome.out) == (0, "gfx1100, waves of 32\n"), outcome


@pytest.mark.rows(1)
@pytest.mark.parametrize(
    ("what", "target", "ours", "theirs"),
    [
        ("null", "gfx942", "at address 0x0, lane 0: a null pointer", "Memory access fault by GPU node-1"),
        ("trap", "gfx1201", "trap 2 at", "HSA_STATUS_ERROR_EXCEPTION"),
    ],
)
@pytest.mark.parametrize("tools", [(), ("-t", "instr_count")], ids=["alone", "tool"])
def test_a_fault_on_the_device(
    build_newer: Build, tools: tuple[str, ...], what: str, target: str, ours: str, theirs: str
) -> None:
    outcome = run(*tools, "--device", f"emu:{target}", "--", build_newer("faults"), what)
    assert outcome.code != 0
    assert outcome.out == ""
    error = next(line for line in outcome.err.splitlines() if line.startswith("luthier: "))
    assert ours in error
    assert f"target {target}" in outcome.err
    assert theirs in outcome.err


@pytest.mark.rows(1)
@with_suites
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_random_numbers(tmp_path: Path, target: str) -> None:
    """rocRAND's own tests of a generator, and as many instructions under a tool as the device counts."""
    numbers = f"{RANDOM}/test_rocrand_philox_prng", "--gtest_filter=*generator_prng_tests/0.uniform_float_test"
    out = check_counts(tmp_path, target, *numbers, packages=SUITES)
    assert "[  PASSED  ] 1 test." in out


@pytest.mark.thorough
@with_suites
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_launches_of_rocrand_are_replayed(tmp_path: Path, target: str) -> None:
    """Outside of the root, without its ROCm: the bytes and counts that were recorded."""
    kept = tmp_path / "kept"
    program = f"{RANDOM}/test_rocrand_kernel_philox4x32_10"
    argv = [*stack(RELEASE, *SUITES), LUTHIER, "capture", "--device", f"emu:{target}", "-o", str(kept), "--", program]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE)
    assert (made.returncode, "; not captured: 0\n" in made.stderr) == (0, True), made
    done = run_luthier("replay", "--json", kept)
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}) == (0, {"equal"}), done
    assert len(rows) == len(list(kept.iterdir())) == 17


@pytest.mark.rows(1)
@with_suites
@pytest.mark.parametrize(("target", "tools"), [("gfx1100", ()), ("gfx90a", ("-t", "instr_count"))])
def test_an_operation_of_llama(tmp_path: Path, target: str, tools: tuple[str, ...]) -> None:
    """Its results are compared with those of the processor."""
    summary = tmp_path / "summary.json"
    command = (OPERATIONS, "test", "-b", "ROCm0", "-o", "ADD", "-p", r"type=f32,ne=\[16,5,4,3\]")
    outcome = run(*tools, "--json", summary, "--device", f"emu:{target}", "--", *command, packages=SUITES)
    assert outcome.code == 0, outcome
    passed, of = re.findall(r"(\d+)/(\d+) tests passed", outcome.out)[0]
    assert int(passed) == int(of) > 0
    if tools:
        assert counted(summary) > 0


@with_suites
@pytest.mark.thorough
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100"])
def test_a_language_model(target: str) -> None:
    """The same text on the CPU, on a virtual GPU and under a tool, whose count is the device's."""
    demo = [sys.executable, ROOT / "examples/language_model/demo.py", "--device", target, "--tokens", "4"]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done
    assert "every instruction is counted as the device counts it" in done.stdout


@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[] if one == "gfx942" else [pytest.mark.thorough]) for one in TARGETS]
)
def test_virtual_memory(build_newer: Build, target: str) -> None:
    """HIP 5.2.3 has none of it on Linux."""
    outcome = run("--device", f"emu:{target}", "--", build_newer("virtual_memory"))
    lines = [
        "supported: 1",
        *(f"{what}: right" for what in ("pieces", "second address", "imported", "released")),
        "done",
    ]
    assert (outcome.code, outcome.out.splitlines(), outcome.err) == (0, lines, "")


@pytest.mark.parametrize(
    "target", [pytest.param(one, marks=[] if one == "gfx1100" else [pytest.mark.thorough]) for one in TARGETS]
)
def test_opencl(tmp_path: Path, target: str) -> None:
    """A program compiles its kernels when it runs."""
    out = check_counts(tmp_path, target, "python3", PROGRAMS / "opencl.py")
    assert out == "axpy right\nsum right\nhistogram right\n"


@pytest.mark.thorough
@pytest.mark.rocm(RELEASE, "hashcat")
@pytest.mark.parametrize("target", ["gfx90a", "gfx1100", "gfx1201"])
@pytest.mark.parametrize(("mode", "algorithm"), [(0, "md5"), (100, "sha1"), (1400, "sha256"), (1700, "sha512")])
def test_hashcat(tmp_path: Path, target: str, mode: int, algorithm: str) -> None:
    """hashcat's kernels, of OpenCL: its own test of them passes, and it finds a word, as many instructions counted."""
    wanted = hashlib.new(algorithm, b"cat").hexdigest()
    effort = ["--force", "-D", "2", "-n", "1", "-u", "1", "-T", "64", "--potfile-disable", "--quiet"]
    program = ["hashcat", "-m", str(mode), wanted, "-a", "3", "?l?l?l", *effort, "--session", f"{target}-{mode}"]
    output = check_counts(tmp_path, target, *program, packages=("hashcat",))
    assert output == f"{wanted}:cat\n"
