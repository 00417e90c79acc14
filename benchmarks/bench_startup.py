"""Start-up of commands: user CPU time of a whole process, the best of twenty."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bench_patch import compile_kernel
from luthier.tool import find_entry_points
from run import Row

RUNS = 20
KERNEL = """
#include <hip/hip_runtime.h>
extern "C" __global__ void add(int *p) { p[threadIdx.x] += 1; }
"""


def user_time(arguments: list[str]) -> float:
    """Return the user-mode CPU time of a command, in seconds: the least of `RUNS` runs."""
    best = float("inf")
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(arguments, check=True, capture_output=True)
        best = min(best, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return best


def measure() -> Iterable[Row]:
    """Time Python alone, and commands on a small object."""
    yield Row("python -c pass", user_time([sys.executable, "-c", "pass"]) * 1e3, "ms")
    with tempfile.TemporaryDirectory() as name:
        small = Path(name, "small.hsaco")
        small.write_bytes(compile_kernel(KERNEL, Path(name)).data)
        run = [
            "run",
            *(["-t", "instr_count", "--allow-nothing"] if "instr_count" in find_entry_points() else []),
            "true",
        ]
        for arguments in (["disasm", str(small)], ["objects", str(small)], ["tools"], ["--help"], ["run", "true"], run):
            time = user_time([str(Path(sys.executable).with_name("luthier")), *arguments])
            yield Row(f"luthier {' '.join(one for one in arguments if one != str(small))}", time * 1e3, "ms")
