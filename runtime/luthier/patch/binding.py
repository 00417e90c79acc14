"""Which application registers a template's registers become at one point.

Dead registers inside the kernel's allocation are free; then registers above it, which cost occupancy; there is no
spilling yet, so a point where neither suffices is refused.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from luthier.payload.template import M0, SCC, SGPRS, VCC, VGPRS, Group, Template


@dataclass(frozen=True)
class RegisterBudget:
    """How many registers of each file a kernel has, and may have."""

    sgprs: int
    vgprs: int
    sgpr_limit: int
    vgpr_limit: int


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
    """Bit set of the application units whose values are lost."""

    @functools.cached_property
    def sgprs(self) -> int:
        """SGPRs a kernel needs for this binding."""
        return max((unit + 1 for unit in _bits(self.temporaries) if unit in SGPRS), default=0)

    @functools.cached_property
    def vgprs(self) -> int:
        """VGPRs a kernel needs for this binding."""
        return max((unit + 1 - VGPRS.start for unit in _bits(self.temporaries) if unit in VGPRS), default=0)


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(units: Iterable[int]) -> int:
    """A bit set of register units."""
    mask = 0
    for unit in units:
        mask |= 1 << unit
    return mask


@functools.cache
def _range_mask(first: int, count: int) -> int:
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


class _Allocator:
    """Free units, cheapest first: inside the kernel's allocation, then up to the limit."""

    def __init__(self, inside: int, all_free: int) -> None:
        self.tiers = [inside & all_free, all_free]
        self.taken = 0

    def take(self, count: int, alignment: int, remainder: int) -> int | None:
        for tier in self.tiers:
            first = _find_run(tier & ~self.taken, count, alignment, remainder)
            if first is not None:
                self.taken |= _range_mask(first, count)
                return first
        return None


def saved_units(template: Template, sources: tuple[int, ...], live: int, wave_size: int) -> tuple[int, ...]:
    """Units with a fixed place that must survive the payload: overwritten by it, and live or among its inputs."""
    outputs = {output.destination for output in template.outputs}
    vcc = VCC if wave_size == 64 else VCC[:1]
    needed: list[int] = []
    for units in ((SCC,), vcc, (M0,)):
        clobbered = any(unit in template.clobbers for unit in units)
        wanted = any((live >> unit & 1 and unit not in outputs) or unit in sources for unit in units)
        # SCC has no move instruction: as an input it is always taken through a saved copy.
        if (clobbered and wanted) or (units == (SCC,) and SCC in sources):
            needed += units
    return tuple(needed)


def is_valid(binding: Binding, template: Template, sources: tuple[int, ...], live: int, wave_size: int) -> bool:
    """Whether a binding made for another point fits here too."""
    return (
        not binding.temporaries & live
        and binding.sources == sources
        and tuple(fixed for fixed, _ in binding.saved) == saved_units(template, sources, live, wave_size)
    )


def bind(
    template: Template, sources: tuple[int, ...], live: int, busy: int, budget: RegisterBudget, wave_size: int
) -> Binding | None:
    """Choose registers, or None when there are not enough.

    Args:
        template: what to bind.
        sources: application unit for each of its inputs.
        live: bit set of units that must keep their value.
        busy: bit set of further units not to use although dead (operands of a run of payloads at one point).
        budget: the kernel's register files.
        wave_size: lanes a wave.
    """
    keep = live | busy | mask_of(sources) | mask_of(output.destination for output in template.outputs)
    scalar = _Allocator(_range_mask(0, budget.sgprs), _range_mask(0, budget.sgpr_limit) & ~keep)
    vector = _Allocator(_range_mask(VGPRS.start, budget.vgprs), _range_mask(VGPRS.start, budget.vgpr_limit) & ~keep)
    units: dict[int, int] = {}
    for group in template.groups:
        direct = _direct_place(group, template, sources)
        if direct is not None:
            first: int | None = direct
        else:
            allocator = scalar if group.first in SGPRS else vector
            first = allocator.take(group.count, group.alignment, group.first % group.alignment)
        if first is None:
            return None
        units.update(zip(range(group.first, group.first + group.count), range(first, first + group.count), strict=True))
    saved: list[tuple[int, int]] = []
    fixed = saved_units(template, sources, live, wave_size)
    position = 0
    while position < len(fixed):
        pair = fixed[position] == VCC[0] and wave_size == 64
        first = scalar.take(2, 2, 0) if pair else scalar.take(1, 1, 0)
        if first is None:
            return None
        for offset in range(2 if pair else 1):
            saved.append((fixed[position + offset], first + offset))
        position += 2 if pair else 1
    return Binding(tuple(sorted(units.items())), tuple(saved), sources, scalar.taken | vector.taken)


def _direct_place(group: Group, template: Template, sources: tuple[int, ...]) -> int | None:
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
    if place is None or place % group.alignment != group.first % group.alignment:
        return None
    end = place + group.count - 1
    file = SGPRS if group.first in SGPRS else VGPRS
    return place if place in file and end in file else None
