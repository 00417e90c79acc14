"""LDS (DS): loads, stores, atomics, and the lane permutations that share its path.

Accesses outside LDS read 0 and write nothing: `lds_access`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.atomics import ATOMICS, Atomic, atomic_lanes, swap_if_equal_floats
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.exact import I32, I64, PTR
from luthier.emulator.ir.memory_code import (
    check_aligned,
    each_lane,
    fetch,
    gather,
    gather_rows,
    gather_small,
    lds_access,
    note_access,
    put,
    scatter,
    scatter_rows,
    scatter_small,
    spill,
    tell,
)
from luthier.emulator.ir.rows import load_lanes, row_in_lds, store_lanes
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.layout import EVENT_GRID_SIGNAL, EVENT_GRID_WAIT, GRID_BARRIERS, LAUNCH, RETRY
from luthier.emulator.operations.flat import small_row
from luthier.emulator.operations.transpose import exchanged

operations = OperationTable()


def _place(addr: OperandSlot, offset: TypedValue) -> TypedValue:
    """Return byte offsets in LDS."""
    return addr.row(0) + addr.w.splat(offset & 0xFFFF)


def _access(w: WaveBuilder, addr: OperandSlot, offset: OperandSlot, size: int) -> tuple[TypedValue, TypedValue]:
    return lds_access(w, _place(addr, offset.scalar()), size)


def _declare_access(load_names: str, store_names: str, dwords: int) -> None:
    @operations.wave(load_names, f"addr:u32 #offset -> vdst:u32x{dwords}")
    def load(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, offset: OperandSlot) -> None:
        """D = LDS[addr + offset]."""
        row = row_in_lds(w, addr, offset.scalar() & 0xFFFF, 4 * dwords)
        load_lanes(w, result, dwords, row, lambda: _access(w, addr, offset, 4 * dwords))

    @operations.wave(store_names, f"addr:u32 data0:u32x{dwords} #offset ->")
    def store(w: WaveBuilder, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
        """LDS[addr + offset] = D."""
        row = row_in_lds(w, addr, offset.scalar() & 0xFFFF, 4 * dwords)
        values = [data.row(index) for index in range(dwords)]
        store_lanes(w, values, row, lambda: _access(w, addr, offset, 4 * dwords))


for _dwords in (1, 2, 3, 4):
    _declare_access(
        f"ds_read_b{32 * _dwords} ds_load_b{32 * _dwords}",
        f"ds_write_b{32 * _dwords} ds_store_b{32 * _dwords}",
        _dwords,
    )


def _declare_small(names: str, bits: int, signed: bool, half: str) -> None:
    @operations.wave(names, "addr:u32 #offset -> vdst:u32")
    def load(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, offset: OperandSlot) -> None:
        """D = LDS[addr + offset], a byte or half-word."""
        hosts, inside = _access(w, addr, offset, bits // 8)
        value = gather_small(w, hosts, bits, inside)
        result.store_row(0, small_row(w, result, value, bits, signed, half), w.exec)


for _names, _bits, _signed, _half in (
    ("ds_read_u8 ds_load_u8", 8, False, ""),
    ("ds_read_i8 ds_load_i8", 8, True, ""),
    ("ds_read_u16 ds_load_u16", 16, False, ""),
    ("ds_read_i16 ds_load_i16", 16, True, ""),
    ("ds_read_u8_d16 ds_load_u8_d16", 8, False, "lo"),
    ("ds_read_u8_d16_hi ds_load_u8_d16_hi", 8, False, "hi"),
    ("ds_read_i8_d16 ds_load_i8_d16", 8, True, "lo"),
    ("ds_read_i8_d16_hi ds_load_i8_d16_hi", 8, True, "hi"),
    ("ds_read_u16_d16 ds_load_u16_d16", 16, False, "lo"),
    ("ds_read_u16_d16_hi ds_load_u16_d16_hi", 16, False, "hi"),
):
    _declare_small(_names, _bits, _signed, _half)


def _declare_small_store(names: str, bits: int, high: bool) -> None:
    @operations.wave(names, "addr:u32 data0:u32 #offset ->")
    def store(w: WaveBuilder, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
        """LDS[addr + offset] = a byte or half-word of D."""
        row = data.row(0)
        if high or data.access.high:
            row = row >> 16
        hosts, inside = _access(w, addr, offset, bits // 8)
        scatter_small(w, hosts, row, bits, inside)


for _names, _bits, _high in (
    ("ds_write_b8 ds_store_b8", 8, False),
    ("ds_write_b16 ds_store_b16", 16, False),
    ("ds_write_b8_d16_hi ds_store_b8_d16_hi", 8, True),
    ("ds_write_b16_d16_hi ds_store_b16_d16_hi", 16, True),
):
    _declare_small_store(_names, _bits, _high)


# Two addresses ------------------------------------------------------------------------------------------------------


def _declare_pair(bits: int, stride64: bool) -> None:
    units = bits // 32
    scale = bits // 8 * (64 if stride64 else 1)
    tail = f"st64_b{bits}" if stride64 else f"_b{bits}"
    new_tail = f"_stride64_b{bits}" if stride64 else f"_b{bits}"

    def accesses(
        w: WaveBuilder, addr: OperandSlot, offsets: Sequence[OperandSlot]
    ) -> list[tuple[TypedValue, TypedValue]]:
        return [lds_access(w, _place(addr, (offset.scalar() & 0xFF) * scale), bits // 8) for offset in offsets]

    def read(w: WaveBuilder, both: list[tuple[TypedValue, TypedValue]]) -> list[TypedValue]:
        """Return the rows at both addresses; on GFX11 and later, zeros if either is outside LDS (`lds_access`)."""
        whole = both[0][1] & both[1][1]
        return [
            row for hosts, inside in both for row in gather_rows(w, hosts, units, whole if w.major >= 11 else inside)
        ]

    def words_of(data: OperandSlot) -> list[TypedValue]:
        return [data.row(index) for index in range(units)]

    names = f"ds_read2{tail} ds_load_2addr{new_tail}"

    @operations.wave(names, f"addr:u32 #offset0 #offset1 -> vdst:u32x{2 * units}", generations=True)
    def load(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, *offsets: OperandSlot) -> None:
        """D = LDS at both addresses."""
        for index, row in enumerate(read(w, accesses(w, addr, offsets))):
            result.store_row(index, row, w.exec)

    operands = f"addr:u32 data0:u32x{units} data1:u32x{units} #offset0 #offset1"

    @operations.wave(f"ds_write2{tail} ds_store_2addr{new_tail}", f"{operands} ->")
    def store(w: WaveBuilder, addr: OperandSlot, data0: OperandSlot, data1: OperandSlot, *offsets: OperandSlot) -> None:
        """LDS at both addresses = D0, D1."""
        for (hosts, inside), data in zip(accesses(w, addr, offsets), (data0, data1), strict=True):
            scatter_rows(w, hosts, words_of(data), inside)

    @operations.wave(
        f"ds_wrxchg2{'st64' if stride64 else ''}_rtn_b{bits} "
        f"ds_storexchg_2addr{'_stride64' if stride64 else ''}_rtn_b{bits}",
        f"{operands} -> vdst:u32x{2 * units}",
        generations=True,
    )
    def exchange(
        w: WaveBuilder,
        result: OperandSlot,
        addr: OperandSlot,
        data0: OperandSlot,
        data1: OperandSlot,
        *offsets: OperandSlot,
    ) -> None:
        """D = LDS at both addresses; LDS = D0, D1."""
        both = accesses(w, addr, offsets)
        rows = read(w, both)
        data = words_of(data0), words_of(data1)
        for (hosts, inside), words in zip(both, data, strict=True):
            scatter_rows(w, hosts, words, inside)
        for index, row in enumerate(rows):
            result.store_row(index, row, w.exec)


for _bits in (32, 64):
    for _stride64 in (False, True):
        _declare_pair(_bits, _stride64)


# Atomics ------------------------------------------------------------------------------------------------------------


def _with_return(name: str) -> str:
    """Return ``ds_add_rtn_u32`` for ``add_u32``."""
    stem, _, tail = name.rpartition("_")
    return f"ds_{stem}_rtn_{tail}"


def _declare_atomic(atomic: Atomic, names: str, returning: bool, **settings: Any) -> None:
    data = f"data0:u32x{atomic.units}" + (f" data1:u32x{atomic.units}" if atomic.data_count == 2 else "")
    signature = f"addr:u32 #offset {data} -> " + (f"vdst:u32x{atomic.units}" if returning else "")

    settings = {"denormals_by_mode": atomic.type.is_float, **settings}

    @operations.wave(names, signature, **settings)
    def run(w: WaveBuilder, *slots: OperandSlot) -> None:
        """old = LDS[addr + offset]; LDS = op(old, D); with return, D = old."""
        result = slots[0] if returning else None
        addr, offset, *sources = slots[1:] if returning else slots
        places = _place(addr, offset.scalar())
        check_aligned(w, places, 4 * atomic.units)
        rows = [source.row(index) for source in sources for index in range(atomic.units)]
        hosts, inside = lds_access(w, places, 4 * atomic.units)
        atomic_lanes(w, atomic, hosts, rows, result, inside)


for _atomic in ATOMICS:
    if _atomic.lds_names:
        _names = " ".join(f"ds_{name}" for name in _atomic.lds_names)
        _returning = " ".join(_with_return(name) for name in _atomic.lds_names)
        _declare_atomic(_atomic, _names, False)
        _declare_atomic(_atomic, _returning, True)
        if _atomic.type.kind == "bf":  # GFX1250 keeps denormals of bfloats, independent of MODE
            _declare_atomic(_atomic, _names, False, denormals_by_mode=False, since=(125,))
            _declare_atomic(_atomic, _returning, True, denormals_by_mode=False, since=(125,))
for _bits in (32, 64):
    _exchange = Atomic((), (), ScalarType("u", _bits), lambda w, old, data: data[0], "xchg")
    _declare_atomic(_exchange, f"ds_wrxchg_rtn_b{_bits} ds_storexchg_rtn_b{_bits}", True)


# Lane permutations and counters -------------------------------------------------------------------------------------


def _named_lane(w: WaveBuilder, addr: OperandSlot, offset: OperandSlot) -> TypedValue:
    """Return the lane (addr + offset) / 4.

    GFX10 and GFX11 permute the halves of 64 lanes separately (LLVM, GCNSubtarget::supportsWaveWideBPermute; Mesa);
    their documents only say that it is modulo 32.
    """
    reach = 32 if w.major in (10, 11) else w.wave_size
    lane = (_place(addr, offset.scalar()) >> 2) & (reach - 1)
    return lane if reach == w.wave_size else lane | (w.lane_id() & 32)


@operations.wave("ds_bpermute_b32", "addr:u32 data0:u32 #offset -> vdst:u32", generations=True)
def bpermute(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
    """D[lane] = data[named lane]; inactive source lanes give 0."""
    index = _named_lane(w, addr, offset)
    w.names_lanes(_place(addr, offset.scalar()) >> 2)
    values = spill(w, w.select(w.exec, data.row(0), 0))
    addresses = index.to("u64") * 4 + w.splat(w.wrap(w.ir.ptrtoint(values, I64), "u64"))
    row = gather(w, addresses)
    if w.variant.undefined & layout.LANE_VALUES:
        actives = spill(w, w.select(w.exec, w.const("u32", 1), 0))
        places = index.to("u64") * 4 + w.splat(w.wrap(w.ir.ptrtoint(actives, I64), "u64"))
        row = w.taken_from(row, gather(w, places) != 0)
    result.write(row)


@operations.wave("ds_bpermute_fi_b32", "addr:u32 data0:u32 #offset -> vdst:u32")
def bpermute_fi(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
    """D[lane] = data[named lane], also from inactive lanes."""
    index = _named_lane(w, addr, offset)
    values = spill(w, data.row(0))
    addresses = index.to("u64") * 4 + w.splat(w.wrap(w.ir.ptrtoint(values, I64), "u64"))
    result.write(gather(w, addresses))


@operations.wave("ds_permute_b32", "addr:u32 data0:u32 #offset -> vdst:u32", generations=True)
def permute(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
    """D[named lane] = data[lane]; lanes that are not written get 0, and the highest source lane wins."""
    index = _named_lane(w, addr, offset)
    indices, values = spill(w, index), spill(w, data.row(0))
    target = spill(w, w.const("u32", 0))
    with each_lane(w) as lane:
        put(w, target, fetch(w, indices, lane, "u32").to("u64"), fetch(w, values, lane, "u32"))
    result.write(w.wrap(w.ir.load(target, typ=ir.VectorType(I32, w.wave_size)), "u32"))


@operations.wave("ds_swizzle_b32", "addr:u32 -> vdst:u32", static=("offset",))
def swizzle(w: WaveBuilder, result: OperandSlot, addr: OperandSlot) -> None:
    """D[lane] = S[pattern(lane)]; inactive source lanes give 0 (ISA documents, "DS_SWIZZLE_B32")."""
    pattern = w.modifiers.get("offset", 0) & 0xFFFF
    indices = [_swizzle_source(pattern, lane) for lane in range(w.wave_size)]
    row = w.select(w.exec, addr.row(0), 0)
    result.write(w.taken_from(w.shuffle(row, indices), w.shuffle(w.exec, indices)))


def _swizzle_source(pattern: int, lane: int) -> int:
    if pattern >= 0xE000:  # FFT mode: five bits reversed and shifted by the mask's ones, masked bits kept
        mask = pattern & 0x1F
        reversed_lane = int(f"{lane & 31:05b}"[::-1], 2)
        return (lane & 32) | (reversed_lane >> bin(mask).count("1")) | (lane & mask)
    if pattern & 0xC000 == 0xC000:  # rotate mode
        amount = pattern >> 5 & 0x1F
        mask = pattern & 0x1F
        amount = -amount if pattern >> 10 & 1 else amount
        return (lane & 32) | (lane & mask) | ((lane + amount) & ~mask & 31)
    if pattern & 0x8000:  # quad permute
        return (lane & ~3) | (pattern >> (2 * (lane & 3)) & 3)
    and_mask, or_mask, xor_mask = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return (lane & 32) | ((((lane & 31) & and_mask) | or_mask) ^ xor_mask)


def _declare_counter(name: str, operation: str) -> None:
    @operations.wave(name, "#offset -> vdst:u32")
    def count(w: WaveBuilder, result: OperandSlot, offset: OperandSlot) -> None:
        """D = LDS[M0.low16 + offset] before popcount(EXEC) is added or subtracted; 0 outside LDS."""
        m0 = w.m0
        place = (m0 & 0xFFFF) + (offset.scalar() & 0xFFFF)
        check_aligned(w, w.splat(place), 4)
        inside = place.to("u64") + 4 <= w.load(w.wave_field("lds_size"), "u64")
        with w.ir.if_else(inside.llvm) as (counted, dropped):
            with counted:
                host = w.load(w.wave_field("lds"), "u64") + place.to("u64")
                note_access(w, host, 4)
                amount = w.popcount(w.exec_bits).to("u32")
                old = w.ir.atomic_rmw(operation, w.ir.inttoptr(host.llvm, PTR), amount.llvm, "seq_cst")
                after_counted = w.ir.block
            with dropped:
                note_access(w, place.to("u64"), 4, outside=True)
                after_dropped = w.ir.block
        merged = w.ir.phi(I32)
        merged.add_incoming(old, after_counted)
        merged.add_incoming(ir.Constant(I32, 0), after_dropped)
        result.write(w.splat(w.wrap(merged, "u32")))


_declare_counter("ds_append", "add")
_declare_counter("ds_consume", "sub")


def _addtid_place(w: WaveBuilder, offset: OperandSlot) -> TypedValue:
    m0 = w.m0 & 0xFFFF
    return w.splat(m0 + (offset.scalar() & 0xFFFF)) + w.lane_id() * 4


@operations.wave("ds_read_addtid_b32 ds_load_addtid_b32", "#offset -> vdst:u32")
def load_addtid(w: WaveBuilder, result: OperandSlot, offset: OperandSlot) -> None:
    """D = LDS[M0.low16 + offset + lane * 4]."""
    hosts, inside = lds_access(w, _addtid_place(w, offset), 4)
    result.write(gather(w, hosts, 0, inside))


@operations.wave("ds_write_addtid_b32 ds_store_addtid_b32", "data0:u32 #offset ->")
def store_addtid(w: WaveBuilder, data: OperandSlot, offset: OperandSlot) -> None:
    """LDS[M0.low16 + offset + lane * 4] = D."""
    hosts, inside = lds_access(w, _addtid_place(w, offset), 4)
    scatter(w, hosts, data.row(0), 0, inside)


# Transposing loads (gfx950) ------------------------------------------------------------------------------------------


def _declare_transposing(bits: int, dwords: int) -> None:
    count = 32 * dwords // bits

    def source(lane: int, index: int) -> tuple[int, int]:
        """Return the source of an element of a transposed load.

        A row of 16 lanes is a 16 by E matrix of E/16 interleaved squares, each of which is transposed.
        """
        return (lane & ~15) + index * (16 // count) + (lane & 15) // count, (lane & 15) % count

    @operations.wave(f"ds_read_b{32 * dwords}_tr_b{bits}", f"addr:u32 #offset -> vdst:u32x{dwords}", since=(9,))
    def load(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, offset: OperandSlot) -> None:
        """D = LDS[addr + offset] with elements exchanged between the 16 lanes of a row."""
        hosts, inside = _access(w, addr, offset, 4 * dwords)
        rows = gather_rows(w, hosts, dwords, inside)
        for index, row in enumerate(exchanged(w, rows, bits, source)):
            result.store_row(index, row, w.exec)


for _bits, _dwords in ((16, 2), (8, 2), (4, 2), (6, 3)):
    _declare_transposing(_bits, _dwords)


# Global wave sync: a barrier of the whole grid ------------------------------------------------------------------------


@operations.wave("ds_gws_init ds_gws_sema_release_all", "->", since=(9, 10), until=(12,))
def gws_init(w: WaveBuilder) -> None:
    """Set the number of waves that a barrier waits for. This does nothing: waves that wait give the number, too."""


@operations.control("ds_gws_barrier", "data0:u32 #offset ->", since=(9, 10), until=(12,))
def gws_barrier(w: WaveBuilder, last_wave: OperandSlot, offset: OperandSlot) -> None:
    """Wait until D + 1 waves of the grid have arrived (D of the first active lane; LLVM, llvm.amdgcn.ds.gws.barrier).
    Only a cooperative launch runs all waves at the same time."""
    launch = w.pointer(w.context_field("launch"))
    resource = ((w.m0 >> 16) + offset.scalar() & GRID_BARRIERS - 1) * 8
    bases = (w.address(launch, LAUNCH[name]) for name in ("grid_arrived", "grid_phase"))
    arrived, phase_place = (w.address(base, resource.to("u64").llvm) for base in bases)
    phase = w.wrap(w.ir.load_atomic(phase_place, "seq_cst", 8, typ=I64), "u64")
    target_place = w.wave_field("pending")
    target = w.load(target_place, "u32")
    with w.ir.if_then((target == 0).llvm):
        tell(w, EVENT_GRID_SIGNAL)
        before = w.ir.atomic_rmw("add", arrived, ir.Constant(I64, 1), "seq_cst")
        last = w.wrap(before, "u64") >= last_wave.scalar().to("u64")
        with w.ir.if_then(last.llvm):
            w.ir.atomic_rmw("xchg", arrived, ir.Constant(I64, 0), "seq_cst")
            w.ir.atomic_rmw("add", phase_place, ir.Constant(I64, 1), "seq_cst")
            tell(w, EVENT_GRID_WAIT)
            w.next()
        w.store((phase + 1).to("u32"), target_place)
        w.uncount()
        w.stop(RETRY)
    with w.ir.if_then((target.to("u64") > phase).llvm):
        w.uncount()
        w.stop(RETRY)
    w.store(w.number(0), target_place)
    tell(w, EVENT_GRID_WAIT)
    w.next()


# Exchanges with a condition -------------------------------------------------------------------------------------------


def _declare_float_compare(bits: int) -> None:
    kind = ScalarType("f", bits)
    before_gfx11, since_gfx11 = swap_if_equal_floats(new=1, wanted=0), swap_if_equal_floats(new=0, wanted=1)
    for name, combine in (("cmpst", before_gfx11), ("cmpstore", since_gfx11)):
        atomic = Atomic((), (), kind, combine, "", 2)
        _declare_atomic(atomic, f"ds_{name}_f{bits}", False)
        _declare_atomic(atomic, f"ds_{name}_rtn_f{bits}", True)


for _bits in (32, 64):
    _declare_float_compare(_bits)


@operations.wave("ds_wrap_rtn_b32", "addr:u32 data0:u32 data1:u32 #offset -> vdst:u32")
def wrap(
    w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data0: OperandSlot, data1: OperandSlot, offset: OperandSlot
) -> None:
    """D = LDS; LDS = D >= data0 ? D - data0 : D + data1."""

    def combine(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
        return w.select(old >= data[0], old - data[0], old + data[1])

    places = _place(addr, offset.scalar())
    check_aligned(w, places, 4)
    atomic = Atomic((), (), ScalarType("u", 32), combine, "", 2)
    hosts, inside = lds_access(w, places, 4)
    atomic_lanes(w, atomic, hosts, [data0.row(0), data1.row(0)], result, inside)


@operations.wave("ds_condxchg32_rtn_b64", "addr:u32 data0:u32x2 #offset -> vdst:u32x2")
def condxchg32(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
    """D = LDS, two dwords; each dword of LDS whose data has bit 31 set = data with bit 31 clear."""
    places = _place(addr, offset.scalar()) & 0xFFF8
    hosts, inside = lds_access(w, places, 8)
    old = [gather(w, hosts, 4 * index, inside) for index in range(2)]
    for index in range(2):
        row = data.row(index)
        chosen = ((row >> 31) != 0) & inside
        scatter(w, hosts, row & 0x7FFFFFFF, 4 * index, chosen)
    for index, row in enumerate(old):
        result.store_row(index, row, w.exec)


@operations.wave("ds_nop", "->")
def nop(w: WaveBuilder) -> None:
    """Do nothing."""
