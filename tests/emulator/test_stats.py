"""Counts by opcode, instruction and basic block, against a trace of every instruction."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from luthier.devices import open_device
from luthier.emulator import AddressCounts, KernelHandle, LaunchStats, WaveStep
from luthier.errors import LiftError


@pytest.fixture(scope="module", params=["gfx906", "gfx942", "gfx1103", "gfx1201"])
def build(request: pytest.FixtureRequest, build_kernels: Callable[[str, str], Path]) -> Callable[[str], KernelHandle]:
    files = {"reduction": "groups", "call_function": "plain", "histogram": "groups"}
    return lambda name: open_device(f"emu:{request.param}").load(build_kernels(files[name], request.param)).kernel(name)


def launch(kernel: KernelHandle, trace: Callable[[WaveStep], None] | None = None) -> LaunchStats:
    numbers = np.arange(150, dtype=np.int32)
    if kernel.name == "reduction":
        return kernel.launch(np.ones(150, np.float32), np.zeros(2, np.float32), 150, grid=2, block=128, trace=trace)
    if kernel.name == "histogram":
        bins, order = np.zeros(16, np.int32), np.zeros(150, np.int32)
        return kernel.launch(numbers, bins, order, 150, grid=2, block=100, trace=trace)
    return kernel.launch(numbers * 6, numbers * 4, np.zeros_like(numbers), 150, grid=3, block=64, trace=trace)


@pytest.mark.rows(1)
@pytest.mark.parametrize("name", ["reduction", "call_function", "histogram"])
def test_counts_are_those_of_a_trace(build: Callable[[str], KernelHandle], name: str) -> None:
    kernel = build(name)
    lanes: Counter[int] = Counter()
    seen: Counter[int] = Counter()
    by_opcode: Counter[str] = Counter()
    paths: dict[tuple[int, int], list[int]] = defaultdict(list)

    def trace(step: WaveStep) -> None:
        active = step.registers.exec.bit_count()
        seen[step.address] += 1
        lanes[step.address] += active
        by_opcode[step.text.split()[0]] += active
        paths[step.workgroup, step.wave].append(step.address)

    launch(kernel, trace)
    stats = launch(kernel)
    assert dict(zip(*[column.tolist() for column in stats.by_address[:2]], strict=True)) == seen
    assert dict(zip(stats.by_address.addresses.tolist(), stats.by_address.active_lanes.tolist(), strict=True)) == lanes
    assert list(stats.opcode_lanes) == list(stats.opcodes)
    assert sum(stats.opcode_lanes.values()) == sum(by_opcode.values())
    assert {mnemonic: stats.opcode_lanes[mnemonic] for mnemonic in by_opcode} == by_opcode

    blocks = stats.blocks
    owner = {address: block for address in seen for block in blocks if block.address <= address < block.end}
    assert owner.keys() == seen.keys()
    for block in blocks:
        inside = sorted(address for address in seen if block.address <= address < block.end)
        assert (block.executions, block.active_lanes) == (seen[block.address], lanes[block.address])
        # Entered at the top, left at the bottom: every instruction as often as the first.
        assert {seen[address] for address in inside} == {block.executions}
        assert block.instructions == sum(seen[address] for address in inside)
        assert block.lane_instructions == sum(lanes[address] for address in inside)
    for path in paths.values():  # control enters a block at its first instruction only
        for before, after in pairwise(path):
            assert after == owner[after].address or owner[after] is owner[before]
    functions = {block.function for block in blocks}
    assert name in functions
    assert any("gcd" in function for function in functions) == (name == "call_function")


def test_counts_as_json(build: Callable[[str], KernelHandle]) -> None:
    stats = launch(build("reduction"))
    report = json.loads(json.dumps(stats.to_json()))
    assert report["kernel"] == "reduction"
    assert (report["waves"], report["workgroups"]) == (stats.waves, 2)
    for rows in (report["addresses"], report["opcodes"].values()):
        assert sum(row["executions"] for row in rows) == report["instructions"] == stats.instructions
        assert sum(row["active_lanes"] for row in rows) == stats.by_address.active_lanes.sum()
    assert sum(row["instructions"] for row in report["blocks"]) == stats.instructions
    assert "blocks" not in stats.to_json(blocks=False)


def test_counts_without_code() -> None:
    nothing = np.zeros(0, np.int64)
    stats = LaunchStats("k", AddressCounts(nothing, nothing, nothing), dict, 0, 0, 0.0)
    assert stats.to_json(blocks=False)["opcodes"] == {}
    with pytest.raises(LiftError, match="no code to lift"):
        _ = stats.blocks
