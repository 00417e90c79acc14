"""Listing what is in a large host library, and starting the command."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from bench_patch import big_kernel_source, compile_kernel
from run import Row

KERNELS = 200
"""Number of kernels in each image."""
IMAGES = 150
PADDING = 4 << 20
"""Bytes added to each image: device code that is not read."""

MEASURED = """
import atexit, re, sys, time
def say():
    memory = re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1]
    print(time.process_time(), memory, file=sys.stderr)
atexit.register(say)
from luthier.cli.main import main
sys.exit(main())
"""
"""`luthier`, followed by its CPU seconds and peak memory in KiB."""


def measure() -> Iterable[Row]:
    """Time `luthier objects` on 150 bundles of an image with 200 kernels and 4 MiB beside them, and start-up."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = compile_kernel(many_kernels(), folder).data
        image = data + bytes(PADDING)
        library = folder / "library"
        label = b"hipv4-amdgcn-amd-amdhsa--gfx942"
        start = 24 + 8 + 24 + len(label)
        header = b"__CLANG_OFFLOAD_BUNDLE__" + (1).to_bytes(8, "little")
        header += start.to_bytes(8, "little") + len(image).to_bytes(8, "little") + len(label).to_bytes(8, "little")
        with library.open("wb") as file:
            for _ in range(IMAGES):
                file.write(header + label + image)
        for options in ((), ("--json",)):
            seconds, first, memory = run_command("objects", *options, str(library))
            what = f"objects {' '.join(options)}({library.stat().st_size >> 20} MiB, {IMAGES * KERNELS} kernels)"
            yield Row(f"{what}: CPU time", seconds, "s")
            yield Row(f"{what}: first line after", first, "s")
            yield Row(f"{what}: peak memory", memory, "MB")
        small = folder / "small.hsaco"
        small.write_bytes(compile_kernel(big_kernel_source(), folder).data)
        empty = min(run_command("--version")[0] for _ in range(5))
        yield Row("luthier --version: CPU time", empty * 1e3, "ms")
        yield Row(
            "luthier objects, one kernel: CPU time",
            min(run_command("objects", str(small))[0] for _ in range(5)) * 1e3,
            "ms",
        )


def many_kernels() -> str:
    """Return the source of kernels that do little."""
    bodies = "\n".join(
        f'extern "C" __global__ void k{n}(const int *a, int *b, int c) {{ b[threadIdx.x] = a[c] + {n}; }}'
        for n in range(KERNELS)
    )
    return f"#include <hip/hip_runtime.h>\n{bodies}\n"


def run_command(*arguments: str) -> tuple[float, float, float]:
    """Return the CPU seconds of `luthier`, wall-clock seconds to its first output, and its peak memory in MB."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", MEASURED, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    os.read(process.stdout.fileno(), 1)
    first = time.perf_counter() - began
    while os.read(process.stdout.fileno(), 1 << 20):
        pass
    seconds, memory = process.stderr.read().split()[-2:]
    process.wait()
    return float(seconds), first, int(memory) / 1024
