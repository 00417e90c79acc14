"""Start-up of commands: user CPU time, and the time to a program's first instruction; the best of twenty."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
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

PROGRAM = """
#include <hip/hip_runtime.h>
#include <cstdio>
#include <ctime>
int main() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  int devices = 0;
  if (hipGetDeviceCount(&devices) != hipSuccess) devices = -1;  // as where there is none
  printf("%lld\\n", now.tv_sec * 1000000000LL + now.tv_nsec);
}
"""
"""Tells when its `main` began."""


def time_to_main(arguments: list[str]) -> float:
    """Return the seconds from the start of a command to that of the program which it runs, `PROGRAM`: the least."""
    best = float("inf")
    for _ in range(RUNS):
        before = time.monotonic_ns()
        output = subprocess.run(arguments, check=True, capture_output=True).stdout
        best = min(best, (int(output) - before) * 1e-9)
    return best


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
        luthier = str(Path(sys.executable).with_name("luthier"))
        counting = ["-t", "instr_count", "--allow-nothing"] if "instr_count" in find_entry_points() else []
        runs = (["run"], ["run", *counting])
        for arguments in (["disasm", str(small)], ["objects", str(small)], ["tools"], ["--help"]):
            used = user_time([luthier, *arguments])
            yield Row(f"luthier {' '.join(one for one in arguments if one != str(small))}", used * 1e3, "ms")
        for arguments in runs:
            yield Row(f"luthier {' '.join(arguments)} true", user_time([luthier, *arguments, "true"]) * 1e3, "ms")
        program = Path(name, "program")
        source = program.with_suffix(".hip")
        source.write_text(PROGRAM)
        command = ["hipcc", "--offload-arch=gfx90a", "-O2", "-w", str(source), "-o", str(program)]
        subprocess.run(command, check=True, env={**os.environ, "HIP_PLATFORM": "amd"})
        yield Row("a HIP program alone, to its main", time_to_main([str(program)]) * 1e3, "ms")
        for arguments in runs:
            taken = time_to_main([luthier, *arguments, str(program)])
            yield Row(f"luthier {' '.join(arguments)}, to a HIP program's main", taken * 1e3, "ms")
