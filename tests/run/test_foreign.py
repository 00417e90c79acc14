"""Programs and libraries of other projects, under the real ROCm on virtual devices: correct without tools and under the
shipped ones, and tools count the same instructions as the devices.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import run_luthier
from compiling import compiled
from kept import ROOT
from luthier import Tool, ToolModule
from luthier.run.selection import Selection
from rocrand_numbers import COUNT, GENERATORS, SEED, SOBOL_DIMENSIONS, published
from shipped import NAMES, tool_of
from shipped_tools import shipped_tools

from luthier_build.toolchain import Toolchain

from .conftest import ONE_A_FAMILY, TARGETS, Outcome, RunUnderTools
from .test_tools import Counts, expected

FOREIGN = Path(__file__).parent / "foreign"
ACCELERATOR = Path("/usr/lib/gcc/x86_64-linux-gnu/12/accel/amdgcn-amdhsa/gfx906")
HIP_LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")
SPARSE_FOLDERS = (Path("/usr"), Path(os.environ.get("LUTHIER_TEST_ROCSPARSE", "/usr")))
"""Where rocSPARSE may be unpacked; it is too large to be installed for tests."""

Run = Callable[..., Outcome]
UnderTools = Callable[..., RunUnderTools]


@pytest.fixture
def shipped(counter: type[Tool], monkeypatch: pytest.MonkeyPatch) -> list[Tool]:
    """Tools that Luthier comes with: one with hooks, one that counts without."""
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / "opcode_histogram"))
    from luthier_opcode_histogram import OpcodeHistogram

    OpcodeHistogram.name = "histogram"
    return [counter(), OpcodeHistogram(top=0)]


def check_counts(ran: RunUnderTools, counted: Counts | None, tools: list[Tool]) -> None:
    """Both tools have covered all kernels, and counted what the devices did, unless `counted` is None."""
    assert ran.summary["faults"] == []
    own = {name: kernel for name, kernel in ran.kernels().items() if not kernel["skipped"]}
    assert own
    assert all(kernel["covered"] and kernel["instrumented"] == kernel["launches"] for kernel in own.values()), own
    total = sum(value for _, _, value in ran.variables[tools[0].name])
    assert total > 0
    if counted is not None:
        assert total == expected(counted, list(own), tools[:1])[0]


def library(name: str, package: str) -> str:
    """A library's flags, where it is installed."""
    if not any(
        (folder / f"lib{name}.so").exists() for folder in (Path("/usr/lib/x86_64-linux-gnu"), Path("/opt/rocm/lib"))
    ):
        pytest.skip(f"lib{name} is not installed ({package})")
    return f"-l{name}"


def host_program(source: str, *flags: str) -> Path:
    """A program that only calls libraries."""
    command = ["g++", "-D__HIP_PLATFORM_AMD__", "-std=c++17", "-O1", FOREIGN / source, *flags, "-lamdhip64"]
    return compiled(command, [FOREIGN / source], Path(source).stem)


# rocRAND: its numbers by their published algorithms ------------------------------------------------------------------


def random_numbers(name: str, out: Path) -> tuple[str, ...]:
    program = host_program("random_numbers.cpp", library("rocrand", "librocrand-dev"))
    kind = GENERATORS[name][0]
    return str(program), str(kind), str(SOBOL_DIMENSIONS if kind >= 500 else SEED), str(COUNT), str(out)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", GENERATORS)
