"""The base of the tools of the differential proof."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from luthier.emulator import Module
from luthier.emulator.inspection.debug import WaveStep
from luthier.isa import RegisterRange
from luthier.isa.registers import AGPRS, EXEC_LO, FLAT_SCRATCH_SGPR, SGPRS, VCC_LO, VGPRS
from luthier.lifting import Instruction, LiftedRepresentation
from luthier.module import ToolModule
from luthier.patch import PatchedObject
from luthier.tool.counts import CounterBudget
from luthier.tool.task import InstrumentationTask
from luthier.verify.launch_plan import LaunchPlan

SITES = 300
"""Of a kernel at most."""
WORD = 0xFFFFFFFF
ADDRESSES = range(0x5000, 0x8000)
"""Bits 32 to 47 of what lies in the memory of a process, and so of the emulated device."""


def mixed(value: int) -> int:
    x = (value + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    return x ^ x >> 31


def lanes_of(step: WaveStep) -> list[int]:
    """Return the active lanes."""
    mask = step.registers.exec
    return [lane for lane in range(step.registers.wave_size) if mask >> lane & 1]


def values_of(step: WaveStep, register: RegisterRange) -> list[int]:
    """Return each active lane's value of a register of 32 or 64 bits."""
    registers, lanes = step.registers, lanes_of(step)
    if register.first in SGPRS or register.first in (VCC_LO, EXEC_LO):
        return [registers.sgpr(register.first, register.count)] * len(lanes)
    halves = []
    for unit in register.units:
        read = registers.vgpr(unit - VGPRS.start) if unit < AGPRS.start else registers.agpr(unit - AGPRS.start)
        halves.append(read[lanes].tolist())
    return [sum(half << 32 * number for number, half in enumerate(parts)) for parts in zip(*halves, strict=True)]


def one_file(register: RegisterRange) -> bool:
    return any(register.first in file and register.units[-1] in file for file in (SGPRS, VGPRS, AGPRS))


def readable(instruction: Instruction) -> list[RegisterRange]:
    """Registers of 32 and 64 bits that an instruction reads."""
    ranges = []
    for registers in instruction.uses.ranges():
        first, units = registers.first, registers.units
        if (first in SGPRS and first < FLAT_SCRATCH_SGPR) or first in VGPRS or first in AGPRS:
            ranges += [RegisterRange(unit, 1) for unit in units]
            ranges += [RegisterRange(unit, 2) for unit in units if unit % 2 == 0 and unit + 1 in units]
    return ranges


class Probe:
    """A tool with its truth.

    `choose` is called once, then `see` for each step of the original, which is run twice with `again` between, then
    `insert` when the kernel is patched, `patched` when it is, then `found` with the patched kernel's module, which is
    compared with `truth`. What differs in the original's two runs, as addresses of code do, is not compared.
    """

    budget: CounterBudget | None = None
    hoist = False
    refusal = ""
    """Reasons for which a kernel, or sites of it, may be left out: a regular expression."""
    strict = True
    """Whether a site that is refused is an error."""

    def __init__(
        self, module: ToolModule, plan: LaunchPlan, buffers: list[tuple[int, int]], rng: random.Random
    ) -> None:
        self.module, self.plan, self.buffers, self.rng = module, plan, buffers, rng
        self.sites: list[Instruction] = []
        self.unknown: set[int] = set()
        """Rows that are not compared."""
        self.first: dict[int, tuple[int, int]] = {}
        self._forget()

    def _forget(self) -> None:
        self.counts: Counter[int] = Counter()
        self.sums: Counter[int] = Counter()

    def again(self) -> None:
        """The original runs a second time."""
        self.first = self._seen()
        self._forget()

    def _seen(self) -> dict[int, Any]:
        return {row: (count, self.sums[row] & (1 << 64) - 1) for row, count in self.counts.items()}

    def some(self, instructions: list[Instruction]) -> list[Instruction]:
        """Return at most `SITES` of the instructions."""
        if len(instructions) <= SITES:
            return instructions
        return sorted(self.rng.sample(instructions, SITES), key=lambda instruction: instruction.index)

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = self.some(list(task.instructions))
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def patched(self, patched: PatchedObject) -> None:
        """Look at what the kernel has become."""

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        row = self.rows.get(index)
        if row is not None:
            self.step(row, index, step)

    def step(self, row: int, index: int, step: WaveStep) -> None:
        """A wave is about to execute the site of a row."""

    def add(self, row: int, values: list[int]) -> None:
        self.counts[row] += len(values)
        self.sums[row] += sum(map(mixed, values))

    def insert(self, task: InstrumentationTask) -> None:
        for row, instruction in enumerate(self.sites):
            self.at(task, instruction, row)

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        """Insert at the site of a row."""

    def truth(self) -> Any:
        seen = self._seen()
        self.unknown |= {row for row, values in seen.items() if self.first[row] != values}
        return self.known(seen)

    def found(self, module: Module, patched: PatchedObject) -> Any:
        if not patched.report.variables:
            return {}
        counts, sums = (np.frombuffer(module.variable(name).read(), np.uint64).tolist() for name in ("counts", "sums"))
        return self.known(dict(enumerate(zip(counts, sums, strict=True))))

    def known(self, rows: dict[int, Any]) -> dict[str, Any]:
        """Return the values to compare."""
        shown = {row: values for row, values in rows.items() if row not in self.unknown and any(values)}
        return {f"{row}: {self.name_of(row)}": values for row, values in shown.items()}

    def name_of(self, row: int) -> str:
        """Return the name for failures."""
        return self.sites[row].text if row < len(self.sites) else ""


def walk(lifted: LiftedRepresentation, probes: list[Probe], filling: int) -> Callable[[WaveStep], None]:
    """A trace that shows every step to every probe. Uninitialised registers start with a value that depends on
    `filling`."""
    descriptor = lifted.kernel.descriptor
    given = max(first + count for first, count in descriptor.sgpr_inputs.values())
    first = 1 if lifted.target.packed_work_item_ids else 1 + descriptor.enable_vgpr_workitem_id
    index_of = {address: index for index, address in enumerate(lifted.columns.address)}
    came: dict[tuple[int, int], int] = {}

    def trace(step: WaveStep) -> None:
        key, index = (step.workgroup, step.wave), index_of[step.address]
        before = came.get(key)
        if before is None:
            for unit in range(given, min(descriptor.sgprs, FLAT_SCRATCH_SGPR)):
                step.registers.set_sgpr(unit, filling * (unit + 1))
            for unit in range(first, descriptor.architected_vgprs):
                step.registers.set_vgpr(unit, filling * (unit + 7))
        came[key] = index
        for probe in probes:
            probe.see(before, index, step)

    return trace
