"""Sites of compiled hooks: payloads to splice in, and their points."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from luthier.isa.registers import AGPRS, SGPRS, VGPRS, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers.copies import holders
from luthier.payload import Template
from luthier.payload.plain import PlainCount
from luthier.tool.counts import CELL_BYTES, Cell
from luthier.tool.hook_calls import PASSES_ON, HookCall, Insertion
from luthier.tool.points import Place

_RENAMED = mask_of((*SGPRS, *VGPRS, *AGPRS))


class PayloadUse(Struct, frozen=True, eq=False, dict=True):
    """A call of a hook compiled for one kernel, or the addition of a counter without a register."""

    call: HookCall | None
    template: Template
    sources: tuple[int, ...]
    """Register unit from which each input of the template is read."""
    reads: int
    """Bit set of these units, without launch state, which is preserved everywhere."""
    missing: str | None
    """Description of the first input or output register that the kernel does not have."""
    immediates: tuple[tuple[int, int], ...] = ()
    """Argument, and word of it, for each per-point number."""
    form: int = 0
    """Number shared by all uses with the same template, sources and guard."""

    @functools.cached_property
    def renamed_sources(self) -> int:
        """Return the bit set of the source registers of inputs, except fixed ones."""
        return holders(self.sources) & _RENAMED


def cell_of(call: HookCall, plain: PlainCount) -> Cell:
    """Return the cell to which a hook adds its count."""
    return Cell(call.hook.module, plain.symbol, plain.offset // CELL_BYTES)


class InsertionSite(NamedTuple):
    """One insertion."""

    number: int
    """Position among the task's insertions."""
    insertion: Insertion | None
    """None for a counter."""
    at: int
    """Index of its instruction."""
    point: int
    """Index of the instruction before which it runs."""
    use: PayloadUse
    zone: Zone | None
    """Zone relative to its instruction; None at the kernel's start."""
    numbers: tuple[int, ...] = ()
    """Per-point numbers, one for each of `PayloadUse.immediates`."""


def uses_of(sites: Iterable[InsertionSite]) -> set[PayloadUse]:
    """Return the distinct uses at some sites."""
    return set(map(operator.attrgetter("use"), sites))


def numbers_of(insertion: Insertion, use: PayloadUse) -> tuple[int, ...]:
    """Return the `InsertionSite.numbers` of an insertion."""
    given, sources = insertion.numbers, insertion.call.sources
    return tuple(((given and given[argument]) or sources[argument])[word] for argument, word in use.immediates)


ZONES: Mapping[Place, Zone] = {"before": Zone.BEFORE, "after": Zone.BEHIND, "taken": Zone.TAKEN}
"""Zones of insertions, except for those at the kernel's start."""


def always_runs(lifted: LiftedRepresentation, insertion: Insertion) -> bool:
    """Return whether a hook runs as often as its instruction."""
    if insertion.place == "after":
        return not lifted.code.flags[insertion.at] & PASSES_ON
    return insertion.place == "before"


def with_what_hooks_do(
    lifted: LiftedRepresentation, sites: Sequence[InsertionSite]
) -> tuple[LiftedRepresentation, set[int]]:
    """Return the kernel for liveness analysis with hooks, and the numbers of the sites that change it.

    A payload must not overwrite registers that a later hook reads, nor lanes that a hook activates or deactivates. That
    the application reads such a register, too, does not make it live where the hook needs it: the application may read
    it in other lanes, or after another call of the function.
    """
    reads: dict[int, int] = {}
    changes: dict[int, int] = {}
    taking_part = {use for use in uses_of(sites) if use.reads or use.template.destinations}
    sites = [site for site in sites if site.use in taking_part] if taking_part else ()
    for site in sites:
        if site.use.template.destinations:
            changes[site.point] = changes.get(site.point, 0) | site.use.template.destinations
        if site.use.reads:
            reads[site.point] = reads.get(site.point, 0) | site.use.reads
    reading = lifted.also_reading(reads) if reads else lifted
    return reading.also_changing(changes) if changes else reading, {site.number for site in sites}
