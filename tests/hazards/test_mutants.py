"""Mutation: every ``s_nop`` of kernels that compilers made is removed and shortened, one at a time.

A mutant is found exactly where the check of the original says that so many wait states are needed; what is found while
the kernel runs must be found on all paths.
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

import luthier
import numpy as np
import pytest
from luthier.emulator import CheckWarning
from luthier.lifting import lift
from luthier.lifting.hazards import check_hazards
from luthier.objects import CodeObject, load_object

KERNELS = Path(__file__).parents[1] / "emulator" / "kernels"
MATRIX = Path(__file__).parent / "matrix.hip"
MOST = 12
"""Mutants of a kernel."""


def mutants(object: CodeObject, kernel: str) -> list[tuple[bytes, int, int, int]]:
    """The object with one ``s_nop`` that waits less, its address, how long it waits and how long it did."""
    found = []
    for instruction in lift(object, kernel).instructions:
        if instruction.block < 0 or instruction.opcode.pseudo != "S_NOP":
            continue
        word = int.from_bytes(instruction.bytes, "little")
        states = (word & 15) + 1
        for fewer in range(1, states):
            at = instruction.offset
            new = (word & ~15 | fewer - 1).to_bytes(4, "little")
            found.append((object.data[:at] + new + object.data[at + 4 :], instruction.address, fewer, states))
    return found


def judge(object: CodeObject, kernel: str) -> Counter[str]:
    report = check_hazards(lift(object, kernel))
    assert not report.findings
    enough = {one.place.address: one.needed for one in report.unneeded}
    seen: Counter[str] = Counter()
    made = mutants(object, kernel)
    for data, address, states, before in made[:: max(1, len(made) // MOST)]:
        found = check_hazards(lift(load_object(data), kernel), unneeded=False).findings
        assert bool(found) == (states < enough.get(address, before)), (
            hex(address),
            states,
            enough.get(address, before),
        )
        seen["mutants"] += 1
        seen["found"] += bool(found)
    return seen


@pytest.mark.rotating(4)
@pytest.mark.parametrize("level", ["-O1", "-O3"])
@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("file", ["mathematics", "groups"])
def test_mutants_are_found_or_redundant(compile_object, file: str, target: str, level: str) -> None:
    object = load_object(compile_object(KERNELS / f"{file}.hip", target, f"-I{KERNELS}", "-ffp-contract=off", level))
    seen = sum((judge(object, kernel) for kernel in object.kernels), Counter())
    print(file, target, level, dict(seen))


@pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
def test_matrix_kernels(compile_object, target: str) -> None:
    """Compilers put wait states of all lengths behind matrix instructions."""
    object = load_object(compile_object(MATRIX, target, "-O1"))
    seen = sum((judge(object, kernel) for kernel in object.kernels), Counter())
    print(target, dict(seen))
    assert seen["found"] > 10


def test_what_runs_is_found_on_all_paths(compile_object) -> None:
    object = load_object(compile_object(MATRIX, "gfx90a", "-O1"))
    found = 0
    for data, address, _, _ in mutants(object, "small")[::4]:
        static = {one.consumer.address for one in check_hazards(lift(load_object(data), "small")).findings}
        device = luthier.open_device("emu:gfx90a", check=["hazards"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CheckWarning)
            kernel = device.load(data).kernel("small")
            kernel.launch(np.ones(256, np.float32), np.zeros(1024, np.float32), grid=1, block=64)
        dynamic = {one.address for one in device.findings}
        assert dynamic == static, hex(address)  # its code is straight
        found += bool(dynamic)
    assert found
