"""Matrix instructions of every type on the emulated device, on one thread, and NumPy's product of 32-bit floats."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable

import numpy as np
from luthier.emulator.inspection.bench import Bench, assemble
from luthier.emulator.inspection.coverage import coverage
from luthier.emulator.inspection.samples import samples
from luthier.isa import Isa
from luthier.isa.instructions import InstructionFlag, OperandKind
from run import Row

TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", "gfx1250")
_NAME = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_(?:scale(?:16)?_)?(\w+?)_(\d+)x(\d+)x(\d+)(?:_\d+b)?_?(\w*)")
_UNROLLED = 16
"""Products in a round."""
_SECONDS = 0.2
_NUMPY = """
import time
import numpy as np
a = np.random.default_rng(0).random((1024, 1024), np.float32)
best = 9.0
for _ in range(5):
    began = time.perf_counter()
    a @ a
    best = min(best, time.perf_counter() - began)
print(2 * 1024 ** 3 / best)
"""


def measure() -> Iterable[Row]:
    """Yield the operations a second of the fastest instruction of each type, additions and products apart."""
    peer = numpy_rate()
    for target in TARGETS:
        best: dict[str, tuple[float, str]] = {}
        for kind, name, operations, code in products(Isa.of(target)):
            speed = operations * rate(target, code)
            best[kind] = max(best.get(kind, (0.0, "")), (speed, name))
        for kind, (speed, name) in sorted(best.items()):
            yield Row(f"{target} {kind}, {name}", speed / 1e9, "G operations/s", "NumPy's float32", peer / 1e9)


def numpy_rate() -> float:
    """Return the operations a second of NumPy's product of 1024x1024 floats of 32 bits, on one thread."""
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", _NUMPY], env=one_thread, capture_output=True, text=True, check=True)
    return float(done.stdout)


def products(isa: Isa) -> Iterable[tuple[str, str, int, bytes]]:
    """Yield type, mnemonic, operations and code of each matrix instruction that the emulator executes."""
    covered = coverage(str(isa.target))
    names = {name for table in (covered.exact, covered.bounded) for group in table.values() for name in group}
    for number, (code, index) in samples(isa).items():
        opcode = isa.opcode(number)
        match = _NAME.match(opcode.mnemonic)
        if not opcode.flags & InstructionFlag.MATRIX or opcode.name not in names or match is None:
            continue
        form, result, rows, columns, steps, source = match.groups()
        blocks = 1
        if form == "mfma" and (bits := re.match(r"[a-z]+(\d+)", source)):
            operands = code.operands(index)
            position = next(at for at, one in enumerate(opcode.operands) if one.name == "src0")
            kind, value = operands[position]
            registers = isa.register(value).unit_count if kind == OperandKind.REGISTER else 1
            blocks = max(1, 64 * registers * 32 // int(bits[1]) // (int(rows) * int(steps)))
        begin = int(code.offset[index])
        instruction = code.code[begin : begin + int(code.size[index])]
        operations = 2 * int(rows) * int(columns) * int(steps) * blocks
        yield f"{form} {source or result} -> {result}", opcode.mnemonic, operations, instruction


def rate(target: str, instruction: bytes) -> float:
    """Return how many of an instruction are executed a second."""
    isa = Isa.of(target)
    rounds = 1 << 6
    while True:
        loop = (
            assemble(isa, f"s_movk_i32 s90, {min(rounds, 0x7FFF)}"),
            assemble(isa, "s_sub_u32 s90, s90, 1\ns_cmp_lg_u32 s90, 0"),
        )
        body = instruction * _UNROLLED + loop[1]
        distance = -(len(body) + 4) // 4
        code = loop[0] + body + assemble(isa, f"s_cbranch_scc1 {distance & 0xFFFF}") + assemble(isa, "s_endpgm")
        bench = Bench(isa, code)
        state = np.zeros(128, np.uint32), np.zeros((256, isa.wave_size), np.uint32), (1 << isa.wave_size) - 1
        bench.run(*state, step_limit=1 << 20)
        began = time.process_time()
        bench.run(*state, step_limit=1 << 20)
        took = time.process_time() - began
        if took > _SECONDS or rounds >= 0x7FFF:
            return rounds * _UNROLLED / took
        rounds = min(0x7FFF, rounds * max(2, int(1.5 * _SECONDS / max(took, 1e-3))))
