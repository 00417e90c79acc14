"""Programs of this folder, built by plain hipcc, run under `luthier run`."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import commands
import pytest
from compiling import compiled
from kept import kept, run, version
from luthier import ExecutionCounts, InstrumentationTask, Tool, ToolModule
from luthier.emulator.native.machine import machine_code
from luthier.objects import CodeObject, load_object
from luthier.run import parse_devices, results, run_program
from luthier.run.executed import Executed
from luthier.run.instrumentation import Instrumentation
from luthier.run.record import Recorder
from luthier.run.selection import Selection
from luthier.tool import ToolGroup
from rocm_stacks import pytest_runtest_setup  # noqa: F401 - pytest finds it here

from luthier_build.workspace import digest

if TYPE_CHECKING:
    from .dap_editor import Editor

PROGRAMS = Path(__file__).parent / "programs"
TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx1030")
ONE_A_FAMILY = [
    target if target in ("gfx90a", "gfx1030") else pytest.param(target, marks=pytest.mark.thorough)
    for target in TARGETS
]
"""Parameters, of which `make test` takes a target of each family: for tests of what does not depend on the others."""
Luthier = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder with a name short enough for the folders of runs."""
    with tempfile.TemporaryDirectory(prefix="luthier-test-") as name:
        yield Path(name)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a program."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def open_editor() -> type[Editor]:
    """``open_editor(*words)``: `luthier debug --dap` with these words, and a client of it."""
    from .dap_editor import Editor

    return Editor


@pytest.fixture(scope="session")
def build_program() -> Callable[..., Path]:
    """``build_program(name, *flags)``: the program of ``programs/<name>.hip``, for all targets."""
    # hipcc would choose an nvcc.
    hipcc = ["env", "HIP_PLATFORM=amd", "hipcc"]
    command = [*hipcc, *(f"--offload-arch={target}" for target in TARGETS), "-O1", "-w", "-pthread"]

    @functools.cache
    def build(name: str, *flags: str) -> Path:
        source = PROGRAMS / f"{name}.hip"
        key = version("hipcc"), *command, *flags, name, digest(source), digest(PROGRAMS / "check.h")
        if "-g" in flags:
            key = *key, str(source)  # which is in the debug information
        return kept(key, lambda output: run([*command, *flags, str(source), "-o", str(output)]), name)

    return build


@pytest.fixture(scope="session")
def scale_kernel() -> Path:
    """The code object of `device_side.hip` for gfx90a, which programs in Python load."""
    kernel = PROGRAMS / "device_side.hip"
    command = ["env", "HIP_PLATFORM=amd", "hipcc", "--genco", "--offload-arch=gfx90a", "-O1", "-w"]
    return compiled([*command, "-mcode-object-version=4", kernel], [kernel], "kernel.co")


@pytest.fixture
def raw_program(tmp_path: Path) -> Callable[..., list[Path]]:
    """``raw_program(target)``: a program that uses HSA without HIP, and its code object, if it has one: what to run.
    With ``object`` that is its code object."""

    def build(target: str, name: str = "raw", version: int = 4, *, object: CodeObject | None = None) -> list[Path]:
        program, code, kernel = tmp_path / "raw", tmp_path / "raw.hsaco", PROGRAMS / f"{name}_kernel.hip"
        compile_host = ["g++", "-std=c++17", str(PROGRAMS / f"{name}.cpp"), "-o", str(program), "-lhsa-runtime64"]
        subprocess.run(compile_host, check=True)
        if object is None:
            if not kernel.exists():
                return [program]
            environment = {**os.environ, "HIP_PLATFORM": "amd"}
            flags = ["--genco", f"--offload-arch={target}", "-O1", "-w", f"-mcode-object-version={version}"]
            command = ["hipcc", *flags, str(kernel), "-o", str(tmp_path / "bundle")]
            subprocess.run(command, check=True, env=environment)
            object = load_object(tmp_path / "bundle", target=target)
        code.write_bytes(object.data)
        return [program, code]

    return build


