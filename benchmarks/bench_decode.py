"""Speed of decoding compiled code into arrays, and of printing, encoding and assembling it, from Python, on one core.

Beside them `llvm-objdump -d` of the same bytes, which decodes and prints; its start is in its time.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from luthier.isa import Isa, TargetId
from luthier.isa.native import native_isa
from run import Row

SOURCE = Path(__file__).parent.parent / "tests/isa/inputs/corpus.c"
BYTES = 1_500_000
"""Bytes to decode: the compiled text over and over, each time by one that has met nothing before, since what was met is
decoded faster."""


def build(folder: Path, target: str) -> tuple[bytes, int, Path]:
    """Return the .text of the corpus, repeated, and an object file with it."""
    compiled, once, many, source, repeated = (
        folder / f"{target}.{kind}" for kind in ("o", "bin", "many", "s", "big.o")
    )
    clang = ["clang-22", "--target=amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-O2", "-c"]
    subprocess.run([*clang, str(SOURCE), "-o", str(compiled)], check=True)
    subprocess.run(["llvm-objcopy-22", "-O", "binary", "--only-section=.text", str(compiled), str(once)], check=True)
    code = once.read_bytes()
    times = -(-BYTES // len(code))
    many.write_bytes(code * times)
    source.write_text(f'.text\n.incbin "{many}"\n')
    assembler = ["llvm-mc-22", "-triple=amdgcn-amd-amdhsa", f"-mcpu={target}", "-filetype=obj"]
    subprocess.run([*assembler, str(source), "-o", str(repeated)], check=True)
    return code, times, repeated


def seconds(work: Callable[[], object], times: int = 5) -> float:
    """Return the shortest time of `times` runs, in seconds."""
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return min(taken)


def measure() -> Iterable[Row]:
    """Yield the rows of this benchmark."""
    begin = time.perf_counter()
    Isa.of("gfx906")
    yield Row("first Isa in a process", 1e3 * (time.perf_counter() - begin), "ms")
    begin = time.perf_counter()
    Isa.of("gfx908")
    yield Row("each further Isa", 1e3 * (time.perf_counter() - begin), "ms")
    with tempfile.TemporaryDirectory() as name:
        for target in ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201"):
            code, times, repeated = build(Path(name), target)
            isa = Isa.of(target)
            decoded = isa.decode(code * times)
            million = len(decoded) / 1e6
            fresh = [native_isa(TargetId.parse(target), isa.wave_size) for _ in range(5)]
            first = seconds(lambda code=code, fresh=fresh: fresh.pop().decode(code, 0)) * times
            decoding = seconds(lambda isa=isa, codes=[code] * times: [isa.decode(code) for code in codes])
            printing = seconds(lambda isa=isa, decoded=decoded: isa.texts(decoded), 3)
            encoding = seconds(lambda isa=isa, decoded=decoded: isa.encode(decoded), 3)
            disassemble = ["llvm-objdump-22", "-d", f"--mcpu={target}", str(repeated)]
            objdump = seconds(lambda argv=disassemble: subprocess.run(argv, check=True, stdout=subprocess.DEVNULL), 3)
            yield Row(f"{target}: decode, {len(decoded) // times:,} instructions", million / first, "M instructions/s")
            yield Row(f"{target}:   what was met before", million / decoding, "M instructions/s")
            both = million / (first + printing)
            yield Row(f"{target}:   decode and print", both, "M instructions/s", "llvm-objdump -d", million / objdump)
            yield Row(f"{target}:   encode", million / encoding, "M instructions/s")
    isa = Isa.of("gfx942")
    text = "v_add_f32_e32 v0, v1, v2\ns_add_u32 s0, s1, s2\n" * 2_000
    yield Row("gfx942: assemble", 4_000 / 1e6 / seconds(lambda: isa.assemble(text)), "M instructions/s")
