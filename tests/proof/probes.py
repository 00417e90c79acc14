"""Tools for the differential proof: each asks hooks, counters or edits for something else, and each knows from a
step-by-step run of the original kernel what it must find."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from luthier import immediate
from luthier.counts import Cell, CounterBudget
from luthier.emulator import Module
from luthier.emulator.inspection.debug import Step
from luthier.errors import PatchError
from luthier.isa import InstructionFlag, RegisterRange
from luthier.isa.registers import AGPRS, EXEC_LO, FLAT_SCRATCH_SGPR, SGPRS, VCC_LO, VGPRS
from luthier.launch_plan import LaunchPlan
from luthier.lifting import Instruction, LiftedRepresentation
from luthier.module import ToolModule
from luthier.task import InstrumentationTask
from walks import insert_everywhere

ROWS = 8192
SITES = 300
"""Of a kernel at most."""
WORD = 0xFFFFFFFF
ADDRESSES = range(0x5000, 0x8000)
"""Bits 32 to 47 of what lies in the memory of a process, and so of the emulated device."""

SOURCE = f"""
#include <luthier/channel.h>
__device__ unsigned long long sums[{ROWS}], counts[{ROWS}];
__device__ inline unsigned long long mixed(unsigned long long x) {{
  x = (x + 1) * 0x9E3779B97F4A7C15ull;
  return x ^ x >> 31;
}}
__device__ inline void add(uint32_t row, unsigned long long value) {{
  atomicAdd(&counts[row], 1ull);
  atomicAdd(&sums[row], mixed(value));
}}
LUTHIER_HOOK_ANNOTATE wave(uint32_t row) {{ luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[row], 1); }}
LUTHIER_HOOK_ANNOTATE plain() {{ luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[0], 1); }}
LUTHIER_HOOK_ANNOTATE lane(uint32_t row) {{ atomicAdd(&counts[row], 1ull); }}
LUTHIER_HOOK_ANNOTATE see(uint32_t value, uint32_t row) {{ add(row, value); }}
LUTHIER_HOOK_ANNOTATE see_wide(uint64_t value, uint32_t row) {{ add(row, value); }}
LUTHIER_HOOK_ANNOTATE address(uint64_t value, uint32_t row) {{ add(row, value); }}
LUTHIER_HOOK_ANNOTATE short_address(uint32_t value, uint32_t row) {{ add(row, value); }}
LUTHIER_HOOK_ANNOTATE branch(bool taken, uint32_t row) {{
  luthier::sAtomicAdd<uint64_t>((uint64_t *)&counts[row], taken);
}}
LUTHIER_HOOK_ANNOTATE launched(uint32_t group, uint32_t row) {{
  add(row, group * 1000003ull + threadIdx.x + 1024 * threadIdx.y + (threadIdx.z << 20) + (uint64_t(blockDim.x) << 32) +
               (uint64_t(gridDim.y) << 48));
}}
__device__ __attribute__((noinline)) uint32_t folded(const uint32_t *values, uint32_t count) {{
  return count == 0 ? 1 : values[count - 1] * 3 + folded(values, count - 1) * 5;
}}
LUTHIER_HOOK_ANNOTATE deep(uint32_t value, uint32_t row) {{
  uint32_t values[6];
  for (uint32_t k = 0; k < 6; k++)
    values[(k + value % 6) % 6] = value ^ k;
  add(row, folded(values, value % 6 + 1));
}}
struct Record {{
  uint32_t row, value;
}};
LUTHIER_RECORD(Record, row, value)
__device__ luthier::channel<Record> records{{1024}};
LUTHIER_HOOK_ANNOTATE push(uint32_t value, uint32_t row) {{ records.push(Record{{row, value}}); }}
"""


def mixed(value: int) -> int:
    x = (value + 1) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
    return x ^ x >> 31


def lanes_of(step: Step) -> list[int]:
    """Those that are active."""
    mask = step.registers.exec
    return [lane for lane in range(step.registers.wave_size) if mask >> lane & 1]


def values_of(step: Step, register: RegisterRange) -> list[int]:
    """What each active lane sees of a register of 32 or 64 bits."""
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
    found = []
    for one in instruction.uses.ranges():
        first = one.first
        if (first in SGPRS and first < FLAT_SCRATCH_SGPR) or first in VGPRS or first in AGPRS:
            found += [RegisterRange(unit, 1) for unit in one.units]
            found += [RegisterRange(unit, 2) for unit in one.units if unit % 2 == 0 and unit + 1 in one.units]
    return found


class Probe:
    """A tool with its truth.

    `choose` is called once, then `see` for each step of the original, which is run twice with `again` between, then
    `insert` when the kernel is patched, then `found` with the patched kernel's module, which is compared with `truth`.
    What differs in the original's two runs, as addresses of code do, is not compared.
    """

    budget: CounterBudget | None = None
    hoist = False

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
        """At most so many as are affordable."""
        if len(instructions) <= SITES:
            return instructions
        return sorted(self.rng.sample(instructions, SITES), key=lambda one: one.index)

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = self.some(list(task.instructions))
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def see(self, before: int | None, index: int, step: Step) -> None:
        row = self.rows.get(index)
        if row is not None:
            self.step(row, index, step)

    def step(self, row: int, index: int, step: Step) -> None:
        """A wave is about to execute the site of a row."""

    def add(self, row: int, values: list[int]) -> None:
        self.counts[row] += len(values)
        self.sums[row] += sum(map(mixed, values))

    def insert(self, task: InstrumentationTask) -> None:
        for row, one in enumerate(self.sites):
            self.at(task, one, row)

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        """Insert at the site of a row."""

    def truth(self) -> Any:
        seen = self._seen()
        self.unknown |= {row for row, values in seen.items() if self.first[row] != values}
        return self.known(seen)

    def found(self, module: Module, patched: Any) -> Any:
        if not patched.report.variables:
            return {}
        counts, sums = (np.frombuffer(module.variable(name).read(), np.uint64).tolist() for name in ("counts", "sums"))
        return self.known(dict(enumerate(zip(counts, sums, strict=True))))

    def known(self, rows: dict[int, Any]) -> dict[str, Any]:
        """What is to be compared."""
        shown = {row: values for row, values in rows.items() if row not in self.unknown and any(values)}
        return {f"{row}: {self.name_of(row)}": values for row, values in shown.items()}

    def name_of(self, row: int) -> str:
        """What failures call it."""
        return self.sites[row].text if row < len(self.sites) else ""


class Executions(Probe):
    """Each instruction's, by a hook before it."""

    def step(self, row: int, index: int, step: Step) -> None:
        self.counts[row] += 1

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.wave, immediate(row))


