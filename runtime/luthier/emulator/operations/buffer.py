"""Untyped buffer access (MUBUF): per-lane addresses from a buffer descriptor, with its bounds.

Sources: ISA documents, "Buffer addressing" and "Range checking". An access outside the descriptor's bounds
reads 0 or writes nothing; an access inside them must be in an allocation.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from luthier.emulator import layout
from luthier.emulator.ir.atomics import ATOMICS, Atomic, atomic_lanes
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.memory_code import (
    check_aligned,
    check_global,
    fault_if_any,
    gather,
    gather_small,
    scatter,
    scatter_small,
    unanswered,
)
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.flat import DWORDS, SMALL_LOADS, SMALL_STORES, small_row, to_lds
from luthier.emulator.questions import SWIZZLE

operations = OperationTable()

_SWIZZLE_BIT, _ADD_TID_BIT = 31, 23
_WIDE_OFFSET = (1 << 45) - 1
PLACE = "vaddr:u32 srsrc:u32x4 soffset:u32 #offset"
"""Operands that locate data: `place` of the functions below."""
STATIC = {"static": ("addressing",), "generations": True}


class BufferAccess(Struct):
    """One access with unchecked addresses."""

    w: WaveBuilder
    base: TypedValue
    """Scalar: address of the buffer plus the scalar offset."""
    place: TypedValue
    """Per lane: the buffer offset, u64."""
    index: TypedValue
    offset: TypedValue
    records: TypedValue
    """Scalar: number of records to compare bytes with, u64, less the scalar offset. For GFX9 this and the end of the
    access follow pull request 10928 of ROCm/rocm-systems, measured on gfx950; CDNA4's document (9.1.5.1) differs."""
    all_records: TypedValue
    stride: TypedValue
    structured: TypedValue
    """Scalar scc: bounds are in units of the stride."""
    swizzled: TypedValue
    select: TypedValue
    """OOB_SELECT (GFX10 and later)."""
    scratch: TypedValue
    """Scalar scc: the buffer is a wave's scratch, where a lane must stay within its own part."""
    private: TypedValue
    """Scalar scc: the buffer is private memory, whose number of records GFX9 ignores."""
    scalar_offset: TypedValue
    bound: TypedValue
    """Scalar scc: there is a buffer; if not, no lane is in bounds."""
    lanes: TypedValue
    """Per lane: it participates; on GFX11 and later, none does if the descriptor is not a buffer's."""

    def in_bounds(self, skip: int, size: int | TypedValue) -> TypedValue:
        """Return the active lanes whose `size` bytes at `skip` the descriptor allows."""
        w = self.w
        payload = 1 if w.major == 10 else size  # GFX10 checks only the first byte
        linear = self.place + skip + payload <= w.splat(self.records)
        index_good = self.index < w.splat(self.all_records)
        field_good = self.offset + skip + (size if w.major >= 11 else 1) <= w.splat(self.stride)
        if w.major == 9:
            strict = field_good | w.wrap(w.splat(~self.swizzled).llvm, "mask")
            good = w.select(self.structured, index_good & strict, linear)
            good = good | w.wrap(w.splat(self.private).llvm, "mask")
        else:
            whole = w.select(self.structured, index_good & field_good, linear)
            nonempty = w.wrap(w.splat(self.all_records != 0).llvm, "mask")
            good = w.select(self.select == 0, index_good & field_good, whole)
            good = w.select(self.select == 1, index_good, good)
            good = w.select(self.select == 2, nonempty, good)
        return w.wrap(good.llvm, "mask") & w.wrap(w.splat(self.bound).llvm, "mask") & self.lanes

    def hosts(self, skip: int, size: int | TypedValue, mask: TypedValue) -> TypedValue:
        """Return checked host addresses."""
        w = self.w
        addresses = self.place + w.splat(self.base) + skip
        if w.major <= 10:  # later generations have other instructions for scratch
            length = w.splat(size.to("u64")) if isinstance(size, TypedValue) else size
            ends = self.offset + w.splat(self.scalar_offset) + skip + length
            beyond = (ends > w.splat(self.stride)) & mask & w.wrap(w.splat(self.scratch).llvm, "mask")
            fault_if_any(w, beyond, ends - length, size, layout.FAULT_SCRATCH)
        return check_global(w, addresses, size, flat=False, mask=mask)


def data_format(w: WaveBuilder, word: TypedValue) -> TypedValue:
    """Return the data format in a descriptor's last word; 0 is INVALID."""
    if w.major == 9:
        return word >> 15 & 15
    return word >> 12 & (0x7F if w.major == 10 else 0x3F)


