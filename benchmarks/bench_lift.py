"""Time of lifting, with liveness: one kernel of 4,000 instructions, 400 kernels of 54,000 instructions in all,
and kernels of a large library, llama.cpp's for HIP.

Beside the large file, `llvm-objdump -d` of the same file, which decodes and prints but builds no blocks and no
liveness. All times are CPU time. The library comes from the wheel `cyllama-rocm`, which pip fetches (150 MB) into the
folder that LUTHIER_BENCHMARKS names; without either it is left out.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from luthier.errors import LiftError
from luthier.lifting import lift
from luthier.objects import load_object, load_objects
from run import Row

DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_next_free_vgpr 64
  .amdhsa_next_free_sgpr 96
  .amdhsa_accum_offset 64
.end_amdhsa_kernel
.text
"""


def kernel(name: str, instructions: int, rng: random.Random) -> str:
    """Return the assembly of a kernel of loops and divergent branches over random arithmetic."""
    lines = [f".globl {name}", ".p2align 8", f".type {name},@function", f"{name}:"]
    count = 0
    block = 0
    while count < instructions - 12:
        block += 1
        lines.append(f".L{name}_{block}:")
        for _ in range(rng.randint(4, 14)):
            a, b, c = (rng.randrange(4, 60) for _ in range(3))
            lines.append(
                rng.choice(
                    [
                        f"v_add_f32_e32 v{a}, v{b}, v{c}",
                        f"v_fma_f32 v{a}, v{b}, v{c}, v{a}",
                        f"global_load_dword v{a}, v{b}, s[4:5]",
                        f"s_add_u32 s{a}, s{b}, s{c}",
                        f"v_mov_b32_e32 v{a}, s{b}",
                    ]
                )
            )
            count += 1
        way = rng.randrange(3)
        if way == 0:
            lines += [f"v_cmp_lt_f32_e32 vcc, v{rng.randrange(60)}, v1", "s_and_saveexec_b64 s[2:3], vcc"]
            lines += [f"s_cbranch_execz .L{name}_{block + 1}", "v_mov_b32_e32 v2, v3"]
            count += 4
        elif way == 1:
            lines += ["s_or_b64 exec, exec, s[2:3]", "s_sub_u32 s8, s8, 1", f"s_cbranch_scc0 .L{name}_{block}"]
            count += 3
    lines += [f".L{name}_{block + 1}:", "global_store_dword v0, v2, s[4:5]", "s_endpgm", f".size {name}, .-{name}"]
    return "\n".join(lines) + DESCRIPTOR.format(name=name)


def build(folder: Path, name: str, kernels: int, instructions: int) -> Path:
    """Build a code object of many kernels that share functions, and return its path."""
    rng = random.Random(kernels)
    source, relocatable, linked = (folder / f"{name}.{ending}" for ending in ("s", "o", "co"))
    text = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n.text\n'
    source.write_text(text + "".join(kernel(f"k{number}", instructions, rng) for number in range(kernels)))
    assemble = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-filetype=obj"]
    subprocess.run([*assemble, "-o", str(relocatable), str(source)], check=True)
    subprocess.run(["ld.lld-22", "-shared", "-o", str(linked), str(relocatable)], check=True)
    return linked


def lift_all(path: Path) -> tuple[int, float, float]:
    """Return the number of instructions, seconds of lifting, and seconds of liveness.

    The object is a fresh one, so that nothing is decoded yet.
    """
    code_object = load_object(path)
    begin = time.process_time()
    lifted = [lift(code_object, name) for name in code_object.kernels]
    middle = time.process_time()
    for kernel in lifted:
        for block in kernel.blocks:
            kernel.liveness.live_before(block.first)
    end = time.process_time()
    instructions = sum(block.last - block.first + 1 for one in lifted for block in one.blocks)
    return instructions, middle - begin, end - middle


WHEEL = "cyllama-rocm"
LIBRARY_KERNELS = 900


def library(folder: Path) -> Path | None:
    """Return the path of llama.cpp's library, unpacked to `folder`; None if its wheel is not there."""
    kept = os.environ.get("LUTHIER_BENCHMARKS")
    if kept is None:
        return None
    fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", kept, WHEEL]
    wheels = sorted(Path(kept).glob(f"{WHEEL.replace('-', '_')}-*.whl"))
    if not wheels and subprocess.run(fetch, check=False).returncode == 0:
        wheels = sorted(Path(kept).glob(f"{WHEEL.replace('-', '_')}-*.whl"))
    if not wheels:
        return None
    with zipfile.ZipFile(wheels[-1]) as wheel:
        return Path(wheel.extract(next(name for name in wheel.namelist() if "libggml-hip" in name), folder))


def measure_library(path: Path) -> Iterator[Row]:
    """Measure a sample of its kernels, an equal number from each target."""
    kernels = [(one, name) for one in load_objects(path) for name in one.kernels]
    sample = random.Random(1).sample(kernels, min(LIBRARY_KERNELS, len(kernels)))
    instructions, refused, lifting, liveness = 0, 0, 0.0, 0.0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for code_object, name in sample:
        begin = time.process_time()
        try:
            lifted = lift(code_object, name)
        except LiftError:
            refused += 1
            continue
        middle = time.process_time()
        for block in lifted.blocks:
            lifted.liveness.live_before(block.first)
        liveness += time.process_time() - middle
        lifting += middle - begin
        instructions += sum(block.last - block.first + 1 for block in lifted.blocks)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield Row(f"libggml-hip, {len(sample)} kernels: lifting", instructions / lifting / 1e3, "k instructions/s")
    yield Row("  liveness", instructions / liveness / 1e3, "k instructions/s")
    yield Row("  both", instructions / (lifting + liveness) / 1e3, "k instructions/s")
    yield Row("  kernels refused", refused, "")
    yield Row("  memory that stays", grown / 1024, "MB")


def measure() -> Iterable[Row]:
    """Yield the rows of this benchmark."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        single, many = build(folder, "one", 1, 4000), build(folder, "many", 400, 135)
        begin = time.process_time()
        lift_all(single)
        yield Row("first lift in a process, 4,000 instructions", time.process_time() - begin, "s")
        instructions, lifting, liveness = min(lift_all(single) for _ in range(3))
        yield Row(f"one kernel of {instructions:,} instructions: blocks and calls", lifting, "s")
        yield Row("  liveness at every instruction", liveness, "s")
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run(["llvm-objdump-22", "-d", str(many)], check=True, stdout=subprocess.DEVNULL)
        peer = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
        instructions, lifting, liveness = min((lift_all(many) for _ in range(3)), key=lambda times: times[1] + times[2])
        yield Row(
            f"400 kernels, {instructions:,} instructions: blocks, calls, liveness",
            lifting + liveness,
            "s",
            "llvm-objdump -d",
            peer,
        )
        yield Row("  of it liveness", liveness, "s")
        yield Row("  rate", instructions / (lifting + liveness) / 1e3, "k instructions/s")
        files = library(folder)
        if files is None:
            print(f"  libggml-hip: left out, LUTHIER_BENCHMARKS names no folder with (or for) the wheel {WHEEL}")
        else:
            yield from measure_library(files)
