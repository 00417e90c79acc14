"""Budgets of registers that hooks may cost a kernel, and the policy for hooks that need more."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from luthier.errors import HookError
from luthier.lifting import LiftedRepresentation

OnExcess = Literal["keep", "refuse", "spill", "sample"]


class HookBudget(Struct, frozen=True):
    """Resources that a kernel may use for its hooks.

    Raises:
        HookError: no such budget.
    """

    registers: int | None = None
    """VGPRs a wave, without AGPRs, at most; never fewer than the kernel has. None: what `occupancy` allows."""
    occupancy: int | None = None
    """Waves a SIMD that its registers, and LDS in which some are kept, must leave room for. None without `registers`:
    as many as without hooks."""
    on_excess: OnExcess = "keep"
    """Policy for a hook at a point where it needs more registers than that.

    - *keep*: it gets them, as far as the kernel's largest work-group still fits a compute unit;
    - *refuse*: it is left out there, and reported;
    - *spill*: it gets live ones, which are kept in AGPRs, LDS or private memory meanwhile;
    - *sample*: that at every so many of these points, and it is left out at the others.
    """
    every: int = 16
    """At how many points one is sampled."""

    def __post_init__(self) -> None:
        if self.on_excess not in get_args(OnExcess):
            raise HookError(f"{self.on_excess!r} is none of {', '.join(get_args(OnExcess))}")
        for name, value in (("registers", self.registers), ("occupancy", self.occupancy), ("every", self.every)):
            if value is not None and value < 1:
                raise HookError(f"a budget whose `{name}` is {value}")

    def vgpr_limit(self, lifted: LiftedRepresentation) -> int:
        """Return the largest number of VGPRs, AGPRs aside, that a kernel may have within this budget."""
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
        """Return the largest number of SGPRs, VCC and the like aside, that a kernel may have within this budget."""
        descriptor, target = lifted.kernel.descriptor, lifted.target
        limit = target.sgpr_limit
        if (least := self.waves(lifted)) and target.sgpr_file is not None:
            granule = target.sgpr_allocation_granule
            limit = min(limit, target.sgpr_file // least // granule * granule - target.special_sgprs)
        return max(limit, descriptor.usable_sgprs)

    def waves(self, lifted: LiftedRepresentation) -> int | None:
        """Return the waves per SIMD that there must be room for, or None where their number does not matter."""
        if self.occupancy is None and self.registers is None:
            return lifted.kernel.occupancy().waves
        return self.occupancy
