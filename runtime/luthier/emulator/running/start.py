"""Initial state of a kernel: kernel arguments, SGPRs, VGPRs, the dispatch packet.

Source: LLVM AMDGPUUsage, "Initial Kernel Execution State" and "Kernel Argument Metadata"; the HSA specification for
the packet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from luthier.emulator import layout
from luthier.errors import DeviceError
from luthier.isa.targets import Target
from luthier.objects import Kernel, KernelArgument

SHARED_BASE = 0x0001_0000_0000_0000
"""Flat address of LDS: the upper half names the aperture."""
PRIVATE_BASE = 0x0002_0000_0000_0000
"""Flat address of a lane's scratch."""
DYNAMIC_STACK = 16384
"""Bytes per lane, beyond the kernel's own scratch, for calls whose depth the compiler does not know."""

LARGEST_KERNARG = 1 << 20
"""Bytes of arguments that a launch can have: far more than compilers allow."""

Triple = tuple[int, int, int]


class Geometry(Struct, frozen=True):
    """Size of a launch."""

    grid: Triple
    """Work-groups."""
    block: Triple
    """Work-items of a work-group."""
    dynamic_lds: int = 0
    """Bytes of LDS beyond what the kernel declares."""

    @property
    def items(self) -> int:
        """Return the work-items of a work-group."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def groups(self) -> int:
        """Return the work-groups of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def hidden_value(argument: KernelArgument, geometry: Geometry, queue: int) -> int:
    """Return the runtime's value for a hidden argument; 0 for services that the emulated device does not have."""
    kind = argument.value_kind.removeprefix("hidden_")
    axis = {"x": 0, "y": 1, "z": 2}.get(kind[-1], 0)
    if kind.startswith("block_count_"):
        return geometry.grid[axis]
    if kind.startswith("group_size_"):
        return geometry.block[axis]
    if kind == "grid_dims":
        sizes = [count * size for count, size in zip(geometry.grid, geometry.block, strict=True)]
        return 3 if sizes[2] > 1 else 2 if sizes[1] > 1 else 1
    if kind == "private_base":
        return PRIVATE_BASE >> 32
    if kind == "shared_base":
        return SHARED_BASE >> 32
    if kind == "dynamic_lds_size":
        return geometry.dynamic_lds
    if kind == "queue_ptr":
        return queue
    return 0


def pack_arguments(kernel: Kernel, values: Sequence[int | float | bytes], geometry: Geometry, queue: int) -> bytes:
    """Return the kernarg segment: explicit values in order, then hidden ones.

    Raises:
        DeviceError: the number of values is wrong, or an argument cannot hold its value.
    """
    segment = bytearray(pack_explicit(kernel, values))
    _store_hidden(segment, kernel, geometry, queue)
    return bytes(segment)


def pack_explicit(kernel: Kernel, values: Sequence[int | float | bytes]) -> bytes:
    """Return the kernarg segment with explicit values in order, and zeros for hidden ones.

    Raises:
        DeviceError: the number of values is wrong, an argument cannot hold its value, or the segment is too large.
    """
    _check_size(kernel)
    segment = bytearray(kernel.kernarg_size)
    explicit = [argument for argument in kernel.arguments if not argument.hidden]
    if len(values) != len(explicit):
        names = ", ".join(argument.name or f"#{index}" for index, argument in enumerate(explicit))
        raise DeviceError(
            f"the kernel takes {len(explicit)} arguments ({names}), not {len(values)}", kernel=kernel.name
        )
    for argument, value in zip(explicit, values, strict=True):
        _store(segment, argument, _encode(argument, value, kernel), kernel)
    return bytes(segment)


def explicit_size(kernel: Kernel) -> int:
    """Return the bytes of the kernarg segment up to the end of the last explicit argument."""
    return max((argument.offset + argument.size for argument in kernel.arguments if not argument.hidden), default=0)


