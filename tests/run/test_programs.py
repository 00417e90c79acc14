"""Unmodified HIP programs under the real libamdhip64 and ROCr: they check their results themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from assembly import assembled, function, kernel_text
from luthier.run.code_uris import read_uri

from .conftest import TARGETS, Outcome

pytestmark = pytest.mark.rows()

SAYS = {
    "pointers": "pointers\n",
    "variables": "total 24800\n",
    "streams": "streams\n",
    "reduction": "sums\n",
    "histogram": "counted\n",
    "graph": "graph 125\n",
    "compiled_late": "three modules\n",
    "modules": "modules\n",
    "boxes": "boxes\n",
    "host_memory": "host memory\n",
    "stack": "stack\n",
    "grid_barrier": "grid\n",
    "persistent": "persistent\n",
    "processes": "processes\n",
    "scan": "scan\n",
    "sort": "sorted\n",
    "transpose": "transposed\n",
    "physics": "physics\n",
    "sparse": "sparse\n",
    "fourier": "fourier\n",
    "exchange": "exchange\n",
    "many": "many\n",
    "managed": "sum: right\npreferred 0, prefetched 0, read mostly 1\nfilled: 0 wrong\n",
    "print": "".join(
        f"work-item {item} of group {group} says {number} and {0.5 * number:.2f}\n"
        for group, item, number in ((0, 0, 7), (0, 1, 7), (1, 0, 7), (1, 1, 7), (0, 0, 8))
    ),
}
UNORDERED = {"print": 4}
"""Programs whose first lines may come in any order: work-groups of a launch run in any."""

Build = Callable[..., Path]
Run = Callable[..., Outcome]


@pytest.mark.rows(16)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", SAYS)
def test_a_program_is_right(build_program: Build, luthier_run: Run, name: str, target: str) -> None:
    outcome = luthier_run(f"emu:{target}", build_program(name))
    # Debian's ROCr is built with checks that warn of what HIP does with signals.
    err = [line for line in outcome.err.splitlines() if not line.startswith("Warning: (!g_use_interrupt_wait")]
    assert (outcome.code, in_order(name, outcome.out), err) == (0, SAYS[name], [])


def in_order(name: str, out: str) -> str:
    """Return a program's output with lines of free order sorted."""
    lines, free = out.splitlines(keepends=True), UNORDERED.get(name, 0)
    return "".join(sorted(lines[:free], key=lambda line: line.split(" of ")[::-1]) + lines[free:])


@pytest.mark.rows(1)
@pytest.mark.parametrize(("target", "wave"), [("gfx906", 64), ("gfx908", 64), ("gfx90a", 64), ("gfx1030", 32)])
def test_the_program_sees_the_device(build_program: Build, luthier_run: Run, target: str, wave: int) -> None:
    outcome = luthier_run(f"emu:{target}", build_program("saxpy"))
    assert outcome.code == 0, outcome
    assert outcome.out.startswith(target)
    assert outcome.out.endswith(f"waves of {wave}\n")


@pytest.mark.rows(1)
@pytest.mark.parametrize("targets", [("gfx906", "gfx1030"), ("gfx90a", "gfx90a", "gfx1030")])
def test_several_devices(build_program: Build, luthier_run: Run, targets: tuple[str, ...]) -> None:
    outcome = luthier_run(",".join(f"emu:{target}" for target in targets), build_program("devices"))
    assert (outcome.code, outcome.err) == (0, ""), outcome
    lines = outcome.out.splitlines()
    assert len(lines) == len(targets)
    for number, (line, target) in enumerate(zip(lines, targets, strict=True)):
        assert line.startswith(f"device {number}: {target}")


def test_copies_without_copy_engines(build_program: Build, luthier_run: Run) -> None:
    """ROCr's own kernels copy then: they come in no code object."""
    outcome = luthier_run("emu:gfx90a", build_program("reduction"), env={"HSA_ENABLE_SDMA": "0"})
    assert (outcome.code, outcome.out, outcome.err) == (0, SAYS["reduction"], "")


