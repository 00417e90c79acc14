"""Compilation and binding of all hooks, counters and edits of a task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.hazards.wait_counters import Outstanding
from luthier.isa.registers import AGPRS, SGPRS, VGPRS, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.boundary.edits import with_waits
from luthier.patch.counters.plan import CountingPlan
from luthier.patch.counters.wave_rows import states_for_rows
from luthier.patch.outcome import PatchRefusal
from luthier.patch.payloads.assignment import BindingLimits, RegisterAssigner, TooFewRegisters
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.payloads.collection import Payloads
from luthier.patch.payloads.sites import InsertionSite
from luthier.patch.payloads.uses import CompiledHooks, Refusals, Templates, unit_of
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers import lds_slots
from luthier.patch.registers.binding import RegisterBudget
from luthier.patch.registers.budget import budget_of, named_registers
from luthier.patch.registers.launch_state import StatePlan, plan_state
from luthier.patch.registers.spill_slots import aligned, frame_place, refusal
from luthier.patch.splicing.costs import InsertionTally, RegisterNeeds
from luthier.patch.splicing.counting import CountingPlanner
from luthier.patch.splicing.placements import PayloadNames, Placements
from luthier.tool.edits import Edit, Edited, highest
from luthier.tool.task import InstrumentationTask


class Attempt(Struct, frozen=True):
    """The constraints of one attempt to bind hooks."""

    strict: bool
    """Whether an insertion that cannot be spliced in is an error; otherwise it is in `Spliced.refusals`."""
    spill: bool
    """Whether payloads may spill live VGPRs to private memory or LDS."""
    enough: bool = False
    """Whether every point must have enough registers; otherwise a point without them is refused."""
    left_out: Container[int] = frozenset()
    """Numbers of insertions that sampling leaves out."""
    no_lds: str = ""
    """Why payloads cannot spill to LDS; empty if they can."""


class Spliced(Struct, frozen=True):
    """The insertions of one task, compiled and bound."""

    lifted: LiftedRepresentation
    """The kernel for liveness analysis, with the task's edits."""
    edited: Edited
    """The changed instructions of the application."""
    state: StatePlan
    """Places of launch state, for the hooks that use it."""
    budget: RegisterBudget
    hook_lds: int
    """Bytes of LDS that a work-group needs in addition for LDS variables of hooks."""
    counting: CountingPlan
    starved: set[int]
    """Numbers of insertions with too few registers."""
    placements: Placements
    """Every payload with its place."""
    entries: list[BoundPayload]
    """Payloads of insertions at the kernel's start."""
    names: PayloadNames
    needs: RegisterNeeds
    """Registers that the kernel needs."""
    tally: InsertionTally
    """Number of insertions of each kind."""
    refusals: Sequence[PatchRefusal]
    """Insertions that were left out."""
    bound: Payloads
    slots: int
    """Maximum number of LDS slots that payloads of one wave use."""

    @property
    def payloads(self) -> Sequence[BoundPayload]:
        """Return every payload that is spliced in or called."""
        return self.bound.all

    @property
    def called(self) -> Mapping[int, int]:
        """Return position in `payloads` of a payload that calls another one -> position of the other."""
        return self.bound.called

    @property
    def private_memory(self) -> int:
        """Return the bytes of private memory per lane that payloads need beyond the kernel's own; 0 for none."""
        return max(self.bound.private_memory(self.placements.numbers.tolist()), self.state.private)

    @property
    def lds(self) -> int:
        """Return the bytes of LDS that a work-group needs in addition."""
        return self.hook_lds + self._slots_lds

    @property
    def starting(self) -> list[str]:
        """Return assembly for the kernel's entry."""
        lines = [*self.state.prologue]
        if self.state.wave_lds is not None and self._slots_lds:
            lines += lds_slots.begin_slots(self.lifted.target, self.state.wave_lds, self.lds)
        return lines

    @property
    def no_lds(self) -> str:
        """Return why nothing, or not more, can be spilled to LDS."""
        return _no_lds(self.state, self.budget)

    @property
    def _slots_lds(self) -> int:
        room = self.budget.lds
        return 0 if room is None else lds_slots.size_of(self.slots, room.stride)