def buffer_access(
    w: WaveBuilder,
    vaddr: OperandSlot,
    srsrc: OperandSlot,
    soffset: OperandSlot,
    offset: OperandSlot,
    *,
    formatted: bool = False,
) -> BufferAccess:
    """Return an instruction's access on generations before GFX1250.

    `formatted`: the instruction converts data formats, so the descriptor holds one.
    """
    words = srsrc.scalars()
    form = w.modifiers.get("addressing", 0)
    base = words[0].to("u64") | ((words[1] & 0xFFFF).to("u64") << 32)
    add_tid = (words[3] >> _ADD_TID_BIT & 1) != 0
    swizzled, element_shift = _swizzling(w, words)
    scalar_offset = soffset.scalar().to("u64")
    stride = _stride(w, words, add_tid, formatted=formatted).to("u64")
    no, yes = w.number(0, "scc"), w.number(1, "scc")
    scratch = no
    if w.major <= 10:  # later generations have other instructions for scratch
        lane_bytes = w.load(w.wave_field("scratch_size"), "u64")
        inside = base - w.load(w.wave_field("scratch"), "u64") < lane_bytes * w.wave_size
        scratch = add_tid & ~swizzled & inside
        stride = w.select(scratch, lane_bytes, stride)
        # Stack pointers count the bytes of all lanes, whose scratch hardware interleaves. Here it is consecutive by
        # lane.
        scalar_offset = scalar_offset >> w.select(scratch, w.number(w.wave_size.bit_length() - 1, "u64"), 0)
    # The sum of the two offsets has 32 bits: compilers for GFX9 and later rely on it for -4 + 4.
    within = w.splat(offset.scalar() & 0xFFFFFF)
    if form & 1:
        within = within + vaddr.row(1 if form & 2 else 0)
    lane_offset = within.to("u64")
    index = vaddr.row(0).to("u64") if form & 2 else w.const("u64", 0)
    index = index + w.select(add_tid, w.lane_id("u64"), w.const("u64", 0))
    linear = lane_offset + index * w.splat(stride)
    # From GFX12 on, the scalar offset is swizzled, too.
    inner = (lane_offset + w.splat(scalar_offset)) & 0xFFFFFFFF if w.major >= 12 else lane_offset
    twisted = _twisted(w, index, inner, stride, (words[3] >> 21 & 3).to("u64") + 3, element_shift.to("u64"))
    lanes = w.exec
    if w.major >= 11:  # "Resource - Instruction mismatch"
        lanes = lanes & w.wrap(w.splat((words[3] >> 30) == 0).llvm, "mask")
    records = words[2].to("u64")
    outer = w.select(swizzled, w.number(0, "u64"), scalar_offset) if w.major >= 12 else scalar_offset
    return BufferAccess(
        w,
        base=base + outer,
        place=w.select(swizzled, twisted, linear),
        index=index,
        offset=lane_offset,
        records=w.select(records > scalar_offset, records - scalar_offset, 0),
        all_records=records,
        stride=stride,
        structured=(stride != 0) & (yes if w.major == 9 and form & 2 else swizzled),
        swizzled=swizzled,
        select=words[3] >> 28 & 3,
        scratch=scratch,
        private=no if form & 2 else add_tid,
        scalar_offset=scalar_offset,
        # "Unbound resources": an implied format does not replace INVALID.
        bound=yes if formatted else (data_format(w, words[3]) != 0) | add_tid,
        lanes=lanes,
    )


def _swizzling(w: WaveBuilder, words: Sequence[TypedValue]) -> tuple[TypedValue, TypedValue]:
    """Return whether a descriptor swizzles (scalar scc), and the logarithm of the bytes of an element."""
    if w.major < 11:
        return (words[1] >> _SWIZZLE_BIT) != 0, w.number(2)
    mode = words[1] >> 30 & 3
    unanswered(w, mode == 2, SWIZZLE)
    return mode != 0, mode + 1


def _stride(w: WaveBuilder, words: Sequence[TypedValue], add_tid: TypedValue, *, formatted: bool) -> TypedValue:
    """Return a descriptor's stride in bytes."""
    stride = words[1] >> 16 & 0x3FFF
    if w.major >= 12:
        scale = words[3] >> 18 & 3
        return stride << w.select(scale == 3, w.number(5), w.select(scale == 0, w.number(0), scale + 1))
    if w.major == 9 and not formatted:
        # With ADD_TID_ENABLE the data format holds the stride's upper bits.
        return w.select(add_tid, stride | (words[3] >> 15 & 15) << 14, stride)
    return stride


def _twisted(
    w: WaveBuilder,
    index: TypedValue,
    offset: TypedValue,
    stride: TypedValue,
    index_shift: TypedValue,
    element_shift: TypedValue,
) -> TypedValue:
    """Return the offset in a swizzled buffer per lane."""
    unit = w.number(1, "u64")
    index_low = index & w.splat((unit << index_shift) - 1)
    offset_low = offset & w.splat((unit << element_shift) - 1)
    rows = (index >> w.splat(index_shift)) * w.splat(stride)
    rows = rows + ((offset >> w.splat(element_shift)) << w.splat(element_shift))
    return (rows << w.splat(index_shift)) + (index_low << w.splat(element_shift)) + offset_low


