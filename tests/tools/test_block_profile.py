"""The edges of the block profile against the ways that each wave was seen to go on the emulated device."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from luthier import lift
from luthier.emulator.inspection.debug import WaveStep
from luthier.verify.launch_plan import read_plans

from .conftest import TARGETS, rows

APPS = Path(__file__).parents[2] / "examples/apps"
PLANS = read_plans(APPS / "launch.toml")


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["divergent_loop", "reduction"])
def test_edges_as_the_device_sees_them(bench: Any, shipped: Any, name: str, target: str) -> None:
    plan = PLANS[name]
    source = APPS / f"{name}.hip"
    kernel = bench(source, name, target, *plan.materialise(), grid=plan.grid[0], block=plan.block[0])
    lifted = lift(kernel.object, name)
    first = {lifted.instructions[block.first].address: block.index for block in lifted.blocks}
    seen: Counter[tuple[int, int]] = Counter()
    last: dict[tuple[Any, int], int] = {}

    def see(step: WaveStep) -> None:
        if (block := first.get(step.address)) is not None:
            wave = (step.workgroup, step.wave)
            if wave in last and step.address != lifted.instructions[0].address:
                seen[last[wave], block] += 1
            last[wave] = block

    kernel.watch(see)
    table = kernel.under(shipped("block_profile", edges=True))[f"{name}: ways"]
    edges = {(row["from"], row["to"]): row["times"] for row in rows(table)}
    assert {way: times for way, times in edges.items() if times} == seen
    left = Counter({source: sum(times for (one, _), times in edges.items() if one == source) for source, _ in edges})
    assert all(row["% of its block"] == round(100 * row["times"] / left[row["from"]], 2) for row in rows(table))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("per_wave", [False, True])
def test_instructions_by_block_are_the_devices_own(bench: Any, shipped: Any, per_wave: bool, target: str) -> None:
    """instr_count by block: what each block's instructions add up to, watched one by one."""
    plan = PLANS["divergent_loop"]
    kernel = bench(
        APPS / "divergent_loop.hip",
        "divergent_loop",
        target,
        *plan.materialise(),
        grid=plan.grid[0],
        block=plan.block[0],
    )
    lifted = lift(kernel.object, "divergent_loop")
    at = {one.address: one for one in lifted.instructions}
    seen: Counter[int] = Counter()

    def see(step: WaveStep) -> None:
        instruction = at[step.address]
        seen[instruction.block] += step.registers.exec.bit_count() if instruction.is_vector and not per_wave else 1

    kernel.watch(see)
    tables = kernel.under(shipped("instr_count", per_wave=per_wave, per_block=True))
    assert {row["block"]: row["instructions"] for row in rows(tables["divergent_loop"]) if row["instructions"]} == seen
    (title,) = (title for title in tables if title.startswith("executed instructions, "))
    (total,) = rows(tables[title])
    assert total == {"variable": "counter", "value": sum(seen.values())}
