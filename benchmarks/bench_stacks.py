"""Stacks of calls of the host: what one costs, at a launch or an allocation, and 100,000 allocations under them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from run import Row

HERE = Path(__file__).parent
NATIVE = HERE.parent / "runtime" / "native"
MAIN = "import sys; from luthier.cli.main import main; sys.exit(main())"
PYTHON = "import ctypes, sys; run = ctypes.CDLL(sys.argv[1]).measure; at = lambda n: at(n - 1) if n else run(1); at({})"


def _costs(folder: Path) -> Iterable[Row]:
    sources = [*sorted((NATIVE / "stacks").glob("*.cpp")), HERE / "stacks_program.cpp"]
    flags = ["-std=c++20", "-O2", f"-I{NATIVE / 'stacks'}", f"-I{NATIVE / 'wire'}"]
    program, library = folder / "program", folder / "library.so"
    for output, more in ((program, []), (library, ["-shared", "-fPIC"])):
        subprocess.run(["g++", *flags, *more, *map(str, sources), "-o", str(output)], check=True)
    rows = [("C++", _lines(str(program)))]
    rows += [
        (f"{depth} Python functions", _lines(sys.executable, "-c", PYTHON.format(depth), str(library)))
        for depth in (5, 50)
    ]
    for what, lines in rows:
        for frames, own, peer in lines:
            yield Row(f"a stack of {frames} frames, {what}", float(own) / 1000, "us", "backtrace()", float(peer) / 1000)


def _lines(*command: str) -> list[list[str]]:
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line.split() for line in text.splitlines()]


def _allocations(folder: Path) -> Iterable[Row]:
    program = folder / "allocations"
    command = ["hipcc", "--offload-arch=gfx90a", "-O2", "-w", str(HERE / "allocations.hip"), "-o", str(program)]
    subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
    words = {"run": ["run"], "sanitize": ["sanitize", "--error-exitcode", "0", "--check", "memory,leak"]}
    took = {}
    for name, options in words.items():
        argv = [sys.executable, "-c", MAIN, *options, "--device", "emu:gfx90a", "--", str(program), "100000"]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        took[name] = [float(value) for value in text.split()]
    for tenth in (0, 9):
        yield Row(f"hipMalloc, tenth {tenth + 1} of 100,000", took["sanitize"][tenth], "us", "run", took["run"][tenth])


def measure() -> Iterable[Row]:
    """Yield what stacks cost."""
    with tempfile.TemporaryDirectory() as name:
        yield from _costs(Path(name))
        yield from _allocations(Path(name))
