"""Tools for the differential proof: each uses other hooks, counters or edits, and computes the expected values from a
step-by-step run of the original kernel."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from accesses import take_accesses
from luthier import immediate
from luthier.emulator import Module
from luthier.emulator.inspection.debug import WaveStep
from luthier.errors import HookError, PatchError
from luthier.isa import InstructionFlag, RegisterRange
from luthier.isa.registers import EXEC, SGPR_MASK, SGPRS, mask_of
from luthier.lifting import Instruction
from luthier.objects import load_object
from luthier.patch import PatchedObject
from luthier.patch.registers.lane_masks import matter
from luthier.tool.counts import Cell, CounterBudget
from luthier.tool.hook_budget import OnExcess
from luthier.tool.task import InstrumentationTask
from walks import insert_everywhere

from .probe import ADDRESSES, WORD, Probe, lanes_of, one_file, readable, values_of


class Executions(Probe):
    """Each instruction's, by a hook before it."""

    def step(self, row: int, index: int, step: WaveStep) -> None:
        self.counts[row] += 1

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.wave, immediate(row))


class Hoisted(Executions):
    """Hooks that only count become counters."""

    hoist = True

    def step(self, row: int, index: int, step: WaveStep) -> None:
        self.counts[0] += 1

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.plain)


class LanesBehind(Probe):
    """The lanes that are active behind instructions: EXEC as they leave it."""

    def choose(self, task: InstrumentationTask) -> None:
        flags = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL
        # After a trap, the next instruction is unknown.
        stops = {block.last for block in task.lifted.blocks if not block.successors}
        known = [one for one in task.instructions if one.index not in stops]
        self.sites = self.some([one for one in known if not one.flags & flags and not one.is_call])
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        if before in self.rows:
            self.counts[self.rows[before]] += step.registers.exec.bit_count()

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_after(instruction, self.module.lane, immediate(row))


class Points(Probe):
    """Blocks, edges, loops, functions, entry and exits."""

    def choose(self, task: InstrumentationTask) -> None:
        self.wanted = insert_everywhere(InstrumentationTask(task.lifted), self.module.wave)

    def _forget(self) -> None:
        self.steps: Counter[tuple[int | None, int]] = Counter()

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        self.steps[before, index] += 1

    def insert(self, task: InstrumentationTask) -> None:
        insert_everywhere(task, self.module.wave)

    def _seen(self) -> dict[int, Any]:
        return {
            row: (sum(count for step, count in self.steps.items() if comes(*step)), 0)
            for row, comes in enumerate(self.wanted)
        }


class Registers(Probe):
    """Registers that instructions read, as arguments of hooks before them."""

    def choose(self, task: InstrumentationTask) -> None:
        self.registers = []
        chosen = []
        for instruction in self.some(list(task.instructions)):
            # Functions that are reached by pointers alone may name registers that this kernel does not have.
            has = task.lifted.kernel.descriptor.usable_sgprs
            if given := [register for register in readable(instruction) if not has <= register.units[-1] < SGPRS.stop]:
                chosen.append(instruction)
                self.registers.append(self.rng.choice(given))
        self.sites = chosen
        self.rows = {one.index: row for row, one in enumerate(chosen)}

    def step(self, row: int, index: int, step: WaveStep) -> None:
        self.add(row, self.values(row, step))

    def values(self, row: int, step: WaveStep) -> list[int]:
        """Return the lanes' values. Rows with addresses are not compared, because addresses change from run to run."""
        register = self.registers[row]
        for first in (register.first - 1, register.first):
            pair = RegisterRange(first, 2)
            if one_file(pair) and any(value >> 32 & 0xFFFF in ADDRESSES for value in values_of(step, pair)):
                self.unknown.add(row)
        return values_of(step, register)

    def name_of(self, row: int) -> str:
        return f"{super().name_of(row)} <- {self.registers[row]}"

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        register = self.registers[row]
        hook = self.module.see if register.count == 1 else self.module.see_wide
        task.insert_hook_before(instruction, hook, register, immediate(row))


class Words(Registers):
    """Registers of 32 bits."""

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.registers = [RegisterRange(register.first, 1) for register in self.registers]


class Deep(Words):
    """Hooks with a stack, a loop over it, and recursion."""

    def step(self, row: int, index: int, step: WaveStep) -> None:
        results = []
        for value in self.values(row, step):
            values = [0] * 6
            for k in range(6):
                values[(k + value % 6) % 6] = value ^ k
            result = 1
            for term in values[: value % 6 + 1]:
                result = term * 3 + result * 5 & WORD
            results.append(result)
        self.add(row, results)

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.deep, self.registers[row], immediate(row))


