"""Work-groups that a compute unit of a machine holds at once, and what limits them."""

from __future__ import annotations

from msgspec import Struct

from luthier.errors import LuthierError
from luthier.projection.machine import MachineModel
from luthier.support.wording import enumerated


class GroupNeeds(Struct, frozen=True, kw_only=True):
    """Needs of a work-group."""

    kernel: str
    wave_size: int
    items: int
    """Work-items."""
    vgprs: int
    """Registers of a wave, with AGPRs in a unified file."""
    sgprs: int
    """Allocated; 0: every wave has all."""
    lds: int
    """Bytes, with dynamic ones."""
    wgp_mode: bool
    """The work-group may use both compute units of a work-group processor."""

    @property
    def waves_per_group(self) -> int:
        """Return the waves of a work-group."""
        return -(-self.items // self.wave_size)


class Residency(Struct, frozen=True):
    """Work-groups that run at once on a compute unit, or on a work-group processor."""

    groups: int
    most_waves: int
    """That the hardware allows."""
    limited_by: tuple[str, ...]
    """Any of ``VGPRs``, ``SGPRs``, ``LDS``, ``barriers`` and ``waves``."""
    units: int
    """Compute units together: 2 of a work-group processor."""


def residency(needs: GroupNeeds, machine: MachineModel) -> Residency:
    """Return how many work-groups a compute unit holds.

    Raises:
        LuthierError: it holds none.
    """
    target = machine.target
    wave_size = needs.wave_size if needs.wave_size in target.wave_sizes else target.default_wave_size
    units = 2 if needs.wgp_mode and target.simds_per_cu == 2 else 1
    simds = units * target.simds_per_cu
    granule = target.vgpr_allocation_granule(wave_size)
    allocated = -(-max(needs.vgprs, 1) // granule) * granule
    most = simds * target.waves_per_simd
    sgprs = simds * (target.sgpr_file // needs.sgprs) if target.sgpr_file and needs.sgprs else most
    limits = {
        "VGPRs": simds * (target.vgpr_file_size(wave_size) // allocated) // needs.waves_per_group,
        "SGPRs": sgprs // needs.waves_per_group,
        "LDS": units * target.lds_bytes // needs.lds if needs.lds else most,
        "barriers": 16 * units if needs.waves_per_group > 1 else most,
        "waves": most // needs.waves_per_group,
    }
    groups = min(limits.values())
    limited_by = tuple(name for name, limit in limits.items() if limit == groups)
    limited_by = ("waves",) if "waves" in limited_by else limited_by  # no kernel could have more
    if groups < 1:
        raise LuthierError(
            f"a work-group does not fit on a compute unit of {machine.name}: too many {enumerated(limited_by)}",
            kernel=needs.kernel,
        )
    return Residency(groups, most, limited_by, units)
