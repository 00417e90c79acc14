"""The changes of one kernel for counting, as data."""

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
    """A payload that adds to memory directly, without registers yet."""

    at: int
    template: Template


class CountingPlan(Struct):
    """The changes of one kernel for counting."""

    entries: list[list[BoundPayload]]
    """For each hardware entry the code that runs there."""
    reserved: int = 0
    """Bit set of the units of counters."""
    splices: list[Splice] = field(default_factory=list)
    direct: list[DirectSplice] = field(default_factory=list)
    sgprs: int = 0
    """Number of SGPRs that the kernel needs."""
    vgprs: int = 0
    counters: int = 0
    """Number of counters of each wave."""
    result: KernelCounters | None = None
    """Meaning of the counters of profiles."""
    leaving: LeavingCode | None = None
    """Code that runs before control continues at unknown code."""


class HookUse(Struct, frozen=True, eq=False):
    """Properties of a task's hooks for counting."""

    hooked: LiftedRepresentation
    """The kernel with the reads and writes of hooks."""
    units: int
    """Bit set of the units that they read or write."""
    points: frozenset[int]
    """Instructions before which hooks run."""
    change_lanes: int | None
    """First instruction before which a hook or added code writes EXEC."""
    outstanding: Callable[[], Outstanding | None]
    """Returns the application's outstanding operations; None if waits must cover more than these."""
    state: StatePlan = field(default_factory=StatePlan)
    """Places of launch state, for hooks and for rows of waves."""
    alone: bool = False
    """Whether only counters are spliced in, without hooks or edits."""
    edited: bool = False
    """Whether instructions of the application are changed."""


def cells_symbol(object: CodeObject, kernel: str) -> str:
    """Return a new name for the variable of a kernel's cells. The object may contain cells of earlier patches."""
    name = "".join(c if c.isalnum() or c in "._$" else "_" for c in kernel)
    numbers: Iterator[str | int] = itertools.chain([""], itertools.count(2))
    names = (f"luthier.counts{number}.{name}" for number in numbers)
    return next(one for one in names if object.symbol(one) is None)
