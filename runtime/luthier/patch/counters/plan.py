"""The changes that counting makes to one kernel, as data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec import Struct, field

from luthier.hazards.wait_counters import Outstanding
from luthier.lifting import LiftedRepresentation
from luthier.objects import CodeObject
from luthier.patch.counters.leaving import LeavingCode
from luthier.patch.payloads.code import BoundPayload
from luthier.patch.payloads.zones import Zone
from luthier.patch.registers.launch_state import StatePlan
from luthier.payload import Template
from luthier.tool.counts import KernelCounters


class Splice(NamedTuple):
    """Code of a counter at an instruction."""

    at: int
    zone: Zone
    payload: BoundPayload


class DirectSplice(NamedTuple):
    """A payload that adds to memory directly, whose registers are still to be found."""

    at: int
    template: Template


class CountingPlan(Struct):
    """Changes that counting makes to one kernel."""

    entries: list[list[BoundPayload]]
    """For each hardware entry what runs there."""
    reserved: int = 0
    """Bit set of the units that counters are in."""
    splices: list[Splice] = field(default_factory=list)
    direct: list[DirectSplice] = field(default_factory=list)
    sgprs: int = 0
    """SGPRs the kernel needs."""
    vgprs: int = 0
    counters: int = 0
    """Numbers that each wave counts."""
    result: KernelCounters | None = None
    """Meaning of the counters of profiles."""
    leaving: LeavingCode | None = None
    """Code that runs before control goes on to unknown code."""


class HookUse(Struct, frozen=True, eq=False):
    """Properties of a task's hooks that matter to counting."""

    hooked: LiftedRepresentation
    """The kernel with all that hooks read and write."""
    units: int
    """Bit set of those that they read or write."""
    points: frozenset[int]
    """Instructions that hooks run before."""
    change_lanes: int | None
    """Instruction before which the first of them, or of what is added, writes EXEC."""
    outstanding: Callable[[], Outstanding | None]
    """Finds the application's outstanding operations; None where waits are for more than those."""
    state: StatePlan = field(default_factory=StatePlan)
    """Places of launch state, for hooks and for rows of waves."""
    alone: bool = False
    """True if nothing but counters is spliced in: no hooks, no edits."""
    edited: bool = False
    """True if instructions of the application are changed."""


def cells_symbol(object: CodeObject, kernel: str) -> str:
    """Name of the variable that holds a kernel's cells in a patched object, which may have such of earlier patches."""
    name = "".join(c if c.isalnum() or c in "._$" else "_" for c in kernel)
    numbers: Iterator[str | int] = itertools.chain([""], itertools.count(2))
    names = (f"luthier.counts{number}.{name}" for number in numbers)
    return next(one for one in names if object.symbol(one) is None)
