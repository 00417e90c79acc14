"""The time of one wave alone: instructions in order, with the latencies of results and the waits as written.

Each basic block is followed from the state in which its most frequent predecessor leaves the wave: registers whose
values are not ready, operations that are outstanding, units that are busy. Its time is that from its first instruction
to its last, times how often a mean wave executes it. An instruction that reads a result of memory does not wait for it,
since waits are instructions; a missing wait is a bug of the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
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
_units = lru_cache(1 << 14)(lambda mask: tuple(bits_of(mask)))


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


class _BlockTimes(NamedTuple):
    """Times of a block in one execution that begins in a state."""

    start: _WaveState | None
    end: _WaveState
    cycles: float
    indices: list[int]
    """Of its executed instructions."""
    issue: list[float]
    stall: list[float]


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
        indices = list(costs)
        self._waiting: dict[int, bool] = {}
        """Opcode number -> whether its instructions may issue to streams, or wait for them."""
        opcodes = lifted.code.opcode[indices].tolist()
        self._steps = {index: self._step(index, number) for index, number in zip(indices, opcodes, strict=True)}

    def _step(
        self, index: int, number: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return units read and written, counters of the issue, and limits of a wait; `number` is of the opcode."""
        lifted, model = self._lifted, self._model
        effects = lifted.effects(index)
        reads, writes = _units(effects.reads), _units(effects.writes)
        waiting = self._waiting.get(number)
        if waiting is None:
            opcode = lifted.isa.opcode(number)
            waiting = self._waiting[number] = model.may_issue(opcode) or model.may_wait(opcode)
        if not waiting:
            return reads, writes, (), ()
        opcode, values = lifted.isa.opcode(number), lifted.columns.values(index)
        issues = model.issues(opcode, is_gds(opcode, values)) if model.may_issue(opcode) else ()
        limits = model.limits(lifted.isa, opcode, values) if model.may_wait(opcode) else ()
        counters = tuple(dict.fromkeys(model.streams[issue.stream].counter for issue in issues))
        return reads, writes, counters, tuple((limit.counter, limit.value) for limit in limits)

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
        times: dict[int | None, _BlockTimes] = {}
        for _ in range(_PASSES):
            for block in blocks:
                previous = before[block.index]
                start = times[previous].end if previous in times else None
                if block.index in times and times[block.index].start == start:
                    continue
                taken = previous is not None and block.first != lifted.blocks[previous].last + 1
                indices = [index for index in range(block.first, block.last + 1) if index in self._costs]
                times[block.index] = self._block(indices, start, taken)
        cycles = 0.0
        for number, executed in frequency.items():
            each = times[number]
            issue[each.indices] += np.multiply(each.issue, executed)
            stall[each.indices] += np.multiply(each.stall, executed)
            cycles += each.cycles * executed
        return WavePath(cycles, issue, stall)

    def _block(self, indices: list[int], start: _WaveState | None, taken: bool) -> _BlockTimes:
        """Return the times of a block with these instructions; `taken`: it is entered by a branch that is taken."""
        value = self._machine.value
        ready = dict(start.ready) if start else {}
        vectors = dict(start.vectors) if start else {}
        outstanding = {counter: list(times) for counter, times in start.outstanding.items()} if start else {}
        units = dict(start.units) if start else {}
        clock = value("branch_taken") - value("branch_not_taken") if taken else 0.0
        to_memory, not_taken = value("vector_to_memory"), value("branch_not_taken")
        issues, stalls = [], []
        for index in indices:
            cost = self._costs[index]
            reads, writes, counters, limits = self._steps[index]
            memory = self._memory.get(index)
            at = max(clock, 0.0)
            for unit in reads:
                if unit in ready and ready[unit] > at:
                    at = ready[unit]
                if memory is not None and unit in vectors and vectors[unit] > at:
                    at = vectors[unit]
            for unit in writes:
                if unit in ready and ready[unit] > at:
                    at = ready[unit]
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
                issued = not_taken
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
            issues.append(issued)
            stalls.append(at - clock)
            clock = at + issued
        return _BlockTimes(
            start,
            _WaveState(
                {unit: time - clock for unit, time in ready.items() if time > clock},
                {unit: time - clock for unit, time in vectors.items() if time > clock},
                {counter: [time - clock for time in times] for counter, times in outstanding.items() if times},
                {name: time - clock for name, time in units.items() if time > clock},
            ),
            clock,
            indices,
            issues,
            stalls,
        )
