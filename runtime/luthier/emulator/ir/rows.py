"""Code for accesses of lanes that are one behind the other: what most kernels do most of the time.

`memory_code` computes, checks and compares the address of each lane. Whether lanes are in a row can be seen of the
registers that have the addresses, and where they are its two ends are all there is to check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.exact import I32, I64, PTR
from luthier.emulator.ir.memory_code import gather_each, gather_rows, load_row, scatter_each, scatter_rows, store_row
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

_LINE = 64
"""Bytes of a line of the host's caches."""


class AccessRow(Struct, frozen=True):
    """Accesses of active lanes that may be one behind the other."""

    holds: TypedValue
    """Whether they are, and are all allowed: a scalar."""
    pointer: Any
    """Where lane 0's is, or would be, if so."""
    goes_on: bool
    """Whether later waves are likely to access what is behind."""

    def fetch_ahead(self, w: WaveBuilder, size: int, *, write: bool) -> None:
        """Emit prefetches of the row after the next, which is accessed soon: the lines of one wave are too few, and
        those of the next too far away in time, for the host to see that they go on.

        Args:
            size: bytes of a row.
            write: whether it is stored to.
        """
        if self.goes_on:
            prefetch = w.function("llvm.prefetch.p0", ir.VoidType(), [PTR, I32, I32, I32])
            for offset in range(2 * size, 3 * size, _LINE):
                w.ir.call(prefetch, [w.address(self.pointer, offset), I32(int(write)), I32(3), I32(1)])


def row_in_memory(
    w: WaveBuilder, place: OperandSlot, base: TypedValue, size: int, *, wide: bool, signed: bool = False
) -> AccessRow | None:
    """Return whether all active lanes access `size` bytes each, one behind the other, in the allocation that this
    instruction used last; None for code that is to say more of its accesses.

    This takes no addresses of lanes, but registers as they are and a few scalars: a fraction of what `check_global`
    does.

    Args:
        place: registers that have addresses, or offsets.
        base: what is added to each, a scalar u64.
        wide: they have 64 bits; otherwise 32, extended by their sign where `signed` says so.
    """

    def address(lane: TypedValue) -> TypedValue:
        word = place.word_of_lane(lane, 0)
        if wide:
            return base + (word.to("u64") | place.word_of_lane(lane, 1).to("u64") << 32)
        return base + (word.as_("i32").to("i64").as_("u64") if signed else word.to("u64"))

    def pointer(begin: TypedValue, bytes_: TypedValue) -> tuple[TypedValue, TypedValue]:
        entry = w.address(w.pointer(w.context_field("ranges")), w.ir.zext((w.slot_value(w.free_slot) << 4).llvm, I64))
        offset, length = begin - w.load(entry, "u64"), w.load(w.address(entry, 8), "u64")
        return begin, (offset < length) & (offset + bytes_ <= length)

    return _row(w, place, size, address, pointer, wide=wide, goes_on=True)


def row_in_lds(w: WaveBuilder, place: OperandSlot, offset: TypedValue, size: int) -> AccessRow | None:
    """Return whether all active lanes access `size` bytes each of LDS, one behind the other; None for code that is to
    say more of its accesses.

    Args:
        place: the register that has byte offsets.
        offset: what is added to each, a scalar u32.
    """

    def address(lane: TypedValue) -> TypedValue:
        return (place.word_of_lane(lane, 0) + offset).to("u64")

    def pointer(begin: TypedValue, bytes_: TypedValue) -> tuple[TypedValue, TypedValue]:
        inside = begin + bytes_ <= w.load(w.wave_field("lds_size"), "u64")
        return w.load(w.wave_field("lds"), "u64") + begin, inside

    return _row(w, place, size, address, pointer, wide=False, goes_on=False)


def _row(
    w: WaveBuilder,
    place: OperandSlot,
    size: int,
    address: Callable[[TypedValue], TypedValue],
    pointer: Callable[[TypedValue, TypedValue], tuple[TypedValue, TypedValue]],
    *,
    wide: bool,
    goes_on: bool,
) -> AccessRow | None:
    """Return a row, whose registers of 32 bits, or of 64 where `wide`, are at `place`.

    Args:
        address: returns that of a lane (u64).
        pointer: returns where an address is on the host, and whether so many bytes there may be accessed.
    """
    if w.variant.stepping or w.variant.observed or w.variant.undefined:
        return None
    first = w.trailing_zeros(w.exec_bits | 1 << w.wave_size - 1)
    last = 63 - w.leading_zeros(w.exec_bits | 1)
    step = w.lane_id() * size
    different = place.row(0) ^ (w.splat(place.word_of_lane(first, 0) - first.to("u32") * size) + step)
    if wide:
        different = different | (place.row(1) ^ w.splat(place.word_of_lane(first, 1)))
    begin, span = address(first), (last - first) * size
    # Registers that overflow on the way do not reach the last lane's address.
    is_row = (w.mask_bits((different != 0) & w.exec) == 0) & (address(last) - begin == span)
    host, allowed = pointer(begin, span + size)
    return AccessRow(is_row & allowed, w.ir.inttoptr((host - first * size).llvm, PTR), goes_on)


def load_lanes(
    w: WaveBuilder,
    result: OperandSlot,
    count: int,
    row: AccessRow | None,
    places: Callable[[], tuple[TypedValue, TypedValue]],
) -> None:
    """Load `count` dwords of each active lane into the registers of `result`.

    Args:
        row: the accesses as a row; None if that is not asked.
        places: emits code for any accesses, and returns their host addresses and which lanes have one.
    """

    def write(rows: Sequence[TypedValue]) -> None:
        for index, value in enumerate(rows):
            result.store_row(index, value, w.exec)

    if row is None:
        hosts, enabled = places()
        write(gather_rows(w, hosts, count, enabled))
        return
    with w.ir.if_else(row.holds.llvm, likely=True) as (in_a_row, anywhere):
        with in_a_row:
            row.fetch_ahead(w, 4 * count * w.wave_size, write=False)
            write(load_row(w, row.pointer, count, w.exec))
        with anywhere:
            hosts, enabled = places()
            write(gather_each(w, hosts, count, enabled))


def store_lanes(
    w: WaveBuilder,
    values: Sequence[TypedValue],
    row: AccessRow | None,
    places: Callable[[], tuple[TypedValue, TypedValue]],
) -> None:
    """Store dwords of each active lane, one behind the other; arguments as of `load_lanes`."""
    if row is None:
        hosts, enabled = places()
        scatter_rows(w, hosts, values, enabled)
        return
    with w.ir.if_else(row.holds.llvm, likely=True) as (in_a_row, anywhere):
        with in_a_row:
            row.fetch_ahead(w, 4 * len(values) * w.wave_size, write=True)
            store_row(w, row.pointer, values, w.exec)
        with anywhere:
            hosts, enabled = places()
            scatter_each(w, hosts, values, enabled)