def complete_arguments(kernel: Kernel, explicit: bytes, geometry: Geometry, queue: int) -> bytes:
    """Return the kernarg segment for the raw bytes of its explicit part; a whole segment keeps its hidden arguments.

    Raises:
        DeviceError: there are fewer bytes than the explicit arguments take, or more than the segment has, or the
            segment is too large.
    """
    _check_size(kernel)
    needed = explicit_size(kernel)
    if not needed <= len(explicit) <= (kernel.kernarg_size + 15) // 16 * 16:
        raise DeviceError(
            f"the kernel takes {needed} bytes of arguments, in a segment of {kernel.kernarg_size}, not {len(explicit)}",
            kernel=kernel.name,
        )
    if len(explicit) >= kernel.kernarg_size:
        return explicit
    segment = bytearray(explicit) + bytes(kernel.kernarg_size - len(explicit))
    _store_hidden(segment, kernel, geometry, queue)
    return bytes(segment)


def _check_size(kernel: Kernel) -> None:
    if kernel.kernarg_size > LARGEST_KERNARG:
        message = f"the kernel takes {kernel.kernarg_size} bytes of arguments; at most {LARGEST_KERNARG} are allowed"
        raise DeviceError(message, kernel=kernel.name)


def _store_hidden(segment: bytearray, kernel: Kernel, geometry: Geometry, queue: int) -> None:
    for argument in kernel.arguments:
        if argument.hidden:
            value = hidden_value(argument, geometry, queue)
            if value.bit_length() > 8 * argument.size:
                raise DeviceError(
                    f"{argument.value_kind} has {argument.size} bytes and cannot hold {value}", kernel=kernel.name
                )
            _store(segment, argument, value.to_bytes(argument.size, "little"), kernel)


def _store(segment: bytearray, argument: KernelArgument, raw: bytes, kernel: Kernel) -> None:
    end = argument.offset + len(raw)
    if end > len(segment):
        raise DeviceError(f"argument {argument.name!r} lies outside the kernarg segment", kernel=kernel.name)
    segment[argument.offset : end] = raw


