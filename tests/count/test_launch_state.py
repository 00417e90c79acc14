"""Counters beside hooks that read the launch state: both begin at the kernel's entry, and neither gets the other's
registers."""

from __future__ import annotations

import numpy as np
import pytest
from effort import FAMILIES
from luthier.objects import load_object
from luthier.patch import patch_object
from luthier.tool.counts import Cell, CounterBudget
from luthier.tool.task import InstrumentationTask
from test_truth import APPS, BUDGETS, PLANS, launch, truth

HOOKS = """
__device__ uint64_t executed = 0;
__device__ uint64_t blocks = 0;

LUTHIER_HOOK_ANNOTATE add_block() { luthier::sAtomicAdd<uint64_t>(&blocks, 1 + blockIdx.x); }
"""


def check(object, name: str, module, budget: CounterBudget) -> None:
    plan, tasks = PLANS[name], []

    def instrument(task: InstrumentationTask) -> None:
        tasks.append(task)
        task.counter_budget = budget
        task.count(task.instructions)
        task.count(task.instructions, into=Cell(module, "executed"))
        for block in task.lifted.blocks:
            if block.exit == "end":
                task.insert_hook_before(block.last, module.add_block)

    patched = patch_object(object, instrument, [name], strict=True)
    before, _, stats = launch(object, object.data, plan)
    after, loaded, _ = launch(object, patched.data, plan)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)
    executions, _ = truth(tasks[0], stats)
    counts = patched.counters[name].read(loaded)
    np.testing.assert_array_equal(counts.executions, executions)
    assert loaded.variable("executed").read(int) == executions.sum()
    waves = stats.waves // stats.workgroups
    assert loaded.variable("blocks").read(int) == waves * sum(range(1, plan.grid[0] + 1))


@pytest.mark.rows(1)
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("target", FAMILIES)
def test_counters_beside_launch_state(app, module, target: str, budget: str) -> None:
    for name in APPS:
        check(load_object(app(name, target)), name, module, BUDGETS[budget])