def test_random_numbers(luthier_run: Run, tmp_path: Path, name: str, target: str) -> None:
    outcome = luthier_run(f"emu:{target}", *random_numbers(name, tmp_path / "numbers"))
    assert (outcome.code, outcome.out) == (0, "generated\n"), outcome
    numbers = np.fromfile(tmp_path / "numbers", np.uint32)
    assert len(numbers) == COUNT
    assert np.array_equal(numbers[: len(published(name))], published(name))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "target"),
    # XORWOW needs 270 million instructions to begin.
    [(name, target) for name in GENERATORS if name != "XORWOW" for target in TARGETS] + [("XORWOW", "gfx908")],
)
def test_random_numbers_under_tools(
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    shipped: list[Tool],
    tmp_path: Path,
    name: str,
    target: str,
) -> None:
    command = random_numbers(name, tmp_path / "numbers")
    ran = under_tools(f"emu:{target}", shipped, *command)
    assert (ran.code, ran.out) == (0, "generated\n"), ran.err
    numbers = np.fromfile(tmp_path / "numbers", np.uint32)
    assert np.array_equal(numbers[: len(published(name))], published(name))
    check_counts(ran, executed(f"emu:{target}", *command), shipped)


# rocPRIM -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def primitives() -> Callable[[str], Path]:
    """The program for a target: these headers take long to compile."""
    if not any(Path(folder, "include/rocprim/rocprim.hpp").exists() for folder in ("/usr", "/opt/rocm")):
        pytest.skip("rocPRIM is not installed (librocprim-dev)")

    def build(target: str) -> Path:
        command = ["env", "HIP_PLATFORM=amd", "hipcc", f"--offload-arch={target}", "-std=c++17", "-O2", "-w"]
        inputs = [FOREIGN / "primitives.hip", FOREIGN.parent / "programs" / "check.h"]
        return compiled([*command, inputs[0]], inputs, "primitives")

    return build


@pytest.mark.thorough
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_primitives(
    luthier_run: Run,
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    shipped: list[Tool],
    primitives: Callable[[str], Path],
    target: str,
) -> None:
    program = primitives(target)
    outcome = luthier_run(f"emu:{target}", program)
    assert (outcome.code, outcome.out) == (0, "sorted, scanned, reduced\n"), outcome
    ran = under_tools(f"emu:{target}", shipped, program)
    assert (ran.code, ran.out) == (0, outcome.out), ran.err
    # The scan waits for the work-groups before, so not every run executes the same number of instructions.
    check_counts(ran, None, shipped)
    steady = [
        name for name in ran.kernels() if "lookback_scan_kernel" not in name and not ran.kernels()[name]["skipped"]
    ]
    assert len(steady) > 2
    again = under_tools(f"emu:{target}", shipped, program, selection=Selection(kernels=tuple(steady)))
    counted = sum(value for _, _, value in again.variables[shipped[0].name])
    assert counted == expected(executed(f"emu:{target}", program), steady, shipped[:1])[0]


# rocSPARSE -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def sparse_product() -> Path:
    """The program, where there is the library."""
    for folder in SPARSE_FOLDERS:
        library, headers = folder / "lib/x86_64-linux-gnu", folder / "include"
        if (library / "librocsparse.so.0").exists() and (headers / "rocsparse/rocsparse.h").exists():
            flags = [f"-I{headers}", f"-Wl,-rpath,{library}", str(library / "librocsparse.so.0")]
            return host_program("sparse_product.cpp", *flags)
    pytest.skip(
        "rocSPARSE (1.3 GB) is not installed: librocsparse-dev, or unpacked and named by LUTHIER_TEST_ROCSPARSE"
    )


@pytest.mark.parametrize("target", TARGETS)
def test_a_sparse_product(
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    shipped: list[Tool],
    sparse_product: Path,
    tmp_path: Path,
    target: str,
) -> None:
    sparse = pytest.importorskip("scipy.sparse", reason="SciPy is not installed")
    rng = np.random.default_rng(7)
    matrix = sparse.random_array((700, 500), density=0.03, rng=rng, format="csr")
    x = rng.standard_normal(500)
    arrays = matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), matrix.data, x
    sizes = np.array([700, 500, matrix.nnz], np.int32)
    (tmp_path / "in").write_bytes(b"".join(array.tobytes() for array in (sizes, *arrays)))
    ran = under_tools(f"emu:{target}", shipped, sparse_product, tmp_path / "in", tmp_path / "out")
    assert (ran.code, ran.out) == (0, "multiplied\n"), ran.err
    assert np.allclose(np.fromfile(tmp_path / "out"), matrix @ x, rtol=1e-13)
    check_counts(ran, executed(f"emu:{target}", sparse_product, tmp_path / "in", tmp_path / "out"), shipped)


