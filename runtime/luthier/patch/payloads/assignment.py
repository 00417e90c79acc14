"""Registers and code of every hook at its point."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from luthier.errors import LuthierError, PatchError
from luthier.hazards.insertion import Boundaries, Boundary, ModeWrites
from luthier.hazards.wait_counters import Outstanding
from luthier.hazards.wait_counters.model import wait_model
from luthier.hazards.wait_states.kinds import pairs
from luthier.isa import Isa
from luthier.isa.registers import AGPRS, SCALAR_MASK, VCC, mask_of
from luthier.lifting import LiftedRepresentation, Liveness, LivePoints
from luthier.patch.boundary.neighbours import NearUse, Neighbours, begins_with
from luthier.patch.boundary.scalar_reads import Endings, Leftovers
from luthier.patch.boundary.vector_results import VectorResults
from luthier.patch.outcome import RefusalKind
from luthier.patch.payloads.collection import Payloads
from luthier.patch.payloads.emission import Limits, forgotten_masks, leftovers
from luthier.patch.payloads.guarded import GuardedPlace, free_place, head_of
from luthier.patch.payloads.sites import InsertionSite, PayloadUse, uses_of, with_what_hooks_do
from luthier.patch.payloads.uses import Refusals
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers.binding import Binding, RegisterBudget, touched_by
from luthier.patch.registers.choices import Choices, least_vectors
from luthier.patch.registers.copies import holders
from luthier.patch.registers.lane_masks import LaneMasks
from luthier.payload import Template
from luthier.tool.edits import Edit
from luthier.tool.guards import Guard
from luthier.tool.hook_budget import HookBudget

LARGE = 32
"""Instructions of a payload from which on it is called rather than repeated. A call costs two, and copies of inputs."""


class _Bound:
    """A template at points where it gets the same registers, and its inputs from the same ones.

    Attributes:
        touched: bit set of the units that it reads or writes.
        written: of those that it writes.
        limits: what it waits for, by what is outstanding.
        numbers: position in `Payloads.all`, by what points differ in.
        by_limits: the same by what it waits for and ends with, where they differ in nothing else but their neighbours;
            and what it does at once.
        by_stretch: the same by what is outstanding, and what it ends with if that is anything.
    """

    def __init__(self, isa: Isa, use: PayloadUse, binding: Binding) -> None:
        self._isa, self.use, self.binding = isa, use, binding
        self.touched, self.written = touched_by(use.template, binding, use.sources)
        self.limits: dict[int, Limits] = {}
        self.numbers: dict[Hashable, int] = {}
        self.by_limits: dict[tuple[Limits, tuple[str, ...]], tuple[int, tuple[NearUse, ...]]] = {}
        self.by_stretch: dict[Hashable, tuple[int, tuple[NearUse, ...]]] = {}

    @functools.cached_property
    def left(self) -> Leftovers:
        """Return the SGPRs through which the payload can affect the application code after it."""
        return leftovers(self._isa, self.use.template, self.binding, self.use.sources)

    @functools.cached_property
    def forgets(self) -> tuple[str, ...]:
        """Return the assembly that the payload ends with where lane masks matter."""
        return forgotten_masks(self._isa, self.use.template, self.binding)


def _is_large(template: Template) -> bool:
    """Return whether a payload is large enough to be called instead of inlined."""
    return template.hands_in and len(template.code) - template.waits >= LARGE


class TooFewRegisters(PatchError):
    """There are not enough registers at a point."""


class BindingLimits(Struct, frozen=True):
    """Limits that payloads have to keep to."""

    edits: Sequence[Edit]
    """Changes of the application's instructions."""
    enough: bool
    """Whether there are to be enough registers at every point."""
    budget: RegisterBudget
    """The kernel's register files."""
    asked: HookBudget | None
    """The task's budget, if there is one."""
    no_spill: str
    """Why nothing can be spilled, if it cannot, or no more than so much."""
    counters: int
    """Bit set of the units of counters,"""
    reserved: int
    """and of those that no payload may overwrite: of counters, and of all plans."""
    outstanding: Callable[[], Outstanding | None]
    """Finds what the application has outstanding; None where that is not known."""
    others: Sequence[tuple[int, bytes]]
    """Code that is spliced in besides, with the instruction that it stands before."""


