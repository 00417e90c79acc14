"""Registers and code of every hook at its point."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Container, Hashable, Sequence
from typing import NamedTuple

from luthier.budgets import HookBudget
from luthier.errors import LuthierError, PatchError
from luthier.isa.hazard_parties import pairs
from luthier.isa.registers import AGPRS
from luthier.lifting import LiftedRepresentation, Live, Liveness
from luthier.lifting.waits import Outstanding
from luthier.patch.binding import Binding, Choices, RegisterBudget, touched_by
from luthier.patch.emission import BoundPayload, Limits, emit, emit_call, forgotten_masks, leftovers
from luthier.patch.hazards import Seam, Seams
from luthier.patch.lane_masks import LaneMasks
from luthier.patch.neighbours import NearUse, Neighbours, begins_with, ends_with
from luthier.patch.report import RefusalKind
from luthier.patch.scalar_reads import Endings, Leftovers
from luthier.patch.sites import Site, Use, with_what_hooks_do
from luthier.patch.uses import Refusals
from luthier.payload import Template

LARGE = 32
"""Instructions of a payload from which on it is called rather than repeated. A call costs two, and copies of inputs."""


class _Bound(NamedTuple):
    """A template at points where it gets the same registers."""

    binding: Binding
    touched: int
    """Bit set of the units that it reads or writes."""
    written: int
    numbers: dict[tuple[Limits, tuple[str, ...], tuple[str, ...]], int]
    """Position in `Payloads.all`, by what it waits for and what else it begins and ends with."""
    left: dict[tuple[int, ...], Leftovers]
    """By which SGPRs it meets the application behind it, by the places of inputs."""


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
            any_lanes = {site.point for site in sites if site.use.template.destinations & self._exec}
            self._choices: dict[tuple[Template, bool], Choices] = {}
            self._known: dict[tuple[int, bool, int, int, int, Seam], _Bound] = {}
            bound: list[tuple[Site, int]] = []
            failed: list[tuple[Site, RefusalKind, LuthierError]] = []
            uses = Counter(site.use.template for site in sites if site.zone is not None)
            large = {template for template, many in uses.items() if many > 1 and _is_large(template)}
            for site in sites:
                _, insertion, at, point, use, *_ = site
                shared = use.template in large and self._may_call(site)
                try:
                    number = self._payload(use, *self._around(site, liveness, any_lanes), point, called=shared)
                except LuthierError as problem:
                    if insertion is None or (self._enough and isinstance(problem, TooFewRegisters)):
                        problem.kernel, problem.offset = self._lifted.kernel.name, self._lifted.columns.address[at]
                        raise
                    kind: RefusalKind = "hook"
                    if isinstance(problem, TooFewRegisters):
                        self.starved.add(site.number)
                        over = self._asked is not None and self._asked.on_excess != "keep"
                        kind = "over budget" if over else "too few registers"
                    failed.append((site, kind, problem))
                else:
                    bound.append((site, number))
                if failed and self._refusals.strict:
                    break
            gone = {site.number for site, _, _ in failed if site.number in disturbing}
            for site, kind, reason in failed:
                if site.insertion is not None and (not gone or self._refusals.strict or site.number in gone):
                    self._refusals.refuse(site.number, site.insertion, kind, reason)
            if not gone:
                bound = self._repeat_what_is_smaller(bound, liveness, any_lanes)
                return self._keep_apart(bound, liveness, any_lanes)
            sites = [site for site in sites if site.number not in gone]

    def _around(self, site: Site, liveness: Liveness, any_lanes: Container[int]) -> tuple[Live, Seam, tuple[int, int]]:
        """What is live at a site, its seam, and the place that it depends on, as `Seams.at` takes it.

        Args:
            any_lanes: points where other lanes may become active.
        """
        live = liveness.live_before(site.point)
        if self._reserved:
            live = Live(live.active_bits | self._reserved, live.inactive_bits)
        # After EXEC has changed, other lanes are active. Whether reading an AGPR heeds EXEC is not documented.
        if site.point in any_lanes or site.use.reads >> AGPRS.start:
            live = live.with_any_lane_active()
        # A branch does not change what the seam depends on.
        taken = site.insertion is not None and site.insertion.place == "taken"
        place = site.at if taken else site.point, site.at
        return live, self._seams.at(*place), place

    def _may_call(self, site: Site) -> bool:
        """Whether a payload at a site may call another. The code at a kernel's entry has no place from which it could;
        and for whoever lifts the kernel again, a half-made address must not be in registers meanwhile. Where masks
        matter, what a call hands over would be overwritten again before it is used."""
        return site.zone is not None and site.point not in self._half_made and not self._masks.matter

    @functools.cached_property
    def _outstanding(self) -> Outstanding | None:
        return self._find_outstanding()

    @functools.cached_property
    def _half_made(self) -> set[int]:
        """Points between reading the program counter and having made an address of it."""
        made = [(one.getpc, max(one.low, one.high)) for one in self._lifted.pc_references]
        return {point for first, last in made for point in range(first + 1, last + 1)}

    def _repeat_what_is_smaller(
        self, bound: list[tuple[Site, int]], liveness: Liveness, any_lanes: Container[int]
    ) -> list[tuple[Site, int]]:
        """The sites with their payloads: those that are called from too few sites to make the code smaller, in their
        places instead."""
        payloads, called = self._payloads.all, self._payloads.called
        gain: Counter[int] = Counter()
        for number, many in Counter(number for _, number in bound if number in called).items():
            body = called[number]
            gain[body] += many * (len(payloads[body].code) - len(payloads[number].code))
        vain = {body for body, bytes in gain.items() if bytes <= len(payloads[body].code)}
        if not vain:
            return bound
        result = []
        for site, number in bound:
            if called.get(number) in vain:
                with contextlib.suppress(TooFewRegisters):
                    number = self._payload(site.use, *self._around(site, liveness, any_lanes), site.point)
            result.append((site, number))
        return result

    def _keep_apart(
        self, bound: list[tuple[Site, int]], liveness: Liveness, any_lanes: Container[int]
    ) -> list[tuple[Site, int]]:
        """The sites with their payloads: those that end with what the next instructions must stay away from, with wait
        states behind it."""
        if not self._neighbours.matter:
            return bound
        heads: dict[int, int] = {}
        begins = [self._payloads.begins_with(number) for number in {number for _, number in bound}]
        begins += [begins_with(self._lifted.isa, code) for code in {code for _, code in self._others}]
        for use in itertools.chain(*begins):
            heads[use.rule] = min(heads.get(use.rule, use.states), use.states)
        hooks = Counter(site.point for site, _ in bound if site.zone is not None)
        hooks.update(point for point, _ in self._others)
        result = []
        for site, number in bound:
            waits = self._neighbours.behind(site.point, self._payloads.ends_with(number), heads, hooks)
            if waits:
                called = number in self._payloads.called
                around = self._around(site, liveness, any_lanes)
                number = self._payload(site.use, *around, site.point, called=called, behind=waits)
            result.append((site, number))
        return result

    def _payload(
        self,
        use: Use,
        live: Live,
        seam: Seam,
        place: tuple[int, int],
        point: int,
        *,
        called: bool = False,
        behind: tuple[str, ...] = (),
    ) -> int:
        """Position of what a point gets.

        Args:
            live, seam, place: as of `_around`.
            called: whether it is to call a payload that is placed once. Where no register is left for that it does not.
            behind: assembly to end with.

        Raises:
            LuthierError: it cannot have it.
        """
        template = use.template
        choices = self._choices.get((template, called))
        if choices is None:
            choices = Choices(template, self._budget, self._lifted.wave_size, called=called)
            self._choices[template, called] = choices
        free = live
        if called:  # whose place must not depend on where inputs are
            free = Live(live.active_bits | use.renamed_sources, live.inactive_bits)

        def key() -> tuple[int, bool, int, int, int, Seam]:
            """All that matters as long as there is no other binding."""
            active, anywhere = free.active_bits & choices.heeded, choices.heeded_in_all_lanes
            return use.form, called, choices.made, active, anywhere and free.all_bits & anywhere, seam

        bound = self._known.get(key())
        if bound is None:
            binding = choices.choose(() if called else use.sources, free)
            if binding is None and called:
                return self._payload(use, live, seam, place, point, behind=behind)
            if binding is None:
                what = "a counter" if use.call is None else f"hook {use.call.hook.name}"
                unspilled = ""
                if not self._budget.spill:
                    refused = self._asked is not None and self._asked.on_excess == "refuse"
                    why = "its budget says so" if refused else self._no_spill
                    few = "none" if self._budget.lds is None else "too few"
                    unspilled = f", and {few} can be spilled: {why}"
                raise TooFewRegisters(
                    f"not enough dead or spare registers for {what}: "
                    f"it needs {sum(group.count for group in template.groups)} and the kernel may have "
                    f"{self._budget.vgpr_limit} VGPRs and {self._budget.sgpr_limit} SGPRs{unspilled}"
                )
            bound = self._known[key()] = _Bound(binding, *touched_by(template, binding, use.sources), {}, {})
        outstanding = self._outstanding if template.relaxed else None
        limits = None if outstanding is None else outstanding.needed(point, bound.touched, bound.written)
        ending: tuple[str, ...] = ()
        if self._endings.needed:
            left = bound.left.get(use.sources)
            if left is None:
                left = bound.left[use.sources] = leftovers(self._lifted.isa, template, bound.binding, use.sources)
            ending = self._endings.at(point, left)
        settle: tuple[str, ...] = ()
        if self._masks.matter:
            settle = self._masks.before(bound.written)
            ending = forgotten_masks(self._lifted.isa, template, bound.binding)
        ending = (*ending, *behind)
        number = self._bound_number(use, bound, seam, settle, limits, (), ending)
        lead = self._neighbours.before(*place, self._payloads.begins_with(number)) if self._neighbours.matter else ()
        return self._bound_number(use, bound, seam, settle, limits, lead, ending) if lead else number

    def _bound_number(
        self,
        use: Use,
        bound: _Bound,
        seam: Seam,
        settle: tuple[str, ...],
        limits: Limits,
        lead: tuple[str, ...],
        ending: tuple[str, ...],
    ) -> int:
        """Position of a template with its registers, with what it begins and ends with besides its seam."""
        number = bound.numbers.get((limits, lead, ending))
        if number is None:
            around = (*seam[0], *lead), (*ending, *seam[1])
            number = self._payloads.of(use, bound.binding, around, settle, limits)
            bound.numbers[limits, lead, ending] = number
        return number
