"""Machine code for each level of x86-64 that this host has: the same results and counts, also of hot code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from luthier.emulator.native.processor import VARIABLE, levels

KERNELS = Path(__file__).parent / "kernels"
RUN = """
import hashlib, sys
import numpy as np
from luthier.devices import open_device
from luthier.emulator.native.processor import processor
from luthier.emulator.running import hot
target, file, *kernels = sys.argv[1:]
hot.HOT, compile_runs, runs = 1, hot.compile_runs, []
hot.compile_runs = lambda code, stretch: (runs.append(stretch), compile_runs(code, stretch))
device = open_device(f"emu:{target}", threads=1)
random = np.random.default_rng(0)
operands = [random.integers(0, 1 << 32, 1 << 13, dtype=np.uint32) for _ in range(2)]
said = hashlib.sha256()
for kernel in kernels:
    for block in (64, 100, 256):  # waves that are full, and that are not
        for _ in range(3):
            output = np.zeros(1 << 19, np.uint32)
            stats = device.load(file).kernel(kernel).launch(*operands, output, grid=8, block=block)
            hot.compiler().wait()
            said.update(output.tobytes() + repr((stats.opcodes, stats.opcode_lanes)).encode())
print(processor().name, said.hexdigest(), int(np.count_nonzero(output)), len(runs))
"""


@pytest.mark.skipif(len(levels()) < 2, reason="the host has one level")
@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx942", "gfx1100"])
def test_results_are_those_of_every_level(compile_object, target: str) -> None:  # type: ignore[no-untyped-def]
    file = compile_object(KERNELS / "arithmetic.hip", target, f"-I{KERNELS}")
    outputs = []
    for level in levels():
        done = subprocess.run(
            [sys.executable, "-c", RUN, target, str(file), "flow", "floats"],
            env={**os.environ, VARIABLE: level},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.split())
    assert [name for name, *_ in outputs] == list(levels())
    assert len({digest for _, digest, _, _ in outputs}) == 1
    assert all(int(written) > 1000 and int(runs) > 3 for *_, written, runs in outputs)
