"""LDS for live vector registers: each wave of a work-group has its own part.

The hooks' part of LDS (`luthier.payload.lds`) is the last one. Below it are the *slots*: each holds one register of
every wave of the largest work-group that the kernel allows, in the order of waves and lanes. Payloads need no VGPR for
addresses: M0 holds the address of the wave's part of the first slot, the instruction adds the offset of the slot, and
the hardware that of the lane.

The addresses of the slots are known only at launch: they end at the end of LDS according to the dispatch packet. Code
at the kernel's entry computes the wave's address and keeps it in an SGPR that nothing else uses.

Source: the ISA documents of GFX9 to GFX12, DS_WRITE_ADDTID_B32: 16 bits of M0, the offset and 4 times the lane.
"""

from __future__ import annotations

from msgspec.structs import replace

from luthier.hazards.insertion import waits_around_outputs
from luthier.isa.registers import unit_name
from luthier.isa.targets import Target
from luthier.lifting import LiftedRepresentation
from luthier.patch.registers.binding import Slice
from luthier.patch.registers.wave_number import wave_of_ttmp, wave_of_work_items
from luthier.payload.lds import GROUP_SEGMENT_SIZE

_ALIGNMENT = 4
"""Alignment of slots in bytes; their addresses are rounded down to it."""
SCALARS = 3
"""Number of SGPRs that are overwritten before the wave's address is known."""


def refusal(lifted: LiftedRepresentation) -> str:
    """Return why payloads of a kernel cannot spill registers to LDS; empty if they can."""
    return "" if lifted.target.lds_by_lane else f"{lifted.target.name} can address too little of it without a VGPR"


def states(target: Target) -> list[str]:
    """Return the launch state that the code at the kernel's entry needs (`luthier.payload.launch_state.STATES`)."""
    if target.launch_ttmps is not None:
        return ["dispatch_ptr"]
    if target.packed_work_item_ids:
        return ["dispatch_ptr", "workitem_id"]
    return ["dispatch_ptr", *(f"workitem_id_{axis}" for axis in "xyz")]


def slice_of(lifted: LiftedRepresentation, address: int, hooks: int, waves: int | None) -> Slice | None:
    """Return as many LDS slots as fit; None if none fits.

    Args:
        address: SGPR unit with the wave's address.
        hooks: bytes of LDS of hooks.
        waves: waves per SIMD for which LDS must leave room; None: no limit.
    """
    kernel = lifted.kernel
    stride = 4 * lifted.wave_size * kernel.most_waves
    has = kernel.group_segment_fixed_size + hooks

    def fit(slots: int) -> bool:
        size = has + size_of(slots, stride)
        after = replace(kernel.descriptor, group_segment_fixed_size=size)
        return size <= lifted.target.lds_bytes and (waves is None or kernel.occupancy(after).lds >= waves)

    most = (lifted.target.lds_bytes - has) // stride
    slots = next(filter(fit, range(most, 0, -1)), 0)
    return Slice(address, stride, slots) if slots else None


def size_of(slots: int, stride: int) -> int:
    """Return the bytes that a work-group needs in addition for some slots."""
    return slots * stride + _ALIGNMENT if slots else 0


def find_wave(target: Target, wave_size: int, address: str, scalars: list[str], packet: str, waves: int) -> list[str]:
    """Return assembly for a kernel's entry that computes the address of a wave's part of a slot.

    The address is that of the part if slots began at the end of LDS. Besides SCC and EXEC, the code changes only
    `address` and `scalars`.

    Args:
        scalars: `SCALARS` SGPRs.
        packet: the two SGPRs with the dispatch packet's address.
        waves: waves of the largest work-group; further waves end.
    """
    settle, _ = waits_around_outputs(target)
    load = "s_load_b32" if target.sized_memory_names else "s_load_dword"
    lines = [f"{load} {address}, {packet}, {hex(GROUP_SEGMENT_SIZE)}", *target.wait_for_every_load]
    wave = scalars[0]
    if target.launch_ttmps is not None:
        lines += wave_of_ttmp(target, wave)
    else:
        ids = dict.fromkeys("xyz", "v0") if target.packed_work_item_ids else {"x": "v0", "y": "v1", "z": "v2"}
        lines += wave_of_work_items(target, wave_size, scalars, packet, ids.__getitem__)
    # Unless launch sizes are checked, as in `luthier run`, a larger work-group would use slots of other waves.
    lines += [f"s_cmp_ge_u32 {wave}, {waves}", "s_cbranch_scc0 1", "s_trap 2"]
    shift = (4 * wave_size).bit_length() - 1
    lines += [f"s_lshl_b32 {wave}, {wave}, {shift}", *settle]
    return [*lines, f"s_add_u32 {address}, {address}, {wave}", *settle]


def begin_slots(target: Target, address: int, below: int) -> list[str]:
    """Return assembly after `find_wave`, when the size of LDS from the first slot on is known.

    Args:
        address: SGPR unit.
        below: bytes of LDS that slots and hooks add to the kernel's, including padding.
    """
    settle, _ = waits_around_outputs(target)
    name = unit_name(address)
    lines = f"s_sub_u32 {name}, {name}, {below - _ALIGNMENT:#x}", f"s_and_b32 {name}, {name}, {-_ALIGNMENT}"
    return [piece for line in lines for piece in (line, *settle)]
