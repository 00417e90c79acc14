"""The divergence tool against the EXEC masks that the emulated device sees, and against the Collatz sequence itself."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import InstrumentationTask, lift
from luthier.emulator.inspection.debug import WaveStep
from luthier.isa.registers import EXEC
from luthier.verify.launch_plan import read_plans

from .conftest import ALL, TARGETS, rows

ROOT = Path(__file__).parents[2]
PLANS = read_plans(ROOT / "examples/apps/launch.toml")
COLLATZ = ROOT / "examples/apps/divergent_loop.hip"
TERNARY = """
#include <hip/hip_runtime.h>
extern "C" __global__ void halves(unsigned *out, unsigned lanes, unsigned rounds) {
  for (unsigned round = 0; round < rounds; ++round)
    if (threadIdx.x < lanes)
      atomicAdd(&out[threadIdx.x], 1u);
    else
      atomicXor(&out[threadIdx.x], round);
}
"""


class Seen:
    """The device's observations in one launch of the original."""

    def __init__(self, kernel: Any) -> None:
        self.lanes: Counter[int] = Counter()
        self.branches: dict[int, Counter[str]] = defaultdict(Counter)
        lifted = lift(kernel.object, kernel.kernel)
        self._instructions = {one.address: one for one in InstrumentationTask(lifted).instructions}
        self._first = {lifted.instructions[block.first].address for block in lifted.blocks}
        self._last: dict[tuple[int, int], Any] = {}
        self._came: dict[tuple[int, int], int] = {}
        """By wave: EXEC before the last instruction of the block that writes it."""
        kernel.watch(self._see)

    def _see(self, step: WaveStep) -> None:
        wave, exec = (step.workgroup, step.wave), step.registers.exec
        instruction, last = self._instructions[step.address], self._last.get(wave)
        if last is not None and last.is_conditional:
            self.branches[last.address]["taken"] += step.address != last.address + last.size
        if step.address in self._first:
            self._came.pop(wave, None)
        if instruction.is_vector:
            self.lanes[bin(exec).count("1")] += 1
        if instruction.is_conditional:
            row = self.branches[instruction.address]
            row["waves"] += 1
            if "exec" in instruction.text:
                before = self._came.get(wave, exec)
                # An else has the lanes that skipped the if, and lanes that continue.
                came = before if before & exec else before | exec
                row["divergent"] += exec not in (0, came)
            elif "vcc" in instruction.text:
                row["divergent"] += step.registers.vcc & exec not in (0, exec)
        if any(instruction.effects.writes >> unit & 1 for unit in EXEC):
            self._came[wave] = exec
        self._last[wave] = instruction


def of_histogram(table: Any) -> dict[tuple[int, int], int]:
    """Vector instructions by bounds of the number of lanes."""
    histogram = {}
    for row in rows(table):
        low, _, high = row["lanes"].partition(" to ")
        histogram[int(low), int(high or low)] = row["vector instructions"]
    return histogram


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["divergent_loop", "reduction", "function_call", "vector_add"])
def test_as_the_device_sees_it(bench: Any, shipped: Any, name: str, target: str) -> None:
    plan = PLANS[name]
    source = ROOT / "examples/apps" / f"{name}.hip"
    kernel = bench(source, name, target, *plan.materialise(), grid=plan.grid[0], block=plan.block[0])
    seen = Seen(kernel)
    tables = kernel.under(shipped("divergence", top=0))
    for (low, high), count in of_histogram(tables[f"{name}: active lanes"]).items():
        assert count == sum(seen.lanes[lanes] for lanes in range(low, high + 1))
    *blocks, total = rows(tables[name])
    assert total["vector instructions"] == sum(seen.lanes.values()) == sum(row["vector instructions"] for row in blocks)
    assert total["lanes"] == sum(lanes * count for lanes, count in seen.lanes.items())
    branches = {int(row["address"], 16): row for row in rows(tables["branches"])} if seen.branches else {}
    assert branches.keys() == seen.branches.keys()
    for address, row in branches.items():
        expected = seen.branches[address]
        assert (row["waves"], row["taken"]) == (expected["waves"], expected["taken"]), row
        assert row["taken"] + row["not taken"] == row["waves"]
        if not row["note"]:
            assert row["divergent"] == expected["divergent"], row


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_collatz(bench: Any, shipped: Any, target: str) -> None:
    """A wave goes round until the last of its lanes has got to 1: rounds and lanes follow from the sequence alone."""
    wave, count = ALL[target].wave_sizes[0], 300
    start = np.arange(count, dtype=np.uint32)
    kernel = bench(COLLATZ, "divergent_loop", target, start, np.zeros_like(start), count, grid=3, block=128)
    tables = kernel.under(shipped("divergence", top=0))
    steps = []
    for value in range(1, count + 1):
        turns = 0
        while value != 1:
            value = 3 * value + 1 if value % 2 else value // 2
            turns += 1
        steps.append(turns)
    waves = [steps[first : first + wave] for first in range(0, count, wave)]
    # The back branch of the loop: once in each round, divergent if only some lanes are done.
    rounds = sum(max(one) for one in waves)
    split = sum(len({turns for turns in one if 0 < turns < max(one)}) for one in waves)
    back = [row for row in rows(tables["branches"]) if row["waves"] == rounds]
    assert back
    assert split in [row["divergent"] for row in back]


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
def test_an_if_with_two_sides(bench: Any, shipped: Any, target: str) -> None:
    """Some lanes take one side, the others the other: divergent in every round, unless none or all take it."""
    wave, rounds = ALL[target].wave_sizes[0], 5
    for lanes in (0, 1, wave // 2, wave):
        kernel = bench(TERNARY, "halves", target, np.zeros(wave, np.uint32), lanes, rounds, block=wave)
        tables = kernel.under(shipped("divergence", top=0, blocks=False))
        divided = sum(row["divergent"] or 0 for row in rows(tables["branches"]))
        assert (divided > 0) == (0 < lanes < wave)
        atomics = of_histogram(tables["halves: active lanes"])
        assert any(low <= lanes <= high for low, high in atomics) or lanes == 0
