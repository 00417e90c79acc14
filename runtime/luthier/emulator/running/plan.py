"""Plans: the part of a wave's initial state that does not depend on the dispatch.

The native executor reads the fields of `layout.PLAN`, in this process and under `luthier run`. Source: LLVM
AMDGPUUsage, "Initial Kernel Execution State".
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from luthier.emulator import layout
from luthier.emulator.binding.program import DecodedCode
from luthier.emulator.running.start import initial_mode, scratch_bytes
from luthier.errors import DeviceError, EmulationError
from luthier.isa.registers import SGPRS, TTMPS
from luthier.isa.targets import Target
from luthier.objects import Kernel
from luthier.wire.topology import COMPUTE_UNITS

USER_SGPRS = (
    *("private_segment_buffer", "dispatch_ptr", "queue_ptr", "kernarg_segment_ptr", "dispatch_id"),
    *("flat_scratch_init", "private_segment_size", "kernarg_preload"),
)
"""Values that the executor puts into user SGPRs if the descriptor enables them."""
_SINK = layout.WAVE["sink"]


def entry_of(kernel: Kernel, code: DecodedCode) -> int:
    """Return the record of the first instruction that hardware executes.

    Raises:
        EmulationError: no instruction begins there.
    """
    entry = code.record_at(kernel.entry + kernel.descriptor.hardware_entry)
    if entry is None:
        raise EmulationError(f"no instruction begins at the entry {kernel.entry:#x}", kernel=kernel.name)
    return entry


def code_plan(code: DecodedCode, entry: int, mode: int, target: Target) -> dict[str, int]:
    """Return the fields of `layout.PLAN` for waves that begin at the record `entry`.

    All vector registers are allocated and cleared; work-item ids, work-group ids and other inputs are discarded.
    """
    row = 4 * code.isa.wave_size
    return {
        "code": code.number,
        "code_size": code.size,
        "code_index": code.index.ctypes.data,
        "masters": code.masters.ctypes.data,
        "record_count": code.count + 1,
        "entry": entry * layout.RECORD.size,
        "key": layout.mode_key(mode),
        "mode": mode,
        "wave_size": code.isa.wave_size,
        "vgpr_bytes": layout.VECTOR_ROWS * row,
        "agpr_bytes": layout.VECTOR_ROWS * row if target.has_agprs else 0,
        "lds_limit": target.lds_bytes,
        "given_sgprs": len(SGPRS),
        **dict.fromkeys(("group_id_x", "group_id_y", "group_id_z"), _SINK),
        **dict.fromkeys(("group_info", "scratch_offset", "wave_id"), _SINK),
        **dict.fromkeys(USER_SGPRS, layout.ABSENT),
    }


def kernel_plan(kernel: Kernel, target: Target, code: DecodedCode) -> dict[str, int]:
    """Return the fields of `layout.PLAN` for a kernel.

    Raises:
        EmulationError: no instruction begins at its entry.
        DeviceError: the descriptor enables more inputs than it has user SGPRs.
    """
    descriptor = kernel.descriptor
    row = 4 * kernel.wave_size
    stackless = replace(kernel, private_segment_fixed_size=0)
    return {
        **code_plan(code, entry_of(kernel, code), initial_mode(kernel), target),
        "code_delta": code.base - kernel.descriptor_address,
        "vgpr_bytes": min(target.addressable_vgprs, max(descriptor.vgprs, 1)) * row,
        "agpr_bytes": descriptor.agprs * row,
        "work_item_ids": min(descriptor.enable_vgpr_workitem_id, 2) + 1,
        "packed_ids": target.packed_work_item_ids,
        "scratch_limit": target.scratch_per_lane(kernel.wave_size),
        "scratch_extra": scratch_bytes(stackless, target),
        "fences": fences(kernel, target),
        "architected_scratch": target.architected_flat_scratch + (not target.private_aperture),
        "simd_waves": target.occupancy(descriptor.vgprs, kernel.wave_size),
        "processors": max(1, COMPUTE_UNITS * target.simds_per_cu // 4),
        "processor_lds": target.lds_bytes * 4 // target.simds_per_cu,
        "named": 4 * descriptor.named_bar_cnt,
        "given_sgprs": max((first + count for first, count in descriptor.sgpr_inputs.values()), default=0),
        "kernarg_preload_offset": 4 * descriptor.kernarg_preload_offset,
        "kernarg_preload_size": 4 * descriptor.kernarg_preload_length,
        **_sgpr_places(kernel, target),
    }


def fences(kernel: Kernel, target: Target) -> int:
    """Return what makes the stores of a kernel visible: bits such as `layout.FENCES_KNOWN`."""
    if not target.release_fence:
        return 0
    writes_back = len(target.release_fence) > 1
    # Within a work-group nothing need be written back, but completion is kept only for the device.
    apart = (kernel.descriptor.wgp_mode or kernel.descriptor.tg_split) and not writes_back
    bits = layout.FENCES_KNOWN | layout.FENCES_WRITE_BACK * writes_back | layout.FENCES_APART * bool(apart)
    return bits | layout.FENCES_SHOWN * (writes_back or bool(target.device_scope))


def _sgpr_places(kernel: Kernel, target: Target) -> dict[str, int]:
    """Return the offsets in a wave of the inputs: user SGPRs in the order of the ABI, then the system SGPRs."""
    descriptor = kernel.descriptor
    places: dict[str, int] = {}
    for name, (first, count) in descriptor.sgpr_inputs.items():
        if name in USER_SGPRS and first + count > descriptor.user_sgpr_count:
            raise DeviceError(
                f"the kernel descriptor has {descriptor.user_sgpr_count} user SGPRs; {name} needs s{first + count - 1}",
                kernel=kernel.name,
            )
        places[name] = 4 * first
    fields = {name: places.get(name, layout.ABSENT) for name in USER_SGPRS}
    fields["group_info"] = places.get("workgroup_info", _SINK)
    fields["scratch_offset"] = places.get("private_segment_wavefront_offset", _SINK)
    ttmps = target.launch_ttmps
    if ttmps is not None:
        # The half of an id that is not enabled is 0.
        halves = 0xFFFF * descriptor.enable_sgpr_workgroup_id_y | 0xFFFF0000 * descriptor.enable_sgpr_workgroup_id_z
        x, yz, wave = (4 * TTMPS[number] for number in (ttmps.workgroup_id_x, ttmps.workgroup_id_yz, ttmps.wave_id))
        fields |= {"group_id_x": x, "group_id_y": yz if halves else _SINK, "group_id_z": _SINK}
        fields |= {"wave_id": wave, "wave_id_shift": ttmps.wave_id_shift, "packed_yz": halves}
        return fields
    fields |= {f"group_id_{axis}": places.get(f"workgroup_id_{axis}", _SINK) for axis in "xyz"}
    return fields


def beyond(kernel: Kernel, code: DecodedCode, executed: NDArray[np.bool_]) -> list[tuple[str, NDArray[np.intp], int]]:
    """Return the `executed` records that name registers beyond those that the descriptor allocates: they fault.

    Each entry is the letter of a register file, the records, and the number of registers.
    """
    limits = kernel.descriptor.register_limits(uses_agprs=bool((executed & (code.agprs > 0)).any()))
    used = {name: np.flatnonzero(executed & (_used(code, name) > limit)) for name, limit in limits.items()}
    return [(name, records, limits[name]) for name, records in used.items() if records.size]


def _used(code: DecodedCode, file: str) -> NDArray[np.int32]:
    """Return how many registers of a file each record needs."""
    return code.vgprs if file == "v" else code.agprs if file == "a" else code.sgprs


def find_beyond(kernel: Kernel, code: DecodedCode, executed: NDArray[np.bool_]) -> EmulationError | None:
    """Return the fault of the first `executed` record that names a register beyond those that the descriptor
    allocates, or None."""
    for name, records, limit in beyond(kernel, code, executed):
        record = int(records[0])
        shortage = kernel.descriptor.shortage(f"{name}{int(_used(code, name)[record]) - 1}", limit)
        message = f"{code.text(record)} at {code.address_of(record):#x} {shortage}"
        return EmulationError(message, kernel=kernel.name, offset=code.address_of(record), target=str(code.isa.target))
    return None
