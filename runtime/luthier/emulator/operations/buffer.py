"""Untyped buffer access (MUBUF): per-lane addresses made from a buffer descriptor, with its bounds.

Sources: ISA documents, "Buffer addressing" and "Range checking". An access that the descriptor says is out of bounds
reads 0 or writes nothing; one that it allows must lie in an allocation.
"""

from __future__ import annotations

from dataclasses import dataclass

from luthier.emulator import layout
from luthier.emulator.ir.atomics import ATOMICS, Atomic, atomic_lanes
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.exact import SCC
from luthier.emulator.ir.memory_code import (
    check_aligned,
    check_global,
    fault_if_any,
    gather,
    gather_small,
    scatter,
    scatter_small,
)
from luthier.emulator.ir.values import Value
from luthier.emulator.ir.wave import Slot, WaveBuilder
from luthier.emulator.operations.flat import small_row, to_lds

operations = OperationTable()

_SWIZZLE_BIT, _ADD_TID_BIT = 31, 23
PLACE = "vaddr:u32 srsrc:u32x4 soffset:u32 #offset"
STATIC = {"static": ("addressing",), "generations": True}


@dataclass
class BufferAccess:
    """One access, its addresses not checked yet."""

    w: WaveBuilder
    base: Value
    """Scalar: where the buffer and the scalar offset point."""
    place: Value
    """Per lane: the buffer offset, u64."""
    index: Value
    offset: Value
    records: Value
    """Scalar: number of records left after the scalar offset, u64."""
    all_records: Value
    stride: Value
    structured: Value
    """Scalar scc: bounds are in units of the stride."""
    swizzled: Value
    select: Value
    """OOB_SELECT (from GFX10 on)."""
    scratch: Value
    """Scalar scc: it is a wave's scratch, where a lane must stay within its own."""
    scalar_offset: Value

    def in_bounds(self, skip: int, size: int | Value) -> Value:
        """Return the active lanes whose `size` bytes, `skip` bytes on, the descriptor allows."""
        w = self.w
        payload = size if w.major >= 11 else 1  # earlier generations check the first byte only
        linear = self.place + skip + payload <= w.splat(self.records)
        index_good = self.index < w.splat(self.all_records)
        field_good = self.offset + skip + payload <= w.splat(self.stride)
        if w.major == 9:
            strict = field_good | w.wrap(w.splat(~self.swizzled).llvm, "mask")
            good = w.select(self.structured, index_good & strict, linear)
        else:
            whole = w.select(self.structured, index_good & field_good, linear)
            nonempty = w.wrap(w.splat(self.all_records != 0).llvm, "mask")
            good = w.select(self.select == 0, index_good & field_good, whole)
            good = w.select(self.select == 1, index_good, good)
            good = w.select(self.select == 2, nonempty, good)
        return w.wrap(good.llvm, "mask") & w.exec

    def hosts(self, skip: int, size: int | Value, mask: Value) -> Value:
        """Return checked host addresses."""
        w = self.w
        addresses = self.place + w.splat(self.base) + skip
        if w.major <= 10:  # later generations have other instructions for scratch
            length = w.splat(size.to("u64")) if isinstance(size, Value) else size
            ends = self.offset + w.splat(self.scalar_offset) + skip + length
            beyond = (ends > w.splat(self.stride)) & mask & w.wrap(w.splat(self.scratch).llvm, "mask")
            fault_if_any(w, beyond, ends - length, size, layout.FAULT_SCRATCH)
        return check_global(w, addresses, size, flat=False, mask=mask)


