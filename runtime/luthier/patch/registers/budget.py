"""The register budget of a kernel: the numbers of registers that it has, and may have."""

from __future__ import annotations

from msgspec.structs import replace

from luthier.hazards.wait_states.kinds import pairs
from luthier.isa.registers import AGPRS, VGPRS, mask_of
from luthier.lifting import LiftedRepresentation
from luthier.patch.registers.binding import RegisterBudget
from luthier.tool.hook_budget import HookBudget


def budget_of(lifted: LiftedRepresentation, asked: HookBudget | None = None) -> RegisterBudget:
    """Return the numbers of registers that a kernel has, and the maximum that it may have.

    With more, its largest work-group would no longer fit a compute unit, or the requested budget would be exceeded.
    """
    kernel, target = lifted.kernel, lifted.target
    descriptor = kernel.descriptor
    # Four SIMDs per compute unit, or per work-group processor in its default mode.
    waves_per_simd = -(-kernel.most_waves // 4)
    granule = target.vgpr_allocation_granule(kernel.wave_size)
    fitting = target.vgpr_file_size(kernel.wave_size) // waves_per_simd // granule * granule
    if target.unified_vgprs:
        fitting -= descriptor.agprs
    sgpr_limit = target.sgpr_limit
    if asked is not None and asked.on_excess != "keep":
        fitting, sgpr_limit = min(fitting, asked.vgpr_limit(lifted)), asked.sgpr_limit(lifted)
    limit = max(min(target.addressable_vgprs, fitting), descriptor.architected_vgprs)
    if named_registers(lifted, VGPRS) > descriptor.architected_vgprs:
        # In a unified file these name AGPRs. More VGPRs would move the AGPRs, and the names would no longer match.
        limit = descriptor.architected_vgprs
    # A payload runs with the upper bits of VGPR numbers set to 0.
    vgprs, limit = min(descriptor.architected_vgprs, target.named_vgprs), min(limit, target.named_vgprs)
    agpr_slots = 0 if asked is not None and asked.on_excess == "refuse" else _agpr_slots(lifted, limit)
    budget = RegisterBudget(descriptor.usable_sgprs, vgprs, sgpr_limit, limit, agpr_slots=agpr_slots)
    if target.scalar_wait is None:
        return budget
    # Registers that the application does not use have no hazards with its instructions.
    native, touched = lifted.effect_table.code(lifted.columns), 0
    for block in lifted.blocks:
        reads, writes, _ = native.together(block.first, block.last)
        touched |= reads | writes
    return replace(budget, untouched=~pairs(touched))


def _agpr_slots(lifted: LiftedRepresentation, vgpr_limit: int) -> int:
    """Return the bit set of the AGPR units that a kernel does not use and that cost no occupancy.

    These are AGPRs that it has and, in a unified file, those that fit beside `vgpr_limit` VGPRs.
    """
    target, descriptor = lifted.target, lifted.kernel.descriptor
    if not target.has_agprs or lifted.unknown or named_registers(lifted, VGPRS) > descriptor.architected_vgprs:
        return 0
    count = descriptor.agprs
    if target.unified_vgprs:
        size = lifted.wave_size
        waves = target.occupancy(max(descriptor.vgprs, vgpr_limit), size)
        granule = target.vgpr_allocation_granule(size)
        same = target.vgpr_file_size(size) // waves // granule * granule if waves else 0
        count = max(count, min(same - -(-vgpr_limit // 4) * 4, target.addressable_vgprs))
    return mask_of(AGPRS[used_agprs(lifted) : count])


def used_agprs(lifted: LiftedRepresentation) -> int:
    """Return the number of AGPRs from a0 on that the code of a kernel may use, of those that its descriptor allocates.

    These are the named AGPRs if the code can access no others, otherwise all.
    """
    descriptor = lifted.kernel.descriptor
    by_other_names = lifted.index_mode or named_registers(lifted, VGPRS) > descriptor.architected_vgprs
    if lifted.unknown or by_other_names:
        return descriptor.agprs
    return min(named_registers(lifted, AGPRS), descriptor.agprs)


def named_registers(lifted: LiftedRepresentation, file: range) -> int:
    """Return the number of registers of a file up to the last one that an instruction of the kernel names.

    This may exceed the number in the descriptor. On GFX9, SGPRs are allocated in steps, and kernels without
    FLAT_SCRATCH use its registers. Hand-written kernels for targets with a unified register file may name AGPRs as
    VGPRs at or above ``accum_offset``: v(accum_offset + n) is a(n).
    """
    return lifted.named_in(file)
