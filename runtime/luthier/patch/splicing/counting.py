"""Selection of hooks that become counts, and the plan of counters for them and for the task's requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from luthier.errors import PatchError
from luthier.hazards.wait_counters import Outstanding
from luthier.lifting import LiftedRepresentation
from luthier.patch.counters.hoisting import hoist, requests_of
from luthier.patch.counters.plan import CountingPlan, HookUse
from luthier.patch.counters.planning import plan_counting
from luthier.patch.payloads.sites import InsertionSite, with_what_hooks_do
from luthier.patch.registers.binding import RegisterBudget
from luthier.patch.registers.launch_state import StatePlan
from luthier.tool.edits import Edited
from luthier.tool.task import InstrumentationTask


class CountedPart(Struct, frozen=True):
    """The counted part of a task, and the remaining hooks."""

    plan: CountingPlan
    sites: list[InsertionSite]
    """Sites whose hooks run."""
    hoisted: list[InsertionSite]
    """Sites whose hooks are counted instead."""


class CountingPlanner(Struct, frozen=True, eq=False):
    """Plans the counters of a task, in registers reserved from hooks."""

    task: InstrumentationTask
    lifted: LiftedRepresentation
    """The task's kernel for liveness analysis, with the task's edits."""
    edited: Edited
    budget: RegisterBudget
    state: StatePlan
    outstanding: Callable[[], Outstanding | None]
    """Returns the application's outstanding operations."""

    def plan(self, sites: list[InsertionSite]) -> CountedPart:
        """Plan all counters. If counters for hooks that only count cannot be placed, these hooks run instead.

        Raises:
            PatchError: the task's requests cannot be counted.
        """
        remaining, hoisted = hoist(self.lifted, sites) if self.task.options.hoist else (sites, [])
        try:
            return CountedPart(self._counters(remaining, hoisted), remaining, hoisted)
        except PatchError:
            if not hoisted:
                raise
        every = [*remaining, *hoisted]
        return CountedPart(self._counters(every, []), sorted(every, key=lambda site: site.number), [])

    def _counters(self, sites: Sequence[InsertionSite], hoisted: Sequence[InsertionSite]) -> CountingPlan:
        requests = [*self.task.counts, *requests_of(hoisted)]
        hooks = self._hook_use(sites) if requests else None  # needs liveness, which takes a while
        return plan_counting(self.lifted, requests, self.budget, hooks, self.task.options)

    def _hook_use(self, sites: Sequence[InsertionSite]) -> HookUse:
        """Return the properties of the running hooks for counting."""
        units, changed = self.edited.units, 0
        for site in sites:
            changed |= site.use.template.destinations
            units |= site.use.reads | changed
        hooked, _ = with_what_hooks_do(self.lifted, sites)
        return HookUse(
            hooked,
            units,
            points=frozenset(site.point for site in sites),
            change_lanes=min(self._changing_lanes(sites), default=None),
            outstanding=self.outstanding,
            state=self.state,
            alone=not sites and not self.task.edits,
            edited=bool(self.task.edits),
        )

    def _changing_lanes(self, sites: Sequence[InsertionSite]) -> Iterator[int]:
        """Yield the instructions before which hooks or added instructions write EXEC.

        Replacements of instructions are not among them, since lanes are counted again after these anyway.
        """
        exec_mask = self.lifted.effect_table.exec
        yield from (site.point for site in sites if site.use.template.destinations & exec_mask)
        yield from (point for point, units in self.edited.added.items() if units & exec_mask)
