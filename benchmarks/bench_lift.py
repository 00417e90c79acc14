"""How long lifting takes, with liveness: one kernel of 4,000 instructions, and 400 kernels of 54,000 instructions in
all.

Beside the large file, `llvm-objdump -d` of the same file, which decodes and prints but builds no blocks and no
liveness.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from luthier.lifting import lift
from luthier.objects import load_object
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
    """A kernel of loops and divergent branches over random arithmetic."""
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
    rng = random.Random(kernels)
    source, relocatable, linked = (folder / f"{name}.{ending}" for ending in ("s", "o", "co"))
    text = '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n.text\n'
    source.write_text(text + "".join(kernel(f"k{number}", instructions, rng) for number in range(kernels)))
    assemble = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx942", "-filetype=obj"]
    subprocess.run([*assemble, "-o", str(relocatable), str(source)], check=True)
    subprocess.run(["ld.lld-22", "-shared", "-o", str(linked), str(relocatable)], check=True)
    return linked


def lift_all(path: Path) -> tuple[int, float, float]:
    """Instructions, seconds of lifting, seconds of liveness; a fresh object, so that nothing is decoded yet."""
    code_object = load_object(path)
    begin = time.perf_counter()
    lifted = [lift(code_object, name) for name in code_object.kernels]
    middle = time.perf_counter()
    for one in lifted:
        for block in one.blocks:
            one.liveness.live_before(block.first)
    end = time.perf_counter()
    instructions = sum(block.last - block.first + 1 for one in lifted for block in one.blocks)
    return instructions, middle - begin, end - middle


def measure() -> Iterable[Row]:
    """The rows of this benchmark."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, many = build(folder, "one", 1, 4000), build(folder, "many", 400, 135)
        begin = time.perf_counter()
        lift_all(one)
        yield Row("first lift in a process, 4,000 instructions", time.perf_counter() - begin, "s")
        instructions, lifting, liveness = min(lift_all(one) for _ in range(3))
        yield Row(f"one kernel of {instructions:,} instructions: blocks and calls", lifting, "s")
        yield Row("  liveness at every instruction", liveness, "s")
        begin = time.perf_counter()
        subprocess.run(["llvm-objdump-22", "-d", str(many)], check=True, stdout=subprocess.DEVNULL)
        peer = time.perf_counter() - begin
        instructions, lifting, liveness = min(lift_all(many) for _ in range(2))
        yield Row(
            f"400 kernels, {instructions:,} instructions: blocks, calls, liveness",
            lifting + liveness,
            "s",
            "llvm-objdump -d",
            peer,
        )
        yield Row("  of it liveness", liveness, "s")
