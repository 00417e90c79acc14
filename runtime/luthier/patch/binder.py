"""Registers and code of every hook at its point."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np

from luthier.budgets import HookBudget
from luthier.errors import LuthierError, PatchError
from luthier.isa import Isa
from luthier.isa.hazard_parties import pairs
from luthier.isa.registers import AGPRS
from luthier.lifting import LiftedRepresentation, Liveness, LivePoints
from luthier.lifting.waits import Outstanding
from luthier.patch.binding import Binding, RegisterBudget, touched_by
from luthier.patch.choices import Choices, least_vectors
from luthier.patch.emission import BoundPayload, Limits, emit, emit_call, forgotten_masks, leftovers
from luthier.patch.hazards import Seam, Seams
from luthier.patch.lane_masks import LaneMasks
from luthier.patch.layout import Zone
from luthier.patch.neighbours import NearUse, Neighbours, begins_with, ends_with
from luthier.patch.report import RefusalKind
from luthier.patch.scalar_reads import Endings, Leftovers
from luthier.patch.sites import Site, Use, uses_of, with_what_hooks_do
from luthier.patch.uses import Refusals
from luthier.payload import Template

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

    def __init__(self, isa: Isa, use: Use, binding: Binding) -> None:
        self._isa, self.use, self.binding = isa, use, binding
        self.touched, self.written = touched_by(use.template, binding, use.sources)
        self.limits: dict[int, Limits] = {}
        self.numbers: dict[Hashable, int] = {}
        self.by_limits: dict[tuple[Limits, tuple[str, ...]], tuple[int, tuple[NearUse, ...]]] = {}
        self.by_stretch: dict[Hashable, tuple[int, tuple[NearUse, ...]]] = {}

    @functools.cached_property
    def left(self) -> Leftovers:
        """By which SGPRs it meets the application behind it."""
        return leftovers(self._isa, self.use.template, self.binding, self.use.sources)

    @functools.cached_property
    def forgets(self) -> tuple[str, ...]:
        """What it ends with where lane masks matter."""
        return forgotten_masks(self._isa, self.use.template, self.binding)


def _is_large(template: Template) -> bool:
    """Whether it may be called."""
    return template.hands_in and len(template.code) - template.waits >= LARGE


class TooFewRegisters(PatchError):
    """There are not enough registers at a point."""


class Payloads:
    """Every payload of a kernel, each once.

    Args:
        frame: byte offset, within a lane's private memory, of what they may use.

    Attributes:
        all: those that are spliced in somewhere, or called.
        called: of payloads that call another one: position in `all` -> that of the other.
        bindings: position -> its registers, of those that hooks became.
    """

    def __init__(self, lifted: LiftedRepresentation, frame: int) -> None:
        self._isa, self._frame = lifted.isa, frame
        self.all: list[BoundPayload] = []
        self.called: dict[int, int] = {}
        self.bindings: dict[int, Binding] = {}
        self._emitted: dict[Hashable, int] = {}
        self._own: dict[BoundPayload, int] = {}
        self._begins: dict[int, tuple[NearUse, ...]] = {}
        self._ends: dict[int, tuple[NearUse, ...]] = {}
        self._frame_sizes: dict[int, int] = {}  # of payloads that have private memory
        self._slots: dict[int, int] = {}  # of those that keep registers in LDS

    def private_memory(self, numbers: Sequence[int]) -> int:
        """Bytes a lane that the kernel needs for some of them, beyond its own; none is used if it is 0."""
        most = max((self._frame_sizes.get(number, 0) for number in set(numbers)), default=0)
        return self._frame + most if most else 0

    def slots(self, numbers: Sequence[int]) -> int:
        """VGPRs for which the kernel needs LDS for some of them."""
        return max((self._slots.get(number, 0) for number in set(numbers)), default=0)

    def begins_with(self, number: int) -> tuple[NearUse, ...]:
        """What a payload, or a call of one, does at once (`luthier.patch.neighbours`)."""
        known = self._begins.get(number)
        if known is None:
            code = self.all[number].code
            called = self.called.get(number)
            if called is not None:  # the call is the last of the caller's own, but for what follows when it is done
                code = code[: (self.all[number].call or 0) + 4] + self.all[called].code
            known = self._begins[number] = begins_with(self._isa, code)
        return known

    def ends_with(self, number: int) -> tuple[NearUse, ...]:
        """What a payload, or the one that it calls, does last."""
        known = self._ends.get(number)
        if known is None:
            known = self._ends[number] = ends_with(self._isa, self.all[self.called.get(number, number)].code)
        return known

    def add(self, payload: BoundPayload) -> int:
        """Position of code that is no hook's."""
        number = self._own.get(payload)
        if number is None:
            self.all.append(payload)
            number = self._own[payload] = len(self.all) - 1
        return number

    def of(self, use: Use, binding: Binding, seam: Seam, settle: tuple[str, ...], limits: Limits) -> int:
        """Position of a template with its registers at a point, or of the call of it."""
        template, isa = use.template, self._isa
        if binding.link is None:
            key = template, binding, seam, settle, limits
            return self._keep(
                key, template, binding, lambda: emit(isa, template, binding, *seam, settle, self._frame, limits)
            )
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
        """Position of a payload, which is made when it is first needed."""
        number = self._emitted.get(key)
        if number is None:
            self.all.append(make())
            number = self._emitted[key] = len(self.all) - 1
            self.bindings[number] = binding
            if size := binding.spill_size + (template.stack.size if template.stack else 0):
                self._frame_sizes[number] = size
            if binding.slots:
                self._slots[number] = binding.slots
        return number