def buffer_access(
    w: WaveBuilder, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot, *, formatted: bool = False
) -> BufferAccess:
    """Return what an instruction accesses.

    `formatted`: it converts data formats, so the descriptor holds one.
    """
    words = srsrc.scalars()
    form = w.modifiers.get("addressing", 0)
    base = words[0].to("u64") | ((words[1] & 0xFFFF).to("u64") << 32)
    stride = words[1] >> 16 & 0x3FFF
    add_tid = (words[3] >> _ADD_TID_BIT & 1) != 0
    if w.major >= 12:
        scale = words[3] >> 18 & 3
        stride = stride << w.select(scale == 3, w.number(5), w.select(scale == 0, w.number(0), scale + 1))
    elif not formatted:
        # With ADD_TID_ENABLE the data format holds the stride's upper bits.
        stride = w.select(add_tid, stride | (words[3] >> 15 & 15) << 14, stride)
    if w.major >= 11:
        mode = words[1] >> 30 & 3
        swizzled = mode != 0
        element_shift = mode + 1
    else:
        swizzled = (words[1] >> _SWIZZLE_BIT) != 0
        element_shift = (words[3] >> 19 & 3) + 1 if w.major == 9 else w.number(2)
    scalar_offset = soffset.scalar().to("u64")
    # Stack pointers count the bytes of all lanes: hardware interleaves their scratch. Ours is a lane's after the
    # other's.
    scalar_offset = scalar_offset >> w.select(add_tid & ~swizzled, w.number(w.wave_size.bit_length() - 1, "u64"), 0)
    # The sum of the two offsets has 32 bits: on GFX9 and later compilers rely on it for -4 + 4.
    within = w.splat(offset.scalar() & 0xFFFFFF)
    if form & 1:
        within = within + vaddr.row(1 if form & 2 else 0)
    lane_offset = within.to("u64")
    index = w.const("u64", 0)
    if form & 2:
        index = vaddr.row(0).to("u64")
    index = index + w.select(add_tid, w.lane_id("u64"), w.const("u64", 0))
    wide_stride = stride.to("u64")
    linear = lane_offset + index * w.splat(wide_stride)
    index_shift = (words[3] >> 21 & 3).to("u64") + 3
    shift = element_shift.to("u64")
    one = w.number(1, "u64")
    index_low = index & w.splat((one << index_shift) - 1)
    inner = lane_offset
    if w.major >= 12:  # the scalar offset is swizzled too
        inner = (lane_offset + w.splat(scalar_offset)) & 0xFFFFFFFF
    offset_low = inner & w.splat((one << shift) - 1)
    rows = (index >> w.splat(index_shift)) * w.splat(wide_stride)
    rows = rows + ((inner >> w.splat(shift)) << w.splat(shift))
    twisted = (rows << w.splat(index_shift)) + (index_low << w.splat(shift)) + offset_low
    place = w.select(swizzled, twisted, linear)
    records = words[2].to("u64")
    left = w.select(records > scalar_offset, records - scalar_offset, 0)
    has_stride = stride != 0
    if w.major == 9:
        structured = has_stride & (swizzled if not form & 2 else w.wrap((stride == stride).llvm, SCC))
    else:
        structured = has_stride & swizzled
    outer = w.select(swizzled, w.number(0, "u64"), scalar_offset) if w.major >= 12 else scalar_offset
    return BufferAccess(
        w,
        base + outer,
        place,
        index,
        lane_offset,
        left,
        records,
        wide_stride,
        structured,
        swizzled,
        words[3] >> 28 & 3,
        add_tid & ~swizzled & (wide_stride == w.load(w.wave_field("scratch_size"), "u64")),
        scalar_offset,
    )


def no_failure(w: WaveBuilder, result: Slot, index: int) -> None:
    """Report no failure.

    With TFE the register after the data says whether a page was not resident: never.
    """
    if w.modifiers.get("tfe"):
        result.store_row(index, w.const("u32", 0), w.exec)


def _declare_dwords(names: str, count: int) -> None:
    loads = " ".join(f"buffer_load_{name}" for name in names.split())
    stores = " ".join(f"buffer_store_{name}" for name in names.split())

    @operations.wave(loads, f"{PLACE} -> vdata:u32x{count}", **STATIC)
    def load(w: WaveBuilder, result: Slot, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot) -> None:
        """D = buffer[…], each dword checked by itself."""
        access = buffer_access(w, vaddr, srsrc, soffset, offset)
        rows = []
        for index in range(count):
            good = access.in_bounds(4 * index, 4)
            rows.append(gather(w, access.hosts(4 * index, 4, good), 0, good))
        if not result.present:
            to_lds(w, offset, rows)
            return
        for index, row in enumerate(rows):
            result.store_row(index, row, w.exec)
        no_failure(w, result, count)

    @operations.wave(stores, f"{PLACE} vdata:u32x{count} ->", **STATIC)
    def store(w: WaveBuilder, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot, data: Slot) -> None:
        """buffer[…] = D, each dword checked by itself."""
        access = buffer_access(w, vaddr, srsrc, soffset, offset)
        masks = [access.in_bounds(4 * index, 4) for index in range(count)]
        hosts = [access.hosts(4 * index, 4, mask) for index, mask in enumerate(masks)]
        for index, (host, mask) in enumerate(zip(hosts, masks, strict=True)):
            scatter(w, host, data.row(index), 0, mask)


