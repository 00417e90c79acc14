"""Explanation of why a launch misses a finding of the check of all paths: the paths of its waves, followed again.

The check of all paths takes every edge between blocks for possible, and all lanes for one. Where nothing is found while
a kernel runs, it runs as the original does. So the machine of the check of all paths follows the instructions that each
wave of the original executes, with the mutant's in their place: what it does not find there is on no path that a wave
takes as a whole, and for what it does find producer and consumer must have no lane in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import luthier
from luthier.emulator import EmulatedDevice
from luthier.emulator.inspection.debug import WaveStep as WaveStep
from luthier.hazards.wait_counters.state import OutstandingUse, WaitMachine
from luthier.hazards.wait_counters.steps import WaitStep, WaitSteps, narrowed
from luthier.lifting import LiftedRepresentation
from luthier.objects import CodeObject
from luthier.verify.launch_plan import LaunchPlan

OTHER_WAY, OTHER_LANES, UNEXPLAINED = "other way", "other lanes", "unexplained"


class Ways:
    """Paths of the waves of a launch: indices of instructions, with EXEC before each."""

    def __init__(self, object: CodeObject, plan: LaunchPlan, lifted: LiftedRepresentation) -> None:
        device = luthier.open_device(f"emu:{object.target.target.name}", threads=1)
        assert isinstance(device, EmulatedDevice)
        kernel = device.load(object).kernel(plan.kernel)
        ways: dict[tuple[int, int], list[tuple[int, int]]] = {}
        indices: dict[int, int | None] = {}

        def look(step: WaveStep) -> None:
            if step.record not in indices:
                indices[step.record] = lifted.index_at(step.address)
            index = indices[step.record]
            assert index is not None
            ways.setdefault((step.workgroup, step.wave), []).append((index, step.registers.exec))

        kernel.launch(*plan.materialise(), grid=plan.grid, block=plan.block, dynamic_lds=plan.dynamic_lds, trace=look)
        self._ways = list(ways.values())

    def reason(self, lifted: LiftedRepresentation, steps: WaitSteps) -> str:
        """Return why the launch finds nothing in a mutant.

        Args:
            lifted: the mutant.
            steps: those of the mutant, as the check of waits sees them. Hazards know no lanes: the launch finds them by
                the same machine.
        """
        alone = {
            one.first: one for block in lifted.blocks for step in steps.of(block.index) for one in steps.split(step)
        }
        reasons = {_on(way, lifted, alone, WaitMachine(steps.model)) for way in self._ways} - {OTHER_WAY}
        return max(reasons, default=OTHER_WAY)  # unexplained before other lanes


def _on(
    way: list[tuple[int, int]], lifted: LiftedRepresentation, alone: dict[int, WaitStep], machine: WaitMachine
) -> str:
    """Return what is found on a wave's path: nothing, or only in other lanes than those that are outstanding."""
    streams = machine.model.streams
    issued: list[list[tuple[int, int]]] = [[] for _ in streams]
    """By stream the units and lanes of each operation, the oldest first."""
    lanes, reason = 0, OTHER_WAY

    def executed() -> Iterator[WaitStep]:
        nonlocal lanes
        for index, active in way:
            lanes = active
            step = alone[index]
            yield step
            for stream, units in step.issues:
                issued[stream].append((units, active))

    def report(use: OutstandingUse) -> None:
        nonlocal reason
        # An operation of an unordered stream may be any of the older ones.
        operations = issued[use.stream]
        older = operations[-1 - use.position :][:1] if streams[use.stream].ordered else operations
        of_all = lifted.effects(use.at).cross_reads & narrowed(use.units)
        meets = any(made & use.units and active & (-1 if of_all else lanes) for made, active in older)
        reason = UNEXPLAINED if meets or reason == UNEXPLAINED else OTHER_LANES

    machine.run(machine.empty, cast(Sequence[WaitStep], executed()), report)  # each step is asked for when it is run
    return reason