class Hoisted(Executions):
    """Hooks that only count become counters."""

    hoist = True

    def step(self, row: int, index: int, step: Step) -> None:
        self.counts[0] += 1

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.plain)


class LanesBehind(Probe):
    """The lanes that are active behind instructions: EXEC as they leave it."""

    def choose(self, task: InstrumentationTask) -> None:
        flags = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL
        self.sites = self.some([one for one in task.instructions if not one.flags & flags and not one.is_call])
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def see(self, before: int | None, index: int, step: Step) -> None:
        if before in self.rows:
            self.counts[self.rows[before]] += step.registers.exec.bit_count()

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_after(one, self.module.lane, immediate(row))


class Points(Probe):
    """Blocks, edges, loops, functions, entry and exits."""

    def choose(self, task: InstrumentationTask) -> None:
        self.wanted = insert_everywhere(InstrumentationTask(task.lifted), self.module.wave)

    def _forget(self) -> None:
        self.steps: Counter[tuple[int | None, int]] = Counter()

    def see(self, before: int | None, index: int, step: Step) -> None:
        self.steps[before, index] += 1

    def insert(self, task: InstrumentationTask) -> None:
        insert_everywhere(task, self.module.wave)

    def _seen(self) -> dict[int, Any]:
        return {
            row: (sum(count for step, count in self.steps.items() if comes(*step)), 0)
            for row, comes in enumerate(self.wanted)
        }