def spliced(task: InstrumentationTask, attempt: Attempt) -> Spliced:
    """Compile and bind the insertions of a task.

    Raises:
        TooFewRegisters: a point has too few registers, and all must have enough.
        LuthierError: an insertion is refused and the attempt is strict, or something cannot be counted.
    """
    host = _Host.of(task, attempt)
    lifted = host.lifted
    refusals = Refusals(lifted, strict=attempt.strict)

    # Registers of the kernel before any hook is bound
    kernel_budget = host.without_named_agprs(budget_of(task.lifted, task.options.hook_budget))
    state = host.plan_state(kernel_budget)
    if attempt.enough and state.homeless:
        raise TooFewRegisters("not enough VGPRs for launch state", kernel=lifted.kernel.name)

    # What hooks and counters become
    uses = CompiledHooks(lifted, host.templates, host.files(kernel_budget), state, refusals)
    compiled = uses.sites(task.insertions, attempt.left_out)
    budget = host.with_lds(host.with_places_to_spill(kernel_budget, state), state, uses.lds)
    counting = CountingPlanner(task, lifted, host.edited, budget, state, host.outstanding).plan(compiled)
    sites = [*counting.sites, *_direct_counters(task, counting.plan, uses)]

    # Where they go, and with which registers
    payloads = Payloads(lifted, aligned(state.private) or host.frame_place)
    binder = RegisterAssigner(lifted, payloads, refusals, host.limits(budget, state, counting.plan))
    bound = binder.bind(sites)
    bindings = [payloads.bindings[number] for number in {number for _, number in bound}]
    edit_needs = RegisterNeeds.of_edits(host.added, budget, host.own_vgprs, lifted.kernel.name)
    return Spliced(
        lifted=lifted,
        edited=host.edited,
        state=state,
        budget=budget,
        hook_lds=uses.lds,
        counting=counting.plan,
        starved=binder.starved,
        placements=Placements.of(lifted.isa, payloads, bound, host.edits, counting.plan.splices),
        entries=[payloads.all[number].with_numbers(site.numbers) for site, number in bound if site.zone is None],
        names=PayloadNames(payloads, bound),
        needs=RegisterNeeds.of(task.lifted, counting.plan, state, bindings, edit_needs, sites),
        tally=InsertionTally.of(bound, payloads.bindings, counting.hoisted, host.soft_limit(budget)),
        refusals=sorted(refusals.found, key=lambda refused: refused.insertion or 0),
        bound=payloads,
        slots=payloads.slots([number for _, number in bound]),
    )


def _no_lds(state: StatePlan, budget: RegisterBudget) -> str:
    """Return why nothing, or not more, can be spilled to LDS."""
    room = budget.lds
    return state.no_lds or ("there is no room for it" if room is None else f"there is room for {room.slots}")


def _direct_counters(task: InstrumentationTask, plan: CountingPlan, uses: CompiledHooks) -> list[InsertionSite]:
    """Return the sites of counters without a register, which add to memory in payloads that are bound like hooks."""
    hooks = len(task.insertions)
    return [
        InsertionSite(hooks + number, None, counter.at, counter.at, uses.counter(counter.template), Zone.BEFORE)
        for number, counter in enumerate(plan.direct)
    ]


