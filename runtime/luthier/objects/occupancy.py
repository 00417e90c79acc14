"""Occupancy: how many waves of a kernel fit on a SIMD, by vector registers, scalar registers and LDS.

Sources: LLVM, AMDGPUBaseInfo.cpp (sizes of files, granules, work-groups of a compute unit) and AMDGPUSubtarget.cpp,
`getOccupancyWithWorkGroupSizes`.
"""

from __future__ import annotations

from msgspec import Struct

from luthier.objects.descriptor import KernelDescriptor

LARGEST_WORKGROUP = 1024
"""Maximum work-items of a work-group, on any processor."""
_BARRIERS = 16
"""Maximum work-groups of more than one wave on a compute unit."""


class Occupancy(Struct, frozen=True):
    """Maximum number of waves on a SIMD, at least one, by shared resource."""

    vgprs: int
    sgprs: int
    lds: int
    """Limit by LDS, for the allowed work-group size with which most waves fit; dynamic LDS is not counted."""
    most: int
    """Limit of the hardware."""

    @property
    def waves(self) -> int:
        """Return the maximum number of waves."""
        return min(self.vgprs, self.sgprs, self.lds, self.most)

    @property
    def limited_by(self) -> tuple[str, ...]:
        """Return which of ``VGPRs``, ``SGPRs`` and ``LDS`` limit the number of waves."""
        if self.waves == self.most:
            return ()
        by = {"VGPRs": self.vgprs, "SGPRs": self.sgprs, "LDS": self.lds}
        return tuple(name for name, waves in by.items() if waves == self.waves)


def occupancy_of(descriptor: KernelDescriptor, largest: int = LARGEST_WORKGROUP, required: int = 0) -> Occupancy:
    """Return the occupancy of a kernel with this descriptor.

    Args:
        largest: maximum work-items of a work-group.
        required: work-items of every work-group; 0 if they may differ.
    """
    target, wave_size = descriptor.target, descriptor.wave_size
    most = target.waves_per_simd
    sgprs = most if target.sgpr_file is None else target.sgpr_file // descriptor.allocated_sgprs
    simds, lds, barriers = target.simds_per_cu, target.lds_bytes, _BARRIERS
    if descriptor.wgp_mode and target.simds_per_cu == 2:  # a work-group uses both compute units of a processor
        simds, lds, barriers = 2 * simds, 2 * lds, 2 * barriers
    groups = lds // max(descriptor.group_segment_fixed_size, 1)
    waves = 0
    last = -(-(required or largest) // wave_size)
    for size in (last,) if required else range(1, min(last, simds * most) + 1):  # larger ones do not fit
        waves = max(waves, size * min(groups, simds * most // size, simds * most if size == 1 else barriers))
    return Occupancy(
        target.occupancy(descriptor.vgprs, wave_size),
        max(1, min(most, sgprs)),
        max(1, min(most, -(-waves // simds))),
        most,
    )
