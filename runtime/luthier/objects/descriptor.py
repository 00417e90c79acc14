"""The kernel descriptor: 64 bytes that tell the hardware how to start a kernel.

The fields of `KernelDescriptor` *are* the format: each is declared with its bits and the generations that have it (a
branch of `luthier.arch`). That table decodes and encodes. Bits that no field of the target's generation covers are kept
in `reserved`, so decode and encode are exact inverses for all 64 bytes.

Source: LLVM AMDGPUUsage "Kernel Descriptor", llvm/Support/AMDHSAKernelDescriptor.h.
"""

from __future__ import annotations

import functools
import struct
from typing import Annotated, Any, NamedTuple, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from luthier.arch.amdgcn import AMDGCN
from luthier.arch.generation import Generation
from luthier.arch.gfx10 import GFX10
from luthier.arch.gfx11 import GFX11
from luthier.arch.gfx12 import GFX12
from luthier.arch.gfx90a import GFX90A
from luthier.arch.gfx1250 import GFX1250
from luthier.arch.target import Target
from luthier.errors import ObjectError

DESCRIPTOR_SIZE = 64

RSRC3, RSRC1, RSRC2, PROPERTIES, PRELOAD = (8 * byte for byte in (44, 48, 52, 56, 58))
"""First bit of the packed registers in the descriptor."""


_START = struct.Struct("<IIIIq")
"""Fields before the packed registers: sizes of group segment, private segment and arguments, reserved, entry."""


class _Bits(NamedTuple):
    position: int
    width: int
    signed: bool
    since: Generation
    until: Generation | None


def _bits(
    base: int,
    shift: int,
    width: int,
    *,
    signed: bool = False,
    since: Generation = AMDGCN,
    until: Generation | None = None,
) -> _Bits:
    """Return position of a field, first generation with it, and the first of its descendants without it."""
    return _Bits(base + shift, width, signed, since, until)


