"""Compiled helpers that operations call through the thread's context."""

from __future__ import annotations

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.exact import I32, I64, PTR
from luthier.emulator.ir.scheduler import Code

OBSERVE_TYPE = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I32])
"""``void observe(wave, record, layout.ACCESS or null, one of layout's EVENTs)``."""
TRANSLATE_TYPE = ir.FunctionType(I32, [PTR, PTR, I64, I64, I64])
"""``i32 translate(wave, cache slot, lane mask, size, flat)``: 0, or 1 with the fault in the context."""


def emit_translate(module: ir.Module, name: str) -> None:
    """Add ``translate``: check and translate the lane addresses in the context, one by one.

    Flat addresses in the shared and private apertures become host addresses in LDS and scratch; all others must lie in
    an allocation. The allocation found last is left in the cache slot, for the fast check of the same instruction.
    """
    function = ir.Function(module, TRANSLATE_TYPE, name)
    c = Code(function)
    wave, cache, mask, size, flat = function.args
    context = c.pointer(layout.WAVE, wave, "context")
    with c.loop(c.number(0), c.number(64)) as lane:
        active = c.ir.trunc(c.ir.lshr(mask, lane), ir.IntType(1))
        with c.ir.if_then(active):
            place = c.at(c.at(context, layout.CONTEXT["addresses"]), c.ir.shl(lane, c.number(3)))
            address = c.ir.load(place, typ=I64)
            done = function.append_basic_block("lane_done")
            with c.ir.if_then(c.is_equal(flat, 1)):
                _aperture(c, wave, context, place, address, size, lane, done)
                _scratch(c, wave, context, place, address, size, lane, done)
            _global(c, cache, context, place, address, size, lane, done)
            c.ir.branch(done)
            c.ir.position_at_end(done)
    c.ir.ret(ir.Constant(I32, 0))


def _fault(c: Code, context: ir.Value, address: ir.Value, size: ir.Value, lane: ir.Value, kind: int) -> None:
    for field, value in (("fault_address", address), ("fault_size", size), ("fault_lane", lane), ("fault_kind", kind)):
        c.set(layout.CONTEXT, context, field, value)
    c.ir.ret(ir.Constant(I32, 1))


def _aperture(
    c: Code,
    wave: ir.Value,
    context: ir.Value,
    place: ir.Value,
    address: ir.Value,
    size: ir.Value,
    lane: ir.Value,
    done: ir.Block,
) -> None:
    """Emit the check of addresses in the shared and private apertures.

    The upper half names the aperture, the lower one is the offset.
    """
    offset = c.ir.and_(address, c.number(0xFFFFFFFF))
    upper = c.ir.and_(address, c.number(0xFFFFFFFF00000000))
    end = c.ir.add(offset, size)
    for base, limit, kind in (
        ("shared_base", "lds_size", layout.FAULT_LDS),
        ("private_base", "scratch_size", layout.FAULT_SCRATCH),
    ):
        with c.ir.if_then(c.ir.icmp_unsigned("==", upper, c.get(layout.WAVE, wave, base))):
            with c.ir.if_then(c.ir.icmp_unsigned(">", end, c.get(layout.WAVE, wave, limit)), likely=False):
                _fault(c, context, offset, size, lane, kind)
            if base == "shared_base":
                host = c.ir.add(c.get(layout.WAVE, wave, "lds"), offset)
            else:
                row = c.ir.mul(lane, c.get(layout.WAVE, wave, "scratch_size"))
                host = c.ir.add(c.ir.add(c.get(layout.WAVE, wave, "scratch"), row), offset)
            c.ir.store(host, place)
            c.ir.branch(done)


