"""Code for memory accesses of all lanes: address checks, gathers, scatters, atomics.

A checked address is a host address. A fault stops the wave at the instruction; the thread's context has the details.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.exact import I32, I64, PTR, overload_name
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import FOLLOWED
from luthier.emulator.ir.wave import OBSERVE_TYPE, TRANSLATE_TYPE, WaveBuilder
from luthier.emulator.questions import QUESTIONS


def _scalar(w: WaveBuilder, size: int | TypedValue, kind: str) -> TypedValue:
    """Return a number of bytes that is known at compile time or at run time."""
    return size.to(kind) if isinstance(size, TypedValue) else w.number(size, kind)


def fault(w: WaveBuilder, address: TypedValue, lane: TypedValue, size: int | TypedValue, kind: int) -> None:
    """Emit a fault that stops the wave at this instruction."""
    w.store(address.to("u64"), w.context_field("fault_address"))
    w.store(lane.to("u32"), w.context_field("fault_lane"))
    w.store(_scalar(w, size, "u32"), w.context_field("fault_size"))
    w.store(w.number(kind), w.context_field("fault_kind"))
    w.stop(layout.FAULT)


def unanswered(w: WaveBuilder, arises: TypedValue, question: str) -> None:
    """Stop the wave if a scalar condition holds, because the result depends on one of `QUESTIONS`."""
    with w.when(arises):
        fault(w, w.number(QUESTIONS.index(question)), w.number(0), 0, layout.FAULT_OPEN)


def note_access(
    w: WaveBuilder, places: TypedValue, size: int | TypedValue, mask: TypedValue | None = None, *, outside: bool = False
) -> None:
    """Emit, for the checks, code that logs the next access (stepped code) or reports it (observed code).

    `places` are host addresses (or offsets outside LDS): one per lane, or a scalar.
    """
    if w.variant.stepping:
        place = w.context_field("accesses")
        number = w.load(place, "u64")
        w.store(number + 1, place)
        entry = w.address(w.context_field("access_log"), ((number & layout.ACCESSES - 1) * layout.ACCESS.size).llvm)
        _put_access(w, entry, places, size, mask, outside=outside)
    elif w.variant.observed and not outside:
        observed = w.load(w.wave_field("told"), "u32")
        with w.when(observed != 0):
            entry = w.context_field("access_log")
            _put_access(w, entry, places, size, mask, outside=False)
            tell(w, layout.EVENT_ACCESS, entry)
    elif outside:
        _report_access(w, places, size, mask, layout.EVENT_BEYOND_LDS)
    if follows_nans(w) and not outside:
        with w.when(~is_nothing_followed(w)):
            _report_access(w, places, size, mask, layout.EVENT_FOLLOWED)


def follows_nans(w: WaveBuilder) -> bool:
    """Return whether code reports accesses while NaN is followed."""
    return bool(w.variant.floats & FOLLOWED) and not w.variant.stepping


def is_nothing_followed(w: WaveBuilder) -> TypedValue:
    """Return whether no NaN is followed at present: a flag."""
    return w.load(w.pointer(w.context_field("following")), "u32") == 0


def note_coarse_only(w: WaveBuilder, places: TypedValue, size: int, mask: TypedValue | None) -> None:
    """Emit the report of an atomic at host addresses that hardware may not perform on fine-grained memory."""
    if not w.variant.stepping:
        _report_access(w, places, size, mask, layout.EVENT_COARSE_ONLY)


def _report_access(
    w: WaveBuilder, places: TypedValue, size: int | TypedValue, mask: TypedValue | None, event: int
) -> None:
    """Emit the report of an access in code of every variant, whether anything observes it or not."""
    entry = w.context_field("access_log")
    _put_access(w, entry, places, size, mask, outside=event == layout.EVENT_BEYOND_LDS)
    observe = w.ir.load(w.context_field("observe"), typ=OBSERVE_TYPE.as_pointer())
    is_there = w.wrap(w.ir.icmp_unsigned("!=", w.ir.ptrtoint(observe, I64), ir.Constant(I64, 0)), "scc")
    with w.when(is_there):
        w.ir.call(observe, [w.wave, w.record, entry, I32(event)])


def tell(w: WaveBuilder, event: int, access: Any | None = None) -> None:
    """Emit the report of an event in observed code; nothing in other code."""
    if w.variant.observed:
        w.report(event, access)


def _put_access(
    w: WaveBuilder, entry: Any, places: TypedValue, size: int | TypedValue, mask: TypedValue | None, *, outside: bool
) -> None:
    scalar = not isinstance(places.llvm.type, ir.VectorType)
    kind = layout.ACCESS_OUTSIDE if outside else layout.ACCESS_SCALAR if scalar else layout.ACCESS_LANES
    if w.variant.observed and not scalar and not outside:  # most accesses: reported with one address
        kind = layout.ACCESS_ROW
    lanes = w.number(1, "u64") if scalar else w.exec_bits if mask is None else w.mask_bits(mask).to("u64")
    w.store(lanes, w.address(entry, layout.ACCESS["mask"]))
    w.store(_scalar(w, size, "u32"), w.address(entry, layout.ACCESS["size"]))
    w.store(w.number(kind), w.address(entry, layout.ACCESS["kind"]))
    addresses = w.address(entry, layout.ACCESS["addresses"])
    if kind != layout.ACCESS_ROW:
        w.ir.store(places.llvm, addresses, align=8)
        return
    first = w.extract(places, 0)
    w.store(first, addresses)
    apart = (places != w.splat(first) + w.lane_id("u64") * w.splat(_scalar(w, size, "u64"))) & (
        w.exec if mask is None else mask
    )
    with w.when(w.mask_bits(apart) != 0):
        w.store(w.number(layout.ACCESS_LANES), w.address(entry, layout.ACCESS["kind"]))
        w.ir.store(places.llvm, addresses, align=8)
        step = places - w.shuffle(places, [0, *range(w.wave_size - 1)])
        for name, distance in (("follows", _scalar(w, size, "u64")), ("repeats", w.number(0, "u64"))):
            w.store(w.mask_bits(step == w.splat(distance)).to("u64"), w.address(entry, layout.ACCESS[name]))


def extract_at(w: WaveBuilder, value: TypedValue, lane: TypedValue) -> TypedValue:
    """Return one lane of a vector, given by a scalar."""
    return w.wrap(w.ir.extract_element(value.llvm, lane.llvm), value.type)


def fault_if_any(w: WaveBuilder, bad: TypedValue, addresses: TypedValue, size: int | TypedValue, kind: int) -> None:
    """Stop at the first active lane for which `bad` holds."""
    bits = w.mask_bits(bad & w.exec)
    with w.when(bits != 0):
        lane = w.trailing_zeros(bits).to("u32")
        fault(w, extract_at(w, addresses, lane), lane, size, kind)


def check_global(
    w: WaveBuilder, addresses: TypedValue, size: int | TypedValue, *, flat: bool, mask: TypedValue | None = None
) -> TypedValue:
    """Return the host addresses (u64) of lanes that access `size` bytes each.

    Lanes outside `mask` (default: EXEC) may hold anything. The instruction's record has the allocation of its last
    access; if all lanes are inside, no further check is needed.
    """
    w.decide(layout.DECIDES_ADDRESS, addresses, w.exec if mask is None else mask)
    addresses = w.settled(addresses)
    position = w.free_slot
    index = w.slot_value(position)
    ranges = w.pointer(w.context_field("ranges"))
    entry = w.address(ranges, w.ir.zext((index << 4).llvm, I64))
    start = w.load(entry, "u64")
    length = w.load(w.address(entry, 8), "u64")
    amount = _scalar(w, size, "u64")
    enough = length >= amount
    last = w.select(enough, length - amount, 0)
    outside = (addresses - w.splat(start)) > w.splat(last)
    lanes = w.exec_bits if mask is None else w.mask_bits(mask)
    bits = w.mask_bits(outside & (w.exec if mask is None else mask))
    all_bits = w.select(enough, bits, lanes.to(f"u{w.wave_size}"))
    before = w.ir.block
    slow = w.llvm_function.append_basic_block("slow")
    go_on = w.llvm_function.append_basic_block("checked")
    w.ir.cbranch((all_bits == 0).llvm, go_on, slow)
    w.ir.position_at_end(slow)
    scratchpad = w.context_field("addresses")
    w.ir.store(addresses.llvm, scratchpad, align=8)
    helper = w.ir.load(w.context_field("translate"), typ=TRANSLATE_TYPE.as_pointer())
    cache = w.address(w.record, layout.RECORD["slots"] + 4 * position)
    arguments = [w.wave, cache, lanes.to("u64").llvm, amount.llvm, ir.Constant(I64, int(flat))]
    code = w.wrap(w.ir.call(helper, arguments), "u32")
    with w.when(code != 0):
        w.stop(layout.FAULT)
    translated = w.ir.load(scratchpad, typ=addresses.llvm.type, align=8)
    after = w.ir.block
    w.ir.branch(go_on)
    w.ir.position_at_end(go_on)
    checked = w.ir.phi(addresses.llvm.type)
    checked.add_incoming(addresses.llvm, before)
    checked.add_incoming(translated, after)
    hosts = w.wrap(checked, "u64")
    note_access(w, hosts, size, mask)
    return hosts


def lds_access(w: WaveBuilder, offsets: TypedValue, size: int) -> tuple[TypedValue, TypedValue]:
    """Return the host addresses of lanes that access `size` bytes of LDS at byte `offsets` (u32), and which lanes do.

    A lane that reaches beyond the end of LDS reads zeros and writes nothing (ISA documents, "Out-of-Range Behavior").
    Only the documents of GFX11 and later say that this holds for an access that is partly beyond.
    """
    w.decide(layout.DECIDES_ADDRESS, offsets, w.exec)
    offsets = w.settled(offsets)
    limit = w.load(w.wave_field("lds_size"), "u64").to("u32")
    fits = w.wrap(w.ir.icmp_unsigned(">=", limit.llvm, ir.Constant(I32, size)), "scc")
    last = w.select(fits, limit - size, 0)
    outside = (offsets > w.splat(last)) | w.wrap(w.splat(~fits).llvm, "mask")
    enabled, bits = w.exec_bits.to(f"u{w.wave_size}"), w.mask_bits(outside & w.exec)
    before = w.ir.block
    # A branch, not only a mask: the code after it then does not wait for the comparison.
    with w.when(bits != 0):
        note_access(w, offsets.to("u64"), size, outside & w.exec, outside=True)
        left = enabled & ~bits
        after = w.ir.block
    accessing = w.ir.phi(enabled.llvm.type)
    accessing.add_incoming(enabled.llvm, before)
    accessing.add_incoming(left.llvm, after)
    inside = w.bits_mask(w.wrap(accessing, enabled.type))
    hosts = offsets.to("u64") + w.splat(w.load(w.wave_field("lds"), "u64"))
    note_access(w, hosts, size, inside)
    return hosts, inside


def check_scratch(w: WaveBuilder, offsets: TypedValue, size: int) -> TypedValue:
    """Return the host addresses of lanes that access `size` bytes at byte `offsets` (u32) of their scratch."""
    w.decide(layout.DECIDES_ADDRESS, offsets, w.exec)
    offsets = w.settled(offsets)
    limit = w.load(w.wave_field("scratch_size"), "u64")
    ends = offsets.to("u64") + size
    fault_if_any(w, ends > w.splat(limit), offsets, size, layout.FAULT_SCRATCH)
    rows = w.lane_id("u64") * w.splat(limit)
    return offsets.to("u64") + rows + w.splat(w.load(w.wave_field("scratch"), "u64"))


def check_scalar(w: WaveBuilder, address: TypedValue, size: int | TypedValue) -> Any:
    """Return a host pointer to `size` readable bytes at a scalar address."""
    w.decide(layout.DECIDES_ADDRESS, address)
    position = w.free_slot
    entry = w.address(w.pointer(w.context_field("ranges")), w.ir.zext((w.slot_value(position) << 4).llvm, I64))
    offset = address - w.load(entry, "u64")
    length = w.load(w.address(entry, 8), "u64")
    inside = (offset < length) & (offset + size <= length)
    before = w.ir.block
    slow, go_on = (w.llvm_function.append_basic_block(name) for name in ("slow", "checked"))
    w.ir.cbranch(inside.llvm, go_on, slow)
    w.ir.position_at_end(slow)
    w.store(address, w.context_field("addresses"))
    helper = w.ir.load(w.context_field("translate"), typ=TRANSLATE_TYPE.as_pointer())
    cache = w.address(w.record, layout.RECORD["slots"] + 4 * position)
    lane_mask, bytes_, no = ir.Constant(I64, 1), _scalar(w, size, "u64").llvm, ir.Constant(I64, 0)
    code = w.wrap(w.ir.call(helper, [w.wave, cache, lane_mask, bytes_, no]), "u32")
    with w.when(code != 0):
        w.stop(layout.FAULT)
    translated = w.load(w.context_field("addresses"), "u64")
    after = w.ir.block
    w.ir.branch(go_on)
    w.ir.position_at_end(go_on)
    checked = w.ir.phi(I64)
    checked.add_incoming(address.llvm, before)
    checked.add_incoming(translated.llvm, after)
    host = w.wrap(checked, "u64")
    note_access(w, host, size)
    return w.ir.inttoptr(host.llvm, PTR)


def check_aligned(w: WaveBuilder, addresses: TypedValue, size: int) -> None:
    """Stop at the first active lane whose address is not a multiple of `size`."""
    fault_if_any(w, (addresses & (size - 1)) != 0, addresses, size, layout.FAULT_ALIGNMENT)


# Loads and stores at checked addresses ------------------------------------------------------------------------------


def _pointers(w: WaveBuilder, addresses: TypedValue) -> Any:
    return w.ir.inttoptr(addresses.llvm, ir.VectorType(PTR, w.wave_size))


def gather(w: WaveBuilder, addresses: TypedValue, offset: int = 0, mask: TypedValue | None = None) -> TypedValue:
    """Return the dword at each active lane's address plus `offset`; 0 in other lanes."""
    return gather_rows(w, addresses + offset if offset else addresses, 1, mask)[0]


