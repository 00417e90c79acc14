"""`luthier sanitize`: what its checks cost, as CPU time of the threads that execute kernels without a bug."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from run import Row

HERE = Path(__file__).parent
TESTS, APPS = HERE.parent / "tests" / "run" / "programs", HERE.parent / "examples" / "apps"
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGETS = ("gfx90a", "gfx1030")
KERNELS = {
    "add": ("vector add: memory", 1 << 20, 10),
    "multiply": ("product of matrices: LDS, barriers", 1 << 16, 4),
    "count": ("histogram: atomics", 1 << 20, 4),
}
"""(description, numbers, launches) of each."""
PROGRAMS = (
    *(TESTS / name for name in ("saxpy.hip", "reduction.hip", "histogram.hip", "scan.hip", "sort.hip", "sparse.hip")),
    *(TESTS / name for name in ("transpose.hip", "fourier.hip", "physics.hip")),
    APPS / "vector_add.hip",
)
"""Programs as they are, each with small kernels, run 100 times."""
CHECKS = (
    *("memory", "leak", "race", "init", "init --init decisions", "barrier", "early-exit", "host"),
    *("waits", "hazards", "fp", "wave-size", "fast", "default", "all"),
)
"""Arguments of ``--check``."""
SANITIZE = ("sanitize", "--error-exitcode", "0", "--check")


def _run(program: Path, arguments: list[str], target: str, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", MAIN, *options, "--device", f"emu:{target}", "--", str(program), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True)


def _build(source: Path, program: Path, *flags: str) -> None:
    offload = [f"--offload-arch={target}" for target in TARGETS]
    command = ["hipcc", *offload, "-O2", "-w", *flags, str(source), "-o", str(program)]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})


def _seconds(program: Path, kernel: str, target: str, *options: str) -> float:
    """Return the CPU time of the kernels of a program, the best of three runs."""
    _, numbers, turns = KERNELS[kernel]
    runs = [_run(program, [kernel, str(numbers), str(turns)], target, *options).stdout for _ in range(3)]
    return min(map(float, runs))


def _seconds_of_program(program: Path, lines: set[str], *options: str) -> float:
    """Return the seconds of a test program, which must print exactly these lines; an empty set is filled in."""
    seconds = []
    for _ in range(3):
        done = _run(program, ["100"], "gfx90a", *options)
        printed = set(done.stdout.splitlines())
        lines |= printed if not lines else set()
        if printed != lines:
            raise SystemExit(f"{program.name} under {options} prints {printed}, and {lines} without")
        seconds += [float(line) for line in done.stderr.splitlines() if line[:1].isdecimal()]
    return min(seconds)


def _kernels(folder: Path) -> Iterable[Row]:
    program = folder / "program"
    _build(HERE / "sanitize_program.hip", program)
    for target in TARGETS:
        for kernel, (what, *_) in KERNELS.items():
            plain = _seconds(program, kernel, target, "run")
            for checks in CHECKS:
                took = _seconds(program, kernel, target, *SANITIZE, *checks.split())
                yield Row(f"{target} {what}, {checks}", took, "s", "without", plain)


def _programs(folder: Path) -> Iterable[Row]:
    ratios = defaultdict[str, list[float]](list)
    for source in PROGRAMS:
        program = folder / source.stem
        flags = (f'-DPROGRAM="{source}"', f"-I{TESTS}", "-fno-strict-return")
        _build(HERE / "sanitize_driver.hip", program, *flags)
        lines: set[str] = set()
        plain = _seconds_of_program(program, lines, "run")
        for checks in CHECKS:
            took = _seconds_of_program(program, lines, *SANITIZE, *checks.split())
            ratios[checks].append(took / plain)
            yield Row(f"{source.stem}, {checks}", took, "s", "without", plain)
    for checks, each in ratios.items():
        yield Row(
            f"geometric mean of {len(each)} programs, {checks}", statistics.geometric_mean(each), "times", "without", 1
        )


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is the same program under `luthier run`."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _kernels(Path(folder))
        yield from _programs(Path(folder))