class Registers(Probe):
    """What instructions read, as arguments of hooks before them."""

    def choose(self, task: InstrumentationTask) -> None:
        self.registers = []
        chosen = []
        for one in self.some(list(task.instructions)):
            if given := readable(one):
                chosen.append(one)
                self.registers.append(self.rng.choice(given))
        self.sites = chosen
        self.rows = {one.index: row for row, one in enumerate(chosen)}

    def step(self, row: int, index: int, step: Step) -> None:
        self.add(row, self.values(row, step))

    def values(self, row: int, step: Step) -> list[int]:
        """What the lanes see. Rows with addresses are not compared: they lie elsewhere when the kernel runs again."""
        register = self.registers[row]
        for first in (register.first - 1, register.first):
            pair = RegisterRange(first, 2)
            if one_file(pair) and any(value >> 32 & 0xFFFF in ADDRESSES for value in values_of(step, pair)):
                self.unknown.add(row)
        return values_of(step, register)

    def name_of(self, row: int) -> str:
        return f"{super().name_of(row)} <- {self.registers[row]}"

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        register = self.registers[row]
        hook = self.module.see if register.count == 1 else self.module.see_wide
        task.insert_hook_before(one, hook, register, immediate(row))


class Deep(Registers):
    """Hooks with a stack, a loop over it, and recursion."""

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.registers = [RegisterRange(register.first, 1) for register in self.registers]

    def step(self, row: int, index: int, step: Step) -> None:
        results = []
        for value in self.values(row, step):
            values = [0] * 6
            for k in range(6):
                values[(k + value % 6) % 6] = value ^ k
            result = 1
            for one in values[: value % 6 + 1]:
                result = one * 3 + result * 5 & WORD
            results.append(result)
        self.add(row, results)

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.deep, self.registers[row], immediate(row))


class Records(Registers):
    """Records through a channel, each lane its own."""

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.registers = [RegisterRange(register.first, 1) for register in self.registers]

    def _forget(self) -> None:
        self.records: dict[int, list[int]] = {}

    def _seen(self) -> dict[int, Any]:
        return {row: sorted(values) for row, values in self.records.items()}

    def step(self, row: int, index: int, step: Step) -> None:
        self.records.setdefault(row, []).extend(self.values(row, step))

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.push, self.registers[row], immediate(row))

    def found(self, module: Module, patched: Any) -> Any:
        records = module.channel("records").records()
        rows: dict[int, list[int]] = {}
        for row, value in zip(records["row"].tolist(), records["value"].tolist(), strict=True):
            rows.setdefault(row, []).append(value)
        return self.known({row: sorted(values) for row, values in rows.items()})

    def known(self, rows: dict[int, Any]) -> dict[str, Any]:
        shown = {row: values for row, values in rows.items() if row not in self.unknown and values}
        return {f"{row}: {self.name_of(row)}": values for row, values in shown.items()}


class Addresses(Probe):
    """Effective addresses in LDS, and in buffers that the kernel was given: others are elsewhere when it runs again."""

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = []
        for one in task.instructions:
            access = one.memory
            if access is not None and access.count == 1 and one.mnemonic.startswith(("global_", "ds_")):
                self.sites.append(one)
        self.rows = {one.index: row for row, one in enumerate(self.sites)}
        self.last: int | None = None

    def see(self, before: int | None, index: int, step: Step) -> None:
        for access in step.worker.take_accesses():
            row = self.rows.get(-1 if self.last is None else self.last)
            if row is None:
                continue
            hosts = access.hosts
            if self.sites[row].mnemonic.startswith("ds_"):
                hosts = hosts - np.uint64(step.worker.group_field("lds"))
            elif not all(any(low <= host < high for low, high in self.buffers) for host in hosts.tolist()):
                self.unknown.add(row)
            self.add(row, hosts.tolist())
        self.last = index

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        address = task.effective_address(one)
        hook = self.module.short_address if address.expression.bits == 32 else self.module.address
        task.insert_hook_before(one, hook, address, immediate(row))


class Branches(Probe):
    """How often each conditional branch is taken."""

    def choose(self, task: InstrumentationTask) -> None:
        lifted = task.lifted
        self.sites = []
        self.goes: dict[int, int] = {}
        for one in task.instructions:
            if not one.is_conditional:
                continue
            ways = lifted.blocks[one.block].successors
            taken = [edge.to for edge in ways if edge.kind == "taken"]
            if len({edge.to for edge in ways}) == 2 and len(taken) == 1:
                self.goes[one.index] = lifted.blocks[taken[0]].first
                self.sites.append(one)
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def see(self, before: int | None, index: int, step: Step) -> None:
        if before in self.rows:
            self.counts[self.rows[before]] += self.goes[before] == index

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.branch, task.predicate(one), immediate(row))


