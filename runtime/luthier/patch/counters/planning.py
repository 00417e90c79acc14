"""Placement of counters for a task's requests: the minimum number, in registers, at points where nothing must be saved.

1. Requests become weights of blocks, and for active lanes, of stretches of code between writes of EXEC.
2. In each function a spanning tree of the most expensive edges leaves the other edges, the chords, to be counted
   (`luthier.lifting.flow`). A sum into one cell needs one counter, to which each chord adds the weight of its cycle; a
   profile needs a counter for each chord.
3. A chord is counted at a point of its block where SCC is dead, on the fall-through of a branch, or in a stub on a
   taken branch.
4. Counters are in SGPRs that nothing else uses, chords that a wave passes at most once are single bits of these, and
   others are in lanes of an unused VGPR. The remaining counters add to memory directly.
5. At the end of a wave each counter gets a lane, and one atomic operation adds all of them to 64-bit cells, without a
   wait.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from luthier.errors import PatchError
from luthier.hazards.insertion import Boundaries
from luthier.hazards.wait_counters import Outstanding
from luthier.isa.registers import EXEC, SCC, SGPRS, VCC, VGPRS, bits_of, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.boundary.neighbours import Neighbours, begins_with
from luthier.patch.counters.code import CounterCode, Held
from luthier.patch.counters.counted_edges import CountingPoint
from luthier.patch.counters.leaving import LeavingCode, LeavingRegisters, can_leave, lanes_for, may_tail
from luthier.patch.counters.plan import CountingPlan, DirectSplice, HookUse, Splice, cells_symbol
from luthier.patch.counters.registers import CounterRegisters
from luthier.patch.counters.requests import WantedCounts
from luthier.patch.counters.storage import CounterStorage, NoRoom, WaveCounter, store
from luthier.patch.counters.wave_ends import WaveEnd, find_ends
from luthier.patch.counters.wave_rows import RowCode, plan_row, states_for_rows
from luthier.patch.payloads.code import join
from luthier.patch.payloads.likely_targets import (
    MOST_COMPARED,
    SYMBOLS,
    KeptAddresses,
    called_in_loops,
    likely_functions,
    pointed_functions,
)
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers.binding import RegisterBudget
from luthier.payload.launch_state import STATES
from luthier.tool.counts import CELL_BYTES, Cell, CountRequest
from luthier.tool.options import PatchOptions
from luthier.tool.wave_counts import LARGEST_ROWS, RowLayout


def plan_counting(
    lifted: LiftedRepresentation,
    requests: Sequence[CountRequest],
    budget: RegisterBudget,
    hooks: HookUse | None,
    options: PatchOptions,
) -> CountingPlan:
    """Place counters for all requests of a kernel.

    Args:
        budget: the registers it has and may have.
        hooks: what hooks do; None where nothing is to be counted.
        options: which registers counters may use, and what their readers know.

    Raises:
        PatchError: something cannot be counted.
    """
    plan = CountingPlan([[] for _ in lifted.hardware_entries])
    if not requests or hooks is None:
        return plan
    if hooks.change_lanes is not None and any(request.per == "lane" for request in requests):
        raise PatchError(
            "active lanes cannot be counted where hooks or added instructions write EXEC",
            kernel=lifted.kernel.name,
            offset=lifted.columns.address[hooks.change_lanes],
        )
    rows = any(request.granularity == "wave" for request in requests)
    planner = _CounterPlanner(lifted, requests, budget, hooks, options, rows=rows)
    try:
        planner.run(plan, each=False)
    except NoRoom:
        if rows:
            unknown = lifted.unknown and not can_leave(lifted)
            why = "it calls unknown functions" if unknown else "it leaves too few registers"
            raise PatchError(f"nothing can be counted for each wave: {why}", kernel=lifted.kernel.name) from None
        # Counts of edges need registers, but counts of separate blocks can be added to memory directly.
        plan = CountingPlan([[] for _ in lifted.hardware_entries])
        try:
            planner.run(plan, each=True)
        except NoRoom:
            raise planner.registers.missing("registers") from None
    return plan


class _CounterPlanner:
    def __init__(
        self,
        lifted: LiftedRepresentation,
        requests: Sequence[CountRequest],
        budget: RegisterBudget,
        hooks: HookUse,
        options: PatchOptions,
        *,
        rows: bool,
    ) -> None:
        # With two entries, it is unknown which of them a wave took.
        self.waves_given = options.waves_given and not rows and len(lifted.hardware_entries) == 1
        self.lifted, self.requests, self.budget, self.hooks = lifted, requests, budget, hooks
        self.solve_sums = options.solve_sums
        self.room = options.wave_rows if rows else None
        self.code = CounterCode(lifted.isa)
        self.symbol = cells_symbol(lifted.object, lifted.kernel.name)
        self.in_clause = {index for clause in lifted.clauses for index in range(clause.first, clause.last + 1)}
        self.exits = dict(self._exits())
        self.flush_before = {block: index for index, block in self.exits.items()}
        self.registers = CounterRegisters(lifted, budget, hooks, options.counter_budget, min(self.exits, default=0))

    def run(self, plan: CountingPlan, *, each: bool) -> None:
        """Fill the plan.

        Args:
            each: whether to count every block separately.

        Raises:
            NoRoom: there are too few registers, and blocks are not counted separately.
        """
        wanted = WantedCounts(
            self.hooks.hooked,  # hooks may write registers from which the kernel sets EXEC
            self.requests,
            self.symbol,
            waves_given=self.waves_given,
            solvable=self._solvable,
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
                "nothing can be counted for each wave: the kernel jumps to unknown functions, from which a wave does "
                "not return to code that could continue counting",
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
            # The message must not directly follow another instruction: LLVM inserts an s_nop before it, too.
            released = [index for index in self.exits if index in self.lifted.releases]
            plan.splices += [Splice(index, Zone.BEFORE, self.code.assemble(["s_nop 0"])) for index in released]
        units = [unit for unit in (*bits_of(storage.reserved), *flushed) if unit in SGPRS]
        plan.sgprs = max(units, default=-1) + 1
        units = [unit - VGPRS.start for unit in (*bits_of(storage.reserved), *flushed) if unit in VGPRS]
        plan.vgprs = max(units, default=-1) + 1
        plan.result = wanted.result(rows)

    def _solvable(self, cell: Cell) -> bool:
        """Return whether the reader of a cell adds the sums that follow from counters."""
        contents = cell.module.contents_for(self.lifted.object.target) if self.solve_sums else None
        return contents is not None and contents.only_adds_to(cell.variable)

    # Where

    def _point(self, place: CountingPoint) -> tuple[int, Zone, bool] | None:
        """Return the instruction and zone at which to count, and whether SCC is live there; None at kernel entry."""
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
                "counting ends before this edge", kernel=self.lifted.kernel.name, offset=columns.address[place.first]
            )
        best: tuple[tuple[bool, ...], int] | None = None
        for index in range(place.first, min(place.last, flush) + 1):
            # Code inside a clause dissolves it; code after a deallocation of VGPRs removes the deallocation.
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
        """Return whether vector instructions can be used at a point: not in VGPR index mode or vector skip mode."""
        index, zone, _ = point
        lifted = self.lifted
        places = {index + 1} if zone == Zone.BEHIND else {index}  # a branch does not change modes
        return not any(place in lifted.index_mode or place in lifted.skipped for place in places)

    def _scc_live(self, index: int) -> bool:
        return bool(self.hooks.hooked.liveness.live_before(index).all_bits >> SCC & 1)

    def _exits(self) -> Iterator[tuple[int, int]]:
        """Yield the instructions before which counters go to memory, with their blocks."""
        lifted = self.lifted
        for block in lifted.blocks:
            if block.exit != "end":
                continue
            last = block.last
            # Before vector registers are released, unless code spliced in after that makes the wave keep them.
            releases = [index for index in lifted.releases if block.first <= index < last]
            if releases and not any(index in self.hooks.points for index in range(releases[0] + 1, last + 1)):
                last = releases[0]
            yield last, block.index

    @property
    def _cannot_end(self) -> bool:
        """Return whether counters cannot be kept until the wave ends, because of unknown callees."""
        lifted = self.lifted
        restricted = any(index in lifted.restrictions or index in lifted.index_mode for index in self.exits)
        return restricted or not can_leave(lifted)

    def _free(self) -> tuple[list[int], list[int]]:
        """Return the SGPR and VGPR units that counters may use."""
        return ([], []) if self._cannot_end else self.registers.free()

    def _leaving_registers(self, scalars: list[int], vectors: list[int]) -> LeavingRegisters | None:
        """Take the registers for the path to unknown code from the free units, or clear these if there are too few.
        Return None then, and if there is no such path."""
        if not self.lifted.unknown:
            return None
        registers = LeavingRegisters.take(scalars, vectors)
        if registers is None:
            scalars.clear()
            vectors.clear()
        return registers

    def _keep_addresses(self, storage: CounterStorage, scalars: Sequence[int]) -> KeptAddresses:
        """Take the kernel's SGPRs left by counters for the addresses of likely functions, and for the search of others.
        Two remain for the ends of waves."""
        spared, _ = self.registers.for_address(storage)
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
        groups: Sequence[Sequence[WaveCounter]],
        storage: CounterStorage,
        registers: LeavingRegisters,
        kept: KeptAddresses,
    ) -> LeavingCode:
        batches = [batch for group in groups if (batch := storage.batch(group, {}, whole=False)) is not None]
        units = mask_of(unit for held in storage.held.values() for unit in (held.low, held.high) if unit is not None)
        keeping: list[int] = []
        if self.room is not None:
            needed = lanes_for(units, self.lifted.wave_size)
            keeping = storage.take(
                [unit for unit in self.registers.free()[1] if not storage.reserved >> unit & 1], needed
            )
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

    def _add(self, plan: CountingPlan, counters: Sequence[WaveCounter], storage: CounterStorage) -> None:
        """Add to the plan the code that initialises counters and adds to them."""
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

    def _ends(self, counters: Sequence[WaveCounter]) -> list[WaveEnd]:
        """Return the places where counters go to memory; note which of them need no register for that."""
        lifted = self.lifted
        # Rows need the values of registers; and waves may end in unknown code.
        if self._cannot_end or self.room is not None or lifted.unknown:
            return [WaveEnd(index, Zone.BEFORE, index, {}) for index in self.exits]
        ends = find_ends(lifted, self.exits, counters, apart=self.hooks.alone)
        for counter in counters:
            counter.known = bool(ends) and all(counter in end.values for end in ends)
        return ends

    def _flush(
        self,
        plan: CountingPlan,
        groups: Sequence[Sequence[WaveCounter]],
        storage: CounterStorage,
        ends: Sequence[WaveEnd],
    ) -> list[int]:
        """Add to the plan the code that adds counters to memory where waves end; return the units that it uses."""
        if not groups:
            return []
        boundaries, neighbours = Boundaries(self.lifted), Neighbours(self.lifted, added=(), changed=self.hooks.edited)
        scalars, fresh = self.registers.for_address(storage)
        vectors = self.registers.vectors(storage)
        used = mask_of((*vectors, scalars, scalars + 1, *EXEC, *VCC, SCC))
        outstanding = self.hooks.outstanding() if used & self.registers.loaded else None
        for end in ends:
            # The omitted code would only restore registers, which an ending wave does not need.
            before, _ = boundaries.at(end.exit, end.exit)
            lines = [*before, *self._waits(end.exit, used, outstanding)]
            unread = fresh
            for group in groups:
                forms = [storage.batch(group, end.values, whole=whole) for whole in (False, True)]
                payloads = [
                    (self.code.flush(batch, vectors, scalars, lines, fresh=unread), batch) for batch in forms if batch
                ]
                if not payloads:
                    continue
                payload, batch = min(payloads, key=lambda candidate: candidate[0].instructions)
                point = end.at + (end.zone == Zone.BEHIND)
                states = neighbours.before(point, end.at, begins_with(self.lifted.isa, payload.code))
                if states:
                    payload = join([self.code.assemble(states), payload])
                unread &= batch.in_a_row
                plan.splices.append(Splice(end.at, end.zone, payload))
                lines = self._between
        return [*vectors, scalars, scalars + 1]

    def _rows(self, plan: CountingPlan, counters: Sequence[WaveCounter], storage: CounterStorage) -> RowLayout | None:
        """Add to the plan the code that writes rows of waves where they end; return their layout.

        It comes after the code that adds counters to memory.

        Raises:
            NoRoom: a counter has no register.
            PatchError: the kernel cannot identify a wave, or there are too many rows.
        """
        if self.room is None:
            return None
        name, state = self.lifted.kernel.name, self.hooks.state
        for wanted in states_for_rows(self.lifted.target):
            if reason := state.missing.get(wanted):
                raise PatchError(f"a row for each wave needs {STATES[wanted].what}, but {reason}", kernel=name)
        own_counters = [counter for counter in counters if counter.symbol == self.symbol]
        if any(counter not in storage.held for counter in own_counters):
            raise NoRoom
        row = plan_row((storage.held[counter] for counter in own_counters), self.lifted.wave_size)
        own_counters.sort(key=lambda counter: counter.offset)
        values = tuple(row.word(storage.held[counter], storage.bit.get(counter)) for counter in own_counters)
        layout = RowLayout(CELL_BYTES * len(own_counters), self.room, row.words, values)
        if self.room < 0 or layout.size > LARGEST_ROWS:
            raise PatchError(
                f"{self.room} rows of {4 * row.words} bytes are not between 0 and {LARGEST_ROWS >> 20} MiB", kernel=name
            )
        scalars, _ = self.registers.for_address(storage)
        code = RowCode(self.lifted.isa, self.code, state.places, self.registers.vectors(storage), scalars)
        settle = self.lifted.target.lane_mask_wait
        payload = code.write(row, layout, self.symbol, [*self._between, *([] if settle is None else [settle])])
        plan.splices += [Splice(index, Zone.BEFORE, payload) for index in self.exits]
        return layout

    @property
    def _between(self) -> list[str]:
        """Return the waits before registers are overwritten that a memory instruction of counters reads."""
        target = self.lifted.target
        waits = [] if target.replay_wait is None else [target.replay_wait]
        return [*waits, *target.wait_for_everything] if target.waits_free_sgprs else waits

    def _waits(self, index: int, used: int, outstanding: Outstanding | None) -> tuple[str, ...]:
        """Return the waits at the end of a wave before registers are overwritten.

        Unused results may still be outstanding there.
        """
        limits = None if outstanding is None else outstanding.needed(index, used, used)
        if outstanding is not None and limits is not None:
            return outstanding.model.text(limits)
        return self.lifted.target.wait_for_every_load if used & self.registers.loaded else ()
