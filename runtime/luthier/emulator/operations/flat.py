"""FLAT, GLOBAL and SCRATCH: loads, stores and atomics at per-lane addresses."""

from __future__ import annotations

from collections.abc import Sequence

from luthier.emulator import layout
from luthier.emulator.ir.atomics import ATOMICS, Atomic, atomic_lanes
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.exact import I64
from luthier.emulator.ir.memory_code import (
    check_aligned,
    check_global,
    check_scratch,
    gather,
    gather_rows,
    gather_small,
    lds_access,
    scatter,
    scatter_rows,
    scatter_small,
)
from luthier.emulator.ir.rows import AccessRow, load_lanes, row_in_memory, store_lanes
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()


def _immediate(offset: OperandSlot) -> TypedValue:
    """Return the instruction's signed offset in every lane, u64."""
    w = offset.w
    return w.splat(w.wrap(w.ir.sext(offset.scalar().llvm, I64), "u64"))


def scaled(w: WaveBuilder, offsets: TypedValue, size: int) -> TypedValue:
    """Return a register's offsets in bytes; with ``scale_offset``, they count accesses.

    Source: LLVM's code generator, which emits ``global_load_b96 … scale_offset`` for an index into an array with
    elements of 12 bytes.
    """
    return offsets * size if w.modifiers.get("scale_offset") else offsets


def _address(w: WaveBuilder, place: Sequence[OperandSlot], size: int = 0) -> TypedValue:
    """Return per-lane addresses: 64-bit VGPRs, or an SGPR pair plus a 32-bit VGPR.

    `size`: bytes of a lane's access.
    """
    vaddr, saddr, offset = place
    total = _immediate(offset)
    if w.modifiers.get("scale_offset") and not (size and saddr.present and vaddr.present):
        raise Unsupported("scale_offset requires an offset in a register")
    if saddr.present:
        total = total + w.splat(saddr.scalar())
        if vaddr.present:
            offsets = vaddr.row(0)
            wide = offsets.as_("i32").to("i64").as_("u64") if w.modifiers.get("signed") else offsets.to("u64")
            total = total + scaled(w, wide, size)
    else:
        low, high = vaddr.row(0), vaddr.row(1)
        total = total + (low.to("u64") | (high.to("u64") << 32))
    return total


def _scratch_offset(w: WaveBuilder, place: Sequence[OperandSlot], size: int) -> TypedValue:
    """Return per-lane byte offsets in scratch, u32."""
    vaddr, saddr, offset = place
    if w.modifiers.get("scale_offset") and not vaddr.present:
        raise Unsupported("scale_offset requires an offset in a register")
    total = w.splat(offset.scalar())
    if saddr.present:
        total = total + w.splat(saddr.scalar().to("u32"))
    if vaddr.present:
        total = total + scaled(w, vaddr.row(0), size)
    return total


def checked(
    w: WaveBuilder, space: str, place: Sequence[OperandSlot], size: int, more: TypedValue | None = None
) -> TypedValue:
    """Return the host addresses of an instruction's accesses, plus `more` bytes (a scalar u32)."""
    extra = w.number(0) if more is None else more
    if space == "scratch":
        return check_scratch(w, _scratch_offset(w, place, size) + extra, size)
    return check_global(w, _address(w, place, size) + extra.to("u64"), size, flat=space == "flat")


def _row(w: WaveBuilder, space: str, place: Sequence[OperandSlot], size: int) -> AccessRow | None:
    """Return the accesses of active lanes to dwords, `size` bytes each, as a row; None if code must not use a row."""
    vaddr, saddr, offset = place
    if space == "scratch" or not vaddr.present or w.modifiers.get("scale_offset"):
        return None
    base = w.wrap(w.ir.sext(offset.scalar().llvm, I64), "u64")
    if saddr.present:
        base = base + saddr.scalar()
    signed = bool(w.modifiers.get("signed"))
    return row_in_memory(w, vaddr, base, size, wide=not saddr.present, signed=signed)


