"""Register budgets for the hooks of a kernel, and the policy for hooks that exceed them."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from luthier.errors import HookError
from luthier.lifting import LiftedRepresentation

OnExcess = Literal["keep", "refuse", "spill", "sample"]


class HookBudget(Struct, frozen=True):
    """Limits on the resources that hooks may use in a kernel.

    Raises:
        HookError: a value is invalid.
    """

    registers: int | None = None
    """Maximum VGPRs per wave, without AGPRs; never fewer than the kernel has. None: as many as `occupancy` allows."""
    occupancy: int | None = None
    """Waves per SIMD for which registers, and the LDS used for spills, must leave room. None without `registers`: as
    many as without hooks."""
    on_excess: OnExcess = "keep"
    """Policy for a hook at a point where it needs more registers.

    - *keep*: use more, as long as the kernel's largest work-group still fits a compute unit;
    - *refuse*: leave the hook out at this point, and report it;
    - *spill*: use live registers, and save them in AGPRs, LDS or private memory while the hook runs;
    - *sample*: spill at one of `every` such points, and leave the hook out at the others.
    """
    every: int = 16
    """Number of points of which *sample* keeps one."""

    def __post_init__(self) -> None:
        if self.on_excess not in get_args(OnExcess):
            raise HookError(f"on_excess must be one of {', '.join(get_args(OnExcess))}, not {self.on_excess!r}")
        for name, value in (("registers", self.registers), ("occupancy", self.occupancy), ("every", self.every)):
            if value is not None and value < 1:
                raise HookError(f"`{name}` of a budget must be at least 1, not {value}")

    def vgpr_limit(self, lifted: LiftedRepresentation) -> int:
        """Return the maximum number of VGPRs, without AGPRs, that the budget allows a kernel."""
        descriptor, target, size = lifted.kernel.descriptor, lifted.target, lifted.wave_size
        limit = target.addressable_vgprs
        if least := self.waves(lifted):
            granule = target.vgpr_allocation_granule(size)
            file = target.vgpr_file_size(size)
            limit = max((n for n in range(granule, file + 1, granule) if target.occupancy(n, size) >= least), default=0)
            limit -= descriptor.agprs if target.unified_vgprs else 0
        if self.registers is not None:
            limit = min(limit, self.registers)
        return max(limit, descriptor.architected_vgprs)

    def sgpr_limit(self, lifted: LiftedRepresentation) -> int:
        """Return the maximum number of SGPRs, without special ones such as VCC, that the budget allows a kernel."""
        descriptor, target = lifted.kernel.descriptor, lifted.target
        limit = target.sgpr_limit
        if (least := self.waves(lifted)) and target.sgpr_file is not None:
            granule = target.sgpr_allocation_granule
            limit = min(limit, target.sgpr_file // least // granule * granule - target.special_sgprs)
        return max(limit, descriptor.usable_sgprs)

    def waves(self, lifted: LiftedRepresentation) -> int | None:
        """Return the waves per SIMD for which there must be room, or None if there is no such limit."""
        if self.occupancy is None and self.registers is None:
            return lifted.kernel.occupancy().waves
        return self.occupancy