def _scratch(
    c: Code,
    wave: ir.Value,
    context: ir.Value,
    place: ir.Value,
    address: ir.Value,
    size: ir.Value,
    lane: ir.Value,
    done: ir.Block,
) -> None:
    """Emit the check of global addresses of scratch, where it has such: the wave's base, a lane's number, an offset.

    A lane may use another one's; that of another wave is a fault.
    """
    base = c.get(layout.WAVE, wave, "flat_scratch")
    shift, bit = c.number(layout.FLAT_LANE_SHIFT), layout.FLAT_SCRATCH_BIT
    lanes = 1 << (bit - 1 - layout.FLAT_LANE_SHIFT)
    kinds = [c.ir.lshr(value, c.number(bit - 1)) for value in (address, base)]
    with c.ir.if_then(c.ir.and_(c.is_equal(kinds[0], 2), c.is_equal(kinds[1], 2))):
        low = c.number((1 << layout.FLAT_LANE_SHIFT) - 1)
        offset = c.ir.sub(c.ir.and_(address, low), c.ir.and_(base, low))
        limit = c.get(layout.WAVE, wave, "scratch_size")
        outside = c.ir.icmp_unsigned(">", size, limit)
        outside = c.ir.or_(outside, c.ir.icmp_unsigned(">", offset, c.ir.sub(limit, size)))
        with c.ir.if_then(outside, likely=False):
            _fault(c, context, offset, size, lane, layout.FAULT_SCRATCH)
        owner = c.ir.and_(c.ir.lshr(address, shift), c.number(lanes - 1))
        row = c.ir.mul(owner, limit)
        c.ir.store(c.ir.add(c.ir.add(c.get(layout.WAVE, wave, "scratch"), row), offset), place)
        c.ir.branch(done)


def _global(
    c: Code,
    cache: ir.Value,
    context: ir.Value,
    place: ir.Value,
    address: ir.Value,
    size: ir.Value,
    lane: ir.Value,
    done_lane: ir.Block,
) -> None:
    """Find the last allocation that begins at or below the address, by bisection, and check that the access ends
    within it."""
    function = c.function
    count = c.get(layout.CONTEXT, context, "range_count")
    ranges = c.pointer(layout.CONTEXT, context, "ranges")
    head, body, done = (function.append_basic_block(name) for name in ("search", "halve", "found"))
    before = c.ir.block
    c.ir.branch(head)
    c.ir.position_at_end(head)
    low, high = c.ir.phi(I64), c.ir.phi(I64)  # the answer is low - 1
    low.add_incoming(c.number(0), before)
    high.add_incoming(count, before)
    c.ir.cbranch(c.ir.icmp_unsigned("<", low, high), body, done)
    c.ir.position_at_end(body)
    middle = c.ir.lshr(c.ir.add(low, high), c.number(1))
    start = c.ir.load(c.at(ranges, c.ir.mul(middle, c.number(layout.RANGE.size))), typ=I64)
    below = c.ir.icmp_unsigned("<=", start, address)
    low.add_incoming(c.ir.select(below, c.ir.add(middle, c.number(1)), low), body)
    high.add_incoming(c.ir.select(below, high, middle), body)
    c.ir.branch(head)
    c.ir.position_at_end(done)
    with c.ir.if_then(c.is_equal(low, 0), likely=False):
        _alias(c, context, place, address, size, lane, done_lane)
    index = c.ir.sub(low, c.number(1))
    entry = c.at(ranges, c.ir.mul(index, c.number(layout.RANGE.size)))
    offset = c.ir.sub(address, c.ir.load(entry, typ=I64))
    with c.ir.if_then(_beyond(c, offset, size, c.ir.load(c.at(entry, 8), typ=I64)), likely=False):
        _alias(c, context, place, address, size, lane, done_lane)
    c.store_word(cache, 0, index)


def _beyond(c: Code, offset: ir.Value, size: ir.Value, length: ir.Value) -> ir.Value:
    """Return whether `size` bytes at `offset` end after `length` bytes."""
    return c.ir.icmp_unsigned(">", c.ir.add(offset, size), length)


def _alias(
    c: Code,
    context: ir.Value,
    place: ir.Value,
    address: ir.Value,
    size: ir.Value,
    lane: ir.Value,
    done: ir.Block,
) -> None:
    """Emit the translation of memory that lies elsewhere on the host, or a fault.

    The cache stays: the fast check does not translate.
    """
    aliases = c.pointer(layout.CONTEXT, context, "aliases")
    with c.loop(c.number(0), c.get(layout.CONTEXT, context, "alias_count")) as index:
        entry = c.at(aliases, c.ir.mul(index, c.number(layout.ALIAS.size)))
        offset = c.ir.sub(address, c.get(layout.ALIAS, entry, "address"))
        length = c.get(layout.ALIAS, entry, "size")
        begins = c.ir.icmp_unsigned("<", offset, length)
        with c.ir.if_then(c.ir.and_(begins, c.ir.not_(_beyond(c, offset, size, length)))):
            c.ir.store(c.ir.add(c.get(layout.ALIAS, entry, "host"), offset), place)
            c.ir.branch(done)
    _fault(c, context, address, size, lane, layout.FAULT_MEMORY)
