"""Counters for what a task wants counted: as few as say it all, in registers, added to where nothing must be saved.

1. Requests become weights of blocks, and of stretches of code between writes of EXEC where active lanes are counted.
2. For each function a spanning tree of its dearest ways leaves the others, the chords, to be counted
   (`luthier.lifting.flow`). A sum that goes to one cell needs one counter, to which each chord adds what its circle
   weighs; a profile needs a counter for each chord.
3. A chord is counted at a point of its block where SCC is dead, or where control falls through a branch, or in a stub
   that a taken branch goes by.
4. Counters live in SGPRs that nothing else touches, chords that a wave goes by at most once in one bit of such, others
   in lanes of a VGPR that nothing else touches, and what is left adds to memory directly.
5. Where a wave ends, each counter gets a lane, and one atomic operation adds all of them to 64-bit cells. Nobody waits
   for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from luthier.counts import CELL_BYTES, Cell, CounterBudget, CountRequest, KernelCounters
from luthier.errors import PatchError
from luthier.isa import InstructionFlag
from luthier.isa.hazard_parties import pairs
from luthier.isa.registers import EXEC, SCC, SGPRS, VCC, VGPRS, bits_of, mask_of
from luthier.isa.waits import is_gds
from luthier.lifting import LiftedRepresentation, Liveness
from luthier.lifting.waits import Outstanding
from luthier.patch.binding import RegisterBudget
from luthier.patch.budget import used_agprs
from luthier.patch.counted_ways import Place
from luthier.patch.counter_code import CounterCode, Held
from luthier.patch.counter_storage import Counter, NoRoom, Storage, store
from luthier.patch.emission import BoundPayload, join
from luthier.patch.hazards import Seams
from luthier.patch.layout import Zone
from luthier.patch.leaving import LeavingCode, LeavingRegisters, can_leave, lanes_for, may_tail
from luthier.patch.neighbours import Neighbours, begins_with
from luthier.patch.pointed import (
    MOST_COMPARED,
    SYMBOLS,
    KeptAddresses,
    called_in_loops,
    likely_functions,
    pointed_functions,
)
from luthier.patch.state import StatePlan
from luthier.patch.wanted_counts import WantedCounts
from luthier.patch.wave_ends import WaveEnd, find_ends
from luthier.patch.wave_rows import RowCode, plan_row, states_for_rows
from luthier.payload import Template
from luthier.payload.launch_state import STATES
from luthier.wave_counts import LARGEST_ROWS, USUAL_ROOM, RowLayout


class Splice(NamedTuple):
    """Code of a counter at an instruction."""

    at: int
    zone: Zone
    payload: BoundPayload


class DirectSplice(NamedTuple):
    """What adds to memory directly: a payload whose registers are still to be found."""

    at: int
    template: Template


@dataclass
class CountingPlan:
    """What counting does to one kernel."""

    entries: list[list[BoundPayload]]
    """For each hardware entry what runs there."""
    reserved: int = 0
    """Bit set of the units that counters are in."""
    splices: list[Splice] = field(default_factory=list)
    direct: list[DirectSplice] = field(default_factory=list)
    sgprs: int = 0
    """SGPRs the kernel needs."""
    vgprs: int = 0
    counters: int = 0
    """Numbers that each wave counts."""
    result: KernelCounters | None = None
    """What the counters of profiles say."""
    leaving: LeavingCode | None = None
    """What goes on to code that nobody knows."""


@dataclass(frozen=True, eq=False)
class HookUse:
    """What the hooks of a task have to do with counting."""

    liveness: Liveness
    """With all that hooks read."""
    units: int
    """Bit set of those that they read or write."""
    points: frozenset[int]
    """Instructions that hooks run before."""
    change_lanes: int | None
    """Instruction of the first of them that writes EXEC."""
    outstanding: Callable[[], Outstanding | None]
    """Finds the application's outstanding operations; None where waits are for more than those."""
    state: StatePlan = field(default_factory=StatePlan)
    """Where launch state is, for them and for rows of waves."""
    alone: bool = False
    """Whether nothing but counters is spliced in: no hooks, no edits."""
    edited: bool = False
    """Whether instructions of the application are changed."""


def cells_symbol(kernel: str) -> str:
    """Name of the variable that holds a kernel's cells in a patched object."""
    return "luthier.counts." + "".join(c if c.isalnum() or c in "._$" else "_" for c in kernel)