class WideAccess(Struct):
    """One access by a descriptor of GFX1250, with unchecked addresses.

    LLVM defines the fields (AMDGPUUsage, "Buffer Resource"; SIISelLowering, lowerPointerAsRsrcIntrin): a base of 57
    bits, a size in bytes of 45 bits, the stride, its scale. The rest is from the pull requests 10362 and 10428 of
    ROCm/rocm-systems, which cite AMD's CDNA5 document (sections 9.4.1, 9.4.2 and 9.6): swizzling in bit 124,
    OOB_SELECT in bit 125, the type above them; scales 1, 4, 8, 32; dwords checked one by one and atomics as a whole, by
    the sum of all offsets; swizzled elements of 32 indices and 16 bytes; an offset of 45 bits.
    """

    w: WaveBuilder
    base: TypedValue
    """Scalar: address of the buffer, plus the scalar offset if it is not swizzled."""
    place: TypedValue
    """Per lane: the offset from `base`, u64."""
    total: TypedValue
    """Per lane: the sum of all offsets and of the index times the stride."""
    field: TypedValue
    """Per lane: the sum of all offsets."""
    index: TypedValue
    records: TypedValue
    """Scalar: bytes of the buffer."""
    stride: TypedValue
    swizzled: TypedValue
    by_record: TypedValue
    """Scalar scc: an access must also stay within its record."""
    lanes: TypedValue
    """Per lane: it participates; none does if the descriptor is not a buffer's."""

    def in_bounds(self, skip: int, size: int | TypedValue) -> TypedValue:
        """Return the lanes whose `size` bytes at `skip` the descriptor allows.

        The sources do not say how swizzled buffers are checked. An access that every reading of the number of records
        allows is allowed; any other stops the wave.
        """
        w = self.w
        all_records = w.splat(self.records)
        linear = self.total + skip + size <= all_records
        within = self.field + skip + size <= w.splat(self.stride)
        linear = linear & (within | w.wrap(w.splat(~self.by_record).llvm, "mask"))
        end = self.place + skip + size
        certain = within & (self.index < all_records) & (end <= all_records)
        swizzled = w.wrap(w.splat(self.swizzled).llvm, "mask") & self.lanes
        fault_if_any(w, swizzled & ~certain, self.place + skip, size, layout.FAULT_SWIZZLED)
        return w.select(swizzled, certain, linear) & self.lanes

    def hosts(self, skip: int, size: int | TypedValue, mask: TypedValue) -> TypedValue:
        """Return checked host addresses."""
        addresses = self.place + self.w.splat(self.base) + skip
        return check_global(self.w, addresses, size, flat=False, mask=mask)


def wide_fields(words: list[TypedValue]) -> tuple[TypedValue, TypedValue, TypedValue]:
    """Return the base, the size in bytes and the stride of a descriptor of GFX1250, u64."""
    base = words[0].to("u64") | ((words[1] & 0x1FFFFFF).to("u64") << 32)
    records = (words[1] >> 25).to("u64") | (words[2].to("u64") << 7) | ((words[3] & 0x3F).to("u64") << 39)
    scale = (words[3] >> 26 & 3).to("u64")
    shift = scale + (scale != 0).to("u64") + (scale == 3).to("u64")  # 0, 2, 3, 5
    return base, records, (words[3] >> 12 & 0x3FFF).to("u64") << shift


def _wide_access(
    w: WaveBuilder, vaddr: OperandSlot, srsrc: OperandSlot, soffset: OperandSlot, offset: OperandSlot
) -> WideAccess:
    words = srsrc.scalars()
    form = w.modifiers.get("addressing", 0)
    base, records, stride = wide_fields(words)
    scalar_offset = soffset.scalar().to("u64")
    own = w.splat(offset.scalar()).to("u64")
    if form & 1:
        own = own + vaddr.row(1 if form & 2 else 0).to("u64")
    index = vaddr.row(0).to("u64") if form & 2 else w.const("u64", 0)
    linear = own + index * w.splat(stride)
    inner = own + w.splat(scalar_offset)
    rows = (index >> 5) * w.splat(stride) + (inner & (_WIDE_OFFSET ^ 15))
    twisted = (rows << 5) + ((index & 31) << 4) + (inner & 15)
    swizzled = (words[3] >> 28 & 1) != 0
    return WideAccess(
        w,
        base + w.select(swizzled, w.number(0, "u64"), scalar_offset),
        w.select(swizzled, twisted, linear & _WIDE_OFFSET),
        linear + w.splat(scalar_offset),
        inner,
        index,
        records,
        stride,
        swizzled,
        (words[3] >> 29 & 1) != 0,
        w.exec & w.wrap(w.splat((words[3] >> 30) == 0).llvm, "mask"),
    )


