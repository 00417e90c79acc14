"""Every hook of a task with the registers it gets at its point."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from luthier.counts import CELL_BYTES, Cell, CountRequest
from luthier.edits import Edit, Edited, highest
from luthier.errors import HookError, LuthierError, PatchError
from luthier.isa.hazard_parties import pairs
from luthier.isa.registers import AGPRS, FLAT_SCRATCH_SGPR, SGPRS, VGPRS, mask_of
from luthier.lifting import Live, Liveness
from luthier.lifting.waits import Outstanding
from luthier.patch.binding import Binding, Choices, touched_by
from luthier.patch.budget import budget_of, named_registers
from luthier.patch.copies import holder, unit_text
from luthier.patch.counter_code import LARGEST_LANE_WEIGHT
from luthier.patch.counting import CountingPlan, HookUse, Splice, plan_counting
from luthier.patch.edit_seams import with_waits
from luthier.patch.emission import BoundPayload, Limits, emit, emit_call, leftovers
from luthier.patch.frame import frame_place
from luthier.patch.hazards import Seam, Seams
from luthier.patch.layout import Zone
from luthier.patch.report import Refusal, RefusalKind
from luthier.patch.scalar_reads import Endings
from luthier.patch.sites import Site, Use, always_runs, cell_of, zone_of
from luthier.patch.state import StatePlan, plan_state
from luthier.patch.wave_rows import states_for_rows
from luthier.payload import Template
from luthier.payload.cache import template_for
from luthier.payload.launch_state import STATES
from luthier.points import Place
from luthier.task import HookCall, Insertion, InstrumentationTask

LARGE = 32
"""Instructions of a payload from which on it is called rather than repeated. A call costs two, and copies of inputs."""

_RENAMED = mask_of((*SGPRS, *VGPRS, *AGPRS))


class _Bound(NamedTuple):
    """A template at points where it gets the same registers."""

    binding: Binding
    touched: int
    """Bit set of the units that it reads or writes."""
    written: int
    numbers: dict[tuple[Limits, tuple[str, ...], tuple[str, ...]], int]
    """Position in `Splicer.payloads`, by what it waits for and what else it begins and ends with."""


_Placement = tuple[int, Zone, int, tuple[int, ...], bool]
"""A payload at its place: instruction, zone, position in `Splicer.payloads`, numbers of its own, and whether it
disturbs."""


class _TooFewRegisters(PatchError):
    """There are not enough registers at a point."""


def splice(task: InstrumentationTask, *, strict: bool) -> Splicer:
    """Compile and bind the insertions of one task. Where registers are too few at some point, payloads of that kernel
    may spill, unless the task's budget says otherwise.

    Args and errors as of `Splicer`.
    """
    on_excess = "keep" if task.hook_budget is None else task.hook_budget.on_excess
    if on_excess == "refuse":
        return Splicer(task, strict=strict, spill=False)
    try:
        splicer = Splicer(task, strict=strict and on_excess != "sample", spill=False)
    except _TooFewRegisters:
        return Splicer(task, strict=strict, spill=True)
    if not splicer.starved:
        return Splicer(task, strict=True, spill=False) if strict and splicer.refusals else splicer
    left_out: set[int] = set()
    if on_excess == "sample" and task.hook_budget is not None:
        every = task.hook_budget.every
        left_out = {number for count, number in enumerate(sorted(splicer.starved)) if count % every}
    return Splicer(task, strict=strict, spill=True, left_out=left_out)


class Splicer:
    """Compiles and binds the insertions of one task.

    Args:
        strict: whether an insertion that cannot be spliced in is an error; else it is in `refusals`.
        spill: whether payloads may keep live VGPRs in private memory.
        left_out: insertions that are sampled out, by their numbers.

    Attributes:
        payloads: every payload that is spliced in somewhere.
        called: of payloads that call another one: position in `payloads` -> that of the other.
        indices: [n] for each insertion that is spliced in, in their order, the index of its instruction; then for each
            addition of a counter.
        zones: [n] where it goes, seen from that.
        numbers: [n] position of its payload in `payloads`.
        disturbs: [n] whether a clause there, or an early release of vector registers before it, must be undone.
        immediates: [n] the numbers that are its own.
        entries: what insertions at the kernel's start become.
        sites: how many instructions hooks are spliced in at, or counted instead.
        hoisted: how many instructions and insertions are counted instead.
        counting: what is counted.
        refusals: what was left out.
        state: where launch state is, for the hooks that use it.
        sgprs, vgprs: registers the kernel needs for what was spliced.
        starved: insertions, by their numbers, at whose points there were too few registers.
        spilling: how many insertions keep registers in private memory.
        excess: how many have more VGPRs than the task's budget.

    Raises:
        LuthierError: the first insertion that is refused, if `strict`; something cannot be counted.
    """

    def __init__(
        self, task: InstrumentationTask, *, strict: bool, spill: bool, left_out: Container[int] = frozenset()
    ) -> None:
        edits = with_waits(task.lifted, task.edits)
        self.edited = Edited(task.lifted, edits)
        self.lifted = self.edited.seen_by_liveness(task.lifted)
        self._asked, self._left_out = task.hook_budget, left_out
        self.budget = budget_of(task.lifted, task.hook_budget)
        self.starved: set[int] = set()
        sgprs = max(self.budget.sgprs, named_registers(task.lifted, SGPRS[: self.budget.sgpr_limit]))
        vgprs = max(task.lifted.kernel.descriptor.architected_vgprs, named_registers(task.lifted, VGPRS))
        agprs = task.lifted.kernel.descriptor.agprs
        self._files = ((SGPRS, sgprs), (VGPRS, vgprs), (AGPRS, agprs))
        self.refusals: list[Refusal] = []
        self._strict = strict
        self._uses: dict[HookCall, Use | LuthierError] = {}
        self._forms: dict[tuple[Template, tuple[int, ...]], int] = {}
        self._seams = Seams(task.lifted)
        self._endings = Endings(task.lifted, edited=bool(task.edits))
        self.payloads: list[BoundPayload] = []
        self.called: dict[int, int] = {}
        self._bindings: dict[int, Binding] = {}  # of payloads in `payloads`
        self._emitted: dict[Hashable, int] = {}
        self._counting: dict[BoundPayload, int] = {}
        self.sgprs = self.vgprs = 0
        self.state = self._plan_state(task, spill)
        self.budget = replace(self.budget, spill=spill and not self.state.no_frame)
        self._frame = frame_place(self.lifted)
        self._frame_sizes: dict[int, int] = {}  # of payloads that have private memory
        sites = self._prepare(task.insertions)
        sites, hoisted = self._hoist(sites) if task.hoist else (sites, [])
        self.hoisted = len({site.at for site in hoisted}), len(hoisted)
        self.counting, returned = self._plan_counting(task, sites, hoisted)
        if returned:
            sites = sorted([*sites, *hoisted], key=lambda site: site.number)
            self.hoisted = 0, 0
        hooks = len(task.insertions)
        for number, one in enumerate(self.counting.direct):
            use = Use(None, one.template, (), 0, None, form=self._form(one.template, ()))
            sites.append(Site(hooks + number, None, one.at, one.at, use))
        bound = self._bind_all(sites)
        self.entries = [
            self.payloads[number].with_numbers(site.use.immediates) for site, number in bound if zone_of(site) is None
        ]
        spliced: list[_Placement] = [
            (site.at, zone, number, site.use.immediates, True)
            for site, number in bound
            if (zone := zone_of(site)) is not None
        ]
        added: list[_Placement] = [
            (one.at, one.zone, self._number(one.payload), (), True) for one in self._added(edits)
        ]
        # A counter on the way to a branch's target needs no vector registers, so it undoes no release of them.
        counters: list[_Placement] = [
            (one.at, one.zone, self._number(one.payload), (), one.zone != Zone.TAKEN) for one in self.counting.splices
        ]
        # What is added to the application is next to its instruction.
        behind = [one for one in added if one[1] == Zone.BEHIND]
        before = [one for one in added if one[1] != Zone.BEHIND]
        self._need_registers(self.edited.units)
        placements = [*behind, *spliced, *before, *counters]
        indices, zones, numbers, immediates, disturbs = zip(*placements, strict=True) if placements else [()] * 5
        self.indices, self.zones, self.numbers = (np.array(one, np.int64) for one in (indices, zones, numbers))
        self.immediates, self.disturbs = immediates, np.array(disturbs, bool)
        counted = [site.at for site in hoisted] if self.hoisted[1] else []
        soft = self._asked.vgpr_limit(task.lifted) if self._asked else self.budget.vgpr_limit
        bindings = [self._bindings[number] for site, number in bound if site.insertion is not None]
        self.spilling = sum(binding.spill_size > 0 for binding in bindings)
        self.excess = sum(binding.vgprs > soft for binding in bindings)
        self.sites = len({*(site.at for site, _ in bound if site.insertion is not None), *counted})
        self.refusals.sort(key=lambda refusal: refusal.insertion or 0)

    # What is known before registers are chosen

    def _prepare(self, insertions: Sequence[Insertion]) -> list[Site]:
        """The insertions that can be compiled; the others are refused."""
        block_of, restrictions, uses = self.lifted.block_of, self.lifted.restrictions, self._uses
        sites = []
        for number, insertion in enumerate(insertions):
            index, place, call = insertion
            if number in self._left_out:
                self._leave_out(number, insertion, "sampled", "one of those that are sampled out")
                continue
            point = self._point(index, place)
            if point >= len(block_of) or block_of[point] < 0:
                behind = PatchError("control does not come back to behind this instruction")
                self._refuse(number, insertion, "hook", behind)
                continue
            restriction = restrictions.get(index if place == "taken" else point)
            if restriction is not None:
                self._refuse(number, insertion, restriction, PatchError(f"no code can be inserted {restriction}"))
                continue
            use = uses.get(call)
            if use is None:
                use = uses[call] = self._compile(call)
            if isinstance(use, LuthierError):
                self._refuse(number, insertion, "hook", use)
            elif use.missing is not None:
                error = HookError(f"hook {call.hook.name} uses {use.missing}")
                self._refuse(number, insertion, "no such register", error)
            else:
                sites.append(Site(number, insertion, index, point, use))
        return sites

    def _point(self, index: int, place: Place) -> int:
        """Index of the instruction that control comes to next; that of no instruction where it is not known."""
        lifted = self.lifted
        if place == "after":
            return index + 1
        if place != "taken":
            return index
        targets = {jump.index: jump.target for jump in lifted.direct_jumps}
        target = lifted.index_at(targets.get(index, lifted.columns.target[index]))
        return len(lifted.block_of) if target is None else target

    def _hoist(self, sites: Sequence[Site]) -> tuple[list[Site], list[Site]]:
        """The sites that remain, and those whose hooks can be counts: nobody but such hooks uses their variables."""
        block_of = self.lifted.block_of

        def countable(site: Site) -> bool:
            plain, call = site.use.template.plain, site.use.call
            if plain is None or call is None or plain.offset % CELL_BYTES:
                return False
            if site.insertion is None or not always_runs(self.lifted, site.insertion):
                return False
            if plain.lanes and not abs(plain.weight) < LARGEST_LANE_WEIGHT:
                return False
            if not -(1 << 31) <= plain.weight < 1 << 31 or (plain.lanes and block_of[site.at] != block_of[site.point]):
                return False
            try:
                cell_of(call, plain).check()
            except HookError:
                return False
            return True

        possible = {site.number: countable(site) for site in sites}
        used = {  # what hooks see that do more than count
            fixup.symbol for site in sites if site.use.template.plain is None for fixup in site.use.template.fixups
        }
        hoisted = [
            site
            for site in sites
            if possible[site.number] and used.isdisjoint(fixup.symbol for fixup in site.use.template.fixups)
        ]
        numbers = {site.number for site in hoisted}
        return [site for site in sites if site.number not in numbers], hoisted

    def _plan_counting(
        self, task: InstrumentationTask, sites: Sequence[Site], hoisted: Sequence[Site]
    ) -> tuple[CountingPlan, bool]:
        """Counters, with registers that no hook can have; and whether hooks that were to be counts must remain."""
        together: dict[tuple[Cell, int, bool], list[int]] = {}
        for site in hoisted:
            call, plain = site.use.call, site.use.template.plain
            assert call is not None
            assert plain is not None
            key = cell_of(call, plain), plain.weight, plain.lanes
            together.setdefault(key, []).append(site.point if plain.lanes else site.at)
        requests = [
            CountRequest(tuple((index, weight) for index in indices), "lane" if lanes else "wave", cell)
            for (cell, weight, lanes), indices in together.items()
        ]
        if not task.counts and not requests:
            return plan_counting(self.lifted, (), self.budget, None, task.counter_budget), False
        units, changed = self.edited.units, 0
        for site in sites:
            changed |= site.use.template.destinations
            units |= site.use.reads | changed
        liveness, _ = self._with_what_hooks_do(sites)
        exec_mask = self.lifted.effect_table.exec
        change_lanes = next((site.point for site in sites if site.use.template.destinations & exec_mask), None)
        points = frozenset(site.point for site in sites)
        alone = not sites and not task.edits
        hooks = HookUse(liveness, units, points, change_lanes, lambda: self._outstanding, self.state, alone)

        def plan(requests: Sequence[CountRequest]) -> CountingPlan:
            return plan_counting(
                self.lifted,
                requests,
                self.budget,
                hooks,
                task.counter_budget,
                waves_given=task.waves_given,
                room=task.wave_rows,
            )

        try:
            return plan([*task.counts, *requests]), False
        except PatchError:
            if not requests:
                raise
            return self._plan_counting(task, [*sites, *hoisted], [])[0], True

    @property
    def private_memory(self) -> int:
        """Bytes a lane that the kernel needs for payloads, beyond its own; None of them is used if it is 0."""
        most = max((self._frame_sizes.get(number, 0) for number in set(self.numbers.tolist())), default=0)
        return self._frame + most if most else 0

    def _plan_state(self, task: InstrumentationTask, spill: bool) -> StatePlan:
        """Places for the launch state of all calls and of rows of waves together, and what they write."""
        states, written, frame = set(), 0, spill
        if any(request.granularity == "wave" for request in task.counts):
            states.update(states_for_rows(self.lifted.target))
        for call in {insertion.call: None for insertion in task.insertions}:
            try:
                template = self._template(call)
            except LuthierError:
                continue  # refused later, site by site
            states |= {taken.source.state for taken in template.inputs if taken.source.state}
            written |= template.destinations
            frame |= template.stack is not None
        written |= self.edited.units
        return plan_state(self.lifted, self.budget, states, written, frame=frame)

    def _template(self, call: HookCall) -> Template:
        lifted = self.lifted
        return template_for(call.hook, call.arguments, lifted.object.target, lifted.wave_size, call.groups)

    def _compile(self, call: HookCall) -> Use | LuthierError:
        try:
            template = self._template(call)
        except LuthierError as problem:
            return problem
        if template.stack is not None and self.state.no_frame:
            return HookError(
                f"hook {call.hook.name} needs private memory, which it cannot have in this kernel: "
                f"{self.state.no_frame}"
            )
        sources, registers = [], []
        for taken in template.inputs:
            source = taken.source
            if source.state:
                if reason := self.state.missing.get(source.state):
                    what = STATES[source.state].what
                    return HookError(f"hook {call.hook.name} uses {what}, which this kernel cannot have: {reason}")
                sources.append(self.state.places[source.state, source.unit])
                continue
            sources.append(source.unit if source.argument is None else call.sources[source.argument][source.unit])
            registers.append(sources[-1])
        missing = self._missing_register((*registers, *(output.destination for output in template.outputs)))
        immediates = tuple(call.sources[one.source.argument or 0][one.source.unit] for one in template.immediates)
        form = self._form(template, tuple(sources))
        return Use(call, template, tuple(sources), mask_of(registers), missing, immediates, form)

    def _form(self, template: Template, sources: tuple[int, ...]) -> int:
        return self._forms.setdefault((template, sources), len(self._forms))

    def _missing_register(self, units: Iterable[int]) -> str | None:
        """Registers that the kernel does not have hold nothing to read and keep nothing that is written: the first of
        them, in words."""
        for unit in units:
            for file, count in self._files:
                if unit in file and unit - file.start >= count:
                    return f"{unit_text(unit)}, but the kernel has {count} of them"
        return None

    def _refuse(self, number: int, insertion: Insertion, kind: RefusalKind, error: LuthierError) -> None:
        """Note an insertion that is left out.

        Raises:
            LuthierError: instead, if refusals are errors.
        """
        address = self.lifted.columns.address[insertion.at]
        kernel = self.lifted.kernel.name
        if self._strict:
            error.object = error.object or self.lifted.object.name
            error.kernel, error.offset = kernel, address
            raise error
        self._leave_out(number, insertion, kind, error.message)

    def _leave_out(self, number: int, insertion: Insertion, kind: RefusalKind, why: str) -> None:
        kernel, address = self.lifted.kernel.name, self.lifted.columns.address[insertion.at]
        self.refusals.append(Refusal(kind, why, kernel, address, insertion.hook.name, insertion.place, number))

    def _added(self, edits: Sequence[Edit]) -> list[Splice]:
        """Instructions that tools add to the application's."""
        zones = {"before": Zone.BEFORE, "after": Zone.BEHIND}
        return [
            Splice(edit.at, zones[edit.place], BoundPayload(edit.code, (), len(self.lifted.isa.decode(edit.code))))
            for edit in edits
            if edit.place in zones
        ]

    def _need_registers(self, units: int) -> None:
        """See that the kernel gets the registers that edits use.

        Raises:
            PatchError: it cannot have them.
        """
        if self.budget.sgpr_limit <= FLAT_SCRATCH_SGPR:  # flat instructions read it; it is not for allocation
            units &= ~mask_of((FLAT_SCRATCH_SGPR, FLAT_SCRATCH_SGPR + 1))
        sgprs, vgprs = highest(units, SGPRS), highest(units, VGPRS)
        if sgprs > self.budget.sgpr_limit or vgprs > max(self.budget.vgpr_limit, self._files[1][1]):
            raise PatchError(
                f"instructions that are added need {sgprs} SGPRs and {vgprs} VGPRs; the kernel may have "
                f"{self.budget.sgpr_limit} and {self.budget.vgpr_limit}",
                kernel=self.lifted.kernel.name,
            )
        self.sgprs, self.vgprs = max(self.sgprs, sgprs), max(self.vgprs, vgprs)

    # Registers and code

    def _bind_all(self, sites: list[Site]) -> list[tuple[Site, int]]:
        """For every site that can have registers the position of its payload in `payloads`.

        What is left out must leave no trace: a site that fails and has changed what is live is taken out of the
        liveness, and all others get another try.
        """
        exec_mask = self.lifted.effect_table.exec
        while True:
            liveness, disturbing = self._with_what_hooks_do(sites)
            any_lanes = {site.point for site in sites if site.use.template.destinations & exec_mask}
            self.sgprs = max(self.counting.sgprs, self.state.sgprs)
            self.vgprs = max(self.counting.vgprs, self.state.vgprs)
            self._choices: dict[tuple[Template, bool], Choices] = {}
            self._known: dict[tuple[int, bool, int, int, int, Seam], _Bound] = {}
            bound: list[tuple[Site, int]] = []
            failed: list[tuple[Site, RefusalKind, LuthierError]] = []
            uses = Counter(site.use.template for site in sites if zone_of(site) is not None)
            for site in sites:
                _, insertion, at, point, use = site
                template = use.template
                shared = uses[template] > 1 and template.hands_in and self._may_call(site)
                shared &= len(template.code) - template.waits >= LARGE
                try:
                    number = self._payload(use, *self._around(site, liveness, any_lanes), point, called=shared)
                except LuthierError as problem:
                    if insertion is None:
                        problem.kernel, problem.offset = self.lifted.kernel.name, self.lifted.columns.address[at]
                        raise
                    kind: RefusalKind = "hook"
                    if isinstance(problem, _TooFewRegisters):
                        self.starved.add(site.number)
                        over = self._asked is not None and self._asked.on_excess != "keep"
                        kind = "over budget" if over else "too few registers"
                    failed.append((site, kind, problem))
                else:
                    bound.append((site, number))
                if failed and self._strict:
                    break
            gone = {site.number for site, _, _ in failed if site.number in disturbing}
            for site, kind, reason in failed:
                if site.insertion is not None and (not gone or self._strict or site.number in gone):
                    self._refuse(site.number, site.insertion, kind, reason)
            if not gone:
                bound = self._repeat_what_is_smaller(bound, liveness, any_lanes)
                for binding in {self._bindings[number]: None for _, number in bound if number in self._bindings}:
                    self.sgprs, self.vgprs = max(self.sgprs, binding.sgprs), max(self.vgprs, binding.vgprs)
                return bound
            sites = [site for site in sites if site.number not in gone]

    def _around(self, site: Site, liveness: Liveness, any_lanes: Container[int]) -> tuple[Live, Seam, int]:
        """What is live at a site, its seam, and which SGPRs vector instructions have just written (`fresh_scalars`).

        Args:
            any_lanes: points where other lanes may become active.
        """
        live = liveness.live_before(site.point)
        reserved = self.counting.reserved | self.state.reserved
        if self._endings.needed:  # counters do not wait for what vector instructions of hooks read beside them
            reserved |= pairs(self.counting.reserved)
        live = Live(live.active_bits | reserved, live.inactive_bits)
        # After EXEC has changed, other lanes are active. Whether reading an AGPR heeds EXEC is not documented.
        if site.point in any_lanes or site.use.reads >> AGPRS.start:
            live = live.with_any_lane_active()
        # A branch does not change what the seam depends on.
        taken = site.insertion is not None and site.insertion.place == "taken"
        place = site.at if taken else site.point, site.at
        return live, self._seams.at(*place), self._seams.fresh_scalars(*place)

    def _may_call(self, site: Site) -> bool:
        """Whether a payload at a site may call another. The code at a kernel's entry has no place from which it could;
        and for whoever lifts the kernel again, a half-made address must not be in registers meanwhile."""
        return zone_of(site) is not None and site.point not in self._half_made

    @functools.cached_property
    def _half_made(self) -> set[int]:
        """Points between reading the program counter and having made an address of it."""
        made = [(one.getpc, max(one.low, one.high)) for one in self.lifted.pc_references]
        return {point for first, last in made for point in range(first + 1, last + 1)}

    def _repeat_what_is_smaller(
        self, bound: Sequence[tuple[Site, int]], liveness: Liveness, any_lanes: Container[int]
    ) -> list[tuple[Site, int]]:
        """The sites with their payloads: those that are called from too few sites to make the code smaller, in their
        places instead."""
        gain: Counter[int] = Counter()
        for _, number in bound:
            body = self.called.get(number)
            if body is not None:
                gain[body] += len(self.payloads[body].code) - len(self.payloads[number].code)
        result = []
        for site, number in bound:
            body = self.called.get(number)
            if body is not None and gain[body] <= len(self.payloads[body].code):
                with contextlib.suppress(_TooFewRegisters):
                    number = self._payload(site.use, *self._around(site, liveness, any_lanes), site.point)
            result.append((site, number))
        return result

    def _with_what_hooks_do(self, sites: Sequence[Site]) -> tuple[Liveness, set[int]]:
        """Liveness in which hooks take part, and the numbers of the sites that change it: a payload must not overwrite
        what a later hook is to see, nor lanes that a hook turns on or off."""
        reads: dict[int, int] = {}
        changes: dict[int, int] = {}
        sites = [site for site in sites if site.use.reads or site.use.template.destinations]
        for site in sites:
            if site.use.template.destinations:
                changes[site.point] = changes.get(site.point, 0) | site.use.template.destinations
        disturbing = set()
        for site in sites:
            # What the application reads later may not be what a hook reads now, where another one writes.
            read = site.use.reads
            if read and not changes:
                read &= ~self.lifted.liveness.live_before(site.point).active_bits
            if read:
                reads[site.point] = reads.get(site.point, 0) | read
            if read or site.use.template.destinations:
                disturbing.add(site.number)
        lifted = self.lifted.also_reading(reads) if reads else self.lifted
        return (lifted.also_changing(changes) if changes else lifted).liveness, disturbing

    def _payload(self, use: Use, live: Live, seam: Seam, fresh: int, point: int, *, called: bool = False) -> int:
        """Position in `payloads` of what a point gets.

        Args:
            live, seam, fresh: as of `_around`.
            called: whether it is to call a payload that is placed once. Where no register is left for that it does not.

        Raises:
            LuthierError: it cannot have it.
        """
        template = use.template
        choices = self._choices.get((template, called))
        if choices is None:
            choices = Choices(template, self.budget, self.lifted.wave_size, called=called)
            self._choices[template, called] = choices
        free = live
        if called:  # whose place must not depend on where inputs are
            sources = mask_of(holder(source) for source in use.sources) & _RENAMED
            free = Live(live.active_bits | sources, live.inactive_bits)

        def key() -> tuple[int, bool, int, int, int, Seam]:
            """All that matters as long as there is no other binding."""
            active, all_lanes = free.active_bits & choices.heeded, free.all_bits & choices.heeded_in_all_lanes
            return use.form, called, choices.made, active, all_lanes, seam

        bound = self._known.get(key())
        if bound is None:
            binding = choices.choose(() if called else use.sources, free)
            if binding is None and called:
                return self._payload(use, live, seam, fresh, point)
            if binding is None:
                what = "a counter" if use.call is None else f"hook {use.call.hook.name}"
                unspilled = ""
                if not self.budget.spill:
                    refused = self._asked is not None and self._asked.on_excess == "refuse"
                    why = "its budget says so" if refused else self.state.no_frame
                    unspilled = f", and none can be spilled: {why}"
                raise _TooFewRegisters(
                    f"not enough dead or spare registers for {what}: "
                    f"it needs {sum(group.count for group in template.groups)} and the kernel may have "
                    f"{self.budget.vgpr_limit} VGPRs and {self.budget.sgpr_limit} SGPRs{unspilled}"
                )
            bound = self._known[key()] = _Bound(binding, *touched_by(template, binding, use.sources), {})
        outstanding = self._outstanding if template.relaxed else None
        limits = None if outstanding is None else outstanding.needed(point, bound.touched, bound.written)
        ending: tuple[str, ...] = ()
        if self._endings.needed:
            ending = self._endings.at(point, leftovers(self.lifted.isa, template, bound.binding, use.sources))
        lead = self._seams.for_fresh_scalars if fresh & bound.touched else ()
        number = bound.numbers.get((limits, lead, ending))
        if number is None:
            around = (*seam[0], *lead), (*ending, *seam[1])
            number = bound.numbers[limits, lead, ending] = self._emit(use, bound.binding, around, limits)
        return number

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        """What the application has outstanding; None where that is not known, or not all that waits are for."""
        if self.edited.reads or self.edited.replaced or self.lifted.target.waits_free_sgprs:
            return None
        return Outstanding(self.lifted)

    def _emit(self, use: Use, binding: Binding, seam: Seam, limits: Limits) -> int:
        template, isa = use.template, self.lifted.isa
        if binding.link is None:
            key = template, binding, seam, limits
            return self._keep(key, template, binding, lambda: emit(isa, template, binding, *seam, self._frame, limits))
        body = self._keep(
            (template, binding), template, binding, lambda: emit(isa, template, binding, frame=self._frame)
        )
        caller = self._keep(
            (template, binding, use.sources, seam, limits),
            template,
            binding,
            lambda: emit_call(isa, template, binding, use.sources, *seam, limits),
        )
        self.called[caller] = body
        return caller

    def _keep(self, key: Hashable, template: Template, binding: Binding, make: Callable[[], BoundPayload]) -> int:
        """Position in `payloads` of a payload, which is made when it is first needed."""
        number = self._emitted.get(key)
        if number is None:
            self.payloads.append(make())
            number = self._emitted[key] = len(self.payloads) - 1
            self._bindings[number] = binding
            if size := binding.spill_size + (template.stack.size if template.stack else 0):
                self._frame_sizes[number] = size
        return number

    def _number(self, payload: BoundPayload) -> int:
        """Position in `payloads` of a counter's code."""
        number = self._counting.get(payload)
        if number is None:
            self.payloads.append(payload)
            number = self._counting[payload] = len(self.payloads) - 1
        return number