def plan_counting(
    lifted: LiftedRepresentation,
    requests: Sequence[CountRequest],
    budget: RegisterBudget,
    hooks: HookUse | None,
    limits: CounterBudget,
    *,
    waves_given: bool = False,
    solvable: Callable[[Cell], bool] = lambda cell: False,
    room: int = USUAL_ROOM,
) -> CountingPlan:
    """Place counters for all requests of a kernel.

    Args:
        budget: the registers it has and may have.
        hooks: what hooks do; None where nothing is to be counted.
        limits: those of them that counters may use.
        waves_given: whether who reads profiles knows how many waves were launched.
        solvable: whether who reads a cell adds what follows from counters like those of profiles.
        room: rows of waves that there is to be room for, where there are such.

    Raises:
        PatchError: something cannot be counted.
    """
    plan = CountingPlan([[] for _ in lifted.hardware_entries])
    if not requests or hooks is None:
        return plan
    if hooks.change_lanes is not None and any(request.per == "lane" for request in requests):
        raise PatchError(
            "active lanes cannot be counted where hooks write EXEC",
            kernel=lifted.kernel.name,
            offset=lifted.columns.address[hooks.change_lanes],
        )
    rows = any(request.granularity == "wave" for request in requests)
    planner = _Planner(
        lifted,
        requests,
        budget,
        hooks,
        limits,
        waves_given=waves_given and not rows,
        solvable=solvable,
        room=room if rows else None,
    )
    try:
        planner.run(plan, each=False)
    except NoRoom:
        if rows:
            unknown = lifted.unknown and not can_leave(lifted)
            why = "control goes where nobody knows" if unknown else "it leaves too few registers"
            raise PatchError(f"nothing can be counted for each wave: {why}", kernel=lifted.kernel.name) from None
        # Ways between blocks want registers. Each block by itself can be counted in memory directly.
        plan = CountingPlan([[] for _ in lifted.hardware_entries])
        try:
            planner.run(plan, each=True)
        except NoRoom:
            raise planner.without_registers("registers") from None
    return plan


def _named_units(lifted: LiftedRepresentation) -> int:
    """Bit set of the units that instructions read or write. A trap handler, which may look at all of them, is none of
    the kernel."""
    native, units = lifted.effect_table.code(lifted.columns), 0
    pseudos, opcodes = lifted.effect_table.pseudos, lifted.columns.opcode
    traps = {number for number in lifted.columns.opcodes if number >= 0 and pseudos[number] == "S_TRAP"}
    for block in lifted.blocks:
        first = block.first
        within = range(block.first, block.last + 1) if traps else ()
        for last in (*(index for index in within if opcodes[index] in traps), block.last + 1):
            if first < last:
                reads, writes, _ = native.together(first, last - 1)
                units |= reads | writes
            first = last + 1
    return units


