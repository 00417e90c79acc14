"""The time of one wave alone: instructions in order, with the latencies of results and the waits as written.

Each basic block is followed from the state in which its most frequent predecessor leaves the wave: registers whose
values are not ready, operations that are outstanding, units that are busy. Its time is that from its first instruction
to its last, times how often a mean wave executes it. An instruction that reads a result of memory does not wait for it,
since waits are instructions; a missing wait is a bug of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from luthier.hazards.wait_counters.model import WaitModel, is_gds, wait_model
from luthier.isa.registers import bits_of
from luthier.lifting import LiftedRepresentation
from luthier.projection.costs import InstructionCost
from luthier.projection.machine import MachineModel

_PASSES = 3
"""How often blocks are followed: the state of a loop's end reaches its begin."""


class MemoryCost(NamedTuple):
    """Costs of one execution of a memory instruction, in cycles."""

    busy: float
    """Time that it occupies the unit."""
    latency: float
    """Time from its issue until it is complete, if the unit is idle."""


class WavePath(Struct, frozen=True, eq=False):
    """Times of a mean wave alone on a compute unit."""

    cycles: float
    issue: NDArray[np.float64]
    """By index of the instruction: time that a mean wave issues it."""
    stall: NDArray[np.float64]
    """By index of the instruction: time that a mean wave waits before it issues."""


class _WaveState(Struct):
    """A wave between two instructions; times are cycles from now, and those that have passed are left out."""

    ready: dict[int, float]
    """Register unit -> when its value can be read."""
    vectors: dict[int, float]
    """Register unit -> when a memory instruction can read the value that a vector instruction wrote."""
    outstanding: dict[int, list[float]]
    """Wait counter -> when its operations are complete, in order of issue."""
    units: dict[str, float]
    """Unit -> when it is idle."""


class PathFinder:
    """Follows waves of a kernel on a machine.

    Args:
        costs: by index of each executed instruction.
        memory: by index of each executed memory instruction.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        machine: MachineModel,
        costs: Mapping[int, InstructionCost],
        memory: Mapping[int, MemoryCost],
    ) -> None:
        self._lifted, self._machine, self._costs, self._memory = lifted, machine, costs, memory
        self._model: WaitModel = wait_model(lifted.target)
        self._steps = {index: self._step(index) for index in costs}

    def _step(
        self, index: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return units read and written, counters of the issue, and limits of a wait."""
        lifted = self._lifted
        opcode, values = lifted.isa.opcode(int(lifted.code.opcode[index])), lifted.columns.values(index)
        effects = lifted.effects(index)
        issues = self._model.issues(opcode, is_gds(opcode, values)) if self._model.may_issue(opcode) else ()
        limits = self._model.limits(lifted.isa, opcode, values) if self._model.may_wait(opcode) else ()
        counters = tuple(dict.fromkeys(self._model.streams[issue.stream].counter for issue in issues))
        return (
            tuple(bits_of(effects.reads)),
            tuple(bits_of(effects.writes)),
            counters,
            tuple((limit.counter, limit.value) for limit in limits),
        )

    def follow(self, executions: Mapping[int, float]) -> WavePath:
        """Return the time of a mean wave.

        Args:
            executions: by index of the instruction, of a mean wave.
        """
        lifted = self._lifted
        count = len(lifted.code)
        issue, stall = np.zeros(count), np.zeros(count)
        blocks = [block for block in lifted.blocks if executions.get(block.first)]
        frequency = {block.index: executions[block.first] for block in blocks}
        before: dict[int, int | None] = {}
        for block in blocks:
            known = [number for number in block.predecessors if number in frequency]
            own = frequency[block.index]
            # The most executions that the edge may have; of equal ones that of a loop.
            before[block.index] = max(
                known, key=lambda number: (min(frequency[number], own), number >= block.index), default=None
            )
        ends: dict[int, _WaveState] = {}
        total = 0.0
        for repetition in range(_PASSES):
            last = repetition == _PASSES - 1
            total = 0.0
            for block in blocks:
                previous = before[block.index]
                start = ends.get(previous) if previous is not None else None
                taken = previous is not None and block.first != lifted.blocks[previous].last + 1
                indices = [index for index in range(block.first, block.last + 1) if index in self._costs]
                each: Callable[[int, float, float], None] | None = None
                if last:
                    times = frequency[block.index]

                    def each(index: int, stalled: float, issued: float, times: float = times) -> None:
                        issue[index] += times * issued
                        stall[index] += times * stalled

                ends[block.index], cycles = self._block(indices, start, taken, each)
                total += cycles * frequency[block.index]
        return WavePath(total, issue, stall)

    def _block(
        self,
        indices: list[int],
        start: _WaveState | None,
        taken: bool,
        each: Callable[[int, float, float], None] | None,
    ) -> tuple[_WaveState, float]:
        """Return the state after these instructions and the time that they take.

        Args:
            taken: the block is entered by a branch that is taken.
            each: called with the index of each instruction, its stall and its issue.
        """
        value = self._machine.value
        ready = dict(start.ready) if start else {}
        vectors = dict(start.vectors) if start else {}
        outstanding = {counter: list(times) for counter, times in start.outstanding.items()} if start else {}
        units = dict(start.units) if start else {}
        clock = value("branch_taken") - value("branch_not_taken") if taken else 0.0
        to_memory = value("vector_to_memory")
        for index in indices:
            cost = self._costs[index]
            reads, writes, counters, limits = self._steps[index]
            memory = self._memory.get(index)
            at = max((ready[unit] for unit in reads if unit in ready), default=clock)
            if memory is not None and vectors:
                at = max([at, *(vectors[unit] for unit in reads if unit in vectors)])
            at = max(at, clock, *(ready[unit] for unit in writes if unit in ready), 0.0)
            for counter, limit in limits:
                times = outstanding.get(counter)
                if times and len(times) > limit:
                    at = max(at, max(times[: len(times) - limit]))
                    outstanding[counter] = times[len(times) - limit :] if limit else []
            if cost.unit in ("VALU", "matrix", "SALU"):
                at = max(at, units.get(cost.unit, 0.0))
                units[cost.unit] = at + cost.busy
            issued = cost.issue
            if cost.unit == "branch":
                issued = value("branch_not_taken")
            if memory is not None:
                begin = max(at, units.get(cost.unit, 0.0))
                units[cost.unit] = begin + memory.busy
                for counter in counters:
                    outstanding.setdefault(counter, []).append(begin + memory.latency)
                for unit in writes:
                    ready.pop(unit, None)
                    vectors.pop(unit, None)
            elif cost.unit in ("VALU", "matrix", "SALU"):
                for unit in writes:
                    ready[unit] = at + cost.latency
                    if to_memory and cost.unit == "VALU":
                        vectors[unit] = at + max(to_memory, cost.latency)
            if each is not None:
                each(index, at - clock, issued)
            clock = at + issued
        return (
            _WaveState(
                {unit: time - clock for unit, time in ready.items() if time > clock},
                {unit: time - clock for unit, time in vectors.items() if time > clock},
                {counter: [time - clock for time in times] for counter, times in outstanding.items() if times},
                {name: time - clock for name, time in units.items() if time > clock},
            ),
            clock,
        )
