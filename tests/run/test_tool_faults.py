"""Failures while a program runs under tools: it is correct or gets an error, results are kept, nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kept import ROOT
from luthier import InstrumentationTask, Tool
from luthier.cache.store import Store
from luthier.errors import LuthierError
from luthier.run import instrumentation, patching
from luthier.run.folder import RunFolder
from luthier.tool.observation import Launch

from .conftest import RunUnderTools
from .test_programs import SAYS

Build = Callable[[str], Path]
UnderTools = Callable[..., RunUnderTools]


@pytest.fixture
def as_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that count write immediately, and not at the end of a wave, because waves are killed here."""
    monkeypatch.setattr(InstrumentationTask, "HOIST", False)


@pytest.mark.rows(1)
@pytest.mark.usefixtures("as_hooks")
@pytest.mark.parametrize(
    ("what", "kernel"), [("abort", "end_all"), ("trap", "trap"), ("address", "outside"), ("assert", "asserts")]
)
def test_a_kernel_that_faults(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], what: str, kernel: str
) -> None:
    """The fault is the program's own, named as without tools, and what was counted before is there."""
    ran = under_tools("emu:gfx90a", [counter()], build_program("faults"), what)
    assert ran.code == -signal.SIGABRT
    assert f"{kernel}" in next(line for line in ran.err.splitlines() if line.startswith("luthier: "))
    assert ran.summary["faults"] == []
    ((_, _, value),) = ran.variables[""]
    assert value > 0
    ((name, counts),) = ran.kernels().items()
    assert kernel in name
    assert (counts["launches"], counts["instrumented"]) == (1, 1)


@pytest.mark.thorough
@pytest.mark.rows
@pytest.mark.usefixtures("as_hooks")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_program_that_is_killed_in_a_kernel(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], number: int, tmp_path: Path
) -> None:
    """A kernel that never ends, and Ctrl-C or worse: what was counted is kept."""
    script = f"""
import subprocess, sys, time
program = subprocess.Popen([sys.argv[1], "forever"])
time.sleep(4)
program.send_signal({int(number)})
sys.exit(-program.wait(60))
"""
    command = (sys.executable, "-c", script, build_program("faults"))
    ran = under_tools("emu:gfx90a", [counter()], *command, folder=tmp_path / "run")
    assert (ran.code, ran.out) == (number, "ready\n")
    ((_, _, value),) = ran.variables[""]
    assert value > 1000
    ((launch, ended),) = ((row["number"], row["end_ns"]) for row in RunFolder(tmp_path / "run").rows("launches"))
    assert (launch, ended) == (0, None)


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set and return the folder of patched kernels of this test."""
    path = tmp_path / "patched.sqlite"
    monkeypatch.setattr(patching, "patched_store", lambda: Store(path))
    return path


def test_a_warm_cache_patches_nothing(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], vectors: type[Tool], kept: Path
) -> None:
    runs = [under_tools("emu:gfx90a", [counter()], build_program("graph")) for _ in range(2)]
    for ran, warm in zip(runs, (False, True), strict=True):
        assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
        assert [kernel["from_cache"] for kernel in ran.kernels().values()] == [warm, warm]
    cold, warm = ({**kernel, "from_cache": None} for kernel in (run.kernels()["_Z5scalePii"] for run in runs))
    assert cold == warm
    assert runs[0].variables == runs[1].variables
    for tools in ([vectors()], [counter(per_wave=True)], [counter(), vectors()]):  # nothing of what is kept fits
        other = under_tools("emu:gfx90a", tools, build_program("graph"))
        assert not any(kernel["from_cache"] for kernel in other.kernels().values())
    assert (
        under_tools("emu:gfx906", [counter()], build_program("graph")).kernels()["_Z5scalePii"]["from_cache"] is False
    )


def test_counters_of_kept_kernels(
    build_program: Build, under_tools: UnderTools, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / "opcode_histogram"))
    from luthier_opcode_histogram import OpcodeHistogram

    runs = [under_tools("emu:gfx90a", [OpcodeHistogram(top=0)], build_program("graph")) for _ in range(2)]
    for ran, warm in zip(runs, (False, True), strict=True):
        assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
        assert [kernel["from_cache"] for kernel in ran.kernels().values()] == [warm, warm]
    tables = [[tool["tables"] for tool in ran.summary["tools"]] for ran in runs]
    assert tables[0] == tables[1]
    assert any(row[1] > 0 for tool in tables[0] for table in tool for row in table["rows"])


@pytest.mark.rows(1)
@pytest.mark.parametrize("how", ["cut", "noise", "no folder"])
def test_a_damaged_cache(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], kept: Path, how: str
) -> None:
    first = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    data = bytearray(kept.read_bytes())
    if how == "cut":
        kept.write_bytes(data[: len(data) // 2])
    elif how == "noise":
        noise = np.random.default_rng(1)
        for at in noise.integers(200, len(data), 400):
            data[at] ^= 0xFF
        kept.write_bytes(data)
    else:
        kept.unlink()
        kept.parent.rename(kept.parent.with_name("elsewhere"))
        kept.parent.write_text("a file where the folder should be")
    again = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert (again.code, again.out, again.summary["faults"]) == (0, SAYS["graph"], [])
    assert again.variables == first.variables


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a full file system."""
    folder = tmp_path / "full"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a file system takes rights that the tests do not have here")
    try:
        with suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.thorough