class KernelDescriptor(Struct, frozen=True, dict=True):
    """One kernel descriptor, decoded. Field names are LLVM's; a field the target lacks is 0."""

    target: Target

    group_segment_fixed_size: Annotated[int, _bits(0, 0, 32)] = 0
    """Bytes of static LDS of a work-group."""
    private_segment_fixed_size: Annotated[int, _bits(0, 32, 32)] = 0
    """Bytes of scratch of a work-item."""
    kernarg_size: Annotated[int, _bits(0, 64, 32)] = 0
    """Bytes of the kernarg segment, including hidden arguments; 0 in objects of old compilers."""
    kernel_code_entry_byte_offset: Annotated[int, _bits(0, 128, 64, signed=True)] = 0
    """First instruction, in bytes from the descriptor's own address."""

    granulated_workitem_vgpr_count: Annotated[int, _bits(RSRC1, 0, 6)] = 0
    """VGPR granules minus one; see `vgprs`."""
    granulated_wavefront_sgpr_count: Annotated[int, _bits(RSRC1, 6, 4)] = 0
    """GFX9: SGPR granules of 8 minus one; see `sgprs`. 0 from GFX10 on, where every wave has all SGPRs."""
    priority: Annotated[int, _bits(RSRC1, 10, 2)] = 0
    float_round_mode_32: Annotated[int, _bits(RSRC1, 12, 2)] = 0
    float_round_mode_16_64: Annotated[int, _bits(RSRC1, 14, 2)] = 0
    float_denorm_mode_32: Annotated[int, _bits(RSRC1, 16, 2)] = 0
    float_denorm_mode_16_64: Annotated[int, _bits(RSRC1, 18, 2)] = 0
    priv: Annotated[int, _bits(RSRC1, 20, 1)] = 0
    enable_dx10_clamp: Annotated[int, _bits(RSRC1, 21, 1, until=GFX12)] = 0
    enable_wg_rr_en: Annotated[int, _bits(RSRC1, 21, 1, since=GFX12)] = 0
    debug_mode: Annotated[int, _bits(RSRC1, 22, 1)] = 0
    enable_ieee_mode: Annotated[int, _bits(RSRC1, 23, 1, until=GFX12)] = 0
    disable_perf: Annotated[int, _bits(RSRC1, 23, 1, since=GFX12)] = 0
    bulky: Annotated[int, _bits(RSRC1, 24, 1)] = 0
    cdbg_user: Annotated[int, _bits(RSRC1, 25, 1)] = 0
    fp16_ovfl: Annotated[int, _bits(RSRC1, 26, 1)] = 0
    wgp_mode: Annotated[int, _bits(RSRC1, 29, 1, since=GFX10)] = 0
    mem_ordered: Annotated[int, _bits(RSRC1, 30, 1, since=GFX10)] = 0
    fwd_progress: Annotated[int, _bits(RSRC1, 31, 1, since=GFX10)] = 0

    enable_private_segment: Annotated[int, _bits(RSRC2, 0, 1)] = 0
    """Scratch is set up; without architected flat scratch, the last SGPR input is the wave's scratch offset."""
    user_sgpr_count: Annotated[int, _bits(RSRC2, 1, 5)] = 0
    enable_trap_handler: Annotated[int, _bits(RSRC2, 6, 1, until=GFX12)] = 0
    enable_dynamic_vgpr: Annotated[int, _bits(RSRC2, 6, 1, since=GFX12)] = 0
    enable_sgpr_workgroup_id_x: Annotated[int, _bits(RSRC2, 7, 1)] = 0
    enable_sgpr_workgroup_id_y: Annotated[int, _bits(RSRC2, 8, 1)] = 0
    enable_sgpr_workgroup_id_z: Annotated[int, _bits(RSRC2, 9, 1)] = 0
    enable_sgpr_workgroup_info: Annotated[int, _bits(RSRC2, 10, 1)] = 0
    enable_vgpr_workitem_id: Annotated[int, _bits(RSRC2, 11, 2)] = 0
    """Work-item IDs that arrive: 0 x; 1 x and y; 2 x, y and z; 3 undefined."""
    enable_exception_address_watch: Annotated[int, _bits(RSRC2, 13, 1)] = 0
    enable_exception_memory: Annotated[int, _bits(RSRC2, 14, 1)] = 0
    granulated_lds_size: Annotated[int, _bits(RSRC2, 15, 9)] = 0
    """0 in the file; the command processor sets it from the dispatch packet."""
    enable_exception_ieee_754_fp_invalid_operation: Annotated[int, _bits(RSRC2, 24, 1)] = 0
    enable_exception_fp_denormal_source: Annotated[int, _bits(RSRC2, 25, 1)] = 0
    enable_exception_ieee_754_fp_division_by_zero: Annotated[int, _bits(RSRC2, 26, 1)] = 0
    enable_exception_ieee_754_fp_overflow: Annotated[int, _bits(RSRC2, 27, 1)] = 0
    enable_exception_ieee_754_fp_underflow: Annotated[int, _bits(RSRC2, 28, 1)] = 0
    enable_exception_ieee_754_fp_inexact: Annotated[int, _bits(RSRC2, 29, 1)] = 0
    enable_exception_int_divide_by_zero: Annotated[int, _bits(RSRC2, 30, 1)] = 0

    accum_offset: Annotated[int, _bits(RSRC3, 0, 6, since=GFX90A)] = 0
    """First AGPR in the unified file, in granules of 4 minus one; see `architected_vgprs`."""
    tg_split: Annotated[int, _bits(RSRC3, 16, 1, since=GFX90A)] = 0
    shared_vgpr_count: Annotated[int, _bits(RSRC3, 0, 4, since=GFX10, until=GFX12)] = 0
    inst_pref_size: Annotated[int, _bits(RSRC3, 4, 6, since=GFX11, until=GFX12)] = 0
    """Cache lines of 128 bytes prefetched at launch (GFX11)."""
    inst_pref_size_gfx12: Annotated[int, _bits(RSRC3, 4, 8, since=GFX12)] = 0
    """Size of instruction prefetch, in GFX12's wider field."""
    trap_on_start: Annotated[int, _bits(RSRC3, 10, 1, since=GFX11, until=GFX12)] = 0
    trap_on_end: Annotated[int, _bits(RSRC3, 11, 1, since=GFX11, until=GFX12)] = 0
    glg_en: Annotated[int, _bits(RSRC3, 13, 1, since=GFX12)] = 0
    named_bar_cnt: Annotated[int, _bits(RSRC3, 14, 3, since=GFX1250)] = 0
    """Named barriers of a work-group, in units of four."""
    image_op: Annotated[int, _bits(RSRC3, 31, 1, since=GFX11)] = 0

    enable_sgpr_private_segment_buffer: Annotated[int, _bits(PROPERTIES, 0, 1)] = 0
    enable_sgpr_dispatch_ptr: Annotated[int, _bits(PROPERTIES, 1, 1)] = 0
    enable_sgpr_queue_ptr: Annotated[int, _bits(PROPERTIES, 2, 1)] = 0
    enable_sgpr_kernarg_segment_ptr: Annotated[int, _bits(PROPERTIES, 3, 1)] = 0
    enable_sgpr_dispatch_id: Annotated[int, _bits(PROPERTIES, 4, 1)] = 0
    enable_sgpr_flat_scratch_init: Annotated[int, _bits(PROPERTIES, 5, 1)] = 0
    enable_sgpr_private_segment_size: Annotated[int, _bits(PROPERTIES, 6, 1)] = 0
    enable_wavefront_size32: Annotated[int, _bits(PROPERTIES, 10, 1, since=GFX10)] = 0
    uses_dynamic_stack: Annotated[int, _bits(PROPERTIES, 11, 1)] = 0

    kernarg_preload_length: Annotated[int, _bits(PRELOAD, 0, 7)] = 0
    """SGPRs filled with the start of the kernarg segment."""
    kernarg_preload_offset: Annotated[int, _bits(PRELOAD, 7, 9)] = 0
    """Offset in the kernarg segment at which preloading starts, in units of 4 bytes."""

    reserved: int = 0
    """Bits that no field of this generation covers, in place, as one 512-bit integer."""

    @classmethod
    def decode(cls, data: bytes, target: Target) -> KernelDescriptor:
        """Read the 64 bytes of a descriptor.

        Raises:
            ObjectError: `data` is not 64 bytes long.
        """
        if len(data) != DESCRIPTOR_SIZE:
            raise ObjectError(f"a kernel descriptor has {DESCRIPTOR_SIZE} bytes, not {len(data)}", target=target.name)
        group, private, kernarg, reserved, entry = _START.unpack_from(data)
        # Libraries have tens of thousands of kernels, and few differ in the packed registers.
        packed = _decode(_START.pack(0, 0, 0, reserved, 0) + data[_START.size :], target)
        return cls(target, group, private, kernarg, entry, *packed)

    def encode(self) -> bytes:
        """Return the 64 bytes of the descriptor.

        Raises:
            ObjectError: a value does not fit its field, or its field does not exist on the target.
        """
        table, free = _fields_of(self.target)
        word = self.reserved
        if word & ~free:
            raise ObjectError("reserved bits overlap fields of the descriptor", target=self.target.name)
        present = set()
        for name, position, width, signed in table:
            value = getattr(self, name)
            low, high = (-(1 << width - 1), 1 << width - 1) if signed else (0, 1 << width)
            if not low <= value < high:
                raise ObjectError(f"descriptor field {name} cannot contain {value}", target=self.target.name)
            word |= (value & (1 << width) - 1) << position
            present.add(name)
        for name in _FIELDS.keys() - present:
            if getattr(self, name):
                raise ObjectError(f"descriptor field {name} does not exist", target=self.target.name)
        return word.to_bytes(DESCRIPTOR_SIZE, "little")

    @property
    def wave_size(self) -> int:
        """Return the lanes per wavefront."""
        return 32 if self.enable_wavefront_size32 else 64

    @functools.cached_property
    def vgprs(self) -> int:
        """Return the 32-bit vector registers of a wave, in steps of the encoding granule.

        In a unified file AGPRs are included.
        """
        return (self.granulated_workitem_vgpr_count + 1) * self.target.vgpr_encoding_granule(self.wave_size)

    @functools.cached_property
    def architected_vgprs(self) -> int:
        """Return the VGPRs that the names v0, v1, … can address: all, or those before the first AGPR in a unified
        file.
        """
        reach = min(self.vgprs, self.target.addressable_vgprs)
        return min(reach, (self.accum_offset + 1) * 4) if self.target.unified_vgprs else reach

    @functools.cached_property
    def agprs(self) -> int:
        """Return the AGPRs of a wave that the names a0, a1, … can address."""
        target = self.target
        if target.unified_vgprs:
            return min(max(0, self.vgprs - (self.accum_offset + 1) * 4), target.addressable_vgprs)
        # gfx908: a second file, allocated alike
        return min(self.vgprs, target.addressable_vgprs) if target.has_agprs else 0

    @property
    def sgprs(self) -> int:
        """Return the SGPRs of a wave, including VCC and other special ones at their end (GFX9); from GFX10 a fixed
        number.
        """
        granule = self.target.sgpr_encoding_granule
        if not granule:
            return self.target.sgpr_limit + self.target.special_sgprs
        return (self.granulated_wavefront_sgpr_count + 1) * granule

    @property
    def allocated_sgprs(self) -> int:
        """Return the SGPRs that the hardware gives a wave: `sgprs`, rounded up to the allocation granule."""
        return _round_up(self.sgprs, self.target.sgpr_allocation_granule or 1)

    @property
    def usable_sgprs(self) -> int:
        """Return the SGPRs s0, s1, … that a wave can use without raising the count, without VCC and other special
        ones.
        """
        return min(self.allocated_sgprs - self.target.special_sgprs, self.target.sgpr_limit)

    def register_limits(self, *, uses_agprs: bool) -> dict[str, int]:
        """Return the number of registers of a wave by file: ``v``, ``a`` and, if not every wave has all, ``s``.

        Args:
            uses_agprs: whether the kernel's code names AGPRs.
        """
        vgprs = self.architected_vgprs
        if self.target.unified_vgprs and not uses_agprs:
            # No document defines what follows accum_offset. In the unified file AGPRs do (AMD's code for gem5, "changes
            # related to the accumulation offset" of MI200), and AMD's own kernels use them by VGPR names alone. For
            # kernels that use both names it is an error, since emulated devices have two sets of registers.
            vgprs = min(self.vgprs, self.target.addressable_vgprs)
        limits = {"v": vgprs, "a": self.agprs}
        return {**limits, "s": self.allocated_sgprs} if self.target.sgpr_allocation_granule else limits

    def shortage(self, register: str, limit: int) -> str:
        """Return a sentence that code uses a register, e.g. ``v77``, beyond a limit of `register_limits`."""
        shared = register[0] == "v" and limit < self.vgprs
        why = " before the AGPRs (accum_offset), which it uses too" if shared else ""
        return f"uses {register}; the kernel descriptor allocates {limit}{why}"

    @property
    def hardware_entry(self) -> int:
        """Return the distance in bytes from the kernel's entry to where hardware that preloads arguments starts it; 0
        without preloading.
        """
        return self.target.preload_prologue if self.kernarg_preload_length else 0

    @property
    def sgpr_inputs(self) -> dict[str, tuple[int, int]]:
        """Return the SGPR inputs at kernel entry: name -> (first SGPR, number of SGPRs), in order.

        User SGPRs are ``private_segment_buffer``, ``dispatch_ptr``, ``queue_ptr``, ``kernarg_segment_ptr``,
        ``dispatch_id``, ``flat_scratch_init``, ``private_segment_size`` and ``kernarg_preload``; system SGPRs, which
        follow at `user_sgpr_count`, are ``workgroup_id_x`` to ``_z`` (on GFX12 in trap temporaries, not here),
        ``workgroup_info`` and ``private_segment_wavefront_offset``.

        Source: AMDGPUUsage "Initial Kernel Execution State".
        """
        inputs: dict[str, tuple[int, int]] = {}
        at = 0
        for name, count in _USER_SGPRS:
            if getattr(self, f"enable_sgpr_{name}"):
                inputs[name] = at, count
                at += count
        if self.kernarg_preload_length:
            inputs["kernarg_preload"] = at, self.kernarg_preload_length
        at = self.user_sgpr_count
        system = [f"workgroup_id_{axis}" for axis in "xyz"] if not self.target.architected_sgprs else []
        for name in (*system, "workgroup_info"):
            if getattr(self, f"enable_sgpr_{name}"):
                inputs[name] = at, 1
                at += 1
        if self.enable_private_segment and not self.target.architected_flat_scratch:
            inputs["private_segment_wavefront_offset"] = at, 1
        return inputs

    def with_registers(
        self, *, vgprs: int | None = None, agprs: int | None = None, sgprs: int | None = None
    ) -> KernelDescriptor:
        """Return this descriptor with space for a number of registers; counts never decrease.

        None leaves a count unchanged.

        Args:
            vgprs: registers named v0, v1, …
            agprs: registers named a0, a1, … in use. Rounding makes `agprs` of a descriptor larger than that; if VGPRs
                and AGPRs share a file, the exact number saves a granule.
            sgprs: registers named s0, s1, … without VCC and other special ones, which are added.

        Raises:
            ObjectError: the target has fewer registers.
        """
        target = self.target
        vector = max(vgprs or 0, self.architected_vgprs)
        matrix = self.agprs if agprs is None else agprs
        for count, limit, what in (
            (vector, target.addressable_vgprs, "VGPRs"),
            (matrix, target.addressable_vgprs if target.has_agprs else 0, "AGPRs"),
            (sgprs or 0, target.sgpr_limit, "SGPRs"),
        ):
            if count > limit:
                raise ObjectError(f"{count} {what} exceed the limit of {limit} for a wave", target=target.name)
        changed: dict[str, Any] = {}
        total = max(vector, matrix)
        if target.unified_vgprs:
            first_agpr = max(_round_up(vector, 4), 4 * (self.accum_offset + 1))
            total = first_agpr + matrix if matrix else vector
            changed["accum_offset"] = first_agpr // 4 - 1
        granule = target.vgpr_encoding_granule(self.wave_size)
        changed["granulated_workitem_vgpr_count"] = _round_up(max(total, self.vgprs), granule) // granule - 1
        if sgprs is not None and target.sgpr_encoding_granule:
            needed = -(-(sgprs + target.special_sgprs) // target.sgpr_encoding_granule) - 1
            changed["granulated_wavefront_sgpr_count"] = max(needed, self.granulated_wavefront_sgpr_count)
        return replace(self, **changed)


_USER_SGPRS = (
    ("private_segment_buffer", 4),
    ("dispatch_ptr", 2),
    ("queue_ptr", 2),
    ("kernarg_segment_ptr", 2),
    ("dispatch_id", 2),
    ("flat_scratch_init", 2),
    ("private_segment_size", 1),
)
"""User SGPRs in the order in which the hardware fills them, with their sizes."""


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule


_FIELDS: dict[str, _Bits] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(KernelDescriptor, include_extras=True).items()
    if get_origin(hint) is Annotated
}
_AT_START = 4
"""Number of fields before the packed registers."""


@functools.lru_cache(maxsize=4096)
def _decode(data: bytes, target: Target) -> tuple[int, ...]:
    """Return the values of the fields after the first ones."""
    word = int.from_bytes(data, "little")
    table, free = _fields_of(target)
    values = dict.fromkeys(_FIELDS, 0)
    for name, position, width, signed in table:
        value = word >> position & (1 << width) - 1
        values[name] = value - (1 << width) if signed and value >> width - 1 else value
    return (*list(values.values())[_AT_START:], word & free)


@functools.cache
def _fields_of(target: Target) -> tuple[tuple[tuple[str, int, int, bool], ...], int]:
    """Return the fields of `target` as (name, position, width, signed), and the mask of the bits that none covers."""
    table = []
    free = (1 << 8 * DESCRIPTOR_SIZE) - 1
    for name, bits in _FIELDS.items():
        if target.is_within(bits.since, bits.until):
            table.append((name, bits.position, bits.width, bits.signed))
            free &= ~((1 << bits.width) - 1 << bits.position)
    return tuple(table), free
