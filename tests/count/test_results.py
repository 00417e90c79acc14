"""Grouped counts, against the emulated device's own counts and against hooks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from luthier.errors import PatchError
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.task import InstrumentationTask
from test_truth import PLANS, launch, truth

HOOKS = """
__device__ uint64_t gone[64];
LUTHIER_HOOK_ANNOTATE go(uint32_t edge) { luthier::sAtomicAdd<uint64_t>(&gone[edge], 1); }
"""
TARGETS = ["gfx90a", "gfx1100"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["divergent_loop", "function_call", "reduction"])
def test_groups(app, name: str, target: str) -> None:
    object, plan = load_object(app(name, target)), PLANS[name]
    tasks = []

    def instrument(task: InstrumentationTask) -> None:
        task.count(task.instructions)
        task.count(task.instructions, per="lane")
        tasks.append(task)

    patched = patch_object(object, instrument, [plan.kernel], strict=True)
    _, loaded, stats = launch(object, patched.data, plan)
    counts = patched.counters[plan.kernel].read(loaded)
    _, _, stats = launch(object, object.data, plan)
    (task,) = tasks
    executions, lanes = truth(task, stats)
    lifted = task.lifted
    reached = [index for index, block in enumerate(lifted.block_of) if block >= 0]
    keys = {
        "instruction": lambda index: index,
        "address": lambda index: int(lifted.code.addresses[index]),
        "opcode": lambda index: lifted.isa.opcode(int(lifted.code.opcode[index])).mnemonic,
        "block": lambda index: lifted.block_of[index],
        "own": lambda index: index % 3 or None,
    }
    for key, label in keys.items():
        wanted: dict[object, Counter[str]] = {}
        for index in reached:
            if label(index) is not None:
                group = wanted.setdefault(label(index), Counter())
                group.update(instructions=1, executions=int(executions[index]), active_lanes=int(lanes[index]))
        asked = key if key != "own" else [label(index) for index in range(len(lifted.code))]
        rows = counts.by(asked)
        assert [row["label"] for row in rows] == list(wanted)
        for row in rows:
            assert {name: row[name] for name in ("instructions", "executions", "active_lanes")} == wanted[row["label"]]
        assert counts.to_arrow(asked).to_pylist() == [
            {"label": label, **{name: group[name] for name in ("instructions", "executions", "active_lanes")}}
            for label, group in wanted.items()
        ]
    with pytest.raises(PatchError, match=r"3 labels"):
        counts.by([1, 2, 3])


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["divergent_loop", "reduction"])
def test_edges(app, module, name: str, target: str) -> None:
    """Hooks on the edges count what follows from few counters."""
    object, plan = load_object(app(name, target)), PLANS[name]
    edges = []

    def hooks(task: InstrumentationTask) -> None:
        task.hoist = False
        edges.extend(task.lifted.edges)
        for number, edge in enumerate(edges):
            task.insert_hook_on_edge(edge, module.go, number)

    patched = patch_object(object, hooks, [plan.kernel], strict=True)
    _, loaded, _ = launch(object, patched.data, plan)
    gone = np.frombuffer(loaded.variable("gone").read(), np.uint64)
    wanted: Counter[tuple[int, int]] = Counter()
    for number, edge in enumerate(edges):
        wanted[edge.source, edge.to] += int(gone[number])

    patched = patch_object(object, lambda task: task.count(task.instructions) and None, [plan.kernel], strict=True)
    _, loaded, _ = launch(object, patched.data, plan)
    counted = patched.counters[plan.kernel].read(loaded).edges
    assert {(edge.source, edge.to): edge.executions for edge in counted} == wanted
    assert sum(wanted.values()) > len(wanted) > 4
