"""Binding of a template's registers to the application's registers at one point."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from luthier.isa.registers import AGPRS, EXEC, M0, SCC, SGPRS, VCC, VGPRS, mask_of
from luthier.patch.registers.copies import holders
from luthier.payload.template import Template


class Slice(NamedTuple):
    """The part of LDS of each wave (`luthier.patch.registers.lds_slots`)."""

    address: int
    """SGPR unit with the byte address of its part of the first slot."""
    stride: int
    """Bytes from slot to slot."""
    slots: int
    """Maximum number of spilled VGPRs."""


class RegisterBudget(Struct, frozen=True):
    """Numbers of registers that a kernel has, and may have."""

    sgprs: int
    vgprs: int
    sgpr_limit: int
    vgpr_limit: int
    spill: bool = False
    """Whether payloads may spill VGPRs to private memory."""
    agpr_slots: int = 0
    """Bit set of the unused AGPR units to which payloads may spill VGPRs."""
    lds: Slice | None = None
    """LDS to which payloads may spill VGPRs."""
    untouched: int = -1
    """Bit set of the SGPR units that the application never accesses, if payloads should prefer these."""

    @property
    def scalars(self) -> int:
        """Return the bit set of the SGPR units that a payload may use."""
        return range_mask(SGPRS.start, max(self.sgprs, self.sgpr_limit))

    @property
    def vectors(self) -> int:
        """Return the bit set of the VGPR units that a payload may use."""
        return range_mask(VGPRS.start, max(self.vgprs, self.vgpr_limit))

    @property
    def spills(self) -> bool:
        """Return whether payloads may spill live VGPRs."""
        return self.spill or self.agpr_slots != 0 or self.lds is not None


SPILLING = 2
"""Minimum `Binding.cost` of bindings that spill VGPRs."""


class Binding(Struct, frozen=True, dict=True):
    """The application's registers for a template."""

    units: tuple[tuple[int, int], ...]
    """(template unit, application unit), sorted."""
    saved: tuple[tuple[int, int], ...]
    """(fixed unit with a live value, SGPR unit in which it is saved while the payload runs)."""
    sources: tuple[int, ...]
    """Application unit from which each input is read."""
    temporaries: int
    """Bit set of the application units that the payload overwrites."""
    spilled_sgprs: tuple[int, ...] = ()
    """Live SGPR units among them: the N-th is saved in lane N of `lane_vgpr` while the payload runs."""
    lane_vgpr: int | None = None
    """VGPR unit that is dead in every lane, or is `spilled_whole`."""
    spare: int | None = None
    """SGPR unit for outputs whose copies form a cycle."""
    spilled: tuple[int, ...] = ()
    """Live VGPR units among them that are spilled in the active lanes."""
    spilled_whole: tuple[int, ...] = ()
    """VGPRs that are spilled in all lanes."""
    frame: int | None = None
    """SGPR unit for the offset of spills in private memory, if they are there."""
    agpr_slots: tuple[int, ...] = ()
    """AGPR units for spilled VGPRs, those of `spilled` first, if they are there."""
    lds: Slice | None = None
    """LDS slots for spilled VGPRs, those of `spilled` first, if they are there."""
    kept_m0: int | None = None
    """SGPR unit in which M0 is saved while it holds the LDS address, if M0 is live."""
    kept_scc: int | None = None
    """SGPR unit in which SCC is saved while EXEC is inverted for inactive lanes, if SCC is live."""
    link: int | None = None
    """First of the two SGPR units with the return address of a called payload. Its callers copy the inputs, and
    `sources` is empty."""

    def __hash__(self) -> int:  # used at every point
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        parts = self.units, self.saved, self.sources, self.temporaries, self.spilled_sgprs, self.lane_vgpr, self.spare
        spills = self.spilled, self.spilled_whole, self.frame, self.agpr_slots, self.lds, self.kept_m0, self.kept_scc
        return hash((*parts, *spills, self.link))

    @functools.cached_property
    def fixed(self) -> list[int]:
        """Return the fixed units among `saved`."""
        return [unit for unit, _ in self.saved]

    @functools.cached_property
    def lost(self) -> int:
        """Return the bit set of the units whose values are lost after the payload."""
        return self.temporaries & ~mask_of((*self.spilled_sgprs, *self.spilled, *self.spilled_whole))

    @functools.cached_property
    def spill_size(self) -> int:
        """Return the bytes of private memory per lane for spills, a multiple of 16."""
        if self.frame is None:
            return 0
        return -(-4 * (len(self.spilled) + len(self.spilled_whole)) // 16) * 16

    @functools.cached_property
    def cost(self) -> int:
        """Return its cost: 0 with only dead and unused registers, 1 if it spills SGPRs; from `SPILLING` on it spills
        VGPRs, with higher costs for slower destinations."""
        if not self.spilled and not self.spilled_whole:
            return int(bool(self.spilled_sgprs))
        place = 0 if self.agpr_slots else 1 if self.lds is not None else 2
        return SPILLING + 2 * place + bool(self.spilled_sgprs)

    @functools.cached_property
    def lds_slots(self) -> int:
        """Return the number of VGPRs that are spilled to LDS."""
        return 0 if self.lds is None else len(self.spilled) + len(self.spilled_whole)

    @functools.cached_property
    def sgprs(self) -> int:
        """Return the number of SGPRs that a kernel needs for this binding."""
        return (self.temporaries & range_mask(SGPRS.start, len(SGPRS))).bit_length()

    @functools.cached_property
    def agprs(self) -> int:
        """Return the number of AGPRs that a kernel needs for this binding."""
        return max(self.agpr_slots, default=AGPRS.start - 1) - AGPRS.start + 1

    @functools.cached_property
    def vgprs(self) -> int:
        """Return the number of VGPRs that a kernel needs for this binding."""
        return (self.temporaries >> VGPRS.start & range_mask(0, len(VGPRS))).bit_length()


@functools.cache
def range_mask(first: int, count: int) -> int:
    """Return the bit set of `count` units from `first` on."""
    return ((1 << max(count, 0)) - 1) << first


class KeptPlace(NamedTuple):
    """A fixed register that a payload overwrites and that may have to be saved."""

    units: tuple[int, ...]
    wanted: int
    """It must be saved if some of these units are live; 0: always, since an input is taken from it."""


@functools.lru_cache(maxsize=4096)
def kept_places(template: Template, sources: tuple[int, ...], wave_size: int) -> tuple[KeptPlace, ...]:
    """Return what may have to survive a payload at its fixed place."""
    inputs = holders(sources)
    vcc = (VCC,) if wave_size == 64 else (VCC[:1], VCC[1:])
    places = []
    for units in ((SCC,), *vcc, (M0,)):
        mask = mask_of(units)
        overwritten = mask & template.clobber_mask
        # SCC has no move instruction: as an input it is always taken through a saved copy.
        if inputs & mask and (overwritten or units == (SCC,)):
            places.append(KeptPlace(units, 0))
        elif overwritten and mask & ~template.destinations:
            places.append(KeptPlace(units, mask & ~template.destinations))
    return tuple(places)


def last_copies(template: Template, units: Mapping[int, int], saved: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the parallel copies at the end of a payload: destination -> source of its outputs and saved values."""
    copies = dict(saved)
    copies.update((output.destination, units.get(output.unit, output.unit)) for output in template.outputs)
    return copies


@functools.lru_cache(maxsize=4096)
def touched_by(template: Template, binding: Binding, sources: tuple[int, ...]) -> tuple[int, int]:
    """Return the bit set of the units that a bound payload reads or writes, and of those that it writes.

    Args:
        sources: application unit for each of its inputs.
    """
    fixed = mask_of(unit for unit in template.written if unit in EXEC)
    written = binding.temporaries | template.clobber_mask | template.destinations | fixed
    if binding.lds is not None:
        written |= 1 << M0
    read = holders(sources) | mask_of((*binding.fixed, *EXEC))
    return read | written, written
