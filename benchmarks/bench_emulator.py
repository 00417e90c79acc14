"""The emulated device: wave-instructions a second, and the time to a first launch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from luthier.devices import open_device
from luthier.mc import Isa
from run import Row

from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "tests" / "emulator" / "kernels"


def build(name: str, target: str, folder: Path) -> Path:
    """A code object of ``tests/emulator/kernels/<name>.hip``."""
    toolchain = Toolchain.find()
    output = folder / f"{name}-{target}.hsaco"
    flags = ["--offload-device-only", "--no-gpu-bundle-output", "-O2"]
    command = [toolchain.clang, *toolchain.device_flags(target), *flags, KERNELS / f"{name}.hip", "-o", output]
    subprocess.run([str(part) for part in command], check=True)
    return output


def straight_line(target: str, folder: Path, length: int = 400) -> Path:
    """A kernel that is a loop of `length` 32-bit vector operations, assembled by clang."""
    operations = ("v_add_f32_e32", "v_mul_f32_e32", "v_add_u32_e32", "v_xor_b32_e32", "v_fmac_f32_e32", "v_max_f32_e32")
    body = "\n".join(
        f"  {operations[i % 6]} v{1 + i % 20}, v{1 + (i * 7 + 3) % 20}, v{1 + (i * 11 + 5) % 20}" for i in range(length)
    )
    if int(Isa.of(target).target.target.major) >= 10:
        body = body.replace("v_add_u32", "v_add_nc_u32")
    major = Isa.of(target).target.target.major
    unified = "  .amdhsa_accum_offset 24\n" if Isa.of(target).target.target.unified_vgprs else ""
    source = f"""
.amdgcn_target "amdgcn-amd-amdhsa--{target}"
.text
.globl straight
.p2align 8
.type straight,@function
straight:
  s_movk_i32 s2, 2000
again:
{body}
  s_sub_u32 s2, s2, 1
  s_cmp_lg_u32 s2, 0
  s_cbranch_scc1 again
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel straight
  .amdhsa_next_free_vgpr 24
  .amdhsa_next_free_sgpr 8
{unified}.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: straight
    .symbol: straight.kd
    .kernarg_segment_size: 0
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: {Isa.of(target).wave_size}
    .sgpr_count: 8
    .vgpr_count: 24
    .max_flat_workgroup_size: 1024
.end_amdgpu_metadata
"""
    del major
    text = folder / f"straight-{target}.s"
    output = text.with_suffix(".hsaco")
    text.write_text(source)
    clang = str(Toolchain.find().clang)
    subprocess.run(
        [clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", str(text), "-o", str(output)],
        check=True,
    )
    return output


def rate(target: str, path: Path, kernel: str, *arguments: object, threads: int, **sizes: object) -> tuple[float, int]:
    """Wave-instructions a second of the best of three launches, and how many there were."""
    device = open_device(f"emu:{target}", threads=threads)
    handle = device.load(path).kernel(kernel)
    runs = [handle.launch(*arguments, **sizes) for _ in range(3)]
    best = min(run.seconds for run in runs)
    return runs[0].instructions / best, runs[0].instructions


COLD = """
import sys, time, numpy as np
from luthier.devices import open_device
began = time.perf_counter()
device = open_device("emu:gfx942", threads=1)
kernel = device.load(sys.argv[1]).kernel("big")
kernel.launch(np.zeros(64, np.float32), grid=1, block=64)
print(time.perf_counter() - began)
began = time.perf_counter()
kernel.launch(np.zeros(64, np.float32), grid=1, block=64)
print(time.perf_counter() - began)
"""


def big_kernel(folder: Path) -> Path:
    """A HIP kernel of about 2,000 instructions of many kinds."""
    lines = "\n".join(
        f"  x = x * {1 + i * 0.01:.2f}f + y; y = fminf(y, x) - {i}.5f;"
        f" n = (n << {i % 7 + 1}) ^ (n >> {i % 5 + 3}) + {i * 37};"
        f" if (n & {1 << (i % 16)}) x += (float)n; t[(n + {i}) & 63] = x; y += t[(threadIdx.x + {i}) & 63];"
        for i in range(70)
    )
    source = folder / "big.hip"
    source.write_text(
        '#include <hip/hip_runtime.h>\nextern "C" __global__ void big(float *p) {\n'
        "  __shared__ float t[64]; t[threadIdx.x & 63] = 0;\n"
        "  float x = p[threadIdx.x], y = x + 1; unsigned n = threadIdx.x;\n"
        f"{lines}\n  p[threadIdx.x] = x + y + n;\n}}\n"
    )
    toolchain = Toolchain.find()
    output = folder / "big.hsaco"
    flags = ["--offload-device-only", "--no-gpu-bundle-output", "-O2"]
    command = [toolchain.clang, *toolchain.device_flags("gfx942"), *flags, source, "-o", output]
    subprocess.run([str(part) for part in command], check=True)
    return output


def start_up(folder: Path) -> Iterable[Row]:
    """Seconds to the end of the first launch in a process: nothing compiled before, then everything on disk."""
    big = big_kernel(folder)
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(folder / "cache")}
    for key in ("cold", "warm"):
        done = subprocess.run(
            [sys.executable, "-c", COLD, str(big)], check=True, capture_output=True, text=True, env=environment
        )
        first, second = (float(line) for line in done.stdout.split())
        yield Row(f"first launch of 2,000 instructions in a process, {key}", first, "s")
    yield Row("second launch of it", second * 1e3, "ms")


def measure() -> Iterable[Row]:
    """Rates on straight vector code and on whole kernels, then start-up."""
    random = np.random.default_rng(0)
    cores = len(os.sched_getaffinity(0))
    unit = "M wave-instructions/s"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target in ("gfx942", "gfx1100"):
            path = straight_line(target, folder)
            for threads in sorted({1, cores}):
                speed, _ = rate(target, path, "straight", threads=threads, grid=threads * 2, block=64)
                yield Row(f"{target} vector code, {threads} threads", speed / 1e6, unit)
        n = 1 << 18
        groups, plain = build("groups", "gfx942", folder), build("plain", "gfx942", folder)
        floats = random.random(n, np.float32)
        numbers = random.integers(0, 99, n).astype(np.uint32)
        work = {
            "reduction": (groups, (floats, np.zeros(n // 256, np.float32), n)),
            "histogram": (groups, (numbers, np.zeros(16, np.uint32), np.zeros(n, np.uint32), n)),
            "vector_add": (plain, (floats, random.random(n, np.float32), np.zeros(n, np.float32), n)),
            "collatz": (plain, (np.arange(n, dtype=np.uint32), np.zeros(n, np.uint32), n)),
        }
        for kernel, (path, arguments) in work.items():
            speed, count = rate("gfx942", path, kernel, *arguments, threads=cores, grid=n // 256, block=256)
            yield Row(f"gfx942 {kernel}, {count} wave-instructions, {cores} threads", speed / 1e6, unit)
        yield from start_up(folder)