def _untyped_access(w: WaveBuilder, *place: OperandSlot) -> BufferAccess | WideAccess:
    """Return the access of an instruction without data formats."""
    return (_wide_access if w.major >= 125 else buffer_access)(w, *place)


def no_failure(w: WaveBuilder, result: OperandSlot, index: int) -> None:
    """Report no failure.

    With TFE, the register after the data says whether a page was not resident; here all pages are.
    """
    if w.modifiers.get("tfe"):
        result.store_row(index, w.const("u32", 0), w.exec)


def _declare_dwords(names: str, count: int) -> None:
    loads = " ".join(f"buffer_load_{name}" for name in names.split())
    stores = " ".join(f"buffer_store_{name}" for name in names.split())

    @operations.wave(loads, f"{PLACE} -> vdata:u32x{count}", **STATIC)
    def load(w: WaveBuilder, result: OperandSlot, *place: OperandSlot) -> None:
        """D = buffer[…], with a check for each dword."""
        access = _untyped_access(w, *place)
        rows = []
        for index in range(count):
            good = access.in_bounds(4 * index, 4)
            rows.append(gather(w, access.hosts(4 * index, 4, good), 0, good))
        if not result.present:
            to_lds(w, place[-1], rows)
            return
        for index, row in enumerate(rows):
            result.store_row(index, row, access.lanes)
        no_failure(w, result, count)

    @operations.wave(stores, f"{PLACE} vdata:u32x{count} ->", **STATIC)
    def store(w: WaveBuilder, *operands: OperandSlot) -> None:
        """buffer[…] = D, with a check for each dword."""
        *place, data = operands
        access = _untyped_access(w, *place)
        masks = [access.in_bounds(4 * index, 4) for index in range(count)]
        hosts = [access.hosts(4 * index, 4, mask) for index, mask in enumerate(masks)]
        for index, (host, mask) in enumerate(zip(hosts, masks, strict=True)):
            scatter(w, host, data.row(index), 0, mask)


for _count, _names in DWORDS.items():
    _declare_dwords(_names, _count)


def _declare_small_load(names: str, bits: int, signed: bool, half: str) -> None:
    @operations.wave(" ".join(f"buffer_load_{name}" for name in names.split()), f"{PLACE} -> vdata:u32", **STATIC)
    def load(w: WaveBuilder, result: OperandSlot, *place: OperandSlot) -> None:
        """D = a byte or half-word of the buffer."""
        access = _untyped_access(w, *place)
        good = access.in_bounds(0, bits // 8)
        value = gather_small(w, access.hosts(0, bits // 8, good), bits, good)
        if not result.present:
            to_lds(w, place[-1], [value.as_("i32").bits(0, bits).as_("u32") if signed else value])
            return
        result.store_row(0, small_row(w, result, value, bits, signed, half), access.lanes)
        no_failure(w, result, 1)


def _declare_small_store(names: str, bits: int, high: bool) -> None:
    @operations.wave(" ".join(f"buffer_store_{name}" for name in names.split()), f"{PLACE} vdata:u32 ->", **STATIC)
    def store(w: WaveBuilder, *operands: OperandSlot) -> None:
        """A byte or half-word of the buffer = D."""
        *place, data = operands
        access = _untyped_access(w, *place)
        good = access.in_bounds(0, bits // 8)
        row = data.row(0)
        scatter_small(w, access.hosts(0, bits // 8, good), row >> 16 if high else row, bits, good)


for _names, _bits, _signed, _half in SMALL_LOADS:
    _declare_small_load(_names, _bits, _signed, _half)
for _names, _bits, _high in SMALL_STORES:
    _declare_small_store(_names, _bits, _high)


def _declare_atomic(atomic: Atomic) -> None:
    names = " ".join(f"buffer_atomic_{name}" for name in atomic.vector_names)

    @operations.wave(names, f"{PLACE} vdata_in:u32x{atomic.data_units} -> vdata:u32x{atomic.units}", **STATIC)
    def run(w: WaveBuilder, result: OperandSlot, *operands: OperandSlot) -> None:
        """old = buffer[…]; buffer[…] = op(old, D); with return, D = old."""
        *place, data = operands
        source = data if data.present else result
        access = _untyped_access(w, *place)
        size = 4 * atomic.units
        good = access.in_bounds(0, size)
        hosts = access.hosts(0, size, good)
        check_aligned(w, w.select(good, hosts, 0), size)
        rows = [source.row(index) for index in range(atomic.data_units)]
        atomic_lanes(w, atomic, hosts, rows, result if data.present else None, good, access.lanes)


for _atomic in ATOMICS:
    if _atomic.vector_names:
        _declare_atomic(_atomic)