class Records(Words):
    """Records through a channel, each lane its own."""

    def _forget(self) -> None:
        self.records: dict[int, list[int]] = {}

    def _seen(self) -> dict[int, Any]:
        return {row: sorted(values) for row, values in self.records.items()}

    def step(self, row: int, index: int, step: WaveStep) -> None:
        self.records.setdefault(row, []).extend(self.values(row, step))

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.push, self.registers[row], immediate(row))

    def found(self, module: Module, patched: PatchedObject) -> Any:
        records = module.channel("records").records()
        rows: dict[int, list[int]] = {}
        for row, value in zip(records["row"].tolist(), records["value"].tolist(), strict=True):
            rows.setdefault(row, []).append(value)
        return self.known({row: sorted(values) for row, values in rows.items()})

    def known(self, rows: dict[int, Any]) -> dict[str, Any]:
        shown = {row: values for row, values in rows.items() if row not in self.unknown and values}
        return {f"{row}: {self.name_of(row)}": values for row, values in shown.items()}


class Addresses(Probe):
    """Effective addresses in LDS and in the kernel's buffers; other addresses change from run to run."""

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = []
        for instruction in task.instructions:
            access = instruction.memory
            if access is not None and access.count == 1 and instruction.mnemonic.startswith(("global_", "ds_")):
                self.sites.append(instruction)
        self.rows = {one.index: row for row, one in enumerate(self.sites)}
        self.last: int | None = None

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        for access in take_accesses(step.worker):
            row = self.rows.get(-1 if self.last is None else self.last)
            if row is None:
                continue
            hosts = access.places
            if self.sites[row].mnemonic.startswith("ds_"):
                hosts = hosts - np.uint64(step.worker.group_field("lds"))
            elif not all(any(low <= host < high for low, high in self.buffers) for host in hosts.tolist()):
                self.unknown.add(row)
            self.add(row, hosts.tolist())
        self.last = index

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        address = task.effective_address(instruction)
        hook = self.module.short_address if address.expression.bits == 32 else self.module.address
        task.insert_hook_before(instruction, hook, address, immediate(row))


class Branches(Probe):
    """Counts of taken conditional branches."""

    def choose(self, task: InstrumentationTask) -> None:
        lifted = task.lifted
        self.sites = []
        self.goes: dict[int, int] = {}
        for instruction in task.instructions:
            if not instruction.is_conditional:
                continue
            ways = lifted.blocks[instruction.block].successors
            taken = [edge.to for edge in ways if edge.kind == "taken"]
            if len({edge.to for edge in ways}) == 2 and len(taken) == 1:
                self.goes[instruction.index] = lifted.blocks[taken[0]].first
                self.sites.append(instruction)
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        if before in self.rows:
            self.counts[self.rows[before]] += self.goes[before] == index

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.branch, task.predicate(instruction), immediate(row))


class Launches(Probe):
    """Positions of lanes in the grid, at some instructions."""

    def choose(self, task: InstrumentationTask) -> None:
        self.sites = self.some(list(task.instructions))[::7]
        self.rows = {one.index: row for row, one in enumerate(self.sites)}

    def step(self, row: int, index: int, step: WaveStep) -> None:
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

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.launched, task.workgroup_id(0), immediate(row))


class Arguments(Probe):
    """The value of one of the kernel's arguments, at some instructions."""

    def choose(self, task: InstrumentationTask) -> None:
        addresses = iter(self.buffers)
        given = [next(addresses)[0] if isinstance(one, np.ndarray) else one for one in self.plan.materialise()]
        explicit = [one for one in task.lifted.kernel.arguments if not one.hidden]
        self.values = {
            place: int(value) & (1 << 8 * argument.size) - 1
            for place, (argument, value) in enumerate(zip(explicit, given, strict=True))
            if isinstance(value, int | np.integer) and argument.size in (4, 8)
        }
        self.sizes = [argument.size for argument in explicit]
        self.sites = self.some(list(task.instructions))[::7] if self.values else []
        self.rows = {one.index: row for row, one in enumerate(self.sites)}
        self.which = [self.rng.choice(list(self.values)) for _ in self.sites]

    def step(self, row: int, index: int, step: WaveStep) -> None:
        self.add(row, [self.values[self.which[row]]] * len(lanes_of(step)))

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        place = self.which[row]
        hook = self.module.see if self.sizes[place] == 4 else self.module.see_wide
        task.insert_hook_before(instruction, hook, task.kernel_argument(place), immediate(row))


class Sampled(Executions):
    """Hooks in every second work-group."""

    def step(self, row: int, index: int, step: WaveStep) -> None:
        x, y = step.workgroup % self.plan.grid[0], step.workgroup // self.plan.grid[0] % self.plan.grid[1]
        self.counts[row] += (x + y) % 2 == 1

    def insert(self, task: InstrumentationTask) -> None:
        task.sample_workgroups(2, 1)
        super().insert(task)


