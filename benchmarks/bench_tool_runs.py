"""Tools that observe every access, under `luthier run`: CPU time of a whole run, with and without the tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from run import Row

SOURCE = Path(__file__).with_name("tools_program.hip")
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
TARGETS = ("gfx90a", "gfx1030")
RUNS = {
    "sort of 32 times 1,024 in LDS": ("lds_race", ("sort", "1024", "32")),
    "sort of 32 times 4,096 in LDS": ("lds_race", ("sort", "4096", "32")),
    "Fourier transforms in registers": ("mem_trace", ("fourier", "1024", "16")),
}
"""Runs: the tool, and the program's arguments."""
TURNS = 3
"""Number of runs, of which the cheapest counts."""


def _cpu(argv: list[str]) -> float:
    """Return the seconds of CPU time of a command with all that it starts.

    Raises:
        RuntimeError: the program's result is wrong.
    """
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or not output.startswith("right"):
        raise RuntimeError(f"{argv}: {process.returncode}, {output}")
    return used.ru_utime + used.ru_stime


def _command(program: Path, arguments: tuple[str, ...], target: str, *options: str) -> list[str]:
    return [sys.executable, "-c", MAIN, "run", *options, "--device", f"emu:{target}", "--", str(program), *arguments]


def _run(program: Path, arguments: tuple[str, ...], target: str, *options: str) -> float:
    return min(_cpu(_command(program, arguments, target, *options)) for _ in range(TURNS))


def _kept(program: Path, arguments: tuple[str, ...], target: str, folder: Path, plain: float) -> Iterable[Row]:
    """Yield the cost of a stored trace, and its size on disk."""
    took = []
    for turn in range(TURNS):
        run = folder / f"trace-{target}-{turn}"
        took.append(_cpu(_command(program, arguments, target, "-t", "mem_trace", "-o", str(run))))
    yield Row(f"{target}, the same, kept (-o)", min(took), "s CPU", "without", plain)
    accesses = json.loads((run / "summary.json").read_text())["tables"]["trace-accesses"]
    size = (run / "trace-accesses.parquet").stat().st_size
    yield Row(f"{target}, the trace of {accesses:,} accesses on disk", size / accesses, "bytes an access")


def measure() -> Iterable[Row]:
    """Yield the rows; the peer is the same program without tools in the same minute."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program"
        offload = [f"--offload-arch={target}" for target in TARGETS]
        environment = {**os.environ, "HIP_PLATFORM": "amd"}
        subprocess.run(["hipcc", *offload, "-O2", "-w", str(SOURCE), "-o", str(program)], check=True, env=environment)
        for target in TARGETS:
            for what, (tool, arguments) in RUNS.items():
                plain = _run(program, arguments, target)
                took = _run(program, arguments, target, "-t", tool)
                yield Row(f"{target}, {tool}, {what}", took, "s CPU", "without", plain)
                if tool == "mem_trace":
                    yield from _kept(program, arguments, target, folder, plain)
