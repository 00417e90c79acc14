"""Every hook of a task with the registers it gets at its point."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError
from luthier.hazards.wait_counters import Outstanding
from luthier.isa.registers import AGPRS, SGPRS, VGPRS, mask_of
from luthier.patch.boundary.edits import with_waits
from luthier.patch.counters.wave_rows import states_for_rows
from luthier.patch.payloads.assignment import Binder, TooFewRegisters
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.payloads.collection import Payloads
from luthier.patch.payloads.sites import Site
from luthier.patch.payloads.uses import Refusals, Templates, Uses, unit_of
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers import lds_slots
from luthier.patch.registers.binding import RegisterBudget
from luthier.patch.registers.budget import budget_of, named_registers
from luthier.patch.registers.launch_state import StatePlan, plan_state
from luthier.patch.registers.spill_slots import aligned, frame_place, refusal
from luthier.patch.splicing.costs import RegisterNeeds, Tally
from luthier.patch.splicing.counting import CountingPlanner
from luthier.patch.splicing.placements import Bound, PayloadNames, Placements
from luthier.tool.edits import Edited, highest
from luthier.tool.task import InstrumentationTask


class Attempt(Struct, frozen=True):
    """The limits of one attempt to give hooks registers."""

    strict: bool
    """Whether an insertion that cannot be spliced in is an error; else it is in `Splicer.refusals`."""
    spill: bool
    """Whether payloads may keep live VGPRs in private memory, or LDS."""
    enough: bool = False
    """Whether there are to be enough registers at every point; else a point without them is refused."""
    left_out: Container[int] = frozenset()
    """Insertions that are sampled out, by their numbers."""
    no_lds: str = ""
    """Why payloads may keep nothing in LDS; empty if they may."""


class Splicer:
    """Compiles and binds the insertions of one task.

    Attributes:
        edited: the application's instructions that change.
        state: where launch state is, for the hooks that use it.
        hook_lds: bytes of LDS that a work-group needs more for hooks that ask for it.
        counting: what is counted.
        starved: insertions, by their numbers, at whose points there were too few registers.
        placements: every payload at its place.
        entries: what insertions at the kernel's start become.
        names: what people call payloads.
        needs: registers that the kernel needs.
        tally: how many insertions there are of each kind.
        refusals: what was left out.

    Raises:
        TooFewRegisters: at some point, if there are to be enough.
        LuthierError: the first insertion that is refused, if the attempt is strict; something cannot be counted.
    """

    def __init__(self, task: InstrumentationTask, attempt: Attempt) -> None:
        self._task, self._attempt = task, attempt
        self._edits = with_waits(task.lifted, task.edits)
        self.edited = Edited(task.lifted, self._edits)
        self.lifted = self.edited.seen_by_liveness(task.lifted)
        refusals = Refusals(self.lifted, strict=attempt.strict)
        templates = Templates(self.lifted)
        kernel_budget = self._without_named_agprs(budget_of(task.lifted, task.options.hook_budget), templates)
        files = self._files(kernel_budget)
        self.state = self._plan_state(kernel_budget, templates)
        if attempt.enough and self.state.homeless:
            raise TooFewRegisters("not enough VGPRs for launch state", kernel=self.lifted.kernel.name)
        budget = self._with_places_to_spill(kernel_budget)
        uses = Uses(self.lifted, templates, files, self.state, refusals)
        compiled = uses.sites(task.insertions, attempt.left_out)
        self.hook_lds = uses.lds
        self.budget = self._with_lds(budget)
        counting = CountingPlanner(
            task, self.lifted, self.edited, self.budget, self.state, lambda: self._outstanding
        ).plan(compiled)
        self.counting = counting.plan
        sites = [*counting.sites, *self._direct_counters(uses)]
        self._payloads = Payloads(self.lifted, aligned(self.state.private) or self._frame_place)
        bound = self._bind(sites, refusals)
        self.placements = Placements.of(self.lifted.isa, self._payloads, bound, self._edits, self.counting.splices)
        self.entries = [self._at_entry(site, number) for site, number in bound if site.zone is None]
        self.names = PayloadNames(self._payloads, bound)
        self._slots = self._payloads.slots([number for _, number in bound])
        self.needs = self._needed_registers(sites, bound)
        self.tally = Tally.of(bound, self._payloads.bindings, counting.hoisted, self._soft_limit)
        self.refusals = sorted(refusals.found, key=lambda one: one.insertion or 0)

    @property
    def payloads(self) -> Sequence[BoundPayload]:
        """Return every payload that is spliced in somewhere, or called."""
        return self._payloads.all

    @property
    def called(self) -> Mapping[int, int]:
        """Return for payloads that call another one: position in `payloads` -> that of the other."""
        return self._payloads.called

    @property
    def private_memory(self) -> int:
        """Return the bytes of private memory per lane that the kernel needs for payloads, beyond its own.

        If it is 0, none of them is used.
        """
        return max(self._payloads.private_memory(self.placements.numbers.tolist()), self.state.private)

    @property
    def lds(self) -> int:
        """Return how many more bytes of LDS a work-group needs."""
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
        """Return why nothing can be kept in LDS, or no more."""
        room = self.budget.lds
        return self.state.no_lds or ("there is no room for it" if room is None else f"there is room for {room.slots}")

    @property
    def _slots_lds(self) -> int:
        room = self.budget.lds
        return 0 if room is None else lds_slots.size_of(self._slots, room.stride)

    # What the kernel has, before any hook gets a register

    def _files(self, budget: RegisterBudget) -> tuple[tuple[range, int], ...]:
        """Files of registers with how many of each the kernel, edits and guards have: others hold nothing that a hook
        could read."""
        lifted, added = self._task.lifted, self._added
        sgprs = max(budget.sgprs, named_registers(lifted, SGPRS[: budget.sgpr_limit]), highest(added, SGPRS))
        vgprs = max(self._own_vgprs, highest(added, VGPRS))
        return (SGPRS, sgprs), (VGPRS, vgprs), (AGPRS, lifted.kernel.descriptor.agprs)

    @property
    def _own_vgprs(self) -> int:
        """Return how many VGPRs the kernel has, or names."""
        lifted = self._task.lifted
        return max(lifted.kernel.descriptor.architected_vgprs, named_registers(lifted, VGPRS))

    @functools.cached_property
    def _added(self) -> int:
        """Return the bit set of units that edits and guards name."""
        guards = {insertion.call.guard for insertion in self._task.insertions} - {None}
        return functools.reduce(lambda units, one: units | (one.reads if one else 0), guards, self.edited.units)

    def _plan_state(self, budget: RegisterBudget, templates: Templates) -> StatePlan:
        """Find places for the launch state of all calls and of rows of waves together, and for what they write: each
        place is out of bounds for all payloads, so it must be known before any is bound."""
        task, spill = self._task, self._attempt.spill
        states, written, frame = set(), 0, spill
        by_waves = any(request.granularity == "wave" for request in task.counts)
        in_registers = states_for_rows(self.lifted.target) if by_waves else []
        states.update(in_registers)
        for call in {insertion.call: None for insertion in task.insertions}:
            template = templates.of(call)
            if isinstance(template, LuthierError):
                continue  # refused later, site by site
            states |= {taken.source.state for taken in template.inputs if taken.source.state}
            written |= template.destinations
            frame |= template.stack is not None
        written |= self.edited.units
        asked = task.options.hook_budget
        no_frame = "its budget says so" if asked and asked.on_excess == "refuse" else StatePlan.no_frame
        if frame:
            no_frame = refusal(self.lifted, task.options.most_stack)
        plan_for = functools.partial(
            plan_state, self.lifted, budget, states, written, frame=self._frame_place, in_registers=in_registers
        )
        plan = plan_for(no_frame)
        if not spill or not plan.no_frame:
            return plan
        # Use LDS only as a last resort: other work-groups, and launches that ask for it, may need it.
        no_lds = self._attempt.no_lds or lds_slots.refusal(self.lifted)
        with_lds = plan_for(plan.no_frame, no_lds)
        return plan if with_lds.missing.keys() - plan.missing.keys() else with_lds

    @property
    def _frame_place(self) -> int:
        return frame_place(self.lifted, self._task.options.most_stack)

    def _without_named_agprs(self, budget: RegisterBudget, templates: Templates) -> RegisterBudget:
        """The budget without AGPRs that a hook reads or writes; without any where edits may."""
        slots = 0 if self._task.edits else budget.agpr_slots
        if slots:
            slots &= ~self._named_by_hooks(templates)
        return replace(budget, agpr_slots=slots)

    def _with_places_to_spill(self, budget: RegisterBudget) -> RegisterBudget:
        """The budget with private memory, if payloads may spill there, and without AGPRs that hold launch state."""
        spill = self._attempt.spill and not self.state.no_frame
        return replace(budget, spill=spill, agpr_slots=budget.agpr_slots & ~self.state.reserved)

    def _named_by_hooks(self, templates: Templates) -> int:
        """Return the bit set of the application's units that hooks read or write."""
        units = 0
        for call in {insertion.call: None for insertion in self._task.insertions}:
            template = templates.of(call)
            if not isinstance(template, LuthierError):
                registers = (unit_of(call, taken.source) for taken in template.inputs if not taken.source.state)
                units |= mask_of(registers) | template.destinations
        return units

    def _with_lds(self, budget: RegisterBudget) -> RegisterBudget:
        """The budget with the LDS for spills that hooks' own LDS and the task's budget leave."""
        if self.state.wave_lds is None:
            return budget
        asked = self._task.options.hook_budget
        waves = asked.waves(self._task.lifted) if asked and asked.on_excess != "keep" else None
        return replace(budget, lds=lds_slots.slice_of(self.lifted, self.state.wave_lds, self.hook_lds, waves))

    # What hooks and counters become

    def _direct_counters(self, uses: Uses) -> list[Site]:
        """Counters that no register is left for: each adds to memory in a payload that is bound like a hook's."""
        hooks = len(self._task.insertions)
        return [
            Site(hooks + number, None, one.at, one.at, uses.counter(one.template), Zone.BEFORE)
            for number, one in enumerate(self.counting.direct)
        ]

    def _bind(self, sites: list[Site], refusals: Refusals) -> Bound:
        """Give every site registers, but those that are refused."""
        binder = Binder(
            self.lifted,
            self._payloads,
            refusals,
            edits=self._edits,
            enough=self._attempt.enough,
            budget=self.budget,
            asked=self._task.options.hook_budget,
            no_spill=self._why_not_spilled(),
            reserved=(self.counting.reserved, self.counting.reserved | self.state.reserved),
            outstanding=lambda: self._outstanding,
            others=[(one.at + (one.zone == Zone.BEHIND), one.payload.code) for one in self.counting.splices],
        )
        bound = binder.bind(sites)
        self.starved = binder.starved
        return bound

    def _why_not_spilled(self) -> str:
        """Return why nothing can be spilled to private memory, and no more to LDS; empty if something can."""
        return "" if self.budget.spill else f"{self.state.no_frame}, and in LDS {self.no_lds}"

    def _at_entry(self, site: Site, number: int) -> BoundPayload:
        return self._payloads.all[number].with_numbers(site.numbers)

    def _needed_registers(self, sites: Sequence[Site], bound: Bound) -> RegisterNeeds:
        """See that the kernel gets the registers that payloads, counters and edits use."""
        bindings = [self._payloads.bindings[number] for number in {number for _, number in bound}]
        edited = RegisterNeeds.of_edits(self._added, self.budget, self._own_vgprs, self.lifted.kernel.name)
        return RegisterNeeds.of(self._task.lifted, self.counting, self.state, bindings, edited, sites)

    @property
    def _soft_limit(self) -> int:
        """VGPRs beyond which an insertion is in excess of the task's budget."""
        asked = self._task.options.hook_budget
        return asked.vgpr_limit(self._task.lifted) if asked else self.budget.vgpr_limit

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        """Return what the application has outstanding.

        None where it is not known, or where waits are for more than that.
        """
        if self.edited.counted or self.edited.replaced or self.lifted.target.waits_free_sgprs:
            return None
        if self.lifted.skipped:  # skipped instructions change no counter, so older accesses may still be outstanding
            return None
        return Outstanding(self.lifted)