PLACE = "vaddr:u64 saddr:u64 #offset"
"""Operands that locate data: `place` of the functions here."""
DWORDS = {1: "dword b32", 2: "dwordx2 b64", 3: "dwordx3 b96", 4: "dwordx4 b128"}
"""Number of registers -> ends of the names of instructions that load or store them: up to GFX10, and from GFX11 on."""
SMALL_LOADS = (
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
)
"""Ends of the names of loads of less than a register: bits, whether they are signed, and the half that is written."""
SMALL_STORES = (
    ("byte b8", 8, False),
    ("byte_d16_hi d16_hi_b8", 8, True),
    ("short b16", 16, False),
    ("short_d16_hi d16_hi_b16", 16, True),
)
"""Ends of the names of stores of less than a register: bits, and whether they are those of the upper half."""


def _declare_load(names: str, dwords: int, bits: int, signed: bool, half: str) -> None:
    """Declare loads.

    `half`: ``""`` a whole register, ``lo`` or ``hi`` only 16 bits of it, the others are kept.
    """
    for space in ("flat", "global", "scratch"):
        spelled = " ".join(f"{space}_load_{name}" for name in names.split())

        @operations.wave(spelled, f"{PLACE} -> vdst:u32x{max(dwords, 1)}", static=())
        def load(w: WaveBuilder, result: OperandSlot, *place: OperandSlot, space: str = space) -> None:
            """D = memory[address]."""
            if not result.present:  # with the LDS bit
                _load_to_lds(w, space, place, dwords, bits, signed)
                return
            size = 4 * dwords or bits // 8
            if dwords:
                row = _row(w, space, place, size)
                load_lanes(w, result, dwords, row, lambda: (checked(w, space, place, size), w.exec))
                return
            value = gather_small(w, checked(w, space, place, size), bits)
            result.store_row(0, small_row(w, result, value, bits, signed, half), w.exec)


def small_row(w: WaveBuilder, result: OperandSlot, value: TypedValue, bits: int, signed: bool, half: str) -> TypedValue:
    """Return a byte or half-word, extended for the destination register."""
    row = value.as_("i32").bits(0, bits).as_("u32") if signed else value
    if half == "":
        return row
    old = w.const("u32", 0) if w.modifiers.get("sramecc") else result.row(0)
    if half == "hi":
        return (old & 0xFFFF) | (row << 16)
    return (old & 0xFFFF0000) | (row & 0xFFFF)


def _declare_store(names: str, dwords: int, bits: int, high: bool) -> None:
    for space in ("flat", "global", "scratch"):
        spelled = " ".join(f"{space}_store_{name}" for name in names.split())

        @operations.wave(spelled, f"{PLACE} vdata:u32x{max(dwords, 1)} ->")
        def store(w: WaveBuilder, *operands: OperandSlot, space: str = space) -> None:
            """memory[address] = D."""
            *place, data = operands
            size = 4 * dwords or bits // 8
            if space == "global" and w.variant.undefined & layout.LANE_VALUES:
                for index in range(max(dwords, 1)):
                    row_of_data = data.row(index) if dwords else data.row(0).bits(16 if high else 0, bits)
                    w.decide(layout.DECIDES_STORE, row_of_data, w.exec)
            if dwords:
                row = _row(w, space, place, size)
                values = [data.row(index) for index in range(dwords)]
                store_lanes(w, values, row, lambda: (checked(w, space, place, size), w.exec))
                return
            value = data.row(0)
            if high or data.access.high:
                value = value >> 16
            scatter_small(w, checked(w, space, place, size), value, bits)


for _dwords, _names in DWORDS.items():
    _declare_load(_names, _dwords, 32, False, "")
    _declare_store(_names, _dwords, 32, False)
for _names, _bits, _signed, _half in SMALL_LOADS:
    _declare_load(_names, 0, _bits, _signed, _half)
for _names, _bits, _high in SMALL_STORES:
    _declare_store(_names, 0, _bits, _high)