def test_many_queues(raw_program: Callable[[str, str], list[Path]], luthier_run: Run) -> None:
    """The program's thread and one of ROCr's wait for the same event; once in some hundred queues, the first thread
    consumed the event that it had raised for the other, which then slept forever."""
    outcome = luthier_run("emu:gfx90a", *raw_program("gfx90a", "raw_queues"), "2000")
    assert (outcome.code, outcome.out, outcome.err) == (0, "2000 queues\n", "")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_hsa_without_hip(raw_program: Callable[[str], list[Path]], luthier_run: Run, target: str) -> None:
    outcome = luthier_run(f"emu:{target}", *raw_program(target))
    assert (outcome.code, outcome.out) == (0, "2100 items\nqueue error 0x1003\n"), outcome
    assert "1048576 bytes of LDS; there are 65536" in outcome.err
    assert "100 x 7 x 3 work-items, in work-groups of 64 x 4 x 2, of kernel mark\n" in outcome.err


@pytest.mark.parametrize(("target", "agprs"), [("gfx906", 0), ("gfx90a", 256)])
def test_more_vector_registers_than_there_are(
    raw_program: Callable[..., list[Path]], luthier_run: Run, target: str, agprs: int
) -> None:
    code = assembled(kernel_text(function("mark", ["s_endpgm"]), target, name="mark", vgprs=256, agprs=agprs), target)
    outcome = luthier_run(f"emu:{target}", *raw_program(target, object=code))
    assert (outcome.code, outcome.out) == (0, "queue error 0x100f\n"), outcome
    reason = "a work-group of 512 work-items has 8 waves; the device has vector registers for 4 waves of the kernel"
    assert reason in outcome.err
    assert "in work-groups of 64 x 4 x 2, of kernel mark\n" in outcome.err


def test_a_kernel_that_is_no_longer_loaded(raw_program: Callable[[str, str], list[Path]], luthier_run: Run) -> None:
    outcome = luthier_run("emu:gfx90a", *raw_program("gfx90a", "raw_unloaded"))
    assert (outcome.code, outcome.out) == (0, "".join(f"ran {n} times\nqueue error 0x1010\n" for n in (1, 2))), outcome
    assert "the entry of a kernel lies outside the memory of its descriptor" in outcome.err
    assert "the kernel object of a dispatch lies in no memory of the device" in outcome.err


@pytest.mark.parametrize("what", ["there", "elsewhere", "removed"])
@pytest.mark.parametrize("path", ["./library.so", "{folder}/library.so"])
def test_a_library_that_is_opened_late(
    build_program: Build, luthier_run: Run, tmp_path: Path, path: str, what: str
) -> None:
    """If the file is not readable, the code in memory is executed."""
    shutil.copy(build_program("opened_late", "-DLIBRARY", "-shared", "-fPIC"), tmp_path / "library.so")
    outcome = luthier_run("emu:gfx90a", build_program("opened_late"), tmp_path, path.format(folder=tmp_path), what)
    assert (outcome.code, outcome.out, outcome.err) == (0, "squares\n", "")


def test_a_relative_path_is_the_programs(tmp_path: Path) -> None:
    (tmp_path / "a b").write_bytes(b"0123456789")
    with subprocess.Popen(["cat"], cwd=tmp_path, stdin=subprocess.PIPE) as program:
        assert read_uri("file://./a%20b#offset=2&size=0x3", program.pid) == b"234"


def test_what_a_warm_run_imports(build_program: Build) -> None:
    """No masked arrays, which `numpy.unique` imports for 15 ms of each run, and few dataclasses: to define one takes
    half a millisecond, a `msgspec.Struct` a twentieth of that."""
    code = """
import dataclasses, sys
from luthier.cli.main import main
status = main(sys.argv[1:])
modules = [(name, vars(module)) for name, module in sys.modules.items() if name.startswith("luthier.")]
classes = [one for name, names in modules for one in names.values() if isinstance(one, type) and one.__module__ == name]
records = sum(map(dataclasses.is_dataclass, classes))
print(status, "numpy" in sys.modules, "numpy.ma" in sys.modules, 5 < records < 20, file=sys.stderr)
"""
    command = ["run", "-t", "instr_count", "--device", "emu:gfx90a", "--", str(build_program("saxpy"))]
    for _ in range(2):  # compilers may use what they like
        ran = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    assert ran.stderr.splitlines()[-1] == "0 True False True", ran.stderr