class Counted(Probe):
    """Counts by register counters, per wave and per lane, under a random register budget, partly into variables."""

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

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
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

    def found(self, module: Module, patched: PatchedObject) -> Any:
        (counters,) = patched.counters.values()
        counts = counters.read(module, module.device.stats.waves)
        return counts.executions.tolist(), counts.active_lanes.tolist(), super().found(module, patched)


EDITS = ("v_nop", "s_nop 1", "replace", "remove", "change")


class Edited(Probe):
    """Instructions that are replaced by themselves, removed and added again, or given their own operands, with
    instructions without effect between them."""

    def insert(self, task: InstrumentationTask) -> None:
        done = Counter[str]()
        for row, instruction in enumerate(self.sites):
            way = EDITS[row % len(EDITS)]
            try:
                if way == "remove":
                    task.add_after(instruction, instruction.text)
                    try:
                        task.remove(instruction)
                    except PatchError:
                        task.edits.pop()
                        raise
                elif way == "change":
                    same = task.operand(instruction, 0)
                    if not isinstance(same, RegisterRange):
                        continue
                    task.change_operand(instruction, 0, same)
                elif way == "replace":
                    task.replace(instruction, instruction.text)
                else:
                    task.add_before(instruction, way)
            except (PatchError, HookError):
                continue
            done[way] += 1
        assert done

    def truth(self) -> Any:
        return None

    def found(self, module: Module, patched: PatchedObject) -> Any:
        return None


class Rows(Probe):
    """Instructions and active lanes of each wave, one row for each wave."""

    refusal = (
        r"nothing can be counted for each wave: it (leaves too few registers|calls unknown functions)|"
        r"a row for each wave needs blockIdx.z, but it reads y of the work-group id without z"
    )

    def choose(self, task: InstrumentationTask) -> None:
        self.size = len(task.lifted.block_of)
        self.indices = [one.index for one in task.instructions]
        self._forget()

    size = 0

    def _forget(self) -> None:
        super()._forget()
        self.waves: dict[tuple[int, int, int, int], tuple[Any, Any]] = {}

    def see(self, before: int | None, index: int, step: WaveStep) -> None:
        width, height, _ = self.plan.grid
        group = step.workgroup
        who = group % width, group // width % height, group // width // height, step.wave
        if who not in self.waves:
            self.waves[who] = np.zeros(self.size, np.int64), np.zeros(self.size, np.int64)
        runs, lanes = self.waves[who]
        runs[index] += 1
        lanes[index] += step.registers.exec.bit_count()

    def insert(self, task: InstrumentationTask) -> None:
        task.wave_rows = 100
        task.count(self.indices, granularity="wave")
        task.count(self.indices, per="lane", granularity="wave")

    def truth(self) -> Any:
        return {
            who: (runs[self.indices].tolist(), lanes[self.indices].tolist())
            for who, (runs, lanes) in self.waves.items()
        }

    def found(self, module: Module, patched: PatchedObject) -> Any:
        (counters,) = patched.counters.values()
        waves = counters.read(module, module.device.stats.waves).waves
        assert waves is not None
        assert not waves.missing
        runs = np.array([waves.executions(index) for index in self.indices]).T.tolist()
        lanes = np.array([waves.active_lanes(index) for index in self.indices]).T.tolist()
        whose = [tuple(who) for who in waves.identity.tolist()]
        assert len(set(whose)) == len(whose)
        return dict(zip(whose, zip(runs, lanes, strict=True), strict=True))


class Called(Words):
    """Hooks so large that they are called rather than repeated."""

    def step(self, row: int, index: int, step: WaveStep) -> None:
        results = []
        for x in self.values(row, step):
            for round in range(4):
                x = ((x ^ x >> 29) * 0xBF58476D1CE4E5B9 + round) & (1 << 64) - 1
            results.append(x)
        self.add(row, results)

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.target, self.wave_size = task.lifted.target, task.lifted.wave_size

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.large, self.registers[row], immediate(row))

    def patched(self, patched: PatchedObject) -> None:
        (report,) = patched.report.kernels
        assert report.calls or report.insertions < 48 or matter(self.target, self.wave_size)


WIDE = 48
"""VGPRs with which the hook `wide` can do, spilling what the kernel has in them."""