def gather_rows(w: WaveBuilder, addresses: TypedValue, count: int, mask: TypedValue | None = None) -> list[TypedValue]:
    """Return the `count` dwords from each active lane's address; 0 in other lanes.

    A lane's dwords are read by one load: on hardware, an aligned load of 64 or 128 bits never sees half of a store.
    """
    enabled = w.exec if mask is None else mask
    return _by_pattern(
        w,
        addresses,
        4 * count,
        enabled,
        lambda pointer: load_row(w, pointer, count, enabled),
        lambda: gather_each(w, addresses, count, enabled),
    )


def load_row(w: WaveBuilder, pointer: Any, count: int, enabled: TypedValue) -> list[TypedValue]:
    """Return `count` dwords of each enabled lane; the lanes' dwords are consecutive in memory.

    Args:
        pointer: address of lane 0's dwords, enabled or not.
    """
    wide, each = _elements(w, enabled, count)
    callee = w.function(f"llvm.masked.load.{overload_name(wide)}.p0", wide, [PTR, I32, each.llvm.type, wide])
    loaded = w.ir.call(callee, [pointer, ir.Constant(I32, 1), each.llvm, ir.Constant(wide, None)])
    return split_lanes(w, loaded, count)


def gather_each(w: WaveBuilder, addresses: TypedValue, count: int, enabled: TypedValue) -> list[TypedValue]:
    """Return `count` dwords of each enabled lane, at unrelated addresses."""
    if count == 1:
        name = f"llvm.masked.gather.{overload_name(w.row_type)}.v{w.wave_size}p0"
        pointers, zero = _pointers(w, addresses), ir.Constant(w.row_type, None)
        callee = w.function(name, w.row_type, [pointers.type, I32, enabled.llvm.type, w.row_type])
        return [w.wrap(w.ir.call(callee, [pointers, ir.Constant(I32, 1), enabled.llvm, zero]), "u32")]
    wide = ir.VectorType(I32, w.wave_size * count)
    rows, each = spill(w, w.wrap(ir.Constant(wide, None), "u32"), defined=True), ir.VectorType(I32, count)
    places, bits = spill(w, addresses, defined=True), w.mask_bits(enabled)
    summary = spill(w, w.wrap(ir.Constant(each, None), "u32"), defined=True) if w.variant.undefined else None
    with _each_row(w, places, rows, count, bits) as (memory, row):
        loaded = w.ir.load(memory, typ=each, align=1)
        w.summed[id(loaded)] = summary
        w.ir.store(loaded, row, align=4)
    joined = w.ir.load(rows, typ=wide)
    w.joined[id(joined)] = (summary, places, bits)
    return split_lanes(w, joined, count)


