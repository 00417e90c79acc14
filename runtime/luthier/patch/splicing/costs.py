"""Registers that a kernel needs for its payloads, and the number of payloads by kind of cost."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from luthier.errors import PatchError
from luthier.isa.registers import AGPRS, FLAT_SCRATCH_SGPR, SGPRS, VGPRS, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.counters.plan import CountingPlan
from luthier.patch.payloads.sites import InsertionSite, uses_of
from luthier.patch.registers.binding import Binding, RegisterBudget
from luthier.patch.registers.budget import used_agprs
from luthier.patch.registers.launch_state import StatePlan
from luthier.patch.splicing.placements import Bound
from luthier.tool.edits import highest


class RegisterNeeds(NamedTuple):
    """The number of registers of each file that a kernel needs, from the first one on."""

    sgprs: int
    """SGPRs that spliced code needs."""
    vgprs: int
    agprs: int
    """AGPRs that spliced code and the kernel use."""

    @classmethod
    def of(
        cls,
        lifted: LiftedRepresentation,
        counting: CountingPlan,
        state: StatePlan,
        bindings: Sequence[Binding],
        edited: RegisterNeeds,
        sites: Iterable[InsertionSite],
    ) -> RegisterNeeds:
        """Return the needs of all spliced code.

        Args:
            lifted: the kernel.
            bindings: bindings of its payloads.
            edited: needs of added instructions.
            sites: sites of hooks, which read and write registers of the application.
        """
        hooks = (use.reads | use.template.destinations for use in uses_of(sites))
        named = functools.reduce(operator.or_, hooks, state.reserved)
        return cls(
            max(counting.sgprs, state.sgprs, edited.sgprs, *(binding.sgprs for binding in bindings)),
            max(counting.vgprs, state.vgprs, edited.vgprs, *(binding.vgprs for binding in bindings)),
            max(used_agprs(lifted), edited.agprs, highest(named, AGPRS), *(binding.agprs for binding in bindings)),
        )

    @classmethod
    def of_edits(cls, units: int, budget: RegisterBudget, vgprs: int, kernel: str) -> RegisterNeeds:
        """Return the needs of instructions that tools add.

        Args:
            units: bit set of the units that they read or write.
            vgprs: number of VGPRs that the kernel has, or names.

        Raises:
            PatchError: the kernel cannot have these registers.
        """
        if budget.sgpr_limit <= FLAT_SCRATCH_SGPR:  # flat instructions read it, so it cannot be allocated
            units &= ~mask_of((FLAT_SCRATCH_SGPR, FLAT_SCRATCH_SGPR + 1))
        needs = cls(highest(units, SGPRS), highest(units, VGPRS), highest(units, AGPRS))
        if needs.sgprs > budget.sgpr_limit or needs.vgprs > max(budget.vgpr_limit, vgprs):
            raise PatchError(
                f"added instructions need {needs.sgprs} SGPRs and {needs.vgprs} VGPRs; the kernel may have "
                f"{budget.sgpr_limit} and {budget.vgpr_limit}",
                kernel=kernel,
            )
        # A kernel that may not have more VGPRs names AGPRs as VGPRs beyond its own.
        return needs._replace(vgprs=min(needs.vgprs, budget.vgpr_limit))


class InsertionTally(Struct, frozen=True):
    """The number of insertions of each kind."""

    sites: int
    """Instructions with hooks, including those that are counted instead."""
    hoisted: int
    """Insertions that are counted instead."""
    spilling: int
    """Insertions that spill to private memory."""
    in_agprs: int
    """Insertions that spill to AGPRs."""
    in_lds: int
    """Insertions that spill to LDS."""
    excess: int
    """Insertions that exceed the task's VGPR budget."""

    @classmethod
    def of(
        cls, bound: Bound, bindings: dict[int, Binding], hoisted: Sequence[InsertionSite], soft_limit: int
    ) -> InsertionTally:
        """Count the insertions of a task.

        Args:
            bindings: position of a payload -> its registers.
            hoisted: insertions that are counted instead.
            soft_limit: VGPRs of the task's budget.
        """
        hooks_with = Counter(number for site, number in bound if site.insertion is not None)
        used = [(bindings[number], many) for number, many in hooks_with.items()]
        spliced = {site.at for site, _ in bound if site.insertion is not None}
        return cls(
            len(spliced | {site.at for site in hoisted}),
            len(hoisted),
            sum(many for binding, many in used if binding.spill_size),
            sum(many for binding, many in used if binding.agpr_slots),
            sum(many for binding, many in used if binding.lds_slots),
            sum(many for binding, many in used if binding.vgprs > soft_limit),
        )