class Budgeted(Words):
    """Hooks of many registers within a budget, and what becomes of them where it is not enough."""

    strict = False

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.kernel = task.lifted.kernel
        self.left_out: set[int | None] = set()
        self.on_excess: OnExcess = self.rng.choice(("keep", "refuse", "spill", "sample"))
        # Before a trap, whose handler may read every register, no SGPR is left to spill by.
        live = task.lifted.liveness.live_before
        scalars = {one.index: live(one.index).all_bits & SGPR_MASK for one in self.sites}
        self.crowded = {row for row, one in enumerate(self.sites) if scalars[one.index].bit_count() > 90}
        has = self.kernel.descriptor.architected_vgprs
        self.most = self.rng.choice((None, has, has + 4))

    def step(self, row: int, index: int, step: WaveStep) -> None:
        values = np.array(self.values(row, step), np.uint32)
        part = [values * np.uint32(k + 3) ^ values >> np.uint32(k) for k in range(28)]
        total = np.zeros_like(values)
        for k in range(28):
            total = total * np.uint32(3) + part[k * 5 % 28] * part[k * 11 % 28]
        self.add(row, total.tolist())

    def insert(self, task: InstrumentationTask) -> None:
        task.budget(registers=self.most, on_excess=self.on_excess, every=3)
        super().insert(task)

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.wide, self.registers[row], immediate(row))

    def patched(self, patched: PatchedObject) -> None:
        (report,) = patched.report.kernels
        expected = {"refuse": {"over budget"}, "sample": {"sampled"}}.get(self.on_excess, set())
        for refusal in report.refusals:
            if refusal.kind not in expected and refusal.insertion not in self.crowded:  # where spilling is not possible
                assert refusal.kind in ("over budget", "too few registers")
                spilled = "can be spilled: how much private memory it uses itself" not in refusal.message
                has = int(refusal.message.partition("may have ")[2].split()[0])
                assert not spilled or (self.on_excess != "keep" and has < WIDE), refusal.message
        self.left_out = {one.insertion for one in report.refusals}
        if self.on_excess == "keep":
            return
        after = load_object(patched.data).kernels[self.kernel.name].descriptor.architected_vgprs
        assert not report.excess
        if self.most is None:
            assert report.waves_per_simd[0] == report.waves_per_simd[1]
        else:
            granule = self.kernel.descriptor.target.vgpr_allocation_granule(self.kernel.wave_size)
            assert after <= max(self.kernel.descriptor.architected_vgprs, -(-self.most // granule) * granule)

    def truth(self) -> Any:
        gone = {row: values for row, values in self._seen().items() if row in self.left_out}
        for row in gone:
            del self.counts[row]
        return super().truth()


class Turned(Probe):
    """EXEC, turned by hooks and turned back, between two of them and around scalar instructions: lanes that are active
    meanwhile."""

    def choose(self, task: InstrumentationTask) -> None:
        super().choose(task)
        self.wave_size = task.lifted.wave_size
        self.mask = self.rng.getrandbits(self.wave_size) | 1
        flags = InstructionFlag.TERMINATOR | InstructionFlag.BRANCH | InstructionFlag.CALL
        lanes = mask_of(EXEC)
        self.around = set()
        for row, instruction in enumerate(self.sites):
            effects = task.lifted.effects(instruction.index)
            touched = (effects.reads | effects.writes) & lanes
            unfit = instruction.flags & flags or instruction.is_call or touched
            if instruction.mnemonic.startswith("s_") and not unfit:
                self.around.add(row)

    def step(self, row: int, index: int, step: WaveStep) -> None:
        before = step.registers.exec  # no hook runs without an active lane
        self.counts[row] += (before ^ self.mask).bit_count() if before else 0

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.turn, immediate(self.mask))
        insert = task.insert_hook_after if row in self.around else task.insert_hook_before
        insert(instruction, self.module.lane, immediate(row))
        insert(instruction, self.module.turn, immediate(self.mask))


class Local(Probe):
    """Sums in LDS, one a wave: of weights of instructions."""

    def choose(self, task: InstrumentationTask) -> None:
        x, y, z = self.plan.block
        if x * y * z % task.lifted.wave_size:
            self.sites, self.rows = [], {}  # lanes without a work-item do not know their wave
            return
        super().choose(task)

    def step(self, row: int, index: int, step: WaveStep) -> None:
        if step.registers.exec:
            self.counts[64 * step.workgroup + step.wave] += row + 1

    def insert(self, task: InstrumentationTask) -> None:
        task.insert_hook_at_kernel_entry(self.module.begin)
        super().insert(task)

    def at(self, task: InstrumentationTask, instruction: Instruction, row: int) -> None:
        task.insert_hook_before(instruction, self.module.tick, immediate(row + 1))


PROBES: tuple[type[Probe], ...] = (
    *(Executions, Hoisted, LanesBehind, Points, Registers, Deep, Records, Addresses, Branches, Launches, Arguments),
    *(Sampled, Counted, Edited, Rows, Called, Budgeted, Turned, Local),
)