class RegisterAssigner:
    """Gives hooks registers.

    Attributes:
        starved: sites, by their numbers, at whose points there were too few registers.
    """

    def __init__(
        self, lifted: LiftedRepresentation, payloads: Payloads, refusals: Refusals, limits: BindingLimits
    ) -> None:
        self._lifted, self._payloads, self._refusals, self._given = lifted, payloads, refusals, limits
        self._budget, edits = limits.budget, limits.edits
        self._boundaries, self._mode_writes = Boundaries(lifted), ModeWrites(lifted)
        self._endings = Endings(lifted, edited=bool(edits))
        self._masks = LaneMasks(lifted, edited=bool(edits))
        changed = any(edit.place == "instead" for edit in edits)
        self._neighbours = Neighbours(lifted, added=(edit.code for edit in edits), changed=changed)
        self._results = VectorResults(lifted, changed=bool(edits))
        self._reserved = limits.reserved
        if self._endings.needed:  # counters do not wait for hooks that read the other SGPR
            self._reserved |= pairs(limits.counters)
        self._exec = lifted.effect_table.exec
        self.starved: set[int] = set()
        self._live_at: dict[int, tuple[LivePoints, int]] = {}
        """Site, by its number -> what is live there."""

    def bind(self, sites: list[InsertionSite]) -> list[tuple[InsertionSite, int]]:
        """Return each site that can have registers, with the position of its payload.

        A site that is left out must leave no trace: one that fails and has changed what is live is taken out of the
        liveness, and all others get another try.

        Raises:
            TooFewRegisters: there are too few at some point, and there are to be enough.
            LuthierError: the first site fails, if refusals are errors; a counter cannot have registers.
        """
        while True:
            hooked, disturbing = with_what_hooks_do(self._lifted, sites)
            live = self._live(sites, hooked.liveness)
            self._live_at = {site.number: (live, place) for place, site in enumerate(sites)}
            bounds = self._choose(sites, live)
            numbers, failed = self._number_all(sites, bounds)
            gone = {site.number for site, _, _ in failed if site.number in disturbing}
            for site, kind, reason in failed:
                if site.insertion is not None and (not gone or self._refusals.strict or site.number in gone):
                    self._refusals.refuse(site.number, site.insertion, kind, reason)
            if not gone:
                self._repeat_what_is_smaller(sites, live, bounds, numbers)
                self._keep_apart(sites, bounds, numbers)
                return [(site, number) for site, number in zip(sites, numbers, strict=True) if number >= 0]
            sites = [site for site in sites if site.number not in gone]

    def _live(self, sites: Sequence[InsertionSite], liveness: Liveness) -> LivePoints:
        """Return what is live at each site."""
        live = liveness.at([site.point for site in sites])
        if self._reserved:
            live.keep(self._reserved)
        # After EXEC has changed, other lanes are active. Whether reading an AGPR heeds EXEC is not documented.
        uses = uses_of(sites)
        changes = {use for use in uses if use.template.destinations & self._exec}
        heedless = {use for use in uses if holders(use.sources) >> AGPRS.start}
        if changes or heedless:
            changed = {site.point for site in sites if site.use in changes}
            live.let_any_lane_be_active(
                [number for number, site in enumerate(sites) if site.point in changed or site.use in heedless]
            )
        return live

    def _choose(self, sites: Sequence[InsertionSite], live: LivePoints) -> list[_Bound | None]:
        """Return [sites] the registers of each site, where there are enough."""
        bounds: list[_Bound | None] = [None] * len(sites)
        by_use: defaultdict[int, list[int]] = defaultdict(list)
        for number, site in enumerate(sites):
            by_use[site.use.form].append(number)
        by_template: defaultdict[Template, list[int]] = defaultdict(list)
        for alike in by_use.values():
            by_template[sites[alike[0]].use.template] += alike
        if self._given.enough and not self._budget.spills:
            self._see_that_there_are_enough(sites, live, by_template)
        for template, alike in by_template.items():
            if _is_large(template) and sum(sites[number].zone is not None for number in alike) > 1:
                callers = sorted(number for number in alike if self._may_call(sites[number]))
                for number, bound in self._choose_alike(sites, live, callers, called=True):
                    bounds[number] = bound
        for alike in by_use.values():
            left = [number for number in alike if bounds[number] is None]
            for number, bound in self._choose_alike(sites, live, left):
                bounds[number] = bound
            starved = [number for number in alike if bounds[number] is None] if self._given.enough else []
            if starved:
                raise self._located(self._too_few(sites[starved[0]].use), sites[starved[0]])
        return bounds

    def _see_that_there_are_enough(
        self, sites: Sequence[InsertionSite], live: LivePoints, by_template: Mapping[Template, Sequence[int]]
    ) -> None:
        """Check, before any site gets registers, that none is sure to have too few: all work would be in vain.

        Raises:
            TooFewRegisters: a site surely cannot have any.
        """
        dead = live.dead_among(self._budget.vectors, in_all_lanes=False)
        for template, alike in by_template.items():
            starved = np.flatnonzero(dead[alike] < least_vectors(template))
            if len(starved):
                site = sites[alike[starved[0]]]
                raise self._located(self._too_few(site.use), site)

    def _choose_alike(
        self, sites: Sequence[InsertionSite], live: LivePoints, alike: Sequence[int], *, called: bool = False
    ) -> Iterator[tuple[int, _Bound]]:
        """Yield registers for sites of the same template, which also have the same sources unless they call it.

        Args:
            alike: the sites' places.

        Yields:
            The place of each site for which there are enough, with them.
        """
        if not alike:
            return
        use = sites[alike[0]].use
        choices = Choices(
            use.template,
            () if called else use.sources,
            self._budget,
            self._lifted.wave_size,
            called=called,
            all_or_none=self._given.enough and not called,
        )
        points = live.only(alike)
        if called:  # the place of a called payload must not depend on where inputs are
            places: defaultdict[int, list[int]] = defaultdict(list)
            for place, number in enumerate(alike):
                places[sites[number].use.renamed_sources].append(place)
            for sources, some in places.items():
                points.keep(sources, some)
        made: dict[tuple[int, int], _Bound] = {}
        for number, chosen in zip(alike, choices.choose(points), strict=True):
            if chosen >= 0:
                use = sites[number].use
                bound = made.get((use.form, chosen))
                if bound is None:
                    bound = made[use.form, chosen] = _Bound(self._lifted.isa, use, choices.made[chosen])
                yield number, bound

    def _number_all(
        self, sites: Sequence[InsertionSite], bounds: Sequence[_Bound | None]
    ) -> tuple[list[int], list[tuple[InsertionSite, RefusalKind, LuthierError]]]:
        """Return [sites] the position of each one's payload, -1 for none, and the sites without one, with reasons."""
        numbers = [-1] * len(sites)
        failed: list[tuple[InsertionSite, RefusalKind, LuthierError]] = []
        for place, (site, bound) in enumerate(zip(sites, bounds, strict=True)):
            try:
                if bound is None:
                    raise self._too_few(site.use)
                numbers[place] = self._number(site, bound)
            except LuthierError as problem:
                if site.insertion is None:
                    raise self._located(problem, site) from None
                kind: RefusalKind = "hook"
                if isinstance(problem, TooFewRegisters):
                    self.starved.add(site.number)
                    over = self._given.asked is not None and self._given.asked.on_excess != "keep"
                    kind = "over budget" if over else "too few registers"
                failed.append((site, kind, problem))
                if self._refusals.strict:
                    break
        return numbers, failed

    def _too_few(self, use: PayloadUse) -> TooFewRegisters:
        what = "a counter" if use.call is None else f"hook {use.call.hook.name}"
        unspilled = ""
        if not self._budget.spill:
            refused = self._given.asked is not None and self._given.asked.on_excess == "refuse"
            why = "its budget says so" if refused else self._given.no_spill
            few = "none" if self._budget.lds is None else "too few"
            unspilled = f", and {few} can be spilled: {why}"
        return TooFewRegisters(
            f"not enough dead or spare registers for {what}: "
            f"it needs {sum(group.count for group in use.template.groups)} and the kernel may have "
            f"{self._budget.vgpr_limit} VGPRs and {self._budget.sgpr_limit} SGPRs{unspilled}"
        )

    def _located(self, problem: LuthierError, site: InsertionSite) -> LuthierError:
        """Return an error with its kernel and offset filled in."""
        problem.kernel, problem.offset = self._lifted.kernel.name, self._lifted.columns.address[site.at]
        return problem

    def _may_call(self, site: InsertionSite) -> bool:
        """Return whether a payload at a site may call another.

        The code at a kernel's entry has no place from which it could; and when the kernel is lifted again, no half-made
        address may be in registers meanwhile. Where masks matter, what a call passes would be overwritten before it is
        used.
        """
        return site.zone is not None and site.point not in self._half_made and not self._masks.matter

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        return self._given.outstanding()

    @functools.cached_property
    def _stretches(self) -> Sequence[int]:
        """Return the stretch of each instruction, as in `Outstanding`."""
        return [-1] * len(self._lifted.block_of) if self._outstanding is None else self._outstanding.stretches

    @functools.cached_property
    def _half_made(self) -> set[int]:
        """Return the points between reading the program counter and having made an address of it."""
        made = [(one.getpc, max(one.low, one.high)) for one in self._lifted.pc_references]
        return {point for first, last in made for point in range(first + 1, last + 1)}

    def _repeat_what_is_smaller(
        self, sites: Sequence[InsertionSite], live: LivePoints, bounds: list[_Bound | None], numbers: list[int]
    ) -> None:
        """Inline payloads that are called from too few sites for the calls to make the code smaller."""
        payloads, called = self._payloads.all, self._payloads.called
        gain: Counter[int] = Counter()
        for number, many in Counter(number for number in numbers if number in called).items():
            body = called[number]
            gain[body] += many * (len(payloads[body].code) - len(payloads[number].code))
        vain = {body for body, bytes in gain.items() if bytes <= len(payloads[body].code)}
        by_use: defaultdict[int, list[int]] = defaultdict(list)
        for place, number in enumerate(numbers):
            if called.get(number) in vain:
                by_use[sites[place].use.form].append(place)
        for alike in by_use.values():
            for place, bound in self._choose_alike(sites, live, alike):
                bounds[place], numbers[place] = bound, self._number(sites[place], bound)

    def _keep_apart(self, sites: Sequence[InsertionSite], bounds: Sequence[_Bound | None], numbers: list[int]) -> None:
        """Add wait states after payloads whose last instructions are hazardous to the instructions that follow."""
        if not self._neighbours.matter:
            return
        heads: dict[int, int] = {}
        begins = [self._payloads.begins_with(number) for number in set(numbers) if number >= 0]
        begins += [begins_with(self._lifted.isa, code) for code in {code for _, code in self._given.others}]
        for use in itertools.chain(*begins):
            heads[use.rule] = min(heads.get(use.rule, use.states), use.states)
        late = {number: self._payloads.ends_with(number) for number in set(numbers) if number >= 0}
        if not any(late.values()):
            return
        hooks = Counter(
            site.point for site, number in zip(sites, numbers, strict=True) if number >= 0 and site.zone is not None
        )
        hooks.update(point for point, _ in self._given.others)
        for place, (site, bound) in enumerate(zip(sites, bounds, strict=True)):
            if bound is None or numbers[place] < 0 or not late[numbers[place]]:
                continue
            waits = self._neighbours.behind(site.point, late[numbers[place]], heads, hooks)
            if waits:
                numbers[place] = self._number(site, bound, behind=waits)

    def _number(self, site: InsertionSite, bound: _Bound, *, behind: tuple[str, ...] = ()) -> int:
        """Return the position of the payload of a site, with its guard if it has one; arguments are of `_unguarded`.

        Raises:
            LuthierError: it cannot have a payload.
        """
        number = self._unguarded(site, bound, behind=behind)
        call = site.use.call
        if call is None or call.guard is None:
            return number
        place = self._guard_at(site, bound, call.guard)
        return number if place is None else self._payloads.behind(number, place)

    def _guard_at(self, site: InsertionSite, bound: _Bound, guard: Guard) -> GuardedPlace | None:
        """Return the guard of a site; None where it cannot be had: then the payload always runs."""
        if site.zone is None:
            return None
        at = site.at if site.zone == Zone.TAKEN else site.point
        if self._boundaries.at(at, site.at)[0] != self._boundaries.everywhere:
            return None
        if self._mode_writes.behind(site.point):  # the branch would go around what the payload ends with
            return None
        lifted, vcc = self._lifted, VCC if self._lifted.wave_size > 32 else VCC[:1]
        live, number = self._live_at[site.number]
        here = live[number]
        wanted = here.all_bits & mask_of(vcc)
        place = GuardedPlace(guard, (), None)
        if wanted:
            kept = free_place(here, self._budget.sgprs, lifted.wave_size, guard.reads | holders(bound.use.sources))
            if kept is None:
                return None
            place = replace(place, kept=kept)
        written = mask_of((*vcc, *(place.kept or ())))
        forget = self._masks.before(written) if self._masks.matter else ()
        waits = self._waits(self._stretches[site.point], guard.reads | written, written)
        scalars = guard.reads & SCALAR_MASK if self._masks.matter or self._endings.needed else 0
        # Vector instructions may still read as lane masks what is overwritten, or what is compared may not be written
        # yet; a branch may not stand between some instructions.
        near = wanted or forget or scalars or lifted.target.inserted_waits
        if near or self._results.are_awaited(at, site.at, guard.reads):
            waits = (*lifted.target.inserted_waits, *self._boundaries.everywhere, *forget, *waits)
        place = replace(place, lead=waits)
        early = begins_with(lifted.isa, head_of(lifted.isa, place)) if self._neighbours.matter else ()
        return replace(place, lead=(*place.lead, *self._neighbours.before(at, site.at, early))) if early else place

    def _waits(self, stretch: int, touched: int, written: int) -> tuple[str, ...]:
        """Return assembly that waits for the application before registers are used, as of `Outstanding.needed_in`."""
        target, outstanding = self._lifted.target, self._outstanding
        limits = None if outstanding is None else outstanding.needed_in(stretch, touched, written)
        return target.wait_for_everything if limits is None else wait_model(target).text(limits)

    def _unguarded(self, site: InsertionSite, bound: _Bound, *, behind: tuple[str, ...] = ()) -> int:
        """Return the position of the payload of a site.

        Args:
            behind: assembly to end with.

        Raises:
            LuthierError: it cannot have one.
        """
        point, at = site.point, site.at
        stretch = self._stretches[point]
        ending = (*behind, *self._mode_writes.behind(point)) if self._mode_writes.matter else behind
        if self._endings.needed:
            ending = (*self._endings.at(point, bound.left), *ending)
        key: Hashable = (stretch, ending) if ending else stretch
        kept = bound.by_stretch.get(key)
        if kept is None and bound.by_limits:
            kept = bound.by_limits.get((self._limits(bound, stretch), ending))
            if kept is not None:
                bound.by_stretch[key] = kept
        if kept is not None and not kept[1]:
            return kept[0]
        # A branch does not change what the boundary depends on.
        place = at if site.zone == Zone.TAKEN else point
        boundary = self._boundaries.at(place, at)
        skipped = self._lifted.skipped.get(place)
        if skipped is not None and bound.use.template.destinations & skipped.reads:
            raise PatchError("the hook writes what vector skip mode was set from, and the mode is set from it again")
        if kept is None:
            number = self._position(bound, boundary, stretch, (), ending)
            kept = number, self._payloads.begins_with(number) if self._neighbours.matter else ()
            if self._boundaries.same:
                bound.by_limits[self._limits(bound, stretch), ending] = bound.by_stretch[key] = kept
        number, early = kept
        lead = self._neighbours.before(place, at, early) if early else ()
        return self._position(bound, boundary, stretch, lead, ending) if lead else number

    def _limits(self, bound: _Bound, stretch: int) -> Limits:
        """Return what a template with its registers waits for, in a stretch of `Outstanding.stretches`."""
        limits = bound.limits
        if stretch not in limits:
            limits[stretch] = None
            if bound.use.template.relaxed and self._outstanding is not None:
                limits[stretch] = self._outstanding.needed_in(stretch, bound.touched, bound.written)
        return limits[stretch]

    def _position(
        self, bound: _Bound, boundary: Boundary, stretch: int, lead: tuple[str, ...], ending: tuple[str, ...]
    ) -> int:
        """Position of a template with its registers, with what it begins and ends with besides its boundary.

        Args:
            stretch: of `Outstanding.stretches`.
        """
        limits = self._limits(bound, stretch)
        key = limits, boundary, lead, ending
        number = bound.numbers.get(key)
        if number is None:
            settle: tuple[str, ...] = ()
            if self._masks.matter:
                settle = self._masks.before(bound.written)
                ending = (*bound.forgets, *ending)
            around = (*boundary[0], *lead), (*ending, *boundary[1])
            number = bound.numbers[key] = self._payloads.of(bound.use, bound.binding, around, settle, limits)
        return number