for _count, _names in {1: "dword b32", 2: "dwordx2 b64", 3: "dwordx3 b96", 4: "dwordx4 b128"}.items():
    _declare_dwords(_names, _count)


def _declare_small_load(names: str, bits: int, signed: bool, half: str) -> None:
    @operations.wave(" ".join(f"buffer_load_{name}" for name in names.split()), f"{PLACE} -> vdata:u32", **STATIC)
    def load(w: WaveBuilder, result: Slot, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot) -> None:
        """D = a byte or half-word of the buffer."""
        access = buffer_access(w, vaddr, srsrc, soffset, offset)
        good = access.in_bounds(0, bits // 8)
        value = gather_small(w, access.hosts(0, bits // 8, good), bits, good)
        if not result.present:
            to_lds(w, offset, [value.as_("i32").bits(0, bits).as_("u32") if signed else value])
            return
        result.store_row(0, small_row(w, result, value, bits, signed, half), w.exec)
        no_failure(w, result, 1)


def _declare_small_store(names: str, bits: int, high: bool) -> None:
    @operations.wave(" ".join(f"buffer_store_{name}" for name in names.split()), f"{PLACE} vdata:u32 ->", **STATIC)
    def store(w: WaveBuilder, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot, data: Slot) -> None:
        """A byte or half-word of the buffer = D."""
        access = buffer_access(w, vaddr, srsrc, soffset, offset)
        good = access.in_bounds(0, bits // 8)
        row = data.row(0)
        scatter_small(w, access.hosts(0, bits // 8, good), row >> 16 if high else row, bits, good)


for _names, _bits, _signed, _half in (
    ("ubyte u8", 8, False, ""),
    ("sbyte i8", 8, True, ""),
    ("ushort u16", 16, False, ""),
    ("sshort i16", 16, True, ""),
    ("ubyte_d16 d16_u8", 8, False, "lo"),
    ("ubyte_d16_hi d16_hi_u8", 8, False, "hi"),
    ("sbyte_d16 d16_i8", 8, True, "lo"),
    ("sbyte_d16_hi d16_hi_i8", 8, True, "hi"),
    ("short_d16 d16_b16", 16, False, "lo"),
    ("short_d16_hi d16_hi_b16", 16, False, "hi"),
):
    _declare_small_load(_names, _bits, _signed, _half)
for _names, _bits, _high in (
    ("byte b8", 8, False),
    ("byte_d16_hi d16_hi_b8", 8, True),
    ("short b16", 16, False),
    ("short_d16_hi d16_hi_b16", 16, True),
):
    _declare_small_store(_names, _bits, _high)


def _declare_atomic(atomic: Atomic) -> None:
    names = " ".join(f"buffer_atomic_{name}" for name in atomic.vector_names)

    @operations.wave(names, f"{PLACE} vdata_in:u32x{atomic.data_units} -> vdata:u32x{atomic.units}", **STATIC)
    def run(w: WaveBuilder, result: Slot, vaddr: Slot, srsrc: Slot, soffset: Slot, offset: Slot, data: Slot) -> None:
        """old = buffer[…]; buffer[…] = op(old, D); with return, D = old."""
        source = data if data.present else result
        access = buffer_access(w, vaddr, srsrc, soffset, offset)
        size = 4 * atomic.units
        good = access.in_bounds(0, size)
        hosts = access.hosts(0, size, good)
        check_aligned(w, w.select(good, hosts, 0), size)
        rows = [source.row(index) for index in range(atomic.data_units)]
        atomic_lanes(w, atomic, hosts, rows, result if data.present else None, good)


for _atomic in ATOMICS:
    if _atomic.vector_names:
        _declare_atomic(_atomic)
