"""Every hook of a task with the registers it gets at its point."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace

import numpy as np

from luthier.counts import Cell, CountRequest
from luthier.edits import Edit, Edited, highest
from luthier.errors import LuthierError, PatchError
from luthier.isa.registers import AGPRS, FLAT_SCRATCH_SGPR, SGPRS, VGPRS, mask_of
from luthier.lifting.waits import Outstanding
from luthier.module import Hook
from luthier.patch import slices
from luthier.patch.binder import Binder, Payloads, TooFewRegisters
from luthier.patch.budget import budget_of, named_registers, used_agprs
from luthier.patch.counting import CountingPlan, HookUse, Splice, plan_counting
from luthier.patch.edit_seams import with_waits
from luthier.patch.emission import BoundPayload
from luthier.patch.frame import frame_place, refusal
from luthier.patch.hoisting import hoist, requests_of
from luthier.patch.layout import Zone
from luthier.patch.sites import Site, with_what_hooks_do
from luthier.patch.state import StatePlan, plan_state
from luthier.patch.uses import Refusals, Templates, Uses, unit_of
from luthier.patch.wave_rows import states_for_rows
from luthier.payload.additions import only_added
from luthier.task import InstrumentationTask

_Placement = tuple[int, Zone, int, tuple[int, ...], bool]
"""A payload at its place: instruction, zone, position in `Splicer.payloads`, numbers of its own, and whether it
disturbs."""


def splice(task: InstrumentationTask, *, strict: bool) -> Splicer:
    """Compile and bind the insertions of one task. Where registers are too few at some point, payloads of that kernel
    may spill, unless the task's budget says otherwise.

    Args and errors as of `Splicer`.
    """
    on_excess = "keep" if task.hook_budget is None else task.hook_budget.on_excess
    if on_excess == "refuse":
        return Splicer(task, strict=strict, spill=False)
    sample = on_excess == "sample"
    try:
        splicer = Splicer(task, strict=strict and not sample, spill=False, enough=not sample)
    except TooFewRegisters:
        return _spilling(task, strict=strict)
    if not splicer.starved:
        return Splicer(task, strict=True, spill=False) if strict and splicer.refusals else splicer
    every = 1 if task.hook_budget is None else task.hook_budget.every
    left_out = {number for count, number in enumerate(sorted(splicer.starved)) if count % every}
    return _spilling(task, strict=strict, left_out=left_out)


def _spilling(task: InstrumentationTask, *, strict: bool, left_out: Container[int] = frozenset()) -> Splicer:
    """The same with spills. A kernel in which none is in LDS is as if there were no LDS for that."""
    splicer = Splicer(task, strict=strict, spill=True, left_out=left_out)
    if splicer.state.wave_lds is None or splicer.lds > splicer.hook_lds:
        return splicer
    return Splicer(task, strict=strict, spill=True, left_out=left_out, no_lds=splicer.no_lds)


def _named_by(task: InstrumentationTask, templates: Templates) -> int:
    """Bit set of the application's units that hooks read or write."""
    units = 0
    for call in {insertion.call: None for insertion in task.insertions}:
        template = templates.of(call)
        if not isinstance(template, LuthierError):
            registers = (unit_of(call, taken.source) for taken in template.inputs if not taken.source.state)
            units |= mask_of(registers) | template.destinations
    return units


def _name_of(hook: Hook) -> str:
    """What people call a hook: its name, where its source is, and its tool's module."""
    location = f" [{hook.location}]" if hook.location else ""
    return f"hook {hook.name}{location} of {hook.module.name}"


