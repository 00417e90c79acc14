"""Assignment of registers to hooks at their points, and selection of their payloads."""

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
"""Number of instructions from which a payload is called instead of repeated. A call costs two, and copies of inputs."""


class _Bound:
    """A template at points with the same registers and the same sources of inputs.

    Attributes:
        guarded: whether its hook has a guard.
        touched: bit set of the units that it reads or writes.
        written: bit set of the units that it writes.
        limits: stretch -> its waits.
        numbers: properties in which points differ -> position in `Payloads.all`.
        by_limits: (waits, ending) -> the same for points that differ only in their neighbours, and the uses near its
            beginning.
        by_stretch: the same by stretch, and ending if there is one.
    """

    def __init__(self, isa: Isa, use: PayloadUse, binding: Binding) -> None:
        self._isa, self.use, self.binding = isa, use, binding
        self.guarded = use.call is not None and use.call.guard is not None
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
        """Return the assembly at the end of the payload on targets where lane masks matter."""
        return forgotten_masks(self._isa, self.use.template, self.binding)


def _is_large(template: Template) -> bool:
    """Return whether a payload is large enough to be called instead of inlined."""
    return template.hands_in and len(template.code) - template.waits >= LARGE


class TooFewRegisters(PatchError):
    """There are too few registers at a point."""


class BindingLimits(Struct, frozen=True):
    """Constraints on the binding of payloads."""

    edits: Sequence[Edit]
    """Edits of the application's instructions."""
    enough: bool
    """Whether there must be enough registers at every point."""
    budget: RegisterBudget
    """The kernel's register files."""
    asked: HookBudget | None
    """The task's budget, if there is one."""
    no_spill: str
    """Why nothing, or not more, can be spilled."""
    counters: int
    """Bit set of the units of counters."""
    reserved: int
    """Bit set of the units that no payload may overwrite, including those of counters."""
    outstanding: Callable[[], Outstanding | None]
    """Returns the application's outstanding operations; None if unknown."""
    spliced: Sequence[tuple[int, bytes]]
    """Other spliced code, with the instruction before which it is placed."""


