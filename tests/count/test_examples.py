"""The tools in examples that count without hooks."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from effort import FAMILIES
from luthier.devices import open_device
from luthier.emulator import TraceRecorder
from luthier.errors import ToolError
from luthier.lifting import lift
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool import Tool
from luthier.verify import verify_kernel
from test_truth import APPS, PLANS, launch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch):
    """`tool(name, class, **options)`: a tool of a package in examples."""

    def make(name: str, cls: str, **options: object) -> Tool:
        monkeypatch.syspath_prepend(str(ROOT / "examples" / "tools" / name))
        made = getattr(importlib.import_module(f"luthier_{name}"), cls)(**options)
        assert isinstance(made, Tool)
        return made

    return make


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_opcode_histogram(app, tool, name: str, target: str) -> None:
    object, plan = load_object(app(name, target)), PLANS[name]
    verdict = verify_kernel(object, tool("opcode_histogram", "OpcodeHistogram", top=3), plan)
    assert verdict.problems == ()
    assert verdict.counted > 0
    _, _, stats = launch(object, object.data, plan)
    (table,) = verdict.tables
    *rows, rest, total = table.rows
    assert total[1] == stats.instructions == sum(int(row[1]) for row in [*rows, rest])
    assert [(name, stats.opcodes[name]) for name, *_ in rows] == [(row[0], row[1]) for row in rows]
    assert rows[0][1] == max(stats.opcodes.values())
    lanes = verify_kernel(object, tool("opcode_histogram", "OpcodeHistogram", per_lane=True, top=0), plan)
    assert lanes.problems == ()
    rows_of_lanes = {row[0]: row[1] for row in lanes.tables[0].rows[:-1]}
    assert rows_of_lanes == {opcode: count for opcode, count in stats.opcode_lanes.items() if count}


@pytest.mark.rows(8)
@pytest.mark.parametrize("target", FAMILIES)
@pytest.mark.parametrize("name", APPS)
def test_block_profile(app, tool, name: str, target: str) -> None:
    object, plan = load_object(app(name, target)), PLANS[name]
    verdict = verify_kernel(object, tool("block_profile", "BlockProfile"), plan)
    assert verdict.problems == ()
    _, _, stats = launch(object, object.data, plan)
    rows = {int(row[2], 16): (row[3], row[4]) for row in verdict.tables[0].rows if row[3]}
    assert rows == {block.address: (block.executions, block.instructions // block.executions) for block in stats.blocks}


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", ["gfx90a", "gfx1030", "gfx1201"])
@pytest.mark.parametrize("name", ["divergent_loop", "function_call"])
def test_block_profile_of_waves(app, tool, name: str, target: str) -> None:
    """Which way each wave went how often, step by step on the emulated device."""
    object, plan = load_object(app(name, target)), PLANS[name]
    verdict = verify_kernel(object, tool("block_profile", "BlockProfile", per="wave"), plan)
    assert verdict.problems == ()
    _, ways, each = verdict.tables
    lifted = lift(object, plan.kernel)
    recorder = TraceRecorder()
    kernel = open_device(f"emu:{target}").load(object.data).kernel(plan.kernel)
    kernel.launch(*plan.materialise(), grid=plan.grid, block=plan.block, trace=recorder)
    gone: dict[tuple[int, int], Counter[tuple[int, int]]] = {}
    ran: Counter[tuple[int, int]] = Counter()
    ends: dict[tuple[int, int], list[int]] = {}  # for each function that a wave is in, the block it is about to leave
    for step in recorder.entries:
        wave = step.workgroup, step.wave
        ran[wave] += 1
        index = lifted.index_at(step.address)
        block = lifted.blocks[lifted.block_of[index]]
        own = ends.setdefault(wave, [])
        if index == block.first:
            begun = any(index == lifted.index_at(function.entry) for function in lifted.functions)
            if begun:
                own.append(-1)
            else:
                gone.setdefault((own[-1], block.index), Counter())[wave] += 1
        if index == block.last:
            own[-1] = block.index
            if not block.successors:
                own.pop()
    wanted = []
    leaving = Counter(edge.source for edge in lifted.edges)
    for (source, to), times in gone.items():
        if leaving[source] > 1:
            wanted += [(source, to, *pair) for pair in Counter(times[wave] for wave in ran).items()]
    assert sorted(row for row in ways.rows if row[2] or (row[0], row[1]) in gone) == sorted(wanted)
    assert [(row[0], row[3], row[4]) for row in each.rows] == sorted((*wave, times) for wave, times in ran.items())
    with pytest.raises(ToolError, match="kernel or wave"):
        tool("block_profile", "BlockProfile", per="lane")


def test_a_miscounted_profile_is_a_problem(app, tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`luthier verify` compares profiles without being asked to."""
    from luthier.tool.counts import KernelCounters

    real = KernelCounters.counts
    monkeypatch.setattr(
        KernelCounters, "counts", lambda self, cells, waves: real(self, cells + np.arange(len(cells)), waves)
    )
    object = load_object(app("divergent_loop", "gfx90a"))
    verdict = verify_kernel(object, tool("block_profile", "BlockProfile"), PLANS["divergent_loop"])
    assert "miscounted" in verdict.problems[0]


def test_two_tools_share_counters(app, tool) -> None:
    """What several tools want counted follows from the same counters."""
    object = load_object(app("divergent_loop", "gfx90a"))
    tools = [tool("block_profile", "BlockProfile"), tool("opcode_histogram", "OpcodeHistogram")]
    alone = patch_object(object, tools[0].instrument).report.kernels[0].counters
    verdict = verify_kernel(object, tools, PLANS["divergent_loop"])
    assert verdict.problems == ()
    assert len(verdict.tables) == 2
    assert verdict.patch is not None
    assert verdict.patch.counters == alone