def test_no_room_for_the_cache(
    build_program: Build, under_tools: UnderTools, counter: type[Tool], full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cached, and results are correct."""
    wanted = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    monkeypatch.setenv("LUTHIER_CACHE_DIR", str(full_disk / "cache"))
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
    assert ran.variables == wanted.variables
    assert not any(kernel["from_cache"] for kernel in ran.kernels().values())


@pytest.mark.thorough
def test_64_processes_at_once(build_program: Build, under_tools: UnderTools, counter: type[Tool]) -> None:
    """All are right, and all are counted."""
    program = build_program("graph")
    (variables,) = under_tools("emu:gfx90a", [counter()], program).variables.values()
    script = """
import subprocess, sys
programs = [subprocess.Popen(sys.argv[1], stdout=subprocess.PIPE) for _ in range(64)]
said = [program.communicate()[0].decode() for program in programs]
assert not any(program.returncode for program in programs)
print(*sorted(set(said)), end="")
"""
    ran = under_tools("emu:gfx90a", [counter()], sys.executable, "-c", script, program)
    assert (ran.code, ran.out, ran.summary["faults"]) == (0, SAYS["graph"], [])
    (many,) = ran.variables.values()
    assert [value for *_, value in many] == [value for *_, value in variables] * 64
    assert {kernel["launches"] for kernel in ran.kernels().values()} == {64 * 5}


def test_two_runs_on_one_cache(build_program: Build, under_tools: UnderTools, counter: type[Tool], kept: Path) -> None:
    program = build_program("graph")
    done: list[RunUnderTools] = []
    threads = [
        threading.Thread(target=lambda: done.append(under_tools("emu:gfx90a", [counter()], program))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [ran.code for ran in done] == [0, 0]
    assert done[0].variables == done[1].variables


@pytest.mark.rows(1)
@pytest.mark.parametrize("problem", [SystemExit(), OSError("a bug")], ids=["cut", "bug"])
def test_the_connection_is_cut(
    build_program: Build,
    under_tools: UnderTools,
    counter: type[Tool],
    monkeypatch: pytest.MonkeyPatch,
    problem: BaseException,
) -> None:
    """The original kernels run, and the user is informed, by the program itself if the service cannot know."""
    real = instrumentation.Instrumentation._find_kernel

    def cut(self: Any, session: Any, request: Any) -> Any:
        if session.kernels:
            raise problem  # SystemExit ends the connection's thread
        return real(self, session, request)

    monkeypatch.setattr(instrumentation.Instrumentation, "_find_kernel", cut)
    ran = under_tools("emu:gfx90a", [counter()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    if isinstance(problem, SystemExit):
        assert "luthier: not instrumented: the Luthier service has ended" in ran.err
    else:
        assert "a bug" in ran.summary["faults"][0]
    ((_, kernel),) = ran.kernels().items()
    assert kernel["instrumented"] == 5


def test_the_service_is_killed(build_program: Build, under_tools: UnderTools, counter: type[Tool]) -> None:
    """Nothing hangs: the virtual device needs it, too, so that the program gets an error."""

    class Deadly(counter):  # type: ignore[misc,valid-type]
        """Ends the service at the third launch."""

        name = "deadly"

        def at_kernel_launch(self, launch: Launch) -> None:
            """Ends it."""
            if launch.number == 2:
                os.kill(os.getpid(), signal.SIGKILL)

    began = time.monotonic()
    with pytest.raises(AssertionError, match="has died"):
        under_tools("emu:gfx90a", [Deadly()], build_program("graph"))
    assert time.monotonic() - began < 60


def test_a_tool_that_cannot_begin(under_tools: UnderTools, counter: type[Tool]) -> None:
    """The program is not even started."""

    def at_init(self: Any, run: Any) -> None:
        raise ZeroDivisionError("in the tool")

    class Early(counter):  # type: ignore[misc,valid-type]
        """Fails immediately."""

        name = "early"

    Early.at_init = at_init
    with pytest.raises(AssertionError, match="tool early failed at the start of the run"):
        under_tools("emu:gfx90a", [Early()], "sh", "-c", "echo started")


def test_nothing_instrumented_is_an_error(build_program: Build, counter: type[Tool]) -> None:
    """Unless it is allowed: what `check` says."""
    from luthier.run.results import check
    from luthier.run.selection import Selection
    from luthier.tool import ToolGroup

    with pytest.raises(LuthierError, match="did not load ROCr"):
        check(instrumentation.Instrumentation(ToolGroup([counter()]), Selection()))


def test_hooks_that_are_refused_are_told(
    build_program: Build, under_tools: UnderTools, make_module: Callable[..., Any]
) -> None:
    """Other kernels are counted; the summary lists the missing ones and the reasons."""
    module = make_module(
        """
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE one() { luthier::sAtomicAdd<uint64_t>(&counter, 1); }
LUTHIER_HOOK_ANNOTATE bad() { __syncthreads(); }
""",
        "gfx90a",
    )

    class Half(Tool):
        """Also requests a hook that cannot be inserted."""

        name = "half"

        def instrument(self, task: InstrumentationTask) -> None:
            """Both."""
            first = next(iter(task.instructions))
            task.insert_hook_before(first, module.one)
            task.insert_hook_before(first, module.bad)

    ran = under_tools("emu:gfx90a", [Half()], build_program("graph"))
    assert (ran.code, ran.out) == (0, SAYS["graph"])
    for kernel in ran.kernels().values():
        assert kernel["hooks"] == 1
        assert not kernel["covered"]
        assert kernel["refused"]["hook"]["hooks"] == 1
        assert kernel["instrumented"] == 5
    assert ran.variables["half"][0][2] > 0