class _Host(Struct, frozen=True):
    """A kernel with the changes of its task."""

    task: InstrumentationTask
    attempt: Attempt
    edits: Sequence[Edit]
    edited: Edited
    lifted: LiftedRepresentation
    """The kernel for liveness analysis, with the edits."""
    templates: Templates
    added: int
    """Bit set of units that edits and guards name."""
    outstanding: Callable[[], Outstanding | None]
    """Returns the application's outstanding operations, computed once; None if unknown, or if waits must cover
    more."""

    @classmethod
    def of(cls, task: InstrumentationTask, attempt: Attempt) -> _Host:
        """Return the kernel of a task."""
        edits = with_waits(task.lifted, task.edits)
        edited = Edited(task.lifted, edits)
        lifted = edited.seen_by_liveness(task.lifted)
        guards = {insertion.call.guard for insertion in task.insertions} - {None}
        added = functools.reduce(lambda units, guard: units | (guard.reads if guard else 0), guards, edited.units)
        known: list[Outstanding | None] = []

        def outstanding() -> Outstanding | None:
            if not known:
                known.append(_outstanding(edited, lifted))
            return known[0]

        return cls(task, attempt, edits, edited, lifted, Templates(lifted), added, outstanding)

    @property
    def own_vgprs(self) -> int:
        """Return the number of VGPRs that the kernel has, or names."""
        lifted = self.task.lifted
        return max(lifted.kernel.descriptor.architected_vgprs, named_registers(lifted, VGPRS))

    @property
    def frame_place(self) -> int:
        """Return the byte offset of the payloads' private memory."""
        return frame_place(self.lifted, self.task.options.most_stack)

    def files(self, budget: RegisterBudget) -> tuple[tuple[range, int], ...]:
        """Return the register files with the number of registers of the kernel, edits and guards. Hooks cannot read
        others."""
        lifted = self.task.lifted
        sgprs = max(budget.sgprs, named_registers(lifted, SGPRS[: budget.sgpr_limit]), highest(self.added, SGPRS))
        vgprs = max(self.own_vgprs, highest(self.added, VGPRS))
        return (SGPRS, sgprs), (VGPRS, vgprs), (AGPRS, lifted.kernel.descriptor.agprs)

    def soft_limit(self, budget: RegisterBudget) -> int:
        """Return the number of VGPRs above which an insertion exceeds the task's budget."""
        asked = self.task.options.hook_budget
        return asked.vgpr_limit(self.task.lifted) if asked else budget.vgpr_limit

    def plan_state(self, budget: RegisterBudget) -> StatePlan:
        """Return places for the launch state of all calls and of rows of waves. No payload may overwrite them, so they
        are determined before any is bound."""
        task, spill = self.task, self.attempt.spill
        states, written, frame = set(), 0, spill
        by_waves = any(request.granularity == "wave" for request in task.counts)
        in_registers = states_for_rows(self.lifted.target) if by_waves else []
        states.update(in_registers)
        for call in {insertion.call: None for insertion in task.insertions}:
            template = self.templates.of(call)
            if isinstance(template, LuthierError):
                continue  # refused later, site by site
            states |= {taken.source.state for taken in template.inputs if taken.source.state}
            written |= template.destinations
            frame |= template.stack is not None
        written |= self.edited.units
        asked = task.options.hook_budget
        no_frame = "the tool's budget forbids it" if asked and asked.on_excess == "refuse" else StatePlan.no_frame
        if frame:
            no_frame = refusal(self.lifted, task.options.most_stack)
        plan_for = functools.partial(
            plan_state, self.lifted, budget, states, written, frame=self.frame_place, in_registers=in_registers
        )
        plan = plan_for(no_frame)
        if not spill or not plan.no_frame:
            return plan
        # Use LDS only as a last resort: other work-groups, and launches with dynamic LDS, may need it.
        no_lds = self.attempt.no_lds or lds_slots.refusal(self.lifted)
        with_lds = plan_for(plan.no_frame, no_lds)
        return plan if with_lds.missing.keys() - plan.missing.keys() else with_lds

    def without_named_agprs(self, budget: RegisterBudget) -> RegisterBudget:
        """Return the budget without AGPRs that a hook accesses, or without any AGPRs if edits may access them."""
        slots = 0 if self.task.edits else budget.agpr_slots
        if slots:
            slots &= ~self._named_by_hooks()
        return replace(budget, agpr_slots=slots)

    def with_places_to_spill(self, budget: RegisterBudget, state: StatePlan) -> RegisterBudget:
        """Return the budget with private memory, if payloads may spill there, and without AGPRs that hold launch
        state."""
        spill = self.attempt.spill and not state.no_frame
        return replace(budget, spill=spill, agpr_slots=budget.agpr_slots & ~state.reserved)

    def with_lds(self, budget: RegisterBudget, state: StatePlan, hook_lds: int) -> RegisterBudget:
        """Return the budget with LDS for spills, as far as hooks' own LDS and the task's budget allow."""
        if state.wave_lds is None:
            return budget
        asked = self.task.options.hook_budget
        waves = asked.waves(self.task.lifted) if asked and asked.on_excess != "keep" else None
        return replace(budget, lds=lds_slots.slice_of(self.lifted, state.wave_lds, hook_lds, waves))

    def limits(self, budget: RegisterBudget, state: StatePlan, plan: CountingPlan) -> BindingLimits:
        """Return the constraints of payloads."""
        return BindingLimits(
            edits=self.edits,
            enough=self.attempt.enough,
            budget=budget,
            asked=self.task.options.hook_budget,
            no_spill="" if budget.spill else f"{state.no_frame}, and in LDS {_no_lds(state, budget)}",
            counters=plan.reserved,
            reserved=plan.reserved | state.reserved,
            outstanding=self.outstanding,
            spliced=[(code.at + (code.zone == Zone.BEHIND), code.payload.code) for code in plan.splices],
        )

    def _named_by_hooks(self) -> int:
        """Return the bit set of the application's units that hooks read or write."""
        units = 0
        for call in {insertion.call: None for insertion in self.task.insertions}:
            template = self.templates.of(call)
            if not isinstance(template, LuthierError):
                registers = (unit_of(call, taken.source) for taken in template.inputs if not taken.source.state)
                units |= mask_of(registers) | template.destinations
        return units


def _outstanding(edited: Edited, lifted: LiftedRepresentation) -> Outstanding | None:
    if edited.counted or edited.replaced or lifted.target.waits_free_sgprs:
        return None
    if lifted.skipped:  # skipped instructions change no counter, so older accesses may still be outstanding
        return None
    return Outstanding(lifted)
