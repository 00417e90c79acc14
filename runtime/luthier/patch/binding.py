"""Which application registers a template's registers become at one point.

Dead registers inside the kernel's allocation are free; then come registers above it, which cost occupancy; then live
SGPRs, parked meanwhile in the lanes of one dead VGPR; and where payloads may have AGPRs, LDS or private memory, live
VGPRs, spilled meanwhile. A point without enough registers is refused.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from luthier.isa.registers import AGPRS, EXEC, M0, SCC, SGPRS, VCC, VGPRS, bits_of, mask_of
from luthier.lifting import Live
from luthier.patch.copies import holder, needs_spare
from luthier.payload.template import Group, Template


class Slice(NamedTuple):
    """LDS that each wave has to itself (`luthier.patch.slices`)."""

    address: int
    """SGPR unit with the byte address of what it has of the first slot."""
    stride: int
    """Bytes from slot to slot."""
    slots: int
    """How many VGPRs it has room for."""


@dataclass(frozen=True)
class RegisterBudget:
    """How many registers of each file a kernel has, and may have."""

    sgprs: int
    vgprs: int
    sgpr_limit: int
    vgpr_limit: int
    spill: bool = False
    """Whether payloads may keep VGPRs in private memory."""
    homes: int = 0
    """Bit set of the AGPR units that nothing in the kernel uses, where payloads may keep VGPRs."""
    lds: Slice | None = None
    """LDS in which payloads may keep VGPRs."""
    untouched: int = -1
    """Bit set of the SGPR units that the application never touches, where payloads had better take these."""

    @property
    def scalars(self) -> int:
        """Bit set of the SGPR units that a payload may have."""
        return range_mask(SGPRS.start, max(self.sgprs, self.sgpr_limit))

    @property
    def vectors(self) -> int:
        """Bit set of the VGPR units that a payload may have."""
        return range_mask(VGPRS.start, max(self.vgprs, self.vgpr_limit))

    @property
    def spills(self) -> bool:
        """Whether payloads may keep live VGPRs anywhere."""
        return self.spill or self.homes != 0 or self.lds is not None


SPILLING = 2
"""The least `Binding.cost` of those that spill."""
Spill = Literal["not", "AGPRs", "LDS", "memory"]
"""Where a payload keeps live VGPRs that it overwrites: nowhere, in AGPRs, LDS, or private memory."""


@dataclass(frozen=True)
class Binding:
    """A template's registers made concrete."""

    units: tuple[tuple[int, int], ...]
    """(template unit, application unit), sorted."""
    saved: tuple[tuple[int, int], ...]
    """(fixed unit that holds a live value, SGPR unit it is kept in while the payload runs)."""
    sources: tuple[int, ...]
    """Application unit each input is read from."""
    temporaries: int
    """Bit set of the application units the payload overwrites."""
    parked: tuple[int, ...] = ()
    """Live SGPR units among them: the N-th is kept in lane N of `parking` while the payload runs."""
    parking: int | None = None
    """VGPR unit that is dead in every lane, or is `spilled_whole`."""
    spare: int | None = None
    """SGPR unit for outputs that go round in a circle."""
    spilled: tuple[int, ...] = ()
    """Live VGPR units among them, kept elsewhere while the payload runs: their active lanes."""
    spilled_whole: tuple[int, ...] = ()
    """The same: all of their lanes."""
    frame: int | None = None
    """SGPR unit for the place in private memory of what is spilled, if it is there."""
    homes: tuple[int, ...] = ()
    """AGPR units of what is spilled, `spilled` first, if it is there."""
    lds: Slice | None = None
    """Where what is spilled is, `spilled` first, if it is in LDS."""
    kept_m0: int | None = None
    """SGPR unit that keeps M0 while that holds the address in LDS, where somebody wants it."""
    kept_scc: int | None = None
    """SGPR unit that keeps SCC while EXEC is turned round for lanes that are not active, where SCC is live."""
    link: int | None = None
    """First of the two SGPR units with the address to go back to, of a payload that is called; its callers put its
    inputs where it wants them, and `sources` is empty."""

    def __hash__(self) -> int:  # asked for at every point
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        parts = self.units, self.saved, self.sources, self.temporaries, self.parked, self.parking, self.spare
        spills = self.spilled, self.spilled_whole, self.frame, self.homes, self.lds, self.kept_m0, self.kept_scc
        return hash((*parts, *spills, self.link))

    @functools.cached_property
    def fixed(self) -> list[int]:
        """Fixed units among `saved`."""
        return [unit for unit, _ in self.saved]

    @functools.cached_property
    def lost(self) -> int:
        """Bit set of the units whose values are gone after the payload."""
        return self.temporaries & ~mask_of((*self.parked, *self.spilled, *self.spilled_whole))

    @functools.cached_property
    def spill_size(self) -> int:
        """Bytes of private memory a lane for what is spilled, a multiple of 16."""
        if self.frame is None:
            return 0
        return -(-4 * (len(self.spilled) + len(self.spilled_whole)) // 16) * 16

    @functools.cached_property
    def cost(self) -> int:
        """What it costs a wave: 0 if it takes dead and spare registers alone, 1 if it parks SGPRs; from `SPILLING` on
        it spills VGPRs, the dearer the place the more."""
        if not self.spilled and not self.spilled_whole:
            return int(bool(self.parked))
        place = 0 if self.homes else 1 if self.lds is not None else 2
        return SPILLING + 2 * place + bool(self.parked)

    @functools.cached_property
    def slots(self) -> int:
        """VGPRs that are kept in LDS."""
        return 0 if self.lds is None else len(self.spilled) + len(self.spilled_whole)

    @functools.cached_property
    def sgprs(self) -> int:
        """SGPRs a kernel needs for this binding."""
        return (self.temporaries & range_mask(SGPRS.start, len(SGPRS))).bit_length()

    @functools.cached_property
    def agprs(self) -> int:
        """AGPRs a kernel needs for this binding."""
        return max(self.homes, default=AGPRS.start - 1) - AGPRS.start + 1

    @functools.cached_property
    def vgprs(self) -> int:
        """VGPRs a kernel needs for this binding."""
        return (self.temporaries >> VGPRS.start & range_mask(0, len(VGPRS))).bit_length()


@functools.cache
def range_mask(first: int, count: int) -> int:
    """Bit set of `count` units from `first` on."""
    return ((1 << max(count, 0)) - 1) << first


@functools.cache
def _aligned_mask(alignment: int, remainder: int) -> int:
    return mask_of(unit for unit in range(VGPRS.stop) if unit % alignment == remainder)


def _find_run(free: int, count: int, alignment: int, remainder: int) -> int | None:
    """Lowest first unit of `count` free neighbours, congruent to `remainder` modulo `alignment`."""
    for _ in range(1, count):
        free &= free >> 1
    free &= _aligned_mask(alignment, remainder)
    return (free & -free).bit_length() - 1 if free else None


LINK = 2, 2, 0
"""SGPRs with the address to go back to: how many, their alignment, and its remainder."""


class _Allocator:
    """Hands out units from bit sets of free ones, the cheapest set first."""

    def __init__(self, dead: list[int], live: list[int] | None = None) -> None:
        self._dead, self._all = dead, [*dead, *(live or [])]
        self.taken = 0

    def take(
        self, count: int, alignment: int, remainder: int, below: int = VGPRS.stop, *, dead: bool = False
    ) -> int | None:
        reach = range_mask(0, below + count - 1)
        for tier in self._dead if dead else self._all:
            first = _find_run(tier & reach & ~self.taken, count, alignment, remainder)
            if first is not None:
                self.taken |= range_mask(first, count)
                return first
        return None


class KeptPlace(NamedTuple):
    """A register with a fixed place that a payload overwrites, though somebody may want it."""

    units: tuple[int, ...]
    wanted: int
    """It must survive where some of these are live; 0: everywhere, since an input is taken from it."""


@functools.lru_cache(maxsize=4096)
def kept_places(template: Template, sources: tuple[int, ...], wave_size: int) -> tuple[KeptPlace, ...]:
    """What may have to survive a payload at its fixed place."""
    inputs = mask_of(sources)
    vcc = (VCC,) if wave_size == 64 else (VCC[:1], VCC[1:])
    found = []
    for units in ((SCC,), *vcc, (M0,)):
        mask = mask_of(units)
        overwritten = mask & template.clobber_mask
        # SCC has no move instruction: as an input it is always taken through a saved copy.
        if inputs & mask and (overwritten or units == (SCC,)):
            found.append(KeptPlace(units, 0))
        elif overwritten and mask & ~template.destinations:
            found.append(KeptPlace(units, mask & ~template.destinations))
    return tuple(found)


def last_copies(template: Template, units: Mapping[int, int], saved: Iterable[tuple[int, int]]) -> dict[int, int]:
    """What a payload ends with: destination -> source of its outputs and of what it kept, to be copied at once."""
    copies = dict(saved)
    copies.update((output.destination, units.get(output.unit, output.unit)) for output in template.outputs)
    return copies


@functools.lru_cache(maxsize=4096)
def touched_by(template: Template, binding: Binding, sources: tuple[int, ...]) -> tuple[int, int]:
    """Bit sets of the units that a bound payload reads or writes, and of those that it writes.

    Args:
        sources: application unit for each of its inputs.
    """
    fixed = mask_of(unit for unit in template.written if unit in EXEC)
    written = binding.temporaries | template.clobber_mask | template.destinations | fixed
    if binding.lds is not None:
        written |= 1 << M0
    read = mask_of((*map(holder, sources), *binding.fixed, *EXEC))
    return read | written, written


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
    """Choose registers, or None when there are not enough.

    Args:
        template: what to bind.
        sources: application unit for each of its inputs; none if it is called.
        live: what must keep its value.
        budget: the kernel's register files.
        wave_size: lanes a wave.
        called: whether it is for a payload that is called: with a `Binding.link`.
    """
    # The first place that does. LDS is planned only where there can be no private memory (`luthier.patch.splicing`).
    possible: Mapping[Spill, bool] = {
        "not": True,
        "AGPRs": budget.homes != 0,
        "LDS": budget.lds is not None,
        "memory": budget.spill,
    }
    for spill in (one for one, may in possible.items() if may):
        for park in (False, True):
            binding = _bind(template, sources, live, budget, wave_size, park=park, spill=spill, called=called)
            if binding is not None:
                return binding
    return None


def _bind(
    template: Template,
    sources: tuple[int, ...],
    live: Live,
    budget: RegisterBudget,
    wave_size: int,
    *,
    park: bool,
    spill: Spill,
    called: bool,
) -> Binding | None:
    lanes = live.all_bits if template.writes_inactive_lanes else live.active_bits
    fixed_places = mask_of(map(holder, sources)) | template.destinations
    keep = lanes | fixed_places
    scalars = range_mask(0, budget.sgprs), range_mask(0, budget.sgpr_limit)
    tiers = [budget.untouched & scalars[0] & ~keep, scalars[0] & ~keep, scalars[1] & ~keep]
    scalar = _Allocator(tiers, [scalars[0] & ~fixed_places] if park else [])
    vectors = [range_mask(VGPRS.start, count) for count in (budget.vgprs, budget.vgpr_limit)]
    vector = _Allocator([mask & ~keep for mask in vectors], [vectors[0] & ~fixed_places] if spill != "not" else [])
    frame = kept_m0 = kept_scc = None
    if spill != "not":
        if template.destinations & mask_of(EXEC):
            return None  # what was spilled in some lanes must come back in the same
        # Needed before anything can be parked, so these must be dead.
        dead = _Allocator(tiers)
        frame = dead.take(1, 1, 0) if spill == "memory" else None
        wants_m0 = (live.all_bits | fixed_places) >> M0 & 1
        kept_m0 = dead.take(1, 1, 0) if spill == "LDS" and wants_m0 else None
        whole = live.active_bits >> SCC & 1 and (park or template.writes_inactive_lanes or spill == "AGPRs")
        kept_scc = dead.take(1, 1, 0) if whole else None
        if (spill == "memory" and frame is None) or (whole and kept_scc is None):
            return None
        if spill == "LDS" and wants_m0 and kept_m0 is None:
            return None
        scalar.taken = dead.taken
    units: dict[int, int] = {}
    # What callers write, nothing has saved yet.
    handed = template.handed if called else frozenset()
    for group in template.groups:
        first = direct_place(group, template, sources) if sources else None
        if first is None:
            allocator = scalar if group.first in SGPRS else vector
            place = group.count, group.alignment, group.first % group.alignment, group.below
            first = allocator.take(*place, dead=not handed.isdisjoint(range(group.first, group.first + group.count)))
        if first is None:
            return None
        units.update(zip(range(group.first, group.first + group.count), range(first, first + group.count), strict=True))
    saved: list[tuple[int, int]] = []
    for fixed, wanted in kept_places(template, sources, wave_size):
        if wanted and not lanes & wanted:
            continue
        first = scalar.take(len(fixed), len(fixed), 0)
        if first is None:
            return None
        saved += [(unit, first + offset) for offset, unit in enumerate(fixed)]
    spare = None
    if template.outputs and needs_spare(last_copies(template, units, saved)):
        spare = scalar.take(1, 1, 0)
        if spare is None:
            return None
    link = None
    if called:
        link = scalar.take(*LINK, dead=True)
        if link is None:
            return None
    spilled = list(bits_of(vector.taken & keep))
    spilled_whole: list[int] = []
    if template.writes_inactive_lanes:
        spilled, spilled_whole = [], spilled
    parked = tuple(bits_of(scalar.taken & keep))
    parking = None
    if parked:
        dead = _Allocator([mask & ~live.all_bits & ~keep & ~vector.taken for mask in vectors])
        parking = dead.take(1, 1, 0)
        if parking is None and spill != "not":
            dead = _Allocator([vectors[0] & ~fixed_places & ~vector.taken])
            parking = dead.take(1, 1, 0)
            spilled_whole += [] if parking is None else [parking]
        if parking is None or len(parked) > wave_size:
            return None
        vector.taken |= dead.taken
    homes: tuple[int, ...] = ()
    if spill == "AGPRs":
        homes = tuple(itertools.islice(bits_of(budget.homes), len(spilled) + len(spilled_whole)))
        if len(homes) < len(spilled) + len(spilled_whole):
            return None
    lds = budget.lds if spill == "LDS" else None
    if lds is not None and len(spilled) + len(spilled_whole) > lds.slots:
        return None
    taken = scalar.taken | vector.taken
    return Binding(
        tuple(sorted(units.items())),
        tuple(saved),
        sources,
        taken,
        parked,
        parking,
        spare,
        tuple(spilled),
        tuple(spilled_whole),
        frame,
        homes,
        lds,
        kept_m0,
        kept_scc,
        link,
    )


def direct_place(group: Group, template: Template, sources: tuple[int, ...]) -> int | None:
    """Where the application already holds a group of inputs that the payload only reads, so that nothing is copied."""
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