def test_a_large_library_starts_at_once(luthier_run: Run, sparse_product: Path) -> None:
    """At most two seconds later than without: the best of three, since machines have other work."""

    def quickest(run: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            began = time.monotonic()
            run()
            times.append(time.monotonic() - began)
        return min(times)

    without = quickest(lambda: subprocess.run([sparse_product], check=True, capture_output=True))
    assert quickest(lambda: luthier_run("emu:gfx90a", sparse_product)) < without + 2


# Programs of HeCBench ------------------------------------------------------------------------------------------------

HECBENCH = Path(os.environ.get("LUTHIER_TEST_HECBENCH", "")) / "src"
"""A checkout of github.com/zjin-lcf/HeCBench, which nothing of is kept here."""
BENCHMARKS: Mapping[str, tuple[str, ...]] = {
    "atomicIntrinsics": ("10", "1"),
    "atomicReduction": ("65536", "1"),
    "backprop": ("1024",),
    "bitonic-sort": ("10", "2"),
    "chacha20": ("1",),
    "convolutionSeparable": ("128", "128", "1"),
    "dct8x8": ("64", "64", "1"),
    "floydwarshall": ("64", "1", "16"),
    "fwt": ("1",),
    "gamma-correction": ("64", "32", "1", "1"),
    "gaussian": ("-q", "-t", "-s", "32"),
    "histogram": ("--i=1",),
    "jenkins-hash": ("256", "10000", "1"),
    "mandelbrot": ("1",),
    "matrix-rotate": ("64", "1"),
    "matrixT": ("64", "64", "1"),
    "murmurhash3": ("1000", "1"),
    "nqueen": ("8", "3", "1"),
    "nw": ("64", "10", "1"),
    "popcount": ("10000", "1"),
    "quicksort": ("1", "64", "64"),
    "radixsort": ("1",),
    "reverse": ("1",),
    "scan": ("65536", "2"),
    "scan2": ("1", "4096", "256"),
    "sobol": ("1000", "10", "1"),
    "stddev": ("64", "64", "1"),
    "stencil1d": ("8192", "1"),
}
"""Programs that check what they compute, with arguments for little of it."""
VERDICT = re.compile(r"PASS|SUCCESS|Success|failures: 0 out of|solutions found: 92")
FAILURE = re.compile(r"FAIL|[Mm]ismatch|failures: [1-9]")
PARTS = 4
"""Tools run so many at once that this many runs have them all."""


@pytest.fixture
def benchmark_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A program of HeCBench, built from the sources in its Makefile. It runs in a separate folder, because some
    programs write files to their folder; the data that others read is next to it."""
    if not HECBENCH.is_dir() or "LUTHIER_TEST_HECBENCH" not in os.environ:
        pytest.skip("there is no checkout of HeCBench, which LUTHIER_TEST_HECBENCH would name")
    (tmp_path / "here").mkdir()
    (tmp_path / "data").symlink_to(HECBENCH / "data")
    monkeypatch.chdir(tmp_path / "here")

    def build(name: str) -> Path:
        folder, shared = HECBENCH / f"{name}-hip", HECBENCH / f"{name}-cuda"
        listed = re.search(r"^source\s*=(.*(?:\\\n.*)*)", (folder / "Makefile").read_text(), re.MULTILINE)
        assert listed, f"the Makefile of {name} names no sources"
        sources = [(folder / one).resolve() for one in listed[1].replace("\\\n", " ").split()]
        offload = [f"--offload-arch={target}" for target in TARGETS]
        command = ["env", "HIP_PLATFORM=amd", "hipcc", *offload, "-std=c++17", "-O3", "-w", f"-I{shared}", *sources]
        return compiled(command, [path for one in (folder, shared) for path in one.glob("*.*")], name)

    return build


@pytest.mark.thorough
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", BENCHMARKS)
def test_programs_of_hecbench(
    luthier_run: Run,
    under_tools: UnderTools,
    make_module: Callable[..., ToolModule],
    benchmark_program: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    part: int,
) -> None:
    """Right under every tool that ships: the program's own checks, and its exit code."""
    target = TARGETS[(list(BENCHMARKS).index(name) + part) % len(TARGETS)]
    command = benchmark_program(name), *BENCHMARKS[name]
    alone = luthier_run(f"emu:{target}", *command)
    verdicts = VERDICT.findall(alone.out)
    assert alone.code == 0, alone.err
    assert verdicts, alone.out
    assert not FAILURE.search(alone.out), alone.out
    trials = shipped_tools()
    tools = [tool_of(make_module, one, TARGETS, **trials[one].trial) for one in NAMES[part::PARTS]]
    ran = under_tools(f"emu:{target}", tools, *command, folder=tmp_path / "run")
    assert ran.code == 0, ran.err
    assert VERDICT.findall(ran.out) == verdicts, ran.out
    assert not FAILURE.search(ran.out), ran.out
    assert ran.summary["faults"] == []
    for kernel in ran.kernels().values():
        assert kernel["covered"] or kernel["skipped"] or kernel["refused"] or kernel["reason"], kernel


CHECKED: Mapping[str, tuple[str, ...]] = BENCHMARKS | {
    "asta": ("-w", "1", "-r", "1", "-m", "64", "-n", "64"),
    "axpby": ("2",),
    "bincount": ("10000", "1"),
    "bsearch": ("10000", "1"),
    "crc64": ("1", "1"),
    "entropy": ("64", "64", "1"),
    "expdist": ("256", "1"),
    "fft": ("1", "1"),
    "filter": ("10000", "256", "1"),
    "heat2d": ("64", "64", "2"),
    "lavaMD": ("-boxes1d", "2"),
    "merge": ("1000", "1"),
    "nbody": ("100", "10"),
    "particlefilter": ("-x", "16", "-y", "16", "-z", "2", "-np", "100"),
    "pathfinder": ("1000", "10", "5"),
    "scatterAdd": ("100", "32", "8", "1"),
    "srad": ("1", "0.5", "64", "64"),
    "stencil3d": ("32", "1"),
    "threadfence": ("1", "10000"),
}
"""Programs that run under all checks of `luthier sanitize` in a minute, some of which do not look at their results."""
WRONG = {
    "asta": {"race"},
    "bsearch": {"missed-barrier"},
    "entropy": {"infinity", "nan"},
    "histogram": {"out-of-bounds", "uninitialised-read"},
    "stencil3d": {"missed-barrier"},
}
"""What is wrong with some of them (docs/sanitize-evidence.md, "Programs by others")."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHECKED)
def test_programs_of_hecbench_under_checks(benchmark_program: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    checks = "memory,leak,race,init,barrier,early-exit,waits,hazards,fp,host"
    log, command = tmp_path / "log", (benchmark_program(name), *CHECKED[name])
    done = run_luthier("sanitize", "--device", "emu:gfx90a", "--check", checks, "--json", log, "--", *command)
    report = json.loads(log.read_text())
    assert report["exit_code"] == 0, done
    assert {one["kind"] for one in report["findings"]} == WRONG.get(name, set()), done.stderr


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHECKED)
def test_programs_of_hecbench_by_default(benchmark_program: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Without options nothing is reported but what is wrong, and leaks."""
    log, command = tmp_path / "log", (benchmark_program(name), *CHECKED[name])
    done = run_luthier("sanitize", "--device", "emu:gfx90a", "--json", log, "--", *command)
    report = json.loads(log.read_text())
    assert report["exit_code"] == 0, done
    unseen = {"infinity", "nan", "uninitialised-read"}
    assert {one["kind"] for one in report["findings"]} - {"leak"} == WRONG.get(name, set()) - unseen, done.stderr


CAPTURED: Mapping[str, tuple[str, ...]] = CHECKED | {
    "adam": ("1000", "20", "2"),
    "burger": ("64", "64", "2"),
    "cbsfil": ("64", "64", "1"),
    "colorwheel": ("10", "64", "1"),
    "complex": ("1000", "1"),
    "cooling": ("1000", "1"),
    "cross": ("1000", "1"),
    "ecdh": ("1000", "1"),
    "fpc": ("16", "1"),
    "glu": ("1", "64", "1"),
    "haccmk": ("1",),
    "hausdorff": ("100", "100", "1"),
    "hwt1d": ("1024", "1"),
    "ising": ("-x", "64", "-y", "64", "-w", "1", "-n", "2"),
    "iso2dfd": ("64", "64", "2"),
    "keogh": ("16", "1000", "1"),
    "laplace3d": ("32", "32", "32", "2", "1"),
    "layout": ("1",),
    "lif": ("100", "2", "10"),
    "maxpool3d": ("32", "32", "4", "1"),
    "mr": ("1",),
    "mrc": ("1000", "1"),
    "page-rank": ("-n", "100", "-i", "2"),
    "perplexity": ("100", "10", "1"),
    "pool": ("1", "1", "16", "16", "8", "8", "1"),
    "projectile": ("1",),
    "quantBnB": ("1000", "1"),
    "split": ("4096", "1"),
    "tsa": ("64", "64", "1"),
    "unfold": ("1000", "1"),
    "vanGenuchten": ("8", "8", "8", "2"),
    "wedford": ("8", "8", "64", "1"),
    "zeropoint": ("1000", "1"),
    "zoom": ("1", "1", "32", "32", "1"),
}
"""Programs whose launches are all captured and replayed (docs/what-runs.md, "Captured launches")."""
NOT_CAPTURED = {"quicksort", "srad"}
"""One whose work-groups ask by atomics where their parts go, so that each run leaves other bytes, and one that needs a
picture beside the folder that it runs in."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [name for name in CAPTURED if name not in NOT_CAPTURED])
def test_captures_of_hecbench(
    luthier: Callable[..., subprocess.CompletedProcess[str]],
    benchmark_program: Callable[[str], Path],
    tmp_path: Path,
    name: str,
) -> None:
    """Every launch is captured, and leaves the same bytes by the same instructions in another process."""
    target = TARGETS[list(CAPTURED).index(name) % len(TARGETS)]
    kept = tmp_path / "kept"
    made = luthier("capture", "--device", f"emu:{target}", "-o", kept, "--", benchmark_program(name), *CAPTURED[name])
    assert made.returncode == 0, made.stderr
    assert "; not captured: 0\n" in made.stderr
    done = luthier("replay", "--json", kept)
    rows = json.loads(done.stdout)
    assert (done.returncode, {row["what"] for row in rows}) == (0, {"equal"}), done.stdout
    assert len(rows) == len(list(kept.iterdir()))


# What GCC offloads ---------------------------------------------------------------------------------------------------

OFFLOADED = {
    "openmp.c": ("gcc-12", "-fopenmp", "1 devices, on the host: 0, sum 9000000.0\n"),
    "openmp.f90": ("gfortran-12", "-fopenmp", "on the host: F, sum 11253750.0\n"),
    "openacc.c": ("gcc-12", "-fopenacc", "on a GPU: 1, sum 55970\n"),
}


def offloaded(source: str) -> Path:
    compiler, model, _ = OFFLOADED[source]
    return offloaded_by_gcc(FOREIGN / source, compiler, model)


def offloaded_by_gcc(source: Path, compiler: str, *flags: str) -> Path:
    """Return a program of parts for gfx906 and the host."""
    if not ACCELERATOR.exists():
        pytest.skip("GCC's offload compiler is not installed (gcc-12-offload-amdgcn)")
    options = f"-foffload-options=amdgcn-amdhsa=-march=gfx906 -L{ACCELERATOR} -B{ACCELERATOR}"
    command = [compiler, "-O2", *flags, "-foffload=amdgcn-amdhsa", options, source]
    return compiled(command, [source], source.name.replace(".", "_"))


@pytest.mark.rows(1)
@pytest.mark.parametrize("source", OFFLOADED)
def test_what_gcc_offloads(luthier_run: Run, source: str) -> None:
    outcome = luthier_run("emu:gfx906", offloaded(source))
    assert (outcome.code, outcome.out, outcome.err) == (0, OFFLOADED[source][2], "")


def test_a_pointer_that_openmp_does_not_map(tmp_path: Path) -> None:
    """A kernel of OpenMP that stores to the host's heap stops, and that is a finding."""
    log = tmp_path / "log"
    done = run_luthier("sanitize", "--device", "emu:gfx906", "--json", log, "--", offloaded("openmp.c"), "unmapped")
    assert done.returncode == 1, done
    (finding,) = json.loads(log.read_text())["findings"]
    assert (finding["kind"], finding["detail"]) == ("invalid-address", "the host's heap: no device may access it")


# OpenMP's kernels reach most of the C library of the device: to lift and decode them takes half a minute.
@pytest.mark.parametrize(
    "source", [pytest.param(name, marks=[] if "acc" in name else pytest.mark.thorough) for name in OFFLOADED]
)
def test_what_gcc_offloads_under_tools(under_tools: UnderTools, shipped: list[Tool], source: str) -> None:
    ran = under_tools("emu:gfx906", shipped, offloaded(source))
    assert (ran.code, ran.out) == (0, OFFLOADED[source][2]), ran.err
    assert ran.summary["faults"] == []
    kernels = ran.kernels()
    assert any("_omp_fn" in name for name in kernels)
    assert all(kernel["instrumented"] == kernel["launches"] for kernel in kernels.values()), kernels
    assert sum(value for _, _, value in ran.variables[shipped[0].name]) > 100_000


# Python --------------------------------------------------------------------------------------------------------------


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_hip_python(
    under_tools: UnderTools,
    executed: Callable[..., Counts],
    shipped: list[Tool],
    compile_object: Callable[..., Path],
    target: str,
) -> None:
    pytest.importorskip("hip", reason="hip-python is not installed (extra hip)")
    built = compile_object(FOREIGN.parent / "programs" / "device_side.hip", target, "-w", "-mcode-object-version=4")
    command = sys.executable, FOREIGN / "hip_python.py", built
    ran = under_tools(f"emu:{target}", shipped, *command)
    assert (ran.code, ran.out) == (0, "scaled\n"), ran.err
    check_counts(ran, executed(f"emu:{target}", *command), shipped)


@pytest.fixture
def tinygrad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], tuple[Any, ...]]:
    """The command for a target."""
    pytest.importorskip("tinygrad")
    if not HIP_LIBRARY.exists():
        pytest.skip("the script knows HIP 5 only (libamdhip64-5)")
    for name, value in {"DEV": "HIP", "PARALLEL": "0", "CACHELEVEL": "0", "XDG_CACHE_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LUTHIER_CACHE_DIR", os.environ.get("LUTHIER_CACHE_DIR", str(Path.home() / ".cache/luthier")))

    def command(target: str) -> tuple[Any, ...]:
        toolchain = Toolchain.find()
        flags = ["--offload-device-only", "--no-gpu-bundle-output", "-mcode-object-version=4"]
        compiler = [toolchain.clang, *toolchain.device_flags(target), *flags]
        return sys.executable, FOREIGN / "tinygrad_training.py", target, HIP_LIBRARY, *compiler

    return command


@pytest.mark.thorough
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ONE_A_FAMILY)
def test_training_with_tinygrad(
    under_tools: UnderTools, shipped: list[Tool], tinygrad: Callable[[str], tuple[Any, ...]], target: str
) -> None:
    ran = under_tools(f"emu:{target}", shipped, *tinygrad(target))
    assert (ran.code, ran.out) == (0, "trained\n"), ran.err
    check_counts(ran, None, shipped)
    assert sum(kernel["launches"] for kernel in ran.kernels().values()) >= 30
