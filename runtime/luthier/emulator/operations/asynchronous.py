"""Copies between memory and LDS that ASYNCCNT counts, loads for clusters and monitors, and barriers in LDS (GFX1250).

Like all instructions here, they complete before the next one begins. Sources: AMD's rocjitsu (cdna5/addr_calc.cpp: the
immediate offset is added to the address in memory and to the one in LDS, which wraps at 32 bits), LLVM's instruction
definitions (a VGPR holds the address in LDS), and as cited below.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.exact import I64, PTR
from luthier.emulator.ir.memory_code import (
    check_aligned,
    each_lane,
    fetch,
    gather_rows,
    gather_small,
    lds_access,
    put,
    scatter_rows,
    scatter_small,
    spill,
    unanswered,
)
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.flat import PLACE, checked
from luthier.emulator.questions import CLUSTER, OUTSIDE_LDS, UNDERFLOW

operations = OperationTable()
_NEWEST = (125,)
_PENDING_BITS, _RELOAD_SHIFT, _RELOAD_BITS = 29, 32, 16


def _alone(w: WaveBuilder) -> None:
    """Stop if M0 names work-groups of a cluster other than the first. 0 means no cluster, and so does 1 here."""
    unanswered(w, (w.m0 & 0xFFFF) > 1, CLUSTER)


def _read(w: WaveBuilder, hosts: TypedValue, bits: int, mask: TypedValue) -> list[TypedValue]:
    return [gather_small(w, hosts, bits, mask)] if bits == 8 else gather_rows(w, hosts, bits // 32, mask)


def _write(w: WaveBuilder, hosts: TypedValue, rows: list[TypedValue], bits: int, mask: TypedValue) -> None:
    if bits == 8:
        scatter_small(w, hosts, rows[0], bits, mask)
    else:
        scatter_rows(w, hosts, rows, mask)


def _lds(w: WaveBuilder, place: OperandSlot, offset: OperandSlot, bits: int) -> tuple[TypedValue, TypedValue]:
    return lds_access(w, place.row(0) + w.splat(offset.scalar()), bits // 8)


def _declare_copies(bits: int) -> None:
    def copy_in(w: WaveBuilder, in_lds: OperandSlot, place: Sequence[OperandSlot]) -> None:
        rows = _read(w, checked(w, "global", place, bits // 8), bits, w.exec)
        targets, inside = _lds(w, in_lds, place[-1], bits)
        _write(w, targets, rows, bits, inside)

    @operations.wave(f"global_load_async_to_lds_b{bits}", f"vdst:u32 {PLACE} ->", since=_NEWEST)
    def load(w: WaveBuilder, in_lds: OperandSlot, *place: OperandSlot) -> None:
        """LDS[a VGPR + offset] = memory[address]."""
        copy_in(w, in_lds, place)

    @operations.wave(f"cluster_load_async_to_lds_b{bits}", f"vdst:u32 {PLACE} ->", since=_NEWEST)
    def load_for_cluster(w: WaveBuilder, in_lds: OperandSlot, *place: OperandSlot) -> None:
        """LDS[a VGPR + offset] = memory[address], in the work-groups that M0 names."""
        _alone(w)
        copy_in(w, in_lds, place)

    @operations.wave(f"global_store_async_from_lds_b{bits}", f"{PLACE} vdata:u32 ->", since=_NEWEST)
    def store(w: WaveBuilder, *operands: OperandSlot) -> None:
        """Memory[address] = LDS[a VGPR + offset]."""
        *place, in_lds = operands
        sources, inside = _lds(w, in_lds, place[-1], bits)
        unanswered(w, w.mask_bits(inside ^ w.exec) != 0, OUTSIDE_LDS)
        rows = _read(w, sources, bits, inside)
        _write(w, checked(w, "global", place, bits // 8), rows, bits, w.exec)


for _bits in (8, 32, 64, 128):
    _declare_copies(_bits)


def _declare_loads(bits: int) -> None:
    units = bits // 32

    @operations.wave(f"cluster_load_b{bits}", f"{PLACE} -> vdst:u32x{units}", since=_NEWEST)
    def load_for_cluster(w: WaveBuilder, result: OperandSlot, *place: OperandSlot) -> None:
        """D = memory[address], in the work-groups that M0 names."""
        _alone(w)
        hosts = checked(w, "global", place, bits // 8)
        result.write_parts(gather_rows(w, hosts, units))

    for space in ("flat", "global"):

        @operations.wave(f"{space}_load_monitor_b{bits}", f"{PLACE} -> vdst:u32x{units}", since=_NEWEST)
        def load_and_watch(w: WaveBuilder, result: OperandSlot, *place: OperandSlot, space: str = space) -> None:
            """D = memory[address]; writes to it wake the wave from s_monitor_sleep, which only yields here."""
            hosts = checked(w, space, place, bits // 8)
            result.write_parts(gather_rows(w, hosts, units))


for _bits in (32, 64, 128):
    _declare_loads(_bits)

# Barriers in LDS ------------------------------------------------------------------------------------------------------


def arrive_at(w: WaveBuilder, pointer: Any, taken: TypedValue) -> TypedValue:
    """Subtract `taken` arrivals from those pending at the barrier at an address; return the old value.

    The next phase begins below 0. In Triton and HIP's headers, pending arrivals have 29 bits, and the phase the bits
    above up to bit 31. Bits 47:32 are the initial value of the next phase, one less than the arrivals that it waits for
    (Triton, InitBarrierOp of its AMD backend).
    """
    old = w.wrap(w.ir.load(pointer, typ=I64, align=8), "u64")
    pending = old & ((1 << _PENDING_BITS) - 1)
    through = taken > pending
    unanswered(w, through & (taken > pending + 1), UNDERFLOW)
    reload = old >> _RELOAD_SHIFT & ((1 << _RELOAD_BITS) - 1)
    upper = old & (0xFFFFFFFF << _RELOAD_SHIFT)
    phase = (old >> _PENDING_BITS & 7) + 1 & 7
    next_phase = upper | (phase << _PENDING_BITS) | reload
    w.ir.store(w.select(through, next_phase, old - taken).llvm, pointer, align=8)
    return old


def _arrive(
    w: WaveBuilder, addr: OperandSlot, offset: OperandSlot, count: TypedValue, result: OperandSlot | None
) -> None:
    """Subtract each lane's count from the arrivals pending at a barrier."""
    hosts, inside = lds_access(w, addr.row(0) + w.splat(offset.scalar() & 0xFFFF), 8)
    check_aligned(w, w.select(inside, hosts, 0), 8)
    places, counts = spill(w, hosts), spill(w, count)
    old_rows = [spill(w, w.const("u32", 0)) for _ in range(2)]
    with each_lane(w, w.mask_bits(inside)) as lane:
        pointer = w.ir.inttoptr(fetch(w, places, lane, "u64").llvm, PTR)
        old = arrive_at(w, pointer, fetch(w, counts, lane, "u64"))
        put(w, old_rows[0], lane, old.to("u32"))
        put(w, old_rows[1], lane, (old >> 32).to("u32"))
    if result is not None:
        for index, place in enumerate(old_rows):
            result.store_row(index, w.wrap(w.ir.load(place, typ=w.row_type), "u32"), w.exec)


@operations.wave("ds_atomic_barrier_arrive_rtn_b64", "addr:u32 data0:u64 #offset -> vdst:u32x2", since=_NEWEST)
def arrive(w: WaveBuilder, result: OperandSlot, addr: OperandSlot, data: OperandSlot, offset: OperandSlot) -> None:
    """D = LDS[address]; subtract S1 from the arrivals pending at that barrier."""
    _arrive(w, addr, offset, data.read(), result)


@operations.wave("ds_atomic_async_barrier_arrive_b64", "addr:u32 #offset ->", since=_NEWEST)
def arrive_after_copies(w: WaveBuilder, addr: OperandSlot, offset: OperandSlot) -> None:
    """Subtract one pending arrival at the barrier in LDS[address] after the wave's copies, which are complete here."""
    _arrive(w, addr, offset, w.const("u64", 1), None)
