"""Copies of tensor tiles between memory and LDS (GFX1250), which TENSORcnt counts. Here they complete immediately.

Sources: AMD's rocjitsu (shared/tensor_dma.h), after CDNA5's document, 10.11.1 to 10.11.6; LLVM's lowering of
``make_dma_descriptor`` (AMDGPUToROCDL). Sizes, coordinates and strides count elements of 1, 2, 4 or 8 bytes. A
coordinate of the tile outside the tensor loads 0 and stores nothing. Rows of a tile are consecutive in LDS, with
padding in loads only. EXEC is ignored. A descriptor that rocjitsu refuses or does not handle is a fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.exact import I8, I64, PTR
from luthier.emulator.ir.memory_code import check_scalar, note_access, unanswered
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder
from luthier.emulator.operations.asynchronous import arrive_at
from luthier.emulator.questions import CLUSTER, OUTSIDE_LDS, TENSOR, TENSOR_STEPS

operations = OperationTable()

_DIMENSIONS = 5
_GROUPS = "vaddr0:u32x4 vaddr1:u32x8 vaddr2:u32x4 vaddr3:u32x4 ->"
_LARGE = 1 << 62


class _Words:
    """Dwords of one of the descriptor's groups, addressed by bits."""

    def __init__(self, words: Sequence[TypedValue]) -> None:
        self.words = words

    def bits(self, first: int, count: int) -> TypedValue:
        """Return `count` bits from bit `first`, as u64."""
        index, shift = divmod(first, 32)
        value = self.words[index].to("u64")
        for more in range(1, -(-(shift + count) // 32)):
            upper = self.words[index + more].to("u64")
            value = value | upper << 32 * more
        return value >> shift & ((1 << count) - 1)


class _Tile(Struct, frozen=True):
    """Decoded descriptor; all numbers are u64."""

    base: TypedValue
    lds: TypedValue
    size: TypedValue
    """Bytes of an element."""
    tile: list[TypedValue]
    """Number of elements by dimension; 1 beyond the rank."""
    tensor: list[TypedValue]
    within: list[TypedValue]
    """By dimension: whether the dimension is below the rank."""
    strides: list[TypedValue]
    """Strides of dimension 1 and above."""
    rows: TypedValue
    steps: TypedValue
    """Number of tiles to copy."""
    step: TypedValue
    """Elements in memory from one tile to the next."""
    lds_step: TypedValue
    interval: TypedValue
    """Bytes in LDS between paddings."""
    pad: TypedValue
    """Bytes of each padding."""
    gather: TypedValue
    indices: list[TypedValue]
    """Coordinates along dimension 1, for a gather."""


def _group(w: WaveBuilder, slot: OperandSlot, count: int) -> list[TypedValue]:
    """Return the dwords of an operand; zeros where the instruction's short form has none."""
    return slot.scalars() if slot.present else [w.number(0)] * count


def _tile(w: WaveBuilder, first: Sequence[TypedValue], words: Sequence[TypedValue]) -> _Tile:
    """Return a decoded descriptor; fields that no source explains are a fault."""
    d1, d2, d3 = _Words(words[:8]), _Words(words[8:12]), _Words(words[12:])
    unit, zero = w.number(1, "u64"), w.number(0, "u64")
    gather, wide = first[0] >> 31 != 0, (first[0] >> 30 & 1) != 0
    iterate = (d1.bits(19, 1) != 0) & ~gather
    tile = [d1.bits(112, 16), d1.bits(128, 16), d1.bits(144, 16), d2.bits(112, 16), d3.bits(80, 16)]
    tensor = [d1.bits(48, 32), d1.bits(80, 32), d2.bits(0, 32), d2.bits(32, 32), d3.bits(48, 32)]
    strides = [d1.bits(160, 48), d1.bits(208, 48), d2.bits(64, 48), d3.bits(0, 48)]
    steps = w.select(iterate, tile[3] + 1, unit)
    step, lds_step = w.select(iterate, strides[2], zero), w.select(iterate, tensor[3], zero)
    for dimension in range(2, _DIMENSIONS):  # a gather has its coordinates in these fields
        tile[dimension] = w.select(gather, zero, tile[dimension])
    tile[3] = w.select(iterate, zero, tile[3])
    within: list[TypedValue] = [tile[-1] != 0]
    for extent in reversed(tile[:-1]):
        within.insert(0, within[0] | (extent != 0))
    some = within[0]
    most = w.select(wide, w.number(8, "u64"), w.number(16, "u64"))
    unanswered(w, gather & ((tile[0] == 0) | (tile[1] == 0) | (tile[1] > most)), TENSOR)
    unanswered(w, wide & ~gather, TENSOR)
    unanswered(w, iterate & (within[3] | ~within[1]), TENSOR)
    tile = [w.select(inside, extent, unit) for inside, extent in zip(within, tile, strict=True)]
    rows = unit
    for extent in tile[1:]:
        rows = rows * extent
    unanswered(w, (rows == 0) | (some & (tile[0] == 0)), TENSOR)
    pad = d1.bits(20, 1) != 0
    interval, amount = unit << (d1.bits(22, 3) + 3), (d1.bits(25, 7) + 1) << 2
    halves = [half for word in words[8:] for half in (word & 0xFFFF, word >> 16)]
    return _Tile(
        base=first[2].to("u64") | (first[3] & 0x1FFFFFF).to("u64") << 32,
        lds=first[1].to("u64"),
        size=unit << d1.bits(16, 2),
        tile=tile,
        tensor=tensor,
        within=within,
        strides=strides,
        rows=w.select(some, rows, zero),
        steps=steps,
        step=step,
        lds_step=lds_step,
        interval=w.select(pad, interval, w.number(_LARGE, "u64")),
        pad=w.select(pad, amount, zero),
        gather=gather,
        # 16 of 16 bits, or 8 of 32.
        indices=[w.select(wide, words[8 + place], half) if place < 8 else half for place, half in enumerate(halves)],
    )


@contextmanager
def _each(w: WaveBuilder, count: TypedValue) -> Iterator[TypedValue]:
    """Emit a loop over the numbers below a count."""
    head, body, done = (w.llvm_function.append_basic_block(name) for name in ("each", "one", "all"))
    before = w.ir.block
    w.ir.branch(head)
    w.ir.position_at_end(head)
    index = w.ir.phi(I64)
    index.add_incoming(ir.Constant(I64, 0), before)
    w.ir.cbranch(w.ir.icmp_unsigned("<", index, count.llvm), body, done)
    w.ir.position_at_end(body)
    yield w.wrap(index, "u64")
    index.add_incoming(w.ir.add(index, ir.Constant(I64, 1)), w.ir.block)
    w.ir.branch(head)
    w.ir.position_at_end(done)


def _variable(w: WaveBuilder, value: TypedValue) -> Any:
    with w.ir.goto_entry_block():
        place = w.ir.alloca(I64)
    w.ir.store(value.llvm, place)
    return w.ir.inttoptr(w.ir.ptrtoint(place, I64), PTR)


def _origins(w: WaveBuilder, t: _Tile, offset: TypedValue) -> list[TypedValue]:
    """Return the first coordinates of a tile that begins `offset` elements after the first tile.

    They are defined if the stride of each dimension with several elements is at least the span of those below.
    """
    unit = w.number(1, "u64")
    origins = [offset, w.number(0, "u64"), w.number(0, "u64")]
    moves = (t.steps > 1) & (t.step != 0)
    empty = t.tensor[0] == 0
    span = t.tensor[0]
    for dimension in (1, 2):
        extent, stride = t.tensor[dimension], t.strides[dimension - 1]
        empty = empty | (t.within[dimension] & (extent == 0))
        counts = t.within[dimension] & (extent > 1)
        unanswered(w, moves & counts & ~empty & (stride < span), TENSOR_STEPS)
        grown = w.select(stride >> 31 != 0, _LARGE, span + stride * (extent - 1))
        span = w.select(counts, grown, span)
    for dimension in (2, 1):
        counts = t.within[dimension] & (t.tensor[dimension] > 1) & moves
        stride = w.select(counts & (t.strides[dimension - 1] != 0), t.strides[dimension - 1], unit)
        whole = w.wrap(w.ir.udiv(origins[0].llvm, stride.llvm), "u64")
        origins[dimension] = w.select(counts, whole, 0)
        origins[0] = w.select(counts, origins[0] - whole * stride, origins[0])
    return origins


def _row(
    w: WaveBuilder, t: _Tile, step: TypedValue, row: TypedValue, indices: Any
) -> tuple[TypedValue, TypedValue, TypedValue]:
    """Return a row's first element in memory and in LDS, and the number of its elements inside the tensor."""
    origins = _origins(w, t, step * t.step)
    place = step * t.step
    inside = w.wrap(ir.Constant(ir.IntType(1), 1), "scc")
    rest = row
    chosen = w.load(w.address(indices, (w.select(t.gather, row, 0) << 2).llvm), "u32", align=4).to("u64")
    for dimension in range(1, _DIMENSIONS):
        whole = w.wrap(w.ir.udiv(rest.llvm, t.tile[dimension].llvm), "u64")
        coordinate = rest - whole * t.tile[dimension]
        rest = whole
        if dimension == 1:
            coordinate = w.select(t.gather, chosen, coordinate)
        at = coordinate + origins[dimension] if dimension < len(origins) else coordinate
        inside = inside & (~t.within[dimension] | (at < t.tensor[dimension]))
        place = place + coordinate * t.strides[dimension - 1]
    left = w.select(t.tensor[0] > origins[0], t.tensor[0] - origins[0], 0)
    valid = w.select(inside, w.select(left < t.tile[0], left, t.tile[0]), 0)
    return place, step * t.lds_step + row * t.tile[0], valid


def _lds(w: WaveBuilder, start: TypedValue, size: TypedValue) -> TypedValue:
    """Return the host address of `size` bytes of LDS."""
    limit = w.load(w.wave_field("lds_size"), "u64")
    unanswered(w, (size != 0) & (start + size > limit), OUTSIDE_LDS)
    return start + w.load(w.wave_field("lds"), "u64")


def _move(w: WaveBuilder, name: str, target: TypedValue, source: Any, size: TypedValue) -> None:
    kinds = [PTR, source.type, I64, ir.IntType(1)]
    callee = w.function(name, ir.VoidType(), kinds)
    w.ir.call(callee, [w.ir.inttoptr(target.llvm, PTR), source, size.llvm, ir.Constant(ir.IntType(1), 0)])


def _load_row(
    w: WaveBuilder, t: _Tile, address: TypedValue, lds: TypedValue, size: TypedValue, valid: TypedValue
) -> None:
    """Emit the copy of a row to LDS, in pieces between paddings, with zeros after the tensor's elements."""
    host, done = _variable(w, w.number(0, "u64")), _variable(w, w.number(0, "u64"))
    w.store(w.number(0, "u64"), host)
    w.store(w.number(0, "u64"), done)
    with w.ir.if_then((valid != 0).llvm):
        address_of_row = w.ir.ptrtoint(check_scalar(w, address, valid), I64)
        w.store(w.wrap(address_of_row, "u64"), host)
    last = lds + size - 1
    pieces = w.wrap(w.ir.udiv(last.llvm, t.interval.llvm), "u64") + 1
    pieces = pieces - w.wrap(w.ir.udiv(lds.llvm, t.interval.llvm), "u64")
    with _each(w, pieces):
        at = w.load(done, "u64")
        place = lds + at
        turn = w.wrap(w.ir.udiv(place.llvm, t.interval.llvm), "u64")
        until = (turn + 1) * t.interval - place
        length = w.select(size - at < until, size - at, until)
        known = w.select(valid > at, valid - at, 0)
        known = w.select(known < length, known, length)
        target = _lds(w, t.lds + place + turn * t.pad, length)
        note_access(w, target, length)
        source = w.ir.inttoptr((w.load(host, "u64") + at).llvm, PTR)
        _move(w, "llvm.memcpy.p0.p0.i64", target, source, known)
        _move(w, "llvm.memset.p0.i64", target + known, ir.Constant(I8, 0), length - known)
        w.store(at + length, done)


def _store_row(w: WaveBuilder, t: _Tile, address: TypedValue, lds: TypedValue, valid: TypedValue) -> None:
    """Emit the copy of a row's elements inside the tensor to memory."""
    with w.ir.if_then((valid != 0).llvm):
        source = _lds(w, t.lds + lds, valid)
        note_access(w, source, valid)
        host = w.wrap(w.ir.ptrtoint(check_scalar(w, address, valid), I64), "u64")
        _move(w, "llvm.memcpy.p0.p0.i64", host, w.ir.inttoptr(source.llvm, PTR), valid)


def _copy(w: WaveBuilder, groups: Sequence[OperandSlot], *, store: bool) -> None:
    """Emit a copy, and the arrival at a barrier in LDS if the descriptor names one."""
    first = _group(w, groups[0], 4)
    words = [word for slot, count in zip(groups[1:], (8, 4, 4), strict=True) for word in _group(w, slot, count)]
    count = first[0] & 3
    unanswered(w, count > 1, TENSOR)
    with w.ir.if_then((count != 0).llvm):
        if not store:
            unanswered(w, (words[0] & 0xFFFF) > 1, CLUSTER)
        t = _tile(w, first, words)
        with w.ir.goto_entry_block():
            place = w.ir.alloca(ir.ArrayType(ir.IntType(32), len(t.indices)))
        indices = w.ir.inttoptr(w.ir.ptrtoint(place, I64), PTR)
        for number, index in enumerate(t.indices):
            w.store(index, w.address(indices, 4 * number), align=4)
        with _each(w, t.steps) as step, _each(w, t.rows) as row:
            start, lds, valid = _row(w, t, step, row, indices)
            address, bytes_ = t.base + start * t.size, valid * t.size
            if store:
                _store_row(w, t, address, lds * t.size, bytes_)
            else:
                _load_row(w, t, address, lds * t.size, t.tile[0] * t.size, bytes_)
        with w.ir.if_then(((words[0] >> 18 & 1) != 0).llvm):
            place = ((words[1] & 0xFFFF) << 3).to("u64")
            arrive_at(w, w.ir.inttoptr(_lds(w, place, w.number(8, "u64")).llvm, PTR), w.number(1, "u64"))


@operations.wave("tensor_load_to_lds", _GROUPS, since=(125,))
def load(w: WaveBuilder, first: OperandSlot, second: OperandSlot, third: OperandSlot, fourth: OperandSlot) -> None:
    """LDS = the descriptor's tile of a tensor."""
    _copy(w, (first, second, third, fourth), store=False)


@operations.wave("tensor_store_from_lds", _GROUPS, since=(125,))
def store(w: WaveBuilder, first: OperandSlot, second: OperandSlot, third: OperandSlot, fourth: OperandSlot) -> None:
    """The descriptor's tile of a tensor = LDS."""
    _copy(w, (first, second, third, fourth), store=True)