def _declare_atomic(atomic: Atomic) -> None:
    for space in ("flat", "global"):
        names = " ".join(f"{space}_atomic_{name}" for name in atomic.vector_names)

        @operations.wave(names, f"{PLACE} vdata:u32x{atomic.data_units} -> vdst:u32x{atomic.units}")
        def run(w: WaveBuilder, result: OperandSlot, *operands: OperandSlot, space: str = space) -> None:
            """old = memory[address]; memory[address] = op(old, D); with return, D = old."""
            *place, data = operands
            addresses = _address(w, place, 4 * atomic.units)
            check_aligned(w, addresses, 4 * atomic.units)
            hosts = check_global(w, addresses, 4 * atomic.units, flat=space == "flat")
            rows = [data.row(index) for index in range(atomic.data_units)]
            if space == "global" and w.variant.undefined & layout.LANE_VALUES:
                for row in rows:
                    w.decide(layout.DECIDES_STORE, row, w.exec)
            atomic_lanes(w, atomic, hosts, rows, result)


for _atomic in ATOMICS:
    if _atomic.vector_names:
        _declare_atomic(_atomic)


def to_lds(w: WaveBuilder, offset: OperandSlot, rows: list[TypedValue], *, by_words: bool = False) -> None:
    """Store each lane's data in LDS at M0 + offset + lane * bytes; lanes with three dwords are four dwords apart.

    M0 has 16 bits for the address, 18 if LDS is larger (CDNA4 document, 9.1.9 and 10.3).

    Args:
        by_words: whether the lowest two of 18 bits are ignored.
    """
    size, step = 4 * len(rows), 4 * (len(rows) + (len(rows) == 3))
    bits = 0xFFFF
    if w.modifiers.get("wide_lds"):
        bits = 0x3FFFC if by_words else 0x3FFFF
    places = w.splat((w.m0 & bits) + offset.scalar()) + w.lane_id() * step
    hosts, inside = lds_access(w, places, size)
    scatter_rows(w, hosts, rows, inside)


def _load_to_lds(
    w: WaveBuilder, space: str, place: Sequence[OperandSlot], dwords: int, bits: int, signed: bool
) -> None:
    """LDS[M0 + offset + lane * bytes] = memory[address]."""
    hosts = checked(w, space, place, 4 * dwords or bits // 8)
    if dwords:
        rows = gather_rows(w, hosts, dwords)
    else:
        value = gather_small(w, hosts, bits)
        rows = [value.as_("i32").bits(0, bits).as_("u32") if signed else value]
    to_lds(w, place[-1], rows, by_words=True)


def _declare_load_to_lds(name: str, dwords: int, bits: int, signed: bool) -> None:
    for space in ("global", "scratch"):

        @operations.wave(f"{space}_load_lds_{name}", f"{PLACE} ->", since=(9, 10), until=(11,))
        def load(w: WaveBuilder, *place: OperandSlot, space: str = space) -> None:
            """LDS[M0 + offset + lane * bytes] = memory[address]."""
            _load_to_lds(w, space, place, dwords, bits, signed)


for _name, _dwords, _bits, _signed in (
    ("dword", 1, 32, False),
    ("dwordx3", 3, 32, False),
    ("dwordx4", 4, 32, False),
    ("ubyte", 0, 8, False),
    ("sbyte", 0, 8, True),
    ("ushort", 0, 16, False),
    ("sshort", 0, 16, True),
):
    _declare_load_to_lds(_name, _dwords, _bits, _signed)


def _lane_address(w: WaveBuilder, saddr: OperandSlot, offset: OperandSlot) -> TypedValue:
    """Return saddr + offset + lane * 4; an absent saddr is 0."""
    lanes = _immediate(offset) + w.lane_id("u64") * 4
    return lanes + w.splat(saddr.scalar()) if saddr.present else lanes


@operations.wave("global_load_dword_addtid global_load_addtid_b32", "saddr:u64 #offset -> vdst:u32")
def load_addtid(w: WaveBuilder, result: OperandSlot, saddr: OperandSlot, offset: OperandSlot) -> None:
    """D = memory[saddr + offset + lane * 4]."""
    addresses = _lane_address(w, saddr, offset)
    result.write(gather(w, check_global(w, addresses, 4, flat=False)))


@operations.wave("global_store_dword_addtid global_store_addtid_b32", "saddr:u64 #offset vdata:u32 ->")
def store_addtid(w: WaveBuilder, saddr: OperandSlot, offset: OperandSlot, data: OperandSlot) -> None:
    """memory[saddr + offset + lane * 4] = D."""
    addresses = _lane_address(w, saddr, offset)
    scatter(w, check_global(w, addresses, 4, flat=False), data.row(0))
