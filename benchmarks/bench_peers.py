"""The emulated device and other emulators of GPU programs, on the same kernel, with the same results.

tinygrad's emulator of RDNA3 executes the same code object; it is part of tinygrad's repository, not of its package, so
`LUTHIER_BENCH_TINYGRAD` names a checkout. Oclgrind (Debian's package `oclgrind`) executes the same statements as an
OpenCL kernel, by LLVM's IR: what is compared with it is CPU time of the same work, the start of a process left out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from bench_emulator import build, on_device
from luthier.devices import open_device
from luthier.objects import load_object
from numpy.typing import NDArray
from run import Row

from luthier_build.toolchain import Toolchain

TARGET = "gfx1100"
ITEMS, GROUP = 256, 64
SHORT, LONG = 2_000, 200_000
"""Rounds for the peers, and for the emulated device."""
_RSRC2 = 52
"""Byte of the kernel descriptor where COMPUTE_PGM_RSRC2 is (AMDGPUUsage, "Kernel Descriptor")."""
_BODY = """
  unsigned x = id, y = x;
  float f = x;
  for (unsigned i = 0; i < count; ++i) {
    x = (x * 1664525u + 1013904223u) ^ (y >> 3);
    y = (y << 5) + x;
    f = f * 0.99f + (float)(x & 15);
    if (y & 1)
      x ^= y + i;
  }
  out[id] = x + y + (unsigned)f;
}
"""
_HIP = f"""
#include <hip/hip_runtime.h>
extern "C" __global__ __launch_bounds__({GROUP}) void walk(unsigned *out, unsigned count) {{
  unsigned id = blockIdx.x * {GROUP} + threadIdx.x;
{_BODY}"""
_OPENCL = f"__kernel void walk(__global unsigned *out, unsigned count) {{ unsigned id = get_global_id(0);{_BODY}"
_TINYGRAD = """
import ctypes, sys, time
sys.path.insert(0, sys.argv[1])
from test.mockgpu.amd.emu import run_asm
code = ctypes.create_string_buffer(open(sys.argv[2], "rb").read())
entry, resource, items, group, rounds = map(int, sys.argv[3:8])
out = (ctypes.c_uint32 * items)()
arguments = (ctypes.c_uint64 * 2)(ctypes.addressof(out), rounds)
for _ in range(2):  # the first one compiles
    began = time.process_time()
    run_asm(ctypes.addressof(code) + entry, len(code) - entry, items // group, 1, 1, group, 1, 1,
            ctypes.addressof(arguments), resource)
    took = time.process_time() - began
open(sys.argv[8], "wb").write(bytes(out))
print(took)
"""


def measure() -> Iterable[Row]:
    """Yield the emulated device's rate on one thread, and those of installed peers."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "walk.hip"
        source.write_text(_HIP)
        path = build("walk", TARGET, folder, source)
        results, instructions, _ = ours(path, SHORT)
        _, many, seconds = ours(path, LONG)
        rate = many / seconds
        checkout = os.environ.get("LUTHIER_BENCH_TINYGRAD")
        if checkout:
            theirs, took = tinygrad(Path(checkout), path, folder)
            assert np.array_equal(theirs, results)
            unit = "M wave-instructions/s"
            yield Row(f"{TARGET} loop, one thread", rate / 1e6, unit, "tinygrad's emulator", instructions / took / 1e6)
        if shutil.which("oclgrind-kernel"):
            theirs, took = oclgrind(folder)
            assert np.array_equal(theirs, results)
            work = ITEMS * SHORT / 1e6
            own = work / (seconds * SHORT / LONG)
            yield Row(f"{TARGET} loop, one thread", own, "M rounds of an item/s", "Oclgrind", work / took)
        if not checkout and not shutil.which("oclgrind-kernel"):
            yield Row(f"{TARGET} loop, one thread", rate / 1e6, "M wave-instructions/s")


def ours(path: Path, rounds: int) -> tuple[NDArray[np.uint32], int, float]:
    """Return the results, the wave-instructions, and the CPU seconds of the best launch."""
    device = open_device(f"emu:{TARGET}", threads=1)
    kernel = device.load(path).kernel("walk")
    out = np.zeros(ITEMS, np.uint32)
    buffer = on_device(device, out)
    best = float("inf")
    for _ in range(4):
        began = time.process_time()
        stats = kernel.launch(buffer, np.uint32(rounds), grid=ITEMS // GROUP, block=GROUP)
        best = min(best, time.process_time() - began)
    return buffer.read(np.uint32), stats.instructions, best


def tinygrad(checkout: Path, path: Path, folder: Path) -> tuple[NDArray[np.uint32], float]:
    """Return the results of tinygrad's emulator, and the CPU seconds of its second launch."""
    object = load_object(path)
    kernel = object.kernels["walk"]
    (text,) = (section for section in object.sections if section.name == ".text")
    code, out = folder / "code", folder / "out"
    code.write_bytes(object.read(text.address, text.size))
    resource = int.from_bytes(kernel.descriptor.encode()[_RSRC2 : _RSRC2 + 4], "little")
    numbers = [kernel.entry - text.address, resource, ITEMS, GROUP, SHORT]
    command = [sys.executable, "-c", _TINYGRAD, checkout, code, *map(str, numbers), out]
    clang = Toolchain.find().clang
    environment = {**os.environ, "CC": str(clang), "PATH": f"{clang.parent}:{os.environ['PATH']}", "CACHELEVEL": "0"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return np.frombuffer(out.read_bytes(), np.uint32), float(done.stdout)


def oclgrind(folder: Path) -> tuple[NDArray[np.uint32], float]:
    """Return the results of Oclgrind, and the CPU seconds of the work beyond that of no rounds."""
    (folder / "walk.cl").write_text(_OPENCL)
    taken = []
    for rounds in (0, SHORT):
        size = f"<size={4 * ITEMS} fill=0 dump hex uint>\n\n<size=4 uint>\n{rounds}\n"
        (folder / "walk.sim").write_text(f"walk.cl\nwalk\n{ITEMS} 1 1\n{GROUP} 1 1\n\n{size}")
        before = os.times()
        done = subprocess.run(
            ["oclgrind-kernel", "--num-threads", "1", "walk.sim"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    results = [int(word, 16) for word in done.stdout.split() if word.startswith("0x")]
    return np.array(results, np.uint32), taken[1] - taken[0]
