"""The build side: what the compiler plugin costs, a build with nothing to do, and the wrapper's start-up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from run import Row

from luthier_build.plugin import include_dir, plugin_flags
from luthier_build.toolchain import Toolchain

KERNELS = 400
TARGET = "gfx942"

HEAD = """\
#include <hip/hip_runtime.h>
#include <luthier/luthier.h>
MARK_LUTHIER_DEVICE_MODULE
__managed__ uint64_t counter = 0;
LUTHIER_HOOK_ANNOTATE count(bool wave) {
  luthier::sAtomicAdd<uint64_t>(&counter, wave ? 1 : __builtin_popcountll(__builtin_amdgcn_read_exec()));
}
"""
KERNEL = """\
__global__ void kernel{n}(const float *a, const float *b, float *out, int count) {{
  __shared__ float part[256];
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += blockDim.x)
    sum += a[i] * b[i] + {n}.0f;
  part[threadIdx.x] = sum;
  for (int step = 128; step > 0; step /= 2) {{
    __syncthreads();
    if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
  }}
  if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}}
"""


def best(runs: int, *works: Callable[[], object]) -> list[float]:
    """Return the seconds of the fastest of `runs` runs of each; in turns, so that a busy machine is fair to all."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(runs):
        for work, seconds in zip(works, times, strict=True):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
    return [min(seconds) for seconds in times]


def measure() -> Iterable[Row]:
    """Measure how long building takes: cold, after a change, and with nothing to do."""
    toolchain = Toolchain.find()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "many.hip"
        source.write_text(HEAD + "".join(KERNEL.format(n=number) for number in range(KERNELS)))
        command = [
            str(toolchain.clang),
            *toolchain.device_flags(TARGET),
            *("--cuda-device-only", "--no-gpu-bundle-output", "-O3", f"-I{include_dir()}", "-c", str(source)),
        ]
        plain = [*command, "-o", str(folder / "plain.hsaco")]
        embedded = [*command, *plugin_flags(toolchain), "-o", str(folder / "embedded.hsaco")]
        with_plugin, without = best(
            5, lambda: subprocess.run(embedded, check=True), lambda: subprocess.run(plain, check=True)
        )
        yield Row(f"compile {KERNELS} kernels with the plugin", with_plugin, "s", "without", without)

        start = "from luthier.cli.main import main; main()"
        build = [sys.executable, "-c", start, "build", "many.hip", "--target", TARGET, "-o", "tool", "--project", name]
        subprocess.run(build, check=True, cwd=folder, capture_output=True)
        (nothing,) = best(5, lambda: subprocess.run(build, check=True, cwd=folder))
        yield Row("luthier build of that file with nothing to do", nothing, "s")

        commands = Path(sysconfig.get_path("scripts"))
        fake = folder / "hipcc"
        fake.write_text(f'#!/bin/sh\ncase "$*" in *-###*) exec {toolchain.clang} "$@";; esac\n')
        fake.chmod(0o755)
        environment = {**os.environ, "LUTHIER_HIPCC": str(fake)}
        wrapper = [commands / "luthier-hipcc", "-c", str(source)]
        subprocess.run(wrapper, env=environment, check=True)  # remembers the plugin
        wrapped, alone = best(
            50,
            lambda: subprocess.run(wrapper, env=environment, check=True),
            lambda: subprocess.run([fake, "-c", source], check=True),
        )
        yield Row("luthier-hipcc beyond the compiler it starts", (wrapped - alone) * 1e3, "ms")

        if shutil.which("ccache") is None:
            return
        environment = {**os.environ, "CCACHE_DIR": str(folder / "ccache")}
        device = [*toolchain.device_flags(TARGET), "--cuda-device-only", f"-I{include_dir()}", "-c", str(source)]
        hit = ["ccache", str(toolchain.clang), *plugin_flags(toolchain), *device, "-o", str(folder / "hit.o")]
        before = [str(commands / "luthier-cc"), "ccache", str(toolchain.clang), *device, "-o", str(folder / "hit.o")]
        for command in (hit, before):
            subprocess.run(command, env=environment, check=True)
        wrapped, alone = best(
            20,
            lambda: subprocess.run(before, env=environment, check=True),
            lambda: subprocess.run(hit, env=environment, check=True),
        )
        yield Row("luthier-cc before a ccache hit", wrapped * 1e3, "ms", "ccache alone", alone * 1e3)