class Binder:
    """Gives hooks registers.

    Args:
        edited: whether the application's instructions change.
        enough: whether there are to be enough registers at every point.
        budget: the kernel's register files.
        asked: the task's budget, if there is one.
        no_spill: why nothing can be spilled, if it cannot, or no more than so much.
        reserved: bit set of units that no payload may overwrite: of counters, and of all plans.
        outstanding: what the application has outstanding, as `Outstanding`; None where that is not known.
        others: code that is spliced in besides, with the instruction that it stands before.

    Attributes:
        starved: sites, by their numbers, at whose points there were too few registers.
    """

    def __init__(
        self,
        lifted: LiftedRepresentation,
        payloads: Payloads,
        refusals: Refusals,
        *,
        edited: bool,
        enough: bool,
        budget: RegisterBudget,
        asked: HookBudget | None,
        no_spill: str,
        reserved: tuple[int, int],
        outstanding: Callable[[], Outstanding | None],
        others: Sequence[tuple[int, bytes]],
    ) -> None:
        self._lifted, self._payloads, self._refusals = lifted, payloads, refusals
        self._enough, self._budget, self._asked, self._no_spill = enough, budget, asked, no_spill
        self._find_outstanding, self._others = outstanding, others
        self._seams = Seams(lifted)
        self._endings = Endings(lifted, edited=edited)
        self._masks = LaneMasks(lifted, edited=edited)
        self._neighbours = Neighbours(lifted, edited=edited)
        counters, self._reserved = reserved
        if self._endings.needed:  # counters do not wait for what vector instructions of hooks read beside them
            self._reserved |= pairs(counters)
        self._exec = lifted.effect_table.exec
        self.starved: set[int] = set()

    def bind(self, sites: list[Site]) -> list[tuple[Site, int]]:
        """For every site that can have registers the position of its payload.

        What is left out must leave no trace: a site that fails and has changed what is live is taken out of the
        liveness, and all others get another try.

        Raises:
            TooFewRegisters: at some point, if there are to be enough.
            LuthierError: the first that fails, if refusals are errors; a counter cannot have registers.
        """
        while True:
            liveness, disturbing = with_what_hooks_do(self._lifted, sites)
            live = self._live(sites, liveness)
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

    def _live(self, sites: Sequence[Site], liveness: Liveness) -> LivePoints:
        """What is live at each site."""
        live = liveness.at([site.point for site in sites])
        if self._reserved:
            live.keep(self._reserved)
        # After EXEC has changed, other lanes are active. Whether reading an AGPR heeds EXEC is not documented.
        uses = uses_of(sites)
        changes = {use for use in uses if use.template.destinations & self._exec}
        heedless = {use for use in uses if use.reads >> AGPRS.start}
        if changes or heedless:
            changed = {site.point for site in sites if site.use in changes}
            live.let_any_lane_be_active(
                [number for number, site in enumerate(sites) if site.point in changed or site.use in heedless]
            )
        return live

    def _choose(self, sites: Sequence[Site], live: LivePoints) -> list[_Bound | None]:
        """[sites] each one's registers, if there are enough."""
        bounds: list[_Bound | None] = [None] * len(sites)
        by_use: defaultdict[int, list[int]] = defaultdict(list)
        for number, site in enumerate(sites):
            by_use[site.use.form].append(number)
        by_template: defaultdict[Template, list[int]] = defaultdict(list)
        for alike in by_use.values():
            by_template[sites[alike[0]].use.template] += alike
        if self._enough and not self._budget.spills:
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
            starved = [number for number in alike if bounds[number] is None] if self._enough else []
            if starved:
                raise self._located(self._too_few(sites[starved[0]].use), sites[starved[0]])
        return bounds

    def _see_that_there_are_enough(
        self, sites: Sequence[Site], live: LivePoints, by_template: Mapping[Template, Sequence[int]]
    ) -> None:
        """Before any site gets registers, all of which were in vain if one site had none.

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
        self, sites: Sequence[Site], live: LivePoints, alike: Sequence[int], *, called: bool = False
    ) -> Iterator[tuple[int, _Bound]]:
        """Registers for sites of the same template, and with the same sources unless they call it.

        Args:
            alike: the sites' places.

        Returns:
            The places of those for which there are enough, with them.
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
            all_or_none=self._enough and not called,
        )
        points = live.only(alike)
        if called:  # whose place must not depend on where inputs are
            places: defaultdict[int, list[int]] = defaultdict(list)
            for place, number in enumerate(alike):
                places[sites[number].use.renamed_sources].append(place)
            for sources, some in places.items():
                points.keep(sources, some)
        found: dict[tuple[int, int], _Bound] = {}
        for number, chosen in zip(alike, choices.choose(points), strict=True):
            if chosen >= 0:
                use = sites[number].use
                bound = found.get((use.form, chosen))
                if bound is None:
                    bound = found[use.form, chosen] = _Bound(self._lifted.isa, use, choices.made[chosen])
                yield number, bound

    def _number_all(
        self, sites: Sequence[Site], bounds: Sequence[_Bound | None]
    ) -> tuple[list[int], list[tuple[Site, RefusalKind, LuthierError]]]:
        """[sites] the position of each one's payload, -1 for none; and those that have none, with the reason."""
        numbers = [-1] * len(sites)
        failed: list[tuple[Site, RefusalKind, LuthierError]] = []
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
                    over = self._asked is not None and self._asked.on_excess != "keep"
                    kind = "over budget" if over else "too few registers"
                failed.append((site, kind, problem))
                if self._refusals.strict:
                    break
        return numbers, failed

    def _too_few(self, use: Use) -> TooFewRegisters:
        what = "a counter" if use.call is None else f"hook {use.call.hook.name}"
        unspilled = ""
        if not self._budget.spill:
            refused = self._asked is not None and self._asked.on_excess == "refuse"
            why = "its budget says so" if refused else self._no_spill
            few = "none" if self._budget.lds is None else "too few"
            unspilled = f", and {few} can be spilled: {why}"
        return TooFewRegisters(
            f"not enough dead or spare registers for {what}: "
            f"it needs {sum(group.count for group in use.template.groups)} and the kernel may have "
            f"{self._budget.vgpr_limit} VGPRs and {self._budget.sgpr_limit} SGPRs{unspilled}"
        )

    def _located(self, problem: LuthierError, site: Site) -> LuthierError:
        """An error with where it is."""
        problem.kernel, problem.offset = self._lifted.kernel.name, self._lifted.columns.address[site.at]
        return problem

    def _may_call(self, site: Site) -> bool:
        """Whether a payload at a site may call another. The code at a kernel's entry has no place from which it could;
        and for whoever lifts the kernel again, a half-made address must not be in registers meanwhile. Where masks
        matter, what a call hands over would be overwritten again before it is used."""
        return site.zone is not None and site.point not in self._half_made and not self._masks.matter

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        return self._find_outstanding()

    @functools.cached_property
    def _stretches(self) -> Sequence[int]:
        """As of `Outstanding`."""
        return [-1] * len(self._lifted.block_of) if self._outstanding is None else self._outstanding.stretches

    @functools.cached_property
    def _half_made(self) -> set[int]:
        """Points between reading the program counter and having made an address of it."""
        made = [(one.getpc, max(one.low, one.high)) for one in self._lifted.pc_references]
        return {point for first, last in made for point in range(first + 1, last + 1)}

    def _repeat_what_is_smaller(
        self, sites: Sequence[Site], live: LivePoints, bounds: list[_Bound | None], numbers: list[int]
    ) -> None:
        """Payloads that are called from too few sites to make the code smaller are put in their places instead."""
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

    def _keep_apart(self, sites: Sequence[Site], bounds: Sequence[_Bound | None], numbers: list[int]) -> None:
        """Payloads that end with what the next instructions must stay away from get wait states behind it."""
        if not self._neighbours.matter:
            return
        heads: dict[int, int] = {}
        begins = [self._payloads.begins_with(number) for number in set(numbers) if number >= 0]
        begins += [begins_with(self._lifted.isa, code) for code in {code for _, code in self._others}]
        for use in itertools.chain(*begins):
            heads[use.rule] = min(heads.get(use.rule, use.states), use.states)
        late = {number: self._payloads.ends_with(number) for number in set(numbers) if number >= 0}
        if not any(late.values()):
            return
        hooks = Counter(
            site.point for site, number in zip(sites, numbers, strict=True) if number >= 0 and site.zone is not None
        )
        hooks.update(point for point, _ in self._others)
        for place, (site, bound) in enumerate(zip(sites, bounds, strict=True)):
            if bound is None or numbers[place] < 0 or not late[numbers[place]]:
                continue
            waits = self._neighbours.behind(site.point, late[numbers[place]], heads, hooks)
            if waits:
                numbers[place] = self._number(site, bound, behind=waits)

    def _number(self, site: Site, bound: _Bound, *, behind: tuple[str, ...] = ()) -> int:
        """Position of what a site gets.

        Args:
            behind: assembly to end with.

        Raises:
            LuthierError: it cannot have it.
        """
        point, at = site.point, site.at
        stretch = self._stretches[point]
        ending = (*self._endings.at(point, bound.left), *behind) if self._endings.needed else behind
        key: Hashable = (stretch, ending) if ending else stretch
        known = bound.by_stretch.get(key)
        if known is None and bound.by_limits:
            known = bound.by_limits.get((self._limits(bound, stretch), ending))
            if known is not None:
                bound.by_stretch[key] = known
        if known is not None and not known[1]:
            return known[0]
        # A branch does not change what the seam depends on.
        place = at if site.zone == Zone.TAKEN else point
        seam = self._seams.at(place, at)
        skipped = self._lifted.skipped.get(place)
        if skipped is not None and bound.use.template.destinations & skipped.reads:
            raise PatchError("the hook writes what vector skip mode was set from, and the mode is set from it again")
        if known is None:
            number = self._position(bound, seam, stretch, (), ending)
            known = number, self._payloads.begins_with(number) if self._neighbours.matter else ()
            if self._seams.same:
                bound.by_limits[self._limits(bound, stretch), ending] = bound.by_stretch[key] = known
        number, early = known
        lead = self._neighbours.before(place, at, early) if early else ()
        return self._position(bound, seam, stretch, lead, ending) if lead else number

    def _limits(self, bound: _Bound, stretch: int) -> Limits:
        """What a template with its registers waits for, in a stretch of `Outstanding.stretches`."""
        known = bound.limits
        if stretch not in known:
            known[stretch] = None
            if bound.use.template.relaxed and self._outstanding is not None:
                known[stretch] = self._outstanding.needed_in(stretch, bound.touched, bound.written)
        return known[stretch]

    def _position(self, bound: _Bound, seam: Seam, stretch: int, lead: tuple[str, ...], ending: tuple[str, ...]) -> int:
        """Position of a template with its registers, with what it begins and ends with besides its seam.

        Args:
            stretch: of `Outstanding.stretches`.
        """
        limits = self._limits(bound, stretch)
        key = limits, seam, lead, ending
        number = bound.numbers.get(key)
        if number is None:
            settle: tuple[str, ...] = ()
            if self._masks.matter:
                settle = self._masks.before(bound.written)
                ending = (*bound.forgets, *ending)
            around = (*seam[0], *lead), (*ending, *seam[1])
            number = bound.numbers[key] = self._payloads.of(bound.use, bound.binding, around, settle, limits)
        return number