class _Planner:
    def __init__(
        self,
        lifted: LiftedRepresentation,
        requests: Sequence[CountRequest],
        budget: RegisterBudget,
        hooks: HookUse,
        limits: CounterBudget,
        *,
        waves_given: bool,
        solvable: Callable[[Cell], bool],
        room: int | None,
    ) -> None:
        # With two entries nobody but the hardware knows which of them a wave took.
        self.waves_given = waves_given and len(lifted.hardware_entries) == 1
        self.lifted, self.requests, self.budget, self.hooks, self.limits = lifted, requests, budget, hooks, limits
        self.solvable, self.room = solvable, room
        self.code = CounterCode(lifted.isa)
        self.symbol = cells_symbol(lifted.kernel.name)
        self.in_clause = {index for clause in lifted.clauses for index in range(clause.first, clause.last + 1)}
        self.touched = hooks.units | hooks.state.reserved | _named_units(lifted)
        self.loaded = self._loaded()
        self.exits = dict(self._exits())
        self.flush_before = {block: index for index, block in self.exits.items()}

    def run(self, plan: CountingPlan, *, each: bool) -> None:
        """Fill the plan.

        Args:
            each: whether every block is counted by itself.

        Raises:
            NoRoom: there are too few registers, and it is not.
        """
        wanted = WantedCounts(
            self.lifted,
            self.requests,
            self.symbol,
            waves_given=self.waves_given,
            solvable=self.solvable,
            each=each,
        )
        counters = wanted.counters
        for counter in counters:
            counter.places = [self._point(increment.place) for increment in counter.increments]
            counter.scalar = not all(point is None or self._takes_vectors(point) for point in counter.places)
        ends = self._ends(counters)
        scalars, vectors = self._free()
        leaving = self._leaving_registers(scalars, vectors)
        tails = may_tail(self.lifted)
        if tails and self.room is not None:
            raise PatchError(
                "nothing can be counted for each wave: it jumps to functions that nobody knows, behind which a wave "
                "does not come back to where it can go on counting",
                kernel=self.lifted.kernel.name,
            )
        storage = store(counters, scalars, vectors, self.lifted.wave_size, self.code, in_lanes=tails)
        storage.reserved |= self.hooks.state.reserved | (leaving.units if leaving is not None else 0)
        plan.counters = len(counters)
        groups = storage.groups(counters)
        kept = KeptAddresses()
        if leaving is not None and groups and not tails:
            kept = self._keep_addresses(storage, scalars)
        self._add(plan, counters, storage)
        if kept.pairs:
            for pieces in plan.entries:
                pieces.append(self.code.assemble(kept.lines, SYMBOLS))
        flushed = self._flush(plan, groups, storage, ends)
        rows = self._rows(plan, counters, storage)
        if leaving is not None and groups:
            plan.leaving = self._leave(groups, storage, leaving, kept)
        plan.reserved = storage.reserved
        if groups:
            # The message must not follow anything else at once: LLVM puts an s_nop before it, too.
            released = [index for index in self.exits if index in self.lifted.releases]
            plan.splices += [Splice(index, Zone.BEFORE, self.code.assemble(["s_nop 0"])) for index in released]
        units = [unit for unit in (*bits_of(storage.reserved), *flushed) if unit in SGPRS]
        plan.sgprs = max(units, default=-1) + 1
        units = [unit - VGPRS.start for unit in (*bits_of(storage.reserved), *flushed) if unit in VGPRS]
        plan.vgprs = max(units, default=-1) + 1
        plan.result = wanted.result(rows)

    def without_registers(self, what: str) -> PatchError:
        """That counters cannot get to memory where a wave ends."""
        return PatchError(
            f"no {what} to give counters to memory with",
            kernel=self.lifted.kernel.name,
            offset=self.lifted.columns.address[min(self.exits, default=0)],
        )

    # Where

    def _point(self, place: Place) -> tuple[int, Zone, bool] | None:
        """The instruction and zone at which to count, and whether SCC is live there; None at kernel entry."""
        columns = self.lifted.columns
        if place.kind == "entry":
            return None
        if place.kind == "behind":
            return place.first, Zone.BEHIND, self._scc_live(place.first + 1)
        if place.kind == "taken":
            jumps = {jump.index: jump.target for jump in self.lifted.direct_jumps}
            target = self.lifted.index_at(jumps.get(place.first, columns.target[place.first]))
            return place.first, Zone.TAKEN, target is None or self._scc_live(target)
        flush = self.flush_before.get(self.lifted.blocks[self.lifted.block_of[place.first]].index, place.last)
        if flush < place.first:
            raise PatchError(
                "code behind the end of counting", kernel=self.lifted.kernel.name, offset=columns.address[place.first]
            )
        best: tuple[tuple[bool, ...], int] | None = None
        for index in range(place.first, min(place.last, flush) + 1):
            # In a clause nothing can be inserted without dissolving it, behind a release none without undoing it.
            flaws = (
                self._scc_live(index),
                index in self.in_clause,
                index in self.lifted.released,
                not self._takes_vectors((index, Zone.BEFORE, False)),
            )
            if best is None or flaws < best[0]:
                best = flaws, index
            if not any(flaws):
                break
        assert best is not None
        return best[1], Zone.BEFORE, best[0][0]

    def _takes_vectors(self, point: tuple[int, Zone, bool]) -> bool:
        """Whether vector instructions mean at a point what they say: in VGPR index mode and in vector skip mode they do
        not."""
        index, zone, _ = point
        lifted = self.lifted
        places = {index + 1} if zone == Zone.BEHIND else {index}  # a branch does not change modes
        return not any(place in lifted.index_mode or place in lifted.skipped for place in places)

    def _scc_live(self, index: int) -> bool:
        return bool(self.hooks.liveness.live_before(index).all_bits >> SCC & 1)

    def _exits(self) -> Iterator[tuple[int, int]]:
        """Instructions before which counters go to memory, with their blocks."""
        lifted = self.lifted
        for block in lifted.blocks:
            if block.exit != "end":
                continue
            last = block.last
            # Before vector registers are given back, unless what is spliced in behind that makes the wave keep them.
            releases = [index for index in lifted.releases if block.first <= index < last]
            if releases and not any(index in self.hooks.points for index in range(releases[0] + 1, last + 1)):
                last = releases[0]
            yield last, block.index

    @property
    def _cannot_end(self) -> bool:
        """Whether nothing can be counted until a wave ends: counters must get away there, and before all that a callee
        does that nobody knows."""
        lifted = self.lifted
        restricted = any(index in lifted.restrictions or index in lifted.index_mode for index in self.exits)
        return restricted or not can_leave(lifted)

    def _free(self) -> tuple[list[int], list[int]]:
        """SGPR and VGPR units that counters may have: nothing else ever uses them."""
        lifted = self.lifted
        if self._cannot_end:
            return [], []
        inputs = 0
        for first, count in lifted.kernel.descriptor.sgpr_inputs.values():
            inputs |= (1 << count) - 1 << first
        used = self.touched | inputs
        if lifted.target.scalar_wait is not None:  # else additions would wait for what vector instructions read beside
            used = pairs(used)
        scalars = [u for u in SGPRS[: self.budget.sgpr_limit] if not used >> u & 1]
        # Where upper bits of VGPR numbers are not always 0, additions to a VGPR would not always find it.
        named = VGPRS[: 0 if lifted.vgpr_bits else self.budget.vgpr_limit]
        if lifted.unknown:  # code that nobody knows may use all that the kernel has
            named = named[self.budget.vgprs :]
        vectors = [u for u in named if not self.touched >> u & 1]
        return scalars[: self.limits.sgprs], vectors[: self.limits.vgprs]

    def _leaving_registers(self, scalars: list[int], vectors: list[int]) -> LeavingRegisters | None:
        """What is needed on the way to code that nobody knows, taken from free units: of these none is left if there is
        too little. None as well if no way leads there."""
        if not self.lifted.unknown:
            return None
        found = LeavingRegisters.take(scalars, vectors)
        if found is None:
            scalars.clear()
            vectors.clear()
        return found

    def _keep_addresses(self, storage: Storage, scalars: Sequence[int]) -> KeptAddresses:
        """Take SGPRs that the kernel has and counters leave for the addresses of functions that pointers often lead to,
        and to look up others; two remain for those where waves end."""
        spared, _ = self._address_registers(storage)
        free = [unit for unit in scalars if not storage.reserved >> unit & 1 and unit < self.budget.sgprs]
        pairs = [unit for unit in free if unit % 2 == 0 and unit + 1 in free and unit != spared]
        many = len(pointed_functions(self.lifted)) > MOST_COMPARED
        search = pairs.pop(0) if many and pairs else None
        likely = likely_functions(self.lifted) if called_in_loops(self.lifted) else ()
        kept = KeptAddresses(dict(zip(likely, pairs, strict=False)), search)
        storage.reserved |= kept.units
        return kept

    def _leave(
        self,
        groups: Sequence[Sequence[Counter]],
        storage: Storage,
        registers: LeavingRegisters,
        kept: KeptAddresses,
    ) -> LeavingCode:
        batches = [batch for group in groups if (batch := storage.batch(group, {}, whole=False)) is not None]
        units = mask_of(unit for held in storage.held.values() for unit in (held.low, held.high) if unit is not None)
        keeping: list[int] = []
        if self.room is not None:
            needed = lanes_for(units, self.lifted.wave_size)
            keeping = storage.take([unit for unit in self._free()[1] if not storage.reserved >> unit & 1], needed)
            if len(keeping) < needed:
                raise NoRoom
        return LeavingCode(
            self.lifted,
            self.code,
            registers,
            batches,
            units,
            self._between,
            keeping,
            kept,
            alone=self.hooks.alone,
        )

    # Code

    def _add(self, plan: CountingPlan, counters: Sequence[Counter], storage: Storage) -> None:
        """What sets counters up and adds to them."""
        initial: list[dict[Held, int]] = [{} for _ in self.lifted.hardware_entries]
        lanes: list[list[tuple[Held, int, bool]]] = [[] for _ in self.lifted.hardware_entries]
        for counter in counters:
            held = storage.held.get(counter)
            if counter.known:
                continue
            if held is not None:
                for values in initial:
                    values.setdefault(held, 0)
            for increment, point in zip(counter.increments, counter.places, strict=True):
                amount = increment.amount << storage.bit.get(counter, 0)
                if held is None:
                    if point is None or point[1] != Zone.BEFORE:
                        raise NoRoom
                    if point[0] in self.lifted.restrictions:
                        raise PatchError(
                            f"no code can be inserted {self.lifted.restrictions[point[0]]}",
                            kernel=self.lifted.kernel.name,
                            offset=self.lifted.columns.address[point[0]],
                        )
                    template = self.code.direct(amount, counter.symbol, counter.offset, lanes=increment.lanes)
                    plan.direct.append(DirectSplice(point[0], template))
                elif point is None:
                    entry = increment.place.first
                    if increment.lanes:
                        lanes[entry].append((held, amount, counter.single))
                    else:
                        initial[entry][held] += amount
                else:
                    index, zone, scc_live = point
                    payload = self.code.add(
                        held,
                        amount,
                        lanes=increment.lanes,
                        scc_live=scc_live,
                        temporaries=storage.temporaries,
                        read=any(one.lane is not None for one in storage.held.values()),
                        first=counter.single,
                    )
                    plan.splices.append(Splice(index, zone, payload))
        for pieces, values, counted in zip(plan.entries, initial, lanes, strict=True):
            if values:
                pieces.append(self.code.start(list(values.items()), counted, storage.temporaries))

    def _loaded(self) -> int:
        """Bit set of the units that memory operations give late, and of those that some read late."""
        lifted, flag = self.lifted, InstructionFlag
        reading, giving = int(flag.EXPORT | flag.GWS | flag.DS), int(flag.LOAD | flag.SIDE_EFFECTS)
        lds = int(flag.DS)
        loaded = 0
        for index, (flags, block) in enumerate(zip(lifted.code.flags.tolist(), lifted.block_of, strict=True)):
            if block < 0:
                continue
            if flags & giving:
                loaded |= lifted.effects(index).writes
            if flags & reading:
                opcode = lifted.isa.opcode(lifted.columns.opcode[index])
                if not flags & lds or is_gds(opcode, lifted.columns.values(index)):
                    loaded |= lifted.effects(index).reads
        return loaded

    def _ends(self, counters: Sequence[Counter]) -> list[WaveEnd]:
        """Where counters go to memory; notes which of them need no register for that."""
        lifted = self.lifted
        # Rows say what registers hold; and in code that nobody knows waves may end anyhow.
        if self._cannot_end or self.room is not None or lifted.unknown:
            return [WaveEnd(index, Zone.BEFORE, index, {}) for index in self.exits]
        ends = find_ends(lifted, self.exits, counters, apart=self.hooks.alone)
        for counter in counters:
            counter.known = bool(ends) and all(counter in end.values for end in ends)
        return ends

    def _flush(
        self, plan: CountingPlan, groups: Sequence[Sequence[Counter]], storage: Storage, ends: Sequence[WaveEnd]
    ) -> list[int]:
        """What gives counters to memory where waves end; the units used for it."""
        if not groups:
            return []
        seams, neighbours = Seams(self.lifted), Neighbours(self.lifted, edited=self.hooks.edited)
        scalars, fresh = self._address_registers(storage)
        vectors = self._vectors(storage)
        used = mask_of((*vectors, scalars, scalars + 1, *EXEC, *VCC, SCC))
        outstanding = self.hooks.outstanding() if used & self.loaded else None
        for end in ends:
            # What would be behind restores what a wave that ends needs no more.
            before, _ = seams.at(end.exit, end.exit)
            lines = [*before, *self._waits(end.exit, used, outstanding)]
            unread = fresh
            for group in groups:
                forms = [storage.batch(group, end.values, whole=whole) for whole in (False, True)]
                payloads = [
                    (self.code.flush(batch, vectors, scalars, lines, fresh=unread), batch) for batch in forms if batch
                ]
                if not payloads:
                    continue
                payload, batch = min(payloads, key=lambda one: one[0].instructions)
                point = end.at + (end.zone == Zone.BEHIND)
                states = neighbours.before(point, end.at, begins_with(self.lifted.isa, payload.code))
                if states:
                    payload = join([self.code.assemble(states), payload])
                unread &= batch.in_a_row
                plan.splices.append(Splice(end.at, end.zone, payload))
                lines = self._between
        return [*vectors, scalars, scalars + 1]

    def _rows(self, plan: CountingPlan, counters: Sequence[Counter], storage: Storage) -> RowLayout | None:
        """What writes rows of waves where they end, behind what gives counters to memory.

        Raises:
            NoRoom: something is counted in memory only.
            PatchError: the kernel cannot tell who a wave is, or there are too many rows.
        """
        if self.room is None:
            return None
        name, state = self.lifted.kernel.name, self.hooks.state
        for wanted in states_for_rows(self.lifted.target):
            if reason := state.missing.get(wanted):
                raise PatchError(f"a row for each wave needs {STATES[wanted].what}, but {reason}", kernel=name)
        mine = [counter for counter in counters if counter.symbol == self.symbol]
        if any(counter not in storage.held for counter in mine):
            raise NoRoom
        row = plan_row((storage.held[counter] for counter in mine), self.lifted.wave_size)
        mine.sort(key=lambda counter: counter.offset)
        values = tuple(row.word(storage.held[counter], storage.bit.get(counter)) for counter in mine)
        layout = RowLayout(CELL_BYTES * len(mine), self.room, row.words, values)
        if self.room < 0 or layout.size > LARGEST_ROWS:
            raise PatchError(
                f"{self.room} rows of {4 * row.words} bytes are not between 0 and {LARGEST_ROWS >> 20} MiB", kernel=name
            )
        scalars, _ = self._address_registers(storage)
        code = RowCode(self.lifted.isa, self.code, state.places, self._vectors(storage), scalars)
        settle = self.lifted.target.lane_mask_wait
        payload = code.write(row, layout, self.symbol, [*self._between, *([] if settle is None else [settle])])
        plan.splices += [Splice(index, Zone.BEFORE, payload) for index in self.exits]
        return layout

    @property
    def _between(self) -> list[str]:
        """What to wait for before registers are overwritten that a memory instruction of counters takes."""
        target = self.lifted.target
        waits = [] if target.replay_wait is None else [target.replay_wait]
        return [*waits, *target.wait_for_everything] if target.waits_free_sgprs else waits

    def _address_registers(self, storage: Storage) -> tuple[int, bool]:
        """First of two SGPRs for addresses when a wave ends, and whether nothing else ever used them: payloads of hooks
        get their registers later, and may use them."""
        limit = self.budget.sgpr_limit - 1
        pairs = [unit for unit in SGPRS[:limit:2] if not storage.reserved >> unit & 3]
        for unit in pairs:
            if unit < self.budget.sgprs - 1 and not self.touched >> unit & 3:
                return unit, not self.hooks.points
        if not pairs:
            raise NoRoom
        return pairs[0], False

    def _waits(self, index: int, used: int, outstanding: Outstanding | None) -> tuple[str, ...]:
        """What to wait for where a wave ends before registers are overwritten: results that nobody reads may be on
        their way there."""
        limits = None if outstanding is None else outstanding.needed(index, used, used)
        if outstanding is not None and limits is not None:
            return outstanding.model.text(limits)
        return self.lifted.target.wait_for_every_load if used & self.loaded else ()

    def _vectors(self, storage: Storage) -> tuple[int, int, int, int]:
        """VGPRs for the end of a wave, twice two neighbours."""
        loaded = self.loaded
        free = [unit for unit in VGPRS[: self.budget.vgpr_limit] if not storage.reserved >> unit & 1]
        here = [unit for unit in free if unit < VGPRS.start + self._allocated()]
        for units in ([unit for unit in here if not loaded >> unit & 1], here, free):
            pairs = [low for low in units if low % 2 == 0 and low + 1 in units]
            if len(pairs) >= 2:
                return pairs[0], pairs[0] + 1, pairs[1], pairs[1] + 1
        raise self.without_registers("vector registers")

    def _allocated(self) -> int:
        """VGPRs that the kernel may have without another step of what the hardware gives out."""
        target, descriptor = self.lifted.target, self.lifted.kernel.descriptor
        granule = target.vgpr_allocation_granule(self.lifted.wave_size)
        allocated = -(-descriptor.vgprs // granule) * granule
        if target.unified_vgprs:
            allocated = (allocated - used_agprs(self.lifted)) // 4 * 4
        return max(self.budget.vgprs, min(allocated, self.budget.vgpr_limit))