def split_lanes(w: WaveBuilder, loaded: Any, count: int) -> list[TypedValue]:
    """Return the rows of a vector that has the dwords of each lane in sequence."""
    joined = w.wrap(w.ir.bitcast(loaded, ir.VectorType(I32, w.wave_size * count)), "u32")
    lanes = range(w.wave_size)
    return [w.shuffle(joined, [lane * count + row for lane in lanes]) for row in range(count)]


def _elements(w: WaveBuilder, enabled: TypedValue, count: int) -> tuple[Any, TypedValue]:
    """Return a vector type for `count` dwords of each lane, and the mask of its elements in active lanes.

    Elements are pairs of dwords if possible, because processors without masked accesses move them one by one.
    """
    size = 2 - count % 2
    return ir.VectorType(ir.IntType(32 * size), w.wave_size * count // size), _repeat(w, enabled, count // size)


@contextmanager
def _each_row(w: WaveBuilder, places: Any, rows: Any, count: int, bits: TypedValue) -> Iterator[tuple[Any, Any]]:
    """Emit a loop over lanes; yield pointers to the lane's memory and to its `count` dwords in `rows`.

    Args:
        places: the lanes' addresses, by `spill`.
        bits: the lanes.
    """
    with each_lane(w, bits) as lane:
        memory = w.ir.inttoptr(fetch(w, places, lane, "u64").llvm, PTR)
        yield memory, w.ir.gep(rows, [(lane * count).llvm], source_etype=I32)


def _repeat(w: WaveBuilder, mask: TypedValue, count: int) -> TypedValue:
    """Return each lane's bit `count` times."""
    return mask if count == 1 else w.shuffle(mask, [lane for lane in range(w.wave_size) for _ in range(count)])


def _by_pattern(
    w: WaveBuilder,
    addresses: TypedValue,
    size: int,
    enabled: TypedValue,
    in_a_row: Callable[[Any], list[TypedValue]],
    anywhere: Callable[[], list[TypedValue]],
) -> list[TypedValue]:
    """Emit a fast path for consecutive lanes and a general path, and return the merged results.

    On the fast path, lanes access consecutive `size` bytes from the pointer that `in_a_row` receives.
    """
    first = w.extract(addresses, 0)
    apart = w.mask_bits((addresses != w.splat(first) + w.lane_id("u64") * size) & enabled)
    together, scattered, done = (w.llvm_function.append_basic_block(name) for name in ("in_a_row", "anywhere", "done"))
    w.ir.cbranch((apart == 0).llvm, together, scattered)
    w.ir.position_at_end(together)
    results = in_a_row(w.ir.inttoptr(first.llvm, PTR))
    after_together = w.ir.block
    w.ir.branch(done)
    w.ir.position_at_end(scattered)
    general = anywhere()
    after_scattered = w.ir.block
    w.ir.branch(done)
    w.ir.position_at_end(done)
    merged = []
    for result, other in zip(results, general, strict=True):
        joined = w.ir.phi(result.llvm.type)
        joined.add_incoming(result.llvm, after_together)
        joined.add_incoming(other.llvm, after_scattered)
        merged.append(w.wrap(joined, result.type))
    return merged


def gather_small(w: WaveBuilder, addresses: TypedValue, bits: int, mask: TypedValue | None = None) -> TypedValue:
    """Return the 8 or 16 bits at each active lane's address, zero-extended."""
    enabled = w.exec if mask is None else mask
    wide = gather(w, addresses & ~3 & 0xFFFFFFFFFFFFFFFF, 0, enabled)
    shift = ((addresses & 3) << 3).to("u32")
    value = wide >> shift
    if bits == 16:
        # Only a half-word that crosses a dword boundary may read the next dword.
        crossing = ((addresses & 3) == 3) & enabled
        upper = gather(w, addresses & ~3 & 0xFFFFFFFFFFFFFFFF, 4, crossing) << 8
        value = w.select(crossing, (value & 0xFF) | upper, value)
    return value & ((1 << bits) - 1)


def scatter(
    w: WaveBuilder, addresses: TypedValue, value: TypedValue, offset: int = 0, mask: TypedValue | None = None
) -> None:
    """Store each active lane's dword; the highest of lanes with the same address wins."""
    scatter_rows(w, addresses + offset if offset else addresses, [value], mask)


def scatter_rows(
    w: WaveBuilder, addresses: TypedValue, values: Sequence[TypedValue], mask: TypedValue | None = None
) -> None:
    """Store each active lane's dwords at its address by one store; the highest of overlapping lanes wins."""
    enabled = w.exec if mask is None else mask

    def in_a_row(pointer: Any) -> list[TypedValue]:
        store_row(w, pointer, values, enabled)
        return []

    def anywhere() -> list[TypedValue]:
        scatter_each(w, addresses, values, enabled)
        return []

    _by_pattern(w, addresses, 4 * len(values), enabled, in_a_row, anywhere)


def store_row(w: WaveBuilder, pointer: Any, values: Sequence[TypedValue], enabled: TypedValue) -> None:
    """Store the dwords of each enabled lane; the lanes' dwords are consecutive in memory.

    Args:
        pointer: address of lane 0's dwords, enabled or not.
    """
    wide, each = _elements(w, enabled, len(values))
    callee = w.function(f"llvm.masked.store.{overload_name(wide)}.p0", ir.VoidType(), [wide, PTR, I32, each.llvm.type])
    joined = w.ir.bitcast(join_rows(w, values).llvm, wide)
    if w.host_masks:
        w.ir.call(callee, [joined, pointer, ir.Constant(I32, 1), each.llvm])
        return
    bits = w.mask_bits(enabled)
    with w.ir.if_else((bits == (1 << w.wave_size) - 1).llvm, likely=True) as (every, some):
        with every:
            w.ir.store(joined, pointer, align=1)
        with some:
            w.ir.call(callee, [joined, pointer, ir.Constant(I32, 1), each.llvm])


def scatter_each(w: WaveBuilder, addresses: TypedValue, values: Sequence[TypedValue], enabled: TypedValue) -> None:
    """Store the dwords of each enabled lane, at unrelated addresses."""
    count = len(values)
    if count == 1:
        name = f"llvm.masked.scatter.{overload_name(w.row_type)}.v{w.wave_size}p0"
        pointers = _pointers(w, addresses)
        callee = w.function(name, ir.VoidType(), [w.row_type, pointers.type, I32, enabled.llvm.type])
        w.ir.call(callee, [values[0].as_("u32").llvm, pointers, ir.Constant(I32, 1), enabled.llvm])
        return
    places, bits = spill(w, addresses, defined=True), w.mask_bits(enabled)
    with _each_row(w, places, spill(w, join_rows(w, values)), count, bits) as (memory, row):
        w.ir.store(w.ir.load(row, typ=ir.VectorType(I32, count), align=4), memory, align=1)


def join_rows(w: WaveBuilder, values: Sequence[TypedValue]) -> TypedValue:
    """Return rows as a vector that has the dwords of each lane in sequence."""
    joined = [value.as_("u32") for value in values]
    while len(joined) > 1:  # join neighbours; an odd last one with itself
        joined = [w.concatenate(joined[i], joined[min(i + 1, len(joined) - 1)]) for i in range(0, len(joined), 2)]
    lanes, rows = range(w.wave_size), range(len(values))
    return w.shuffle(joined[0], [row * w.wave_size + lane for lane in lanes for row in rows])


def scatter_small(
    w: WaveBuilder, addresses: TypedValue, value: TypedValue, bits: int, mask: TypedValue | None = None
) -> None:
    """Store the low 8 or 16 bits of each active lane, lane by lane."""
    places = spill(w, addresses, defined=True)
    values = spill(w, value.as_("u32"))
    with each_lane(w, None if mask is None else w.mask_bits(mask)) as lane:
        pointer = w.ir.inttoptr(fetch(w, places, lane, "u64").llvm, PTR)
        narrow = w.ir.trunc(fetch(w, values, lane, "u32").llvm, ir.IntType(bits))
        w.ir.store(narrow, pointer, align=1)


def spill(w: WaveBuilder, value: TypedValue, *, defined: bool = False) -> Any:
    """Store a vector on the stack for access by lane number; return the pointer.

    Args:
        defined: what is stored there counts as defined.
    """
    with w.ir.goto_entry_block():
        place = w.ir.alloca(value.llvm.type)
    if defined:
        w.defined.add(id(place))
    w.ir.store(value.llvm, place)
    # llvmlite types the pointer of an alloca by the vector, not by its elements.
    pointer = w.ir.inttoptr(w.ir.ptrtoint(place, I64), PTR)
    if defined:
        w.defined.add(id(pointer))
    return pointer


def fetch(w: WaveBuilder, place: Any, lane: TypedValue, type: str) -> TypedValue:
    """Return one lane of a spilled vector."""
    kind = ScalarType.parse(type)
    address = w.ir.gep(place, [lane.llvm], source_etype=kind.llvm)
    return w.wrap(w.ir.load(address, typ=kind.llvm), kind)


def put(w: WaveBuilder, place: Any, lane: TypedValue, value: TypedValue) -> None:
    """Set one lane of a spilled vector."""
    w.ir.store(value.llvm, w.ir.gep(place, [lane.llvm], source_etype=value.type.llvm))


@contextmanager
def each_lane(w: WaveBuilder, bits: TypedValue | None = None) -> Iterator[TypedValue]:
    """Emit a loop over active lanes in ascending order; yield the lane as a scalar u64."""
    function = w.llvm_function
    head, body, done = (function.append_basic_block(name) for name in ("lanes", "lane", "lanes_done"))
    start = (w.exec_bits if bits is None else bits).to(f"u{w.wave_size}").to("u64")
    before = w.ir.block
    w.ir.branch(head)
    w.ir.position_at_end(head)
    left = w.ir.phi(I64)
    left.add_incoming(start.llvm, before)
    w.ir.cbranch(w.ir.icmp_unsigned("!=", left, ir.Constant(I64, 0)), body, done)
    w.ir.position_at_end(body)
    remaining = w.wrap(left, "u64")
    yield w.trailing_zeros(remaining)
    left.add_incoming((remaining & (remaining - 1)).llvm, w.ir.block)
    w.ir.branch(head)
    w.ir.position_at_end(done)