def _encode(argument: KernelArgument, value: int | float | bytes, kernel: Kernel) -> bytes:
    """Return one explicit argument as bytes."""
    size = argument.size
    name = argument.name or "an argument"
    if isinstance(value, bytes):
        if len(value) != size:
            raise DeviceError(f"{name} takes {size} bytes, not {len(value)}", kernel=kernel.name)
        return value
    if isinstance(value, float):
        # Metadata seldom says whether an argument is a float: a Python float is stored as one.
        layout_code = {2: "<e", 4: "<f", 8: "<d"}.get(size)
        if layout_code is None:
            raise DeviceError(f"{name} has {size} bytes and cannot hold a float", kernel=kernel.name)
        if argument.value_kind == "global_buffer":
            raise DeviceError(f"{name} is a pointer and cannot hold a float", kernel=kernel.name)
        try:
            return struct.pack(layout_code, value)
        except OverflowError:
            raise DeviceError(f"{name} has {size} bytes and cannot hold {value}", kernel=kernel.name) from None
    if not isinstance(value, int):
        raise DeviceError(f"{name} cannot be {value!r}, a {type(value).__name__}", kernel=kernel.name)
    if not size or not -(1 << 8 * size - 1) <= value < 1 << 8 * size:
        raise DeviceError(f"{name} has {size} bytes and cannot hold {value}", kernel=kernel.name)
    return (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def dispatch_packet(
    kernel: Kernel, geometry: Geometry, kernel_object: int, kernarg: int, scratch: int, lds: int
) -> bytes:
    """Return an AQL kernel dispatch packet (HSA specification 2.9.6)."""
    dimensions = 3 if geometry.grid[2] * geometry.block[2] > 1 else 2 if geometry.grid[1] * geometry.block[1] > 1 else 1
    items = [count * size for count, size in zip(geometry.grid, geometry.block, strict=True)]
    return struct.pack(
        "<HHHHHHIIIIIQQQQ", 2, dimensions, *geometry.block, 0, *items, scratch, lds, kernel_object, kernarg, 0, 0
    )


def check_geometry(kernel: Kernel, target: Target, geometry: Geometry) -> None:
    """Check that a device of the target can run a launch.

    Raises:
        DeviceError: a size is not positive, or is too large.
    """
    for name, sizes in (("grid", geometry.grid), ("block", geometry.block)):
        if len(sizes) != 3 or any(not isinstance(size, int) or size < 1 or size >= 1 << 32 for size in sizes):
            raise DeviceError(f"{name} {sizes} must be three positive numbers", kernel=kernel.name)
    if any(groups * items >= 1 << 32 for groups, items in zip(geometry.grid, geometry.block, strict=True)):
        raise DeviceError(
            f"grid {geometry.grid} of {geometry.block} has 2**32 or more work-items in a dimension", kernel=kernel.name
        )
    if target.architected_sgprs and max(geometry.grid[1:]) > 1 << 16:
        raise DeviceError(
            f"grid {geometry.grid}: y and z of a work-group id have 16 bits each on {target.name}", kernel=kernel.name
        )
    if geometry.items > kernel.largest_workgroup:
        raise DeviceError(
            f"a work-group of {geometry.items} work-items; the kernel allows at most {kernel.largest_workgroup}",
            kernel=kernel.name,
        )
    lds = kernel.group_segment_fixed_size + geometry.dynamic_lds
    if geometry.dynamic_lds < 0 or lds > target.lds_bytes:
        message = f"a work-group needs {lds} bytes of LDS; {target.name} has {target.lds_bytes}"
        raise DeviceError(message, kernel=kernel.name)
    waves = -(-geometry.items // kernel.wave_size)
    simd_waves = -(-waves // 4)
    resident = target.occupancy(kernel.descriptor.vgprs, kernel.wave_size)
    if simd_waves > resident:
        raise DeviceError(
            f"a work-group of {geometry.items} work-items needs {simd_waves} waves on each of four SIMDs; with "
            f"{kernel.descriptor.vgprs} VGPRs {resident} fit",
            kernel=kernel.name,
        )


def initial_mode(kernel: Kernel) -> int:
    """Return the initial MODE register of a wave."""
    descriptor = kernel.descriptor
    return (
        descriptor.float_round_mode_32
        | descriptor.float_round_mode_16_64 << 2
        | descriptor.float_denorm_mode_32 << 4
        | descriptor.float_denorm_mode_16_64 << 6
        # Targets without DX10_CLAMP clamp as if it were set.
        | (descriptor.enable_dx10_clamp if descriptor.target.ieee_mode else 1) << 8
        | descriptor.enable_ieee_mode << 9
        | descriptor.fp16_ovfl << layout.FP16_OVERFLOW_SHIFT
    )


def scratch_bytes(kernel: Kernel, target: Target) -> int:
    """Return the bytes of scratch of a lane: the kernel's own, and room for a stack of unknown depth.

    Raises:
        DeviceError: the hardware cannot give a wave that much.
    """
    size = kernel.private_segment_fixed_size
    most = target.scratch_per_lane(kernel.wave_size)
    if size > most:
        raise DeviceError(
            f"{size} bytes of scratch a work-item; {target.name} has {most} in waves of {kernel.wave_size}",
            kernel=kernel.name,
        )
    if kernel.uses_dynamic_stack:
        size = min(size + DYNAMIC_STACK, most)
    return (size + 15) // 16 * 16


def as_triple(size: int | Sequence[int]) -> Triple:
    """Return one to three numbers as three."""
    values: list[Any] = [size]
    if isinstance(size, (Sequence, np.ndarray)) and not isinstance(size, (str, bytes)):
        values = list(size)
    if any(not isinstance(value, (int, np.integer)) for value in values):
        raise DeviceError(f"grid and block sizes must be whole numbers, not {size!r}")
    if not 1 <= len(values) <= 3:
        raise DeviceError(f"grid and block sizes have one to three numbers, not {size!r}")
    x, y, z = (int(value) for value in (*values, 1, 1)[:3])
    return x, y, z
