"""Code that computes the number of a wave in its work-group.

Work-items fill waves in order, x first, so the work-item of lane 0 determines the number. If the hardware provides the
number, it is used.

Source: LLVM AMDGPUUsage, "Initial Kernel Execution State"; HSA, "Kernel Dispatch Packet".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from luthier.hazards.insertion import waits_around_outputs
from luthier.isa.targets import Target

SIZES_IN_PACKET = 4
"""Byte offset in a dispatch packet of the work-group's size in x and y, 16 bits each."""
_ID_BITS = 10


def wave_of_ttmp(target: Target, to: str) -> list[str]:
    """Return assembly that writes the wave's number to an SGPR, on targets with `Generation.launch_ttmps`."""
    assert target.launch_ttmps is not None
    settle, _ = waits_around_outputs(target)
    ttmp, shift = target.launch_ttmps.wave_id, target.launch_ttmps.wave_id_shift
    return [*settle, f"s_bfe_u32 {to}, ttmp{ttmp}, {bit_field(shift, 5)}", *settle]


def wave_of_work_items(
    target: Target, wave_size: int, scalars: Sequence[str], packet: str, work_item: Callable[[str], str]
) -> list[str]:
    """Return assembly that writes the wave's number to the first of three SGPRs, on all other targets.

    SCC is overwritten.

    At the end of a grid, work-groups may be smaller than the size in the packet. The numbers are then not consecutive,
    but still distinct, and below the number of waves of a complete work-group.

    Args:
        packet: the two SGPRs with the dispatch packet's address, which may be the first two of `scalars`.
        work_item: axis -> the VGPR with the id, or with all of them.
    """
    settle, behind_vectors = waits_around_outputs(target)
    first, second, sizes = scalars
    load = "s_load_b32" if target.sized_memory_names else "s_load_dword"

    def id_of(axis: str, to: str) -> list[str]:
        lines = [*settle, f"v_readlane_b32 {to}, {work_item(axis)}, 0", *behind_vectors]
        if not target.packed_work_item_ids:
            return lines
        return [*lines, f"s_bfe_u32 {to}, {to}, {bit_field(_ID_BITS * 'xyz'.index(axis), _ID_BITS)}"]

    def each(*lines: str) -> list[str]:
        return [piece for line in lines for piece in (line, *settle)]

    return [
        *(f"{load} {sizes}, {packet}, {hex(SIZES_IN_PACKET)}", *target.wait_for_every_load),
        *id_of("z", first),
        *each(f"s_lshr_b32 {second}, {sizes}, 16", f"s_mul_i32 {first}, {first}, {second}"),
        *id_of("y", second),
        *each(f"s_add_u32 {first}, {first}, {second}", f"s_and_b32 {sizes}, {sizes}, 0xffff"),
        *each(f"s_mul_i32 {first}, {first}, {sizes}"),
        *id_of("x", second),
        *each(f"s_add_u32 {first}, {first}, {second}", f"s_lshr_b32 {first}, {first}, {wave_size.bit_length() - 1}"),
    ]


def bit_field(shift: int, bits: int) -> str:
    """Return the second operand of s_bfe_u32."""
    return hex(bits << 16 | shift)
