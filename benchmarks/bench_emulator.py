"""The emulated device: wave-instructions a second, and the time to a first launch."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from luthier.devices import open_device
from luthier.emulator import EmulatedDevice
from luthier.emulator.running import hot
from luthier.isa import Isa
from run import Row

from luthier_build.toolchain import Toolchain

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "tests" / "emulator" / "kernels"


def build(name: str, target: str, folder: Path, source: Path | None = None) -> Path:
    """Build a code object of ``tests/emulator/kernels/<name>.hip``, or of another source."""
    toolchain = Toolchain.find()
    output = folder / f"{name}-{target}.hsaco"
    flags = ["--offload-device-only", "--no-gpu-bundle-output", "-O2", "-w", f"-I{KERNELS}"]
    source = source or KERNELS / f"{name}.hip"
    command = [toolchain.clang, *toolchain.device_flags(target), *flags, source, "-o", output]
    subprocess.run([str(part) for part in command], check=True)
    return output


def straight_line(target: str, folder: Path, length: int = 400) -> Path:
    """Build a kernel that is a loop of `length` 32-bit vector operations, assembled by clang.

    Denormals are kept, as in kernels that HIP's compiler makes.
    """
    operations = ("v_add_f32_e32", "v_mul_f32_e32", "v_add_u32_e32", "v_xor_b32_e32", "v_fmac_f32_e32", "v_max_f32_e32")
    body = "\n".join(
        f"  {operations[i % 6]} v{1 + i % 20}, v{1 + (i * 7 + 3) % 20}, v{1 + (i * 11 + 5) % 20}" for i in range(length)
    )
    if Isa.of(target).target.target.major >= 10:
        body = body.replace("v_add_u32", "v_add_nc_u32")
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
  .amdhsa_float_denorm_mode_32 3
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
    text = folder / f"straight-{target}.s"
    output = text.with_suffix(".hsaco")
    text.write_text(source)
    clang = str(Toolchain.find().clang)
    subprocess.run(
        [clang, "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", str(text), "-o", str(output)],
        check=True,
    )
    return output


def on_device(device: EmulatedDevice, argument: object) -> object:
    """Return an array as a buffer on the device, so that no launch has to copy it; anything else as it is."""
    if not isinstance(argument, np.ndarray):
        return argument
    buffer = device.allocate(argument.nbytes)
    buffer.write(argument)
    return buffer


def rate(target: str, path: Path, kernel: str, *arguments: object, threads: int, **sizes: object) -> tuple[float, int]:
    """Return the wave-instructions per second of the best of five launches, and their number.

    Functions for hot code are made between launches.
    """
    device = open_device(f"emu:{target}", threads=threads)
    handle = device.load(path).kernel(kernel)
    given = [on_device(device, argument) for argument in arguments]
    runs = []
    for _ in range(5):
        runs.append(handle.launch(*given, **sizes))
        hot.compiler().wait()
    best = min(run.seconds for run in runs)
    return runs[0].instructions / best, runs[0].instructions


COPY = """
#include <hip/hip_runtime.h>
extern "C" __global__ void copy(const float4 *from, float4 *to, unsigned count) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    to[i] = from[i];
}
"""


def copies(folder: Path, megabytes: int = 8) -> Iterable[Row]:
    """Measure a kernel that does nothing but copy, against a copy by the host's C library."""
    source = folder / "copy.hip"
    source.write_text(COPY)
    data = np.random.default_rng(0).random(megabytes << 18, np.float32)
    target = np.zeros_like(data)
    host = []
    for _ in range(20):
        began = time.perf_counter()
        np.copyto(target, data)
        host.append(time.perf_counter() - began)
    count = len(data) // 4
    for name in ("gfx942", "gfx1100"):
        path = build("copy", name, folder, source)
        sizes = {"threads": 1, "grid": count // 256, "block": 256}
        best = min(
            instructions / speed
            for speed, instructions in (rate(name, path, "copy", data, target, count, **sizes) for _ in range(4))
        )
        what = f"{name} copy of {megabytes} MB, 16 bytes an item, one thread"
        yield Row(what, 2 * data.nbytes / best / 1e9, "GB/s", "by the C library", 2 * data.nbytes / min(host) / 1e9)


CORPUS = {
    "arithmetic": ("ints", "longs", "shorts", "packs", "floats", "doubles", "halfs", "flow", "calls"),
    "mathematics": ("single_precision", "double_precision"),
}


@contextmanager
def one_by_one() -> Iterator[None]:
    """Let no code become hot."""
    threshold, hot.HOT = hot.HOT, 1 << 62
    try:
        yield
    finally:
        hot.HOT = threshold


LOOP = """
#include <hip/hip_runtime.h>
extern "C" __global__ void walk(unsigned *out, unsigned count) {
  unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = x;
  float f = x;
  for (unsigned i = 0; i < count; ++i) {
    x = (x * 1664525u + 1013904223u) ^ (y >> 3);
    y = (y << 5 | y >> 27) + x;
    f = f * 0.99f + (float)(x & 15);
    if (y & 1)
      x ^= y + i;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = x + y + (unsigned)f;
}
"""


def loops(folder: Path) -> Iterable[Row]:
    """Measure a loop of integers and floats, with and without functions of its runs of instructions."""
    source = folder / "walk.hip"
    source.write_text(LOOP)
    for target in ("gfx90a", "gfx942", "gfx1100", "gfx1201"):
        path = build("walk", target, folder, source)
        sizes = {"threads": 1, "grid": 64, "block": 64}
        fast, _ = rate(target, path, "walk", np.zeros(4096, np.uint32), 20_000, **sizes)
        with one_by_one():
            slow, _ = rate(target, path, "walk", np.zeros(4096, np.uint32), 20_000, **sizes)
        what = f"{target} loop of integers and floats, one thread"
        yield Row(what, fast / 1e6, "M wave-instructions/s", "instructions one by one", slow / 1e6)


def corpus(target: str, folder: Path, items: int = 1 << 13) -> Iterable[Row]:
    """Measure kernels with all of the compiler's arithmetic, on random bits.

    Most of the time is not spent in simple vector code, and each lane writes its results far from the others'.
    """
    random = np.random.default_rng(0)
    operands = [random.integers(0, 1 << 32, 2 * items, dtype=np.uint32) for _ in range(2)]
    speeds: dict[str, tuple[int, float]] = {}
    for file, kernels in CORPUS.items():
        path = build(file, target, folder)
        for kernel in kernels:
            output = np.zeros(64 * 2 * items, np.uint32)
            sizes = {"threads": 1, "grid": items // 256, "block": 256}
            speed, count = rate(target, path, kernel, *operands, output, **sizes)
            speeds[kernel] = count, count / speed
    unit = "M wave-instructions/s"
    total = sum(count for count, _ in speeds.values()) / sum(seconds for _, seconds in speeds.values())
    yield Row(f"{target} corpus of {len(speeds)} kernels, one thread", total / 1e6, unit)
    slowest = min(speeds, key=lambda kernel: speeds[kernel][0] / speeds[kernel][1])
    yield Row(f"{target} slowest of them: {slowest}", speeds[slowest][0] / speeds[slowest][1] / 1e6, unit)


def launches(path: Path, groups: int, threads: int, count: int = 1000) -> float:
    """Return the CPU seconds of a launch of `groups` work-groups that each do little."""
    device = open_device("emu:gfx942", threads=threads)
    kernel, n = device.load(path).kernel("vector_add"), 256 * groups
    buffers = [device.allocate(4 * n) for _ in range(3)]
    for _ in range(50):
        kernel.launch(*buffers, n, grid=groups, block=256)
    began = time.process_time()
    for _ in range(count):
        kernel.launch(*buffers, n, grid=groups, block=256)
    return (time.process_time() - began) / count


STAGES = """
import sys, time
began = time.perf_counter()
import luthier
device = luthier.open_device("emu:gfx942", threads=1)
opened = time.perf_counter()
import numpy as np
random = np.random.default_rng(0)
arguments = [*random.normal(0, 3, (2, 64)).astype(np.float32), np.zeros(64 * 40, np.float32)]
ready = time.perf_counter()
kernel = device.load(sys.argv[1]).kernel("single_precision")
loaded = time.perf_counter()
stats = kernel.launch(*arguments, grid=1, block=64)
launched = time.perf_counter()
kernel.launch(*arguments, grid=1, block=64)
again = time.perf_counter()
assert stats.instructions >= 2000
print(opened - began, loaded - ready, launched - loaded, again - launched, stats.instructions, stats.compiled)
"""


def stages(path: Path, cache: Path) -> list[float]:
    """Return what a process's steps take, and what it compiled.

    The result is the seconds of import and open, load, first launch, and second launch; the number of instructions, and
    how many operations were compiled.
    """
    environment = {**os.environ, "LUTHIER_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", STAGES, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [float(word) for word in done.stdout.split()]


def start_up(folder: Path) -> Iterable[Row]:
    """Measure the start-up of a process, cold and with a cache.

    It runs the device library's mathematical functions of 32 bits on one wave, alone in an object: some 190 different
    operations.
    """
    source = folder / "single_precision.hip"
    source.write_text((KERNELS / "mathematics.hip").read_text().partition("KERNEL double_precision")[0])
    path = build("single_precision", "gfx942", folder, source)
    cold = [stages(path, folder / f"cache{number}") for number in range(3)]
    warm = [stages(path, folder / "cache0") for _ in range(10)]
    compiled, instructions = int(cold[0][5]), int(cold[0][4])
    assert compiled > 100
    assert not warm[0][5]
    for name, runs in ((f"{compiled} operations compiled", cold), (f"{compiled} operations on disk", warm)):
        yield Row(f"import and open the device, {name}", 1e3 * min(run[0] for run in runs), "ms")
        launched = 1e3 * min(run[1] + run[2] for run in runs)
        yield Row(f"load, launch of {instructions} instructions, {name}", launched, "ms")
    yield Row("second launch of it", 1e3 * min(run[3] for run in warm), "ms")


COUNTING = """
import sys
sys.path.insert(0, sys.argv[1])
from bench_emulator import counting_work
from luthier.emulator.running import hot
hot.HOT = 1 << 62  # functions of runs count otherwise
if sys.argv[2] == "off":
    from luthier.emulator.ir.wave import WaveBuilder
    WaveBuilder.count = WaveBuilder.uncount = lambda self: None
print(*counting_work(sys.argv[3:]))
"""


def counting_work(paths: list[str]) -> list[float]:
    """Return the seconds of the best launch of each kernel that the cost of counting is measured with."""
    straight, groups = paths
    device = open_device("emu:gfx942", threads=1)
    n = 1 << 18
    vector = device.load(straight).kernel("straight")
    reduction = device.load(groups).kernel("reduction")
    data = [on_device(device, each) for each in (np.ones(n, np.float32), np.zeros(n // 256, np.float32), n)]
    return [
        min(vector.launch(grid=1, block=64).seconds for _ in range(20)),
        min(reduction.launch(*data, grid=n // 256, block=256).seconds for _ in range(20)),
    ]


def counting(straight: Path, groups: Path) -> Iterable[Row]:
    """Measure the cost of counting against launches of code that does not count.

    Only this benchmark makes such code.
    """
    environment = {**os.environ, "LUTHIER_CACHE_DIR": ""}
    best: dict[str, list[float]] = {}
    for _ in range(3):
        for setting in ("on", "off"):
            command = [sys.executable, "-c", COUNTING, str(Path(__file__).parent), setting, str(straight), str(groups)]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            seconds = [float(word) for word in done.stdout.split()]
            best[setting] = [min(pair) for pair in zip(best.get(setting, seconds), seconds, strict=True)]
    for name, on, off in zip(("vector code", "reduction"), best["on"], best["off"], strict=True):
        yield Row(f"gfx942 {name}, one thread: cost of counting", 100 * (on / off - 1), "%")


def measure() -> Iterable[Row]:
    """Measure rates on straight vector code and on whole kernels, then start-up."""
    random = np.random.default_rng(0)
    cores = len(os.sched_getaffinity(0))
    unit = "M wave-instructions/s"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for target in ("gfx942", "gfx1100"):
            path = straight_line(target, folder)
            for threads in sorted({1, cores}):
                sizes = {"threads": threads, "grid": threads * 8, "block": 64}
                speed, _ = rate(target, path, "straight", **sizes)
                with one_by_one():
                    slow, _ = rate(target, path, "straight", **sizes)
                what = f"{target} vector code, {threads} threads"
                yield Row(what, speed / 1e6, unit, "instructions one by one", slow / 1e6)
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
        for groups_of, threads in ((1, 1), (64, cores)):
            seconds = min(launches(plain, groups_of, threads) for _ in range(3))
            yield Row(f"gfx942 launch of {groups_of} small work-groups, {threads} threads, CPU", 1e6 * seconds, "us")
        for target in ("gfx942", "gfx1100"):
            yield from corpus(target, folder)
        yield from loops(folder)
        yield from copies(folder)
        yield from counting(folder / "straight-gfx942.hsaco", groups)
        yield from start_up(folder)