class RegisterAssigner:
    """Assigns registers to hooks.

    Attributes:
        starved: numbers of the sites with too few registers.
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
        if self._endings.needed:  # counters do not wait for hooks that read the other SGPR of a pair
            self._reserved |= pairs(limits.counters)
        self._exec = lifted.effect_table.exec
        self.starved: set[int] = set()
        self._live_at: dict[int, tuple[LivePoints, int]] = {}
        """Number of a site -> live registers there; empty if no site has a guard."""

    def bind(self, sites: list[InsertionSite]) -> list[tuple[InsertionSite, int]]:
        """Return each site that can have registers, with the position of its payload.

        A site that is left out must have no effect: if it fails and has changed liveness, its changes are removed, and
        all other sites are tried again.

        Raises:
            TooFewRegisters: a point has too few registers, and all must have enough.
            LuthierError: a site fails and refusals are errors, or a counter cannot have registers.
        """
        while True:
            hooked, disturbing = with_what_hooks_do(self._lifted, sites)
            live = self._live(sites, hooked.liveness)
            guarded = any(use.call is not None and use.call.guard is not None for use in uses_of(sites))
            self._live_at = {site.number: (live, place) for place, site in enumerate(sites)} if guarded else {}
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
        """Return the live registers at each site."""
        live = liveness.at([site.point for site in sites])
        if self._reserved:
            live.keep(self._reserved)
        # After a change of EXEC other lanes are active. It is not documented whether reads of AGPRs depend on EXEC.
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
        """Return [sites] the registers of each site, None if there are too few."""
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
        """Check, before binding any site, that none certainly has too few registers.

        Raises:
            TooFewRegisters: a site certainly has too few.
        """
        vectors = self._budget.vectors
        always_dead = (vectors & ~live.anywhere(in_all_lanes=False)).bit_count()
        needs = {template: least_vectors(template) for template in by_template}
        if always_dead >= max(needs.values(), default=0):
            return
        dead = live.dead_among(vectors, in_all_lanes=False)
        for template, alike in by_template.items():
            starved = np.flatnonzero(dead[alike] < needs[template])
            if len(starved):
                site = sites[alike[starved[0]]]
                raise self._located(self._too_few(site.use), site)

    def _choose_alike(
        self, sites: Sequence[InsertionSite], live: LivePoints, alike: Sequence[int], *, called: bool = False
    ) -> Iterator[tuple[int, _Bound]]:
        """Yield registers for sites of the same template, which also have the same sources unless they call it.

        Args:
            alike: positions of the sites.

        Yields:
            The position of each site with enough registers, and these.
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
        if called:  # registers of a called payload must not depend on the sources of inputs
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
        """Return [sites] the position of each site's payload, -1 for none, and the sites without one with reasons."""
        if not sites:
            return [], []
        numbers = [-1] * len(sites)
        failed: list[tuple[InsertionSite, RefusalKind, LuthierError]] = []
        stretches, plain = self._stretches, not self._mode_writes.matter
        endings = self._endings if self._endings.needed else None
        for place, (site, bound) in enumerate(zip(sites, bounds, strict=True)):
            try:
                if bound is None:
                    raise self._too_few(site.use)
                # Most sites have the payload of an earlier site: a call of `_number` takes longer than this.
                if plain and not bound.guarded:
                    ending = () if endings is None else endings.at(site.point, bound.left)
                    stretch = stretches[site.point]
                    kept = bound.by_stretch.get((stretch, ending) if ending else stretch)
                    if kept is not None and not kept[1]:
                        numbers[place] = kept[0]
                        continue
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
            why = "the tool's budget forbids it" if refused else self._given.no_spill
            few = "none" if self._budget.lds is None else "too few"
            unspilled = f", and {few} can be spilled: {why}"
        return TooFewRegisters(
            f"not enough dead or unused registers for {what}: "
            f"it needs {sum(group.count for group in use.template.groups)} and the kernel may have "
            f"{self._budget.vgpr_limit} VGPRs and {self._budget.sgpr_limit} SGPRs{unspilled}"
        )

    def _located(self, problem: LuthierError, site: InsertionSite) -> LuthierError:
        """Return an error with the kernel and offset of a site."""
        problem.kernel, problem.offset = self._lifted.kernel.name, self._lifted.columns.address[site.at]
        return problem

    def _may_call(self, site: InsertionSite) -> bool:
        """Return whether a payload at a site may call a shared one.

        Code at the kernel's entry cannot. When the patched kernel is lifted again, no incomplete address may be in
        registers during a call. On targets where lane masks matter, arguments of a call would be overwritten before
        their use.
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
        """Return the points between an s_getpc_b64 and the completion of its address."""
        made = [(one.getpc, max(one.low, one.high)) for one in self._lifted.pc_references]
        return {point for first, last in made for point in range(first + 1, last + 1)}

    def _repeat_what_is_smaller(
        self, sites: Sequence[InsertionSite], live: LivePoints, bounds: list[_Bound | None], numbers: list[int]
    ) -> None:
        """Inline payloads that are called from so few sites that calls would not make the code smaller."""
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
        begins += [begins_with(self._lifted.isa, code) for code in {code for _, code in self._given.spliced}]
        for use in itertools.chain(*begins):
            heads[use.rule] = min(heads.get(use.rule, use.states), use.states)
        late = {number: self._payloads.ends_with(number) for number in set(numbers) if number >= 0}
        if not any(late.values()):
            return
        hooks = Counter(
            site.point for site, number in zip(sites, numbers, strict=True) if number >= 0 and site.zone is not None
        )
        hooks.update(point for point, _ in self._given.spliced)
        for place, (site, bound) in enumerate(zip(sites, bounds, strict=True)):
            if bound is None or numbers[place] < 0 or not late[numbers[place]]:
                continue
            waits = self._neighbours.behind(site.point, late[numbers[place]], heads, hooks)
            if waits:
                numbers[place] = self._number(site, bound, behind=waits)

    def _number(self, site: InsertionSite, bound: _Bound, *, behind: tuple[str, ...] = ()) -> int:
        """Return the position of the payload of a site, with its guard if it has one; see `_unguarded`.

        Raises:
            LuthierError: the site cannot have a payload.
        """
        number = self._unguarded(site, bound, behind=behind)
        call = site.use.call
        if call is None or call.guard is None:
            return number
        place = self._guard_at(site, bound, call.guard)
        return number if place is None else self._payloads.behind(number, place)

    def _guard_at(self, site: InsertionSite, bound: _Bound, guard: Guard) -> GuardedPlace | None:
        """Return the guard of a site; None if it is not possible, so that the payload always runs."""
        if site.zone is None:
            return None
        at = site.at if site.zone == Zone.TAKEN else site.point
        if self._boundaries.at(at, site.at)[0] != self._boundaries.everywhere:
            return None
        if self._mode_writes.behind(site.point):  # the branch would skip the assembly at the end of the payload
            return None
        lifted, vcc = self._lifted, VCC if self._lifted.wave_size > 32 else VCC[:1]
        live, number = self._live_at[site.number]
        live_here = live[number]
        wanted = live_here.all_bits & mask_of(vcc)
        place = GuardedPlace(guard, (), None)
        if wanted:
            kept = free_place(live_here, self._budget.sgprs, lifted.wave_size, guard.reads | holders(bound.use.sources))
            if kept is None:
                return None
            place = replace(place, kept=kept)
        written = mask_of((*vcc, *(place.kept or ())))
        forget = self._masks.before(written) if self._masks.matter else ()
        waits = self._waits(self._stretches[site.point], guard.reads | written, written)
        scalars = guard.reads & SCALAR_MASK if self._masks.matter or self._endings.needed else 0
        # Vector instructions may still read overwritten SGPRs as lane masks, or operands of comparisons may not be
        # written yet. A branch is not allowed between some instructions.
        near = wanted or forget or scalars or lifted.target.inserted_waits
        if near or self._results.are_awaited(at, site.at, guard.reads):
            waits = (*lifted.target.inserted_waits, *self._boundaries.everywhere, *forget, *waits)
        place = replace(place, lead=waits)
        early = begins_with(lifted.isa, head_of(lifted.isa, place)) if self._neighbours.matter else ()
        return replace(place, lead=(*place.lead, *self._neighbours.before(at, site.at, early))) if early else place

    def _waits(self, stretch: int, touched: int, written: int) -> tuple[str, ...]:
        """Return assembly that waits for the application before registers are used (`Outstanding.needed_in`)."""
        target, outstanding = self._lifted.target, self._outstanding
        limits = None if outstanding is None else outstanding.needed_in(stretch, touched, written)
        return target.wait_for_everything if limits is None else wait_model(target).text(limits)

    def _unguarded(self, site: InsertionSite, bound: _Bound, *, behind: tuple[str, ...] = ()) -> int:
        """Return the position of the payload of a site.

        Args:
            behind: assembly at the end.

        Raises:
            LuthierError: the site cannot have one.
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
        # A branch does not change anything on which the boundary depends.
        place = at if site.zone == Zone.TAKEN else point
        boundary = self._boundaries.at(place, at)
        skipped = self._lifted.skipped.get(place)
        if skipped is not None and bound.use.template.destinations & skipped.reads:
            raise PatchError("the hook writes the SGPR from which vector skip mode must be set again after the hook")
        if kept is None:
            number = self._position(bound, boundary, stretch, (), ending)
            kept = number, self._payloads.begins_with(number) if self._neighbours.matter else ()
            if self._boundaries.same:
                bound.by_limits[self._limits(bound, stretch), ending] = bound.by_stretch[key] = kept
        number, early = kept
        lead = self._neighbours.before(place, at, early) if early else ()
        return self._position(bound, boundary, stretch, lead, ending) if lead else number

    def _limits(self, bound: _Bound, stretch: int) -> Limits:
        """Return the waits of a bound template in a stretch (`Outstanding.stretches`)."""
        limits = bound.limits
        if stretch not in limits:
            limits[stretch] = None
            if bound.use.template.relaxed and self._outstanding is not None:
                limits[stretch] = self._outstanding.needed_in(stretch, bound.touched, bound.written)
        return limits[stretch]

    def _position(
        self, bound: _Bound, boundary: Boundary, stretch: int, lead: tuple[str, ...], ending: tuple[str, ...]
    ) -> int:
        """Return the position of a bound template, with further assembly at its beginning and end.

        Args:
            stretch: see `Outstanding.stretches`.
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
