"""Allocation of registers for a template at one point.

Dead registers inside the kernel's allocation are free. Next are registers above it, which cost occupancy; then live
SGPRs, which are spilled to lanes of one dead VGPR; and if payloads may use AGPRs, LDS or private memory, live VGPRs,
which are spilled there. A point without enough registers is refused.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Literal, NamedTuple

from luthier.isa.registers import EXEC, M0, SCC, SGPRS, VGPRS, bits_of, mask_of
from luthier.lifting import Live
from luthier.patch.registers.binding import Binding, RegisterBudget, Slice, kept_places, last_copies, range_mask
from luthier.patch.registers.copies import holders, needs_spare
from luthier.payload.template import Group, Template

LINK = 2, 2, 0
"""SGPRs with the return address: their number, alignment, and remainder."""

Place = Literal["nowhere", "AGPRs", "LDS", "memory"]
"""Destination of spilled VGPRs; "memory" is private memory."""


@functools.lru_cache(maxsize=4096)
def bind(
    template: Template,
    sources: tuple[int, ...],
    live: Live,
    budget: RegisterBudget,
    wave_size: int,
    *,
    called: bool = False,
) -> Binding | None:
    """Return a binding, or None if there are too few registers.

    Args:
        template: the template to bind.
        sources: application unit for each of its inputs; empty if it is called.
        live: registers whose values must be preserved.
        budget: the kernel's register files.
        wave_size: lanes per wave.
        called: whether the payload is called, so that it needs a `Binding.link`.
    """
    for spills in _cheapest_first(budget):
        try:
            return _Allocation(template, sources, live, budget, wave_size, spills, called=called).binding()
        except _TooFew:
            continue
    return None


class _Spills(NamedTuple):
    """The registers that a binding may spill."""

    place: Place
    sgprs: bool
    """Whether live SGPRs may be spilled to lanes of a VGPR."""

    @property
    def vgprs(self) -> bool:
        return self.place != "nowhere"


def _cheapest_first(budget: RegisterBudget) -> Iterator[_Spills]:
    """Yield the spills to try, the cheapest first. LDS is available only if private memory is not
    (`luthier.patch.splicing`).
    """
    possible: dict[Place, bool] = {
        "nowhere": True,
        "AGPRs": budget.agpr_slots != 0,
        "LDS": budget.lds is not None,
        "memory": budget.spill,
    }
    for place in (one for one, may in possible.items() if may):
        yield _Spills(place, sgprs=False)
        yield _Spills(place, sgprs=True)


class _TooFew(Exception):
    """There are too few registers."""


@functools.cache
def _aligned_mask(alignment: int, remainder: int) -> int:
    return mask_of(unit for unit in range(VGPRS.stop) if unit % alignment == remainder)


def _find_run(free: int, count: int, alignment: int, remainder: int) -> int | None:
    """Return the lowest first unit of `count` consecutive free units, congruent to `remainder` modulo `alignment`."""
    for _ in range(1, count):
        free &= free >> 1
    free &= _aligned_mask(alignment, remainder)
    return (free & -free).bit_length() - 1 if free else None


class _RegisterFile:
    """Allocates units of one file from bit sets of free ones, the cheapest set first.

    Args:
        dead: sets of dead units.
        live: sets of units whose values can be spilled.
    """

    def __init__(self, dead: list[int], live: list[int] | None = None) -> None:
        self._dead, self._all = dead, [*dead, *(live or [])]
        self.taken = 0

    def take(
        self,
        count: int,
        alignment: int = 1,
        remainder: int = 0,
        below: int = VGPRS.stop,
        *,
        dead: bool = False,
    ) -> int:
        """Allocate adjacent units, and return the first one.

        Raises:
            _TooFew: there are none.
        """
        reach = range_mask(0, below + count - 1)
        for units in self._dead if dead else self._all:
            first = _find_run(units & reach & ~self.taken, count, alignment, remainder)
            if first is not None:
                self.taken |= range_mask(first, count)
                return first
        raise _TooFew


class _SpillRegisters(NamedTuple):
    """SGPR units that spilling VGPRs itself needs; see `Binding`."""

    frame: int | None = None
    kept_m0: int | None = None
    kept_scc: int | None = None


class _Spilled(NamedTuple):
    """Live units that a payload overwrites; see `Binding`."""

    vgprs: tuple[int, ...]
    whole_vgprs: tuple[int, ...]
    sgprs: tuple[int, ...] = ()
    lane_vgpr: int | None = None

    @property
    def slots(self) -> int:
        """Return the number of spilled VGPRs."""
        return len(self.vgprs) + len(self.whole_vgprs)


class _Allocation:
    """Search for the registers of one binding.

    Args:
        template, sources, live, budget, wave_size, called: see `bind`.
        spills: registers that may be spilled.
    """

    def __init__(
        self,
        template: Template,
        sources: tuple[int, ...],
        live: Live,
        budget: RegisterBudget,
        wave_size: int,
        spills: _Spills,
        *,
        called: bool,
    ) -> None:
        self._template, self._sources, self._live, self._budget = template, sources, live, budget
        self._wave_size, self._spills, self._called = wave_size, spills, called
        self._in_lanes = live.all_bits if template.writes_inactive_lanes else live.active_bits
        self._fixed_places = holders(sources) | template.destinations
        self._keep = self._in_lanes | self._fixed_places
        own, most = range_mask(0, budget.sgprs), range_mask(0, budget.sgpr_limit)
        self._dead_sgprs = [budget.untouched & own & ~self._keep, own & ~self._keep, most & ~self._keep]
        self._sgprs = _RegisterFile(self._dead_sgprs, [own & ~self._fixed_places] if spills.sgprs else [])
        self._vgpr_sets = [range_mask(VGPRS.start, count) for count in (budget.vgprs, budget.vgpr_limit)]
        spillable = [self._vgpr_sets[0] & ~self._fixed_places] if spills.vgprs else []
        self._vgprs = _RegisterFile([units & ~self._keep for units in self._vgpr_sets], spillable)

    def binding(self) -> Binding:
        """Allocate all registers, the scarcest first: those that must be dead.

        Raises:
            _TooFew: there are too few.
        """
        own = self._for_spilling()
        units = self._for_groups()
        saved = self._for_fixed_places()
        spare = self._for_circles(units, saved)
        link = self._sgprs.take(*LINK, dead=True) if self._called else None
        spilled = self._spilled()
        return Binding(
            tuple(sorted(units.items())),
            tuple(saved),
            self._sources,
            self._sgprs.taken | self._vgprs.taken,
            spilled.sgprs,
            spilled.lane_vgpr,
            spare,
            spilled.vgprs,
            spilled.whole_vgprs,
            own.frame,
            self._agpr_slots(spilled.slots),
            self._with_room_in_lds(spilled.slots),
            own.kept_m0,
            own.kept_scc,
            link,
        )

    def _for_spilling(self) -> _SpillRegisters:
        """Allocate the SGPRs that spilling VGPRs needs. They are used before any SGPR is spilled, so they must be
        dead."""
        if not self._spills.vgprs:
            return _SpillRegisters()
        template, place = self._template, self._spills.place
        if template.destinations & mask_of(EXEC):
            raise _TooFew  # registers must be restored in the lanes in which they were spilled
        dead = _RegisterFile(self._dead_sgprs)
        frame = dead.take(1) if place == "memory" else None
        wants_m0 = (self._live.all_bits | self._fixed_places) >> M0 & 1
        kept_m0 = dead.take(1) if place == "LDS" and wants_m0 else None
        whole = self._spills.sgprs or template.writes_inactive_lanes or place == "AGPRs"
        kept_scc = dead.take(1) if whole and self._live.active_bits >> SCC & 1 else None
        self._sgprs.taken = dead.taken
        return _SpillRegisters(frame, kept_m0, kept_scc)

    def _for_groups(self) -> dict[int, int]:
        """Allocate the template's registers. Inputs that the payload only reads use the application's registers if
        possible."""
        # Registers that callers write are not saved yet at that point.
        handed = self._template.handed if self._called else frozenset()
        units: dict[int, int] = {}
        for group in self._template.groups:
            members = range(group.first, group.first + group.count)
            first = direct_place(group, self._template, self._sources) if self._sources else None
            if first is None:
                file = self._sgprs if group.first in SGPRS else self._vgprs
                remainder = group.first % group.alignment
                dead = not handed.isdisjoint(members)
                first = file.take(group.count, group.alignment, remainder, group.below, dead=dead)
            units.update(zip(members, range(first, first + group.count), strict=True))
        return units

    def _for_fixed_places(self) -> list[tuple[int, int]]:
        """Allocate SGPRs to save fixed registers, such as VCC, if they are live and the payload overwrites them."""
        saved: list[tuple[int, int]] = []
        for fixed, wanted in kept_places(self._template, self._sources, self._wave_size):
            if not wanted or self._in_lanes & wanted:
                first = self._sgprs.take(len(fixed), len(fixed))
                saved += [(unit, first + offset) for offset, unit in enumerate(fixed)]
        return saved

    def _for_circles(self, units: dict[int, int], saved: list[tuple[int, int]]) -> int | None:
        """Allocate an SGPR for outputs whose copies form a cycle, if there are such."""
        if not self._template.outputs or not needs_spare(last_copies(self._template, units, saved)):
            return None
        return self._sgprs.take(1)

    def _spilled(self) -> _Spilled:
        """Return the live units that were allocated. SGPRs are spilled to a VGPR that is dead in all lanes, or is
        spilled itself.
        """
        vgprs, whole = tuple(bits_of(self._vgprs.taken & self._keep)), tuple[int, ...]()
        if self._template.writes_inactive_lanes:
            vgprs, whole = (), vgprs
        sgprs = tuple(bits_of(self._sgprs.taken & self._keep))
        if not sgprs:
            return _Spilled(vgprs, whole)
        if len(sgprs) > self._wave_size:
            raise _TooFew
        taken = self._vgprs.taken
        file = _RegisterFile([units & ~self._live.all_bits & ~self._keep & ~taken for units in self._vgpr_sets])
        try:
            lane_vgpr = file.take(1)
        except _TooFew:
            if not self._spills.vgprs:
                raise
            file = _RegisterFile([self._vgpr_sets[0] & ~self._fixed_places & ~taken])
            lane_vgpr = file.take(1)
            whole += (lane_vgpr,)
        self._vgprs.taken |= file.taken
        return _Spilled(vgprs, whole, sgprs, lane_vgpr)

    def _agpr_slots(self, count: int) -> tuple[int, ...]:
        """Return AGPRs for spilled VGPRs, if they are spilled there."""
        if self._spills.place != "AGPRs":
            return ()
        slots = tuple(itertools.islice(bits_of(self._budget.agpr_slots), count))
        if len(slots) < count:
            raise _TooFew
        return slots

    def _with_room_in_lds(self, count: int) -> Slice | None:
        """Return LDS for spilled VGPRs, if they are spilled there."""
        lds = self._budget.lds if self._spills.place == "LDS" else None
        if lds is not None and count > lds.slots:
            raise _TooFew
        return lds


def direct_place(group: Group, template: Template, sources: tuple[int, ...]) -> int | None:
    """Return the first application unit of a group of inputs that the payload only reads, if no copy is needed."""
    members = range(group.first, group.first + group.count)
    if any(unit in template.written for unit in members):
        return None
    place: int | None = None
    for unit in members:
        given = [source for taken, source in zip(template.inputs, sources, strict=True) if taken.unit == unit]
        if len(given) != 1:
            return None
        first = given[0] - (unit - group.first)
        if place is not None and place != first:
            return None
        place = first
    if place is None or place % group.alignment != group.first % group.alignment or place >= group.below:
        return None
    end = place + group.count - 1
    file = SGPRS if group.first in SGPRS else VGPRS
    return place if place in file and end in file else None