class Launches(Probe):
    """Where in the grid every lane is, at some instructions."""

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = self.some(list(task.instructions))[::7]
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def step(self, row: int, index: int, step: Step) -> None:
        width, height, _ = self.plan.block
        group = step.workgroup % self.plan.grid[0]
        values = []
        for lane in lanes_of(step):
            item = step.wave * step.registers.wave_size + lane
            x, y, z = item % width, item // width % height, item // (width * height)
            if z >= self.plan.block[2]:  # a lane without a work-item, in whole-wave mode
                self.unknown.add(row)
            sizes = (width << 32) + (self.plan.grid[1] << 48)
            values.append(group * 1000003 + x + 1024 * y + (z << 20) + sizes)
        self.add(row, values)

    def at(self, task: InstrumentationTask, one: Instruction, row: int) -> None:
        task.insert_hook_before(one, self.module.launched, task.workgroup_id(0), immediate(row))


class Sampled(Executions):
    """Hooks in every second work-group."""

    def step(self, row: int, index: int, step: Step) -> None:
        x, y = step.workgroup % self.plan.grid[0], step.workgroup // self.plan.grid[0] % self.plan.grid[1]
        self.counts[row] += (x + y) % 2 == 1

    def insert(self, task: InstrumentationTask) -> None:
        task.sample_workgroups(2, 1)
        super().insert(task)


class Counted(Probe):
    """Everything by register counters, per wave and per lane, with registers as scarce as chance has it, and some of it
    into variables."""

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.size = len(task.lifted.block_of)
        self._forget()
        self.budget = self.rng.choice(
            [CounterBudget(), CounterBudget(sgprs=4), CounterBudget(0, 1), CounterBudget(0, 0), CounterBudget(2, 0)]
        )
        self.given = self.rng.random() < 0.5
        self.cells = {row: self.rng.randrange(1, 9) for row in range(0, len(self.sites), 5)}

    size = 0

    def _forget(self) -> None:
        super()._forget()
        self.executions, self.lanes = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)

    def see(self, before: int | None, index: int, step: Step) -> None:
        active = step.registers.exec.bit_count()
        self.executions[index] += 1
        self.lanes[index] += active
        row = self.rows.get(index)
        if row in self.cells:
            self.counts[row] += self.cells[row] * active

    def insert(self, task: InstrumentationTask) -> None:
        task.waves_given = self.given
        everything = list(task.instructions)
        task.count(everything)
        task.count(everything, per="lane")
        for row, weight in self.cells.items():
            task.count(self.sites[row], weight, "lane", Cell(self.module, "counts", row))

    def truth(self) -> Any:
        return self.executions.tolist(), self.lanes.tolist(), super().truth()

    def found(self, module: Module, patched: Any) -> Any:
        (counters,) = patched.counters.values()
        counts = counters.read(module, module.device.stats.waves)
        return counts.executions.tolist(), counts.active_lanes.tolist(), super().found(module, patched)


class Edited(Probe):
    """Instructions that are replaced by themselves, and others between that change nothing."""

    def insert(self, task: InstrumentationTask) -> None:
        edited = 0
        for row, one in enumerate(self.sites):
            try:
                if row % 3 == 0:
                    task.add_before(one, "v_nop")
                elif row % 3 == 1:
                    task.add_before(one, "s_nop 1")
                else:
                    task.replace(one, one.text)
                edited += 1
            except PatchError:
                continue
        assert edited

    def truth(self) -> Any:
        return None

    def found(self, module: Module, patched: Any) -> Any:
        return None


PROBES: tuple[type[Probe], ...] = (
    *(Executions, Hoisted, LanesBehind, Points, Registers, Deep, Records, Addresses, Branches, Launches, Sampled),
    *(Counted, Edited),
)


def walk(lifted: LiftedRepresentation, probes: list[Probe], filling: int) -> Callable[[Step], None]:
    """A trace that shows every probe every step. Registers that nobody has filled begin with another value for each
    `filling`."""
    descriptor = lifted.kernel.descriptor
    given = max(first + count for first, count in descriptor.sgpr_inputs.values())
    first = 1 if lifted.target.packed_work_item_ids else 1 + descriptor.enable_vgpr_workitem_id
    index_of = {address: index for index, address in enumerate(lifted.columns.address)}
    came: dict[tuple[int, int], int] = {}

    def trace(step: Step) -> None:
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