@pytest.fixture
def luthier_run() -> Callable[..., Outcome]:
    """``luthier_run(devices, *command)``: run a program under `luthier run`."""

    def run(
        devices: str,
        *command: str | Path,
        options: Sequence[str | Path] = (),
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> Outcome:
        words = ["run", *options, "--device", devices, "--", *command]
        done = commands.run_luthier(*words, input=stdin, env={**os.environ, **(env or {})})
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run


@dataclass(frozen=True)
class RunUnderTools:
    """The outcome of a program under tools, and the tools' results."""

    code: int
    out: str
    err: str
    summary: Mapping[str, Any]
    """As `luthier run --json` writes it."""
    variables: Mapping[str, Sequence[tuple[int, str, int]]]
    """By tool: device, name and value."""

    def kernels(self) -> dict[str, dict[str, Any]]:
        """Return the summary of each kernel."""
        return {kernel["kernel"]: kernel for kernel in self.summary["kernels"]}


def apart(work: Callable[[], Any]) -> Any:
    """Return the result of `work` in a forked process: a process can reserve memory for a run only once, and only
    before it loads machine code, which other tests may have done."""
    reading, writing = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        gc.freeze()  # inherited objects are not finalised here: their addresses may have been reused
        machine_code.cache_clear()
        try:
            writing.send((True, work()))
        except BaseException as problem:
            writing.send((False, f"{problem!r}\n{traceback.format_exc()}"))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    writing.close()
    try:
        good, result = reading.recv()
    except EOFError:
        good, result = False, ""
    process.join()
    assert good, result or f"the forked process has died: exit code {process.exitcode}"
    return result


@pytest.fixture
def under_tools(capfd: pytest.CaptureFixture[str]) -> Callable[..., RunUnderTools]:
    """``under_tools(devices, tools, *command)``: run a program under tools in a separate process; with ``folder``,
    write a run directory there."""

    def run(
        devices: str,
        tools: Sequence[Tool],
        *command: str | Path,
        selection: Selection | None = None,
        folder: Path | None = None,
    ) -> RunUnderTools:
        argv = [str(part) for part in command]

        def work() -> tuple[Any, ...]:
            recorder = None if folder is None else Recorder(folder)
            instrumentation = Instrumentation(ToolGroup(tools), selection or Selection(), recorder)
            instrumentation.begin()
            code = run_program(argv, parse_devices(devices), instrumentation)
            instrumentation.end()
            reported = list(results.tables(instrumentation))
            head = results.summary(instrumentation, argv, code, reported)
            if recorder is not None:
                recorder.finish(instrumentation, head)
            summary = results.document(instrumentation, head)
            variables = {
                tool.name: [(v.gpu, v.name, v.value) for v in instrumentation.view(tool).variables()] for tool in tools
            }
            return code, summary, variables

        code, summary, variables = apart(work)
        out, err = capfd.readouterr()
        return RunUnderTools(code, out, err, summary, variables)

    return run


@pytest.fixture
def executed(capfd: pytest.CaptureFixture[str]) -> Callable[..., list[tuple[bytes, dict[int, tuple[int, int]]]]]:
    """``executed(devices, *command)``: the counts of the virtual devices when a program runs without tools, by address
    in each code object."""

    def run(devices: str, *command: str | Path) -> list[tuple[bytes, dict[int, tuple[int, int]]]]:
        def work() -> list[tuple[bytes, dict[int, tuple[int, int]]]]:
            counted = Executed()
            assert run_program([str(part) for part in command], parse_devices(devices), executed=counted) == 0
            return [(object.data, counts) for object, counts in counted.objects()]

        counts: list[tuple[bytes, dict[int, tuple[int, int]]]] = apart(work)
        capfd.readouterr()
        return counts

    return run


@pytest.fixture(scope="session")
def vectors(make_module: Callable[..., ToolModule]) -> type[Tool]:
    """A second tool, with a variable of the first one's name: vector instructions a wave."""
    module = make_module(
        """
__managed__ uint64_t counter = 1000;
LUTHIER_HOOK_ANNOTATE one() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
""",
        *TARGETS,
    )

    class Vectors(Tool):
        """Counts vector instructions, once a wave, from 1000 on."""

        name = "vectors"

        def instrument(self, task: InstrumentationTask) -> None:
            for instruction in task.instructions:
                if instruction.is_vector:
                    task.insert_hook_before(instruction, module.one)

        def expected(self, task: InstrumentationTask, counts: ExecutionCounts) -> Mapping[str, int]:
            return {"counter": sum(int(counts.executions[one.index]) for one in task.instructions if one.is_vector)}

    return Vectors


@pytest.fixture
def luthier() -> Luthier:
    """``luthier(*words)``: run the command with these arguments."""
    return commands.run_luthier


@pytest.fixture(scope="module")
def captured(
    build_program: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], list[Path]]:
    """``captured(name, target)``: the captures of a program's launches, which must not be changed."""
    made: dict[tuple[str, str], list[Path]] = {}

    def capture(name: str, target: str = "gfx90a") -> list[Path]:
        if (name, target) not in made:
            folder = tmp_path_factory.mktemp(f"{name}-{target}") / "kept"
            words = ["capture", "--device", f"emu:{target}", "-o", str(folder), "--", str(build_program(name))]
            commands.run_luthier(*words).check_returncode()
            made[name, target] = sorted(folder.iterdir())
        return made[name, target]

    return capture
