"""`luthier capture` and a plain `luthier run` of the same program in turns: CPU time of all processes.

The programs are small: vector add, histogram, and a product of matrices whose kernel takes as long as the rest. Two
others show the causes of cost: very many launches, and much memory.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from run import Row

SOURCE = Path(__file__).with_name("sanitize_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGETS = ("gfx90a", "gfx1030")
PROGRAMS = {
    "vector add, 11 launches": ("add", "2048", "10"),
    "histogram, 4 launches": ("count", "65536", "3"),
    "product of matrices, 2 launches": ("multiply", "262144", "1"),
    "vector add, 1,001 launches": ("add", "2048", "1000"),
    "vector add of 192 MiB, 6 launches": ("add", "16777216", "5"),
}
TURNS = 5
"""The smallest counts, because other programs use the machine, too."""


def cpu_seconds(*command: str) -> float:
    """Return the CPU time of Luthier and all that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", MAIN, *command], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def build(folder: Path) -> Path:
    """Compile the program, and return its path."""
    program = folder / "program"
    offload = [f"--offload-arch={target}" for target in TARGETS]
    command = ["hipcc", *offload, "-O2", "-w", str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    return program


def _paired(folder: Path, device: str, program: Sequence[str]) -> tuple[float, float, float]:
    """Return the CPU time of a plain run, a capture without replays, and one with them."""
    kept = folder / "kept"
    ways = (
        ["run", "--device", device, "--", *program],
        ["capture", "--all-memory", "--device", device, "-o", str(kept), "--", *program],
        ["capture", "--device", device, "-o", str(kept), "--", *program],
    )
    took: list[list[float]] = [[], [], []]
    for _ in range(TURNS):
        for way, times in zip(ways, took, strict=True):
            shutil.rmtree(kept, ignore_errors=True)
            times.append(cpu_seconds(*way))
    return min(took[0]), min(took[1]), min(took[2])


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is the program under `luthier run`."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        program = build(folder)
        for name, arguments in PROGRAMS.items():
            for target in TARGETS:
                plain, unreplayed, replayed = _paired(folder, f"emu:{target}", [str(program), *arguments])
                what = f"{name}, {target}"
                yield Row(what, replayed, "s of CPU time", "luthier run", plain)
                yield Row(f"{what}, --all-memory", unreplayed, "s of CPU time", "luthier run", plain)