class Splicer:
    """Compiles and binds the insertions of one task.

    Args:
        strict: whether an insertion that cannot be spliced in is an error; else it is in `refusals`.
        spill: whether payloads may keep live VGPRs in private memory, or LDS.
        left_out: insertions that are sampled out, by their numbers.
        no_lds: why they may not in LDS; empty if they may.
        enough: whether there are to be enough registers at every point; else a point without them is refused.

    Attributes:
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
        agprs: AGPRs that are used, by the kernel itself too.
        hook_lds: bytes of LDS that a work-group needs more for hooks that ask for it.
        starved: insertions, by their numbers, at whose points there were too few registers.
        spilling: how many insertions keep registers in private memory.
        in_lds: how many keep them in LDS.
        in_agprs: how many keep them in AGPRs.
        excess: how many have more VGPRs than the task's budget.

    Raises:
        TooFewRegisters: at some point, if there are to be enough.
        LuthierError: the first insertion that is refused, if `strict`; something cannot be counted.
    """

    def __init__(
        self,
        task: InstrumentationTask,
        *,
        strict: bool,
        spill: bool,
        left_out: Container[int] = frozenset(),
        enough: bool = False,
        no_lds: str = "",
    ) -> None:
        edits = with_waits(task.lifted, task.edits)
        self.edited = Edited(task.lifted, edits)
        self.lifted = self.edited.seen_by_liveness(task.lifted)
        self._asked = task.hook_budget
        self.budget = budget_of(task.lifted, task.hook_budget)
        sgprs = max(self.budget.sgprs, named_registers(task.lifted, SGPRS[: self.budget.sgpr_limit]))
        vgprs = max(task.lifted.kernel.descriptor.architected_vgprs, named_registers(task.lifted, VGPRS))
        agprs = task.lifted.kernel.descriptor.agprs
        self._files = ((SGPRS, sgprs), (VGPRS, vgprs), (AGPRS, agprs))
        refusals = Refusals(self.lifted, strict=strict)
        templates = Templates(self.lifted)
        self.state = self._plan_state(task, templates, spill, no_lds or slices.refusal(self.lifted))
        homes = 0 if task.edits else self.budget.homes
        if homes:
            homes &= ~_named_by(task, templates)
        self.budget = replace(self.budget, spill=spill and not self.state.no_frame, homes=homes)
        uses = Uses(self.lifted, templates, self._files, self.state, refusals)
        sites = uses.sites(task.insertions, left_out)
        self.hook_lds = uses.lds
        if self.state.wave_lds is not None:
            waves = self._asked.waves(task.lifted) if self._asked and self._asked.on_excess != "keep" else None
            room = slices.slice_of(self.lifted, self.state.wave_lds, self.hook_lds, waves)
            self.budget = replace(self.budget, lds=room)
        sites, hoisted = hoist(self.lifted, sites) if task.hoist else (sites, [])
        self.hoisted = len({site.at for site in hoisted}), len(hoisted)
        self.counting, returned = self._plan_counting(task, sites, hoisted)
        if returned:
            sites = sorted([*sites, *hoisted], key=lambda site: site.number)
            self.hoisted = 0, 0
        hooks = len(task.insertions)
        for number, one in enumerate(self.counting.direct):
            sites.append(Site(hooks + number, None, one.at, one.at, uses.counter(one.template), Zone.BEFORE))
        self._payloads = Payloads(self.lifted, frame_place(self.lifted, task.most_stack))
        binder = Binder(
            self.lifted,
            self._payloads,
            refusals,
            edited=bool(task.edits),
            enough=enough,
            budget=self.budget,
            asked=task.hook_budget,
            no_spill=self._why_not_spilled(),
            reserved=(self.counting.reserved, self.counting.reserved | self.state.reserved),
            outstanding=lambda: self._outstanding,
            others=[(one.at + (one.zone == Zone.BEHIND), one.payload.code) for one in self.counting.splices],
        )
        bound = binder.bind(sites)
        self.starved = binder.starved
        self._slots = self._payloads.slots([number for _, number in bound])
        self._place(bound, edits)
        bindings = [self._payloads.bindings[number] for number in {number for _, number in bound}]
        self.sgprs = max(self.counting.sgprs, self.state.sgprs, *(binding.sgprs for binding in bindings))
        self.vgprs = max(self.counting.vgprs, self.state.vgprs, *(binding.vgprs for binding in bindings))
        named = functools.reduce(
            operator.or_, (site.use.reads | site.use.template.destinations for site in sites), self.edited.units
        )
        self.agprs = max(used_agprs(task.lifted), highest(named, AGPRS), *(binding.agprs for binding in bindings))
        self._need_registers(self.edited.units)
        counted = [site.at for site in hoisted] if self.hoisted[1] else []
        soft = self._asked.vgpr_limit(task.lifted) if self._asked else self.budget.vgpr_limit
        hooks_with = Counter(number for site, number in bound if site.insertion is not None)
        used = [(self._payloads.bindings[number], many) for number, many in hooks_with.items()]
        self.spilling = sum(many for binding, many in used if binding.spill_size)
        self.in_agprs = sum(many for binding, many in used if binding.homes)
        self.in_lds = sum(many for binding, many in used if binding.slots)
        self.excess = sum(many for binding, many in used if binding.vgprs > soft)
        self.sites = len({*(site.at for site, _ in bound if site.insertion is not None), *counted})
        self.refusals = sorted(refusals.found, key=lambda refusal: refusal.insertion or 0)

    @property
    def payloads(self) -> Sequence[BoundPayload]:
        """Every payload that is spliced in somewhere, or called."""
        return self._payloads.all

    @functools.cached_property
    def names(self) -> list[str]:
        """What people call each of `payloads`."""
        names = [" and ".join(self._hooks.get(number, ())) for number in range(len(self._payloads.all))]
        for number, body in self._payloads.called.items():
            if names[number] and names[number] not in names[body]:
                names[body] += f" and {names[number]}" if names[body] else names[number]
        return [name or "code that counts, or that a tool added" for name in names]

    @property
    def called(self) -> Mapping[int, int]:
        """Of payloads that call another one: position in `payloads` -> that of the other."""
        return self._payloads.called

    @property
    def private_memory(self) -> int:
        """Bytes a lane that the kernel needs for payloads, beyond its own; None of them is used if it is 0."""
        return self._payloads.private_memory(self.numbers.tolist())

    @property
    def lds(self) -> int:
        """Bytes of LDS that a work-group needs more."""
        return self.hook_lds + self._slots_lds

    @property
    def _slots_lds(self) -> int:
        room = self.budget.lds
        return 0 if room is None else slices.size_of(self._slots, room.stride)

    @property
    def starting(self) -> list[str]:
        """Assembly for the kernel's entry."""
        lines = [*self.state.prologue]
        if self.state.wave_lds is not None and self._slots_lds:
            lines += slices.begin_slots(self.lifted.target, self.state.wave_lds, self.lds)
        return lines

    @property
    def no_lds(self) -> str:
        """Why nothing can be kept in LDS, or no more."""
        room = self.budget.lds
        return self.state.no_lds or ("there is no room for it" if room is None else f"there is room for {room.slots}")

    def _why_not_spilled(self) -> str:
        """Why nothing can be kept in private memory, and no more in LDS; empty if something can."""
        return "" if self.budget.spill else f"{self.state.no_frame}, and in LDS {self.no_lds}"

    def _place(self, bound: Sequence[tuple[Site, int]], edits: Sequence[Edit]) -> None:
        """Payloads of hooks, instructions that are added and counters, each at its place."""
        payloads = self._payloads
        self.entries = [payloads.all[number].with_numbers(site.numbers) for site, number in bound if site.zone is None]
        self._hooks: dict[int, dict[str, None]] = {}
        for site, number in bound:
            if site.insertion is not None:
                self._hooks.setdefault(number, {})[_name_of(site.insertion.call.hook)] = None
        at_entry = dict.fromkeys(
            _name_of(site.insertion.call.hook) for site, _ in bound if site.zone is None and site.insertion is not None
        )
        self.entry_name = " and ".join(["what Luthier does when the kernel begins", *at_entry])
        spliced: list[_Placement] = [
            (site.at, site.zone, number, site.numbers, True) for site, number in bound if site.zone is not None
        ]
        added: list[_Placement] = [
            (one.at, one.zone, payloads.add(one.payload), (), True) for one in self._added(edits)
        ]
        # A counter on the way to a branch's target needs no vector registers, so it undoes no release of them.
        counters: list[_Placement] = [
            (one.at, one.zone, payloads.add(one.payload), (), one.zone != Zone.TAKEN) for one in self.counting.splices
        ]
        # What is added to the application is next to its instruction.
        behind = [one for one in added if one[1] == Zone.BEHIND]
        before = [one for one in added if one[1] != Zone.BEHIND]
        placements = [*behind, *spliced, *before, *counters]
        indices, zones, numbers, immediates, disturbs = zip(*placements, strict=True) if placements else [()] * 5
        self.indices, self.zones, self.numbers = (
            np.fromiter(one, np.int64, len(placements)) for one in (indices, zones, numbers)
        )
        self.immediates, self.disturbs = immediates, np.array(disturbs, bool)

    def _plan_counting(
        self, task: InstrumentationTask, sites: Sequence[Site], hoisted: Sequence[Site]
    ) -> tuple[CountingPlan, bool]:
        """Counters, with registers that no hook can have; and whether hooks that were to be counts must remain."""
        requests = requests_of(hoisted)
        if not task.counts and not requests:
            return plan_counting(self.lifted, (), self.budget, None, task.counter_budget), False
        units, changed = self.edited.units, 0
        for site in sites:
            changed |= site.use.template.destinations
            units |= site.use.reads | changed
        liveness, _ = with_what_hooks_do(self.lifted, sites)
        exec_mask = self.lifted.effect_table.exec
        change_lanes = next((site.point for site in sites if site.use.template.destinations & exec_mask), None)
        points = frozenset(site.point for site in sites)
        alone = not sites and not task.edits
        hooks = HookUse(
            liveness, units, points, change_lanes, lambda: self._outstanding, self.state, alone, bool(task.edits)
        )

        def solvable(cell: Cell) -> bool:
            return task.solve_sums and only_added(cell.module, cell.variable, self.lifted.object.target)

        def plan(requests: Sequence[CountRequest]) -> CountingPlan:
            return plan_counting(
                self.lifted,
                requests,
                self.budget,
                hooks,
                task.counter_budget,
                waves_given=task.waves_given,
                solvable=solvable,
                room=task.wave_rows,
            )

        try:
            return plan([*task.counts, *requests]), False
        except PatchError:
            if not requests:
                raise
            return self._plan_counting(task, [*sites, *hoisted], [])[0], True

    def _plan_state(self, task: InstrumentationTask, templates: Templates, spill: bool, no_lds: str) -> StatePlan:
        """Places for the launch state of all calls and of rows of waves together, and what they write."""
        states, written, frame = set(), 0, spill
        if any(request.granularity == "wave" for request in task.counts):
            states.update(states_for_rows(self.lifted.target))
        for call in {insertion.call: None for insertion in task.insertions}:
            template = templates.of(call)
            if isinstance(template, LuthierError):
                continue  # refused later, site by site
            states |= {taken.source.state for taken in template.inputs if taken.source.state}
            written |= template.destinations
            frame |= template.stack is not None
        written |= self.edited.units
        no_frame = refusal(self.lifted, task.most_stack) if frame else StatePlan.no_frame
        plan = plan_state(self.lifted, self.budget, states, written, no_frame)
        if not spill or not plan.no_frame:
            return plan
        # Only then: LDS is what other work-groups, and launches that ask for it, may need.
        with_lds = plan_state(self.lifted, self.budget, states, written, plan.no_frame, no_lds)
        return plan if with_lds.missing.keys() - plan.missing.keys() else with_lds

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

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        """What the application has outstanding; None where that is not known, or not all that waits are for."""
        if self.edited.reads or self.edited.replaced or self.lifted.target.waits_free_sgprs:
            return None
        if self.lifted.skipped:  # what is skipped does not count, so that older accesses may still be outstanding
            return None
        return Outstanding(self.lifted)
