"""What is to be spliced in: compiled hooks, and where each of them goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from luthier.counts import CELL_BYTES, Cell
from luthier.hook_calls import PASSES_ON, HookCall, Insertion
from luthier.lifting import LiftedRepresentation
from luthier.patch.layout import Zone
from luthier.payload import Template
from luthier.payload.plain import PlainCount


@dataclass(frozen=True, eq=False)
class Use:
    """A call of a hook, compiled for one kernel, or what a counter does without a register."""

    call: HookCall | None
    template: Template
    sources: tuple[int, ...]
    """Register unit each input of the template is read from."""
    reads: int
    """Bit set of those units, without launch state, which is kept everywhere."""
    missing: str | None
    """The first register among its inputs and outputs that the kernel does not have, in words."""
    immediates: tuple[int, ...] = ()
    """The numbers of its own that each of its points has."""
    form: int = 0
    """The same of all uses with the same template and sources."""


def cell_of(call: HookCall, plain: PlainCount) -> Cell:
    """The number that a hook counts into."""
    return Cell(call.hook.module, plain.symbol, plain.offset // CELL_BYTES)


class Site(NamedTuple):
    """One insertion."""

    number: int
    """Among the task's insertions."""
    insertion: Insertion | None
    """None of a counter."""
    at: int
    """Index of the instruction it belongs to."""
    point: int
    """Index of the instruction it runs before."""
    use: Use


_ZONES = {"before": Zone.BEFORE, "after": Zone.BEHIND, "taken": Zone.TAKEN}


def always_runs(lifted: LiftedRepresentation, insertion: Insertion) -> bool:
    """Whether a hook runs as often as its instruction."""
    if insertion.place == "after":
        return not lifted.code.flags[insertion.at] & PASSES_ON
    return insertion.place == "before"


def zone_of(site: Site) -> Zone | None:
    """Where a site is, seen from its instruction; None at the kernel's start."""
    return Zone.BEFORE if site.insertion is None else _ZONES.get(site.insertion.place)
