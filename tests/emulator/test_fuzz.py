"""Every kind of instruction with random registers: a result or an `EmulationError`, never a crash of the process.

LUTHIER_FUZZ=n takes n times as many opcodes, `make test-all` all of them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from effort import EVERYTHING, FUZZ
from luthier.emulator.inspection.bench import run_assembly
from luthier.emulator.inspection.coverage import NOT_COMPUTE, samples
from luthier.emulator.running.memory import AllocationTable
from luthier.errors import EmulationError
from luthier.isa import Isa

STEP = 1 if EVERYTHING else max(1, 60 // FUZZ)


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx950", "gfx1151"])
def test_random_registers(target: str) -> None:
    random = np.random.default_rng(int(os.environ.get("LUTHIER_SEED", "3")))
    isa = Isa.of(target)
    lanes = isa.wave_size
    memory = AllocationTable()
    place = memory.allocate(4096)
    before = memory.allocate(4096)
    opcodes = [number for number in sorted(samples(isa)) if not isa.opcode(number).flags & NOT_COMPUTE]
    outcomes = {"ended": 0, "refused": 0}
    for number in opcodes[int(random.integers(0, STEP)) :: STEP]:
        code, index = samples(isa)[number]
        near = np.uint32(place.address & 0xFFFFFFFF)
        vgprs = {
            register: [
                random.integers(0, 1 << 32, lanes, np.uint32),
                random.integers(0, 64, lanes).astype(np.uint32),
                near + random.integers(0, 4000, lanes).astype(np.uint32),
            ][int(random.integers(0, 3))]
            for register in range(16)
        }
        sgprs = {register: int(random.integers(0, 1 << 32)) for register in range(108)}
        if random.random() < 0.6:  # a good address or descriptor, so that memory is reached
            word3 = 3 << 28 if isa.target.target.major >= 10 else 0
            sgprs |= {0: place.address & 0xFFFFFFFF, 1: place.address >> 32, 2: 4096, 3: word3}
        sgprs[124] = int(random.integers(0, 1 << 32 if random.random() < 0.5 else 16))
        mask = int(random.integers(0, 1 << lanes, dtype=np.uint64)) if random.random() < 0.8 else 0
        # What follows is reached by branches and read by what is longer than it looks.
        source = code.bytes_of(index) + bytes.fromhex("000080bf") * 8
        mode = int(random.choice([0x3F0, 0x300, 0x0F3]))
        try:
            run_assembly(target, source, vgprs, sgprs, exec=mask, mode=mode, lds=1024, scratch=64, memory=memory)
            outcomes["ended"] += 1
        except EmulationError:
            outcomes["refused"] += 1
    assert not before.view().any()
    assert outcomes["ended"] > outcomes["refused"] > 0
