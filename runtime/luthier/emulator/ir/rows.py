"""Code for accesses of lanes to consecutive memory: the most frequent pattern in kernels.

`memory_code` computes, checks and compares the address of each lane. The address registers alone show whether lanes
access a row; if they do, only the two ends of the row need a check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.exact import I32, I64, PTR
from luthier.emulator.ir.memory_code import (
    follows_nans,
    gather_each,
    gather_rows,
    is_nothing_followed,
    load_row,
    scatter_each,
    scatter_rows,
    store_row,
)
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

_LINE = 64
"""Bytes in a line of the host's caches."""


class AccessRow(Struct, frozen=True):
    """Accesses of active lanes that may be consecutive in memory."""

    holds: TypedValue
    """Whether they are consecutive, and all allowed: a scalar."""
    pointer: Any
    """Host address for lane 0, active or not, if `holds`."""
    goes_on: bool
    """Whether later waves are likely to access the memory after the row."""

    def fetch_ahead(self, w: WaveBuilder, size: int, *, write: bool) -> None:
        """Emit prefetches of the row after the next.

        The host does not detect the pattern: one wave accesses too few lines, and the next wave runs too much later.

        Args:
            size: bytes of a row.
            write: whether the row is stored to.
        """
        if self.goes_on:
            prefetch = w.function("llvm.prefetch.p0", ir.VoidType(), [PTR, I32, I32, I32])
            for offset in range(2 * size, 3 * size, _LINE):
                w.ir.call(prefetch, [w.address(self.pointer, offset), I32(int(write)), I32(3), I32(1)])


def row_in_memory(
    w: WaveBuilder, place: OperandSlot, base: TypedValue, size: int, *, wide: bool, signed: bool = False
) -> AccessRow | None:
    """Return the accesses of active lanes to `size` bytes each as a row in the allocation that this instruction used
    last; None for code that must report each access.

    This uses the registers and a few scalars instead of the lanes' addresses: a fraction of the work of `check_global`.

    Args:
        place: registers that hold addresses or offsets.
        base: base address, a scalar u64.
        wide: whether registers hold 64 bits; otherwise 32 bits, sign-extended if `signed`.
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
    """Return the accesses of active lanes to `size` bytes each of LDS as a row; None for code that must report each
    access.

    Args:
        place: the register that holds byte offsets.
        offset: added to each offset, a scalar u32.
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
    """Return a row, given registers of 32 bits (64 if `wide`) at `place`.

    Args:
        address: returns the address of a lane (u64).
        pointer: returns the host address of an address, and whether the given number of bytes there is allowed.
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
    # If registers overflow in between, the last lane's address does not match.
    is_row = (w.mask_bits((different != 0) & w.exec) == 0) & (address(last) - begin == span)
    host, allowed = pointer(begin, span + size)
    if follows_nans(w):
        allowed = allowed & is_nothing_followed(w)
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
        row: the accesses as a row; None if code must not use a row.
        places: emits code for accesses of any pattern; returns the host addresses and the mask of lanes with one.
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
    """Store consecutive dwords of each active lane; for arguments, see `load_lanes`."""
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
