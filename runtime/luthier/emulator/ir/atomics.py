"""Atomic memory operations, shared by FLAT, GLOBAL, buffer and LDS instructions.

Each lane's operation is one host atomic instruction (or a compare-and-swap loop), so it is atomic across all threads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

from llvmlite import ir
from msgspec import Struct

from luthier.emulator.ir.exact import I32, PTR
from luthier.emulator.ir.memory_code import each_lane, fetch, note_coarse_only, put, spill
from luthier.emulator.ir.operands import flush_denormal, flush_input
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

Combine = Callable[[WaveBuilder, TypedValue, list[TypedValue]], TypedValue]


class Atomic(Struct, frozen=True):
    """Atomic operation."""

    vector_names: tuple[str, ...]
    """Names after ``global_atomic_``."""
    lds_names: tuple[str, ...]
    """Names after ``ds_``, of the forms that return nothing."""
    type: ScalarType
    combine: Combine
    """Computes the new value from the old one and the data."""
    rmw: str = ""
    """LLVM's atomicrmw operation, if there is one."""
    data_count: int = 1
    """Number of data values: 2 for compare-and-swap."""

    @property
    def units(self) -> int:
        """Return the number of registers of one value."""
        return self.type.units

    @property
    def data_units(self) -> int:
        """Return the number of registers of the instruction's data."""
        return self.units * self.data_count


def atomic_lanes(
    w: WaveBuilder,
    atomic: Atomic,
    hosts: TypedValue,
    rows: list[TypedValue],
    result: OperandSlot | None,
    mask: TypedValue | None = None,
    writing: TypedValue | None = None,
) -> None:
    """Emit the operation for each active lane in ascending order; write old values to `result` if it is given.

    Args:
        mask: the lanes that access memory; EXEC if None.
        writing: the lanes that get a result, 0 if they access no memory; EXEC if None.
    """
    if w.modifiers.get("coarse_only"):
        note_coarse_only(w, hosts, 4 * atomic.units, mask)
    places = spill(w, hosts, defined=True)
    data = [spill(w, row) for row in rows]
    returns = result is not None and result.present
    old_places = [spill(w, w.const("u32", 0)) for _ in rows[: atomic.units]] if returns else []
    with each_lane(w, None if mask is None else w.mask_bits(mask)) as lane:
        pointer = w.ir.inttoptr(fetch(w, places, lane, "u64").llvm, PTR)
        values = []
        for index in range(atomic.data_count):
            words = [fetch(w, data[index * atomic.units + part], lane, "u32") for part in range(atomic.units)]
            whole = words[0] if atomic.units == 1 else words[0].to("u64") | (words[1].to("u64") << 32)
            values.append(whole)
        old = apply_atomic(w, atomic, pointer, values)
        if returns:
            put(w, old_places[0], lane, old.to("u32"))
            if atomic.units == 2:
                put(w, old_places[1], lane, (old >> 32).to("u32"))
    if returns and result is not None:
        for index, place in enumerate(old_places):
            row = w.wrap(w.ir.load(place, typ=ir.VectorType(I32, w.wave_size)), "u32")
            result.store_row(index, row, w.exec if writing is None else writing)


def apply_atomic(w: WaveBuilder, atomic: Atomic, pointer: ir.Value, data: list[TypedValue]) -> TypedValue:
    """Emit one lane's read-modify-write; return the old value, as an integer."""
    integer = ScalarType("u", 32 * atomic.units)
    if atomic.rmw:
        return w.wrap(w.ir.atomic_rmw(atomic.rmw, pointer, data[0].llvm, "seq_cst"), integer)
    function = w.llvm_function
    first = w.ir.load_atomic(pointer, "monotonic", 4 * atomic.units, typ=integer.llvm)
    before = w.ir.block
    again, done = function.append_basic_block("again"), function.append_basic_block("swapped")
    w.ir.branch(again)
    w.ir.position_at_end(again)
    old = w.ir.phi(integer.llvm)
    old.add_incoming(first, before)
    typed = [value.as_(atomic.type) if atomic.type.count == 1 else value for value in data]
    old_value = w.wrap(old, integer)
    lanes, w.lanes = w.lanes, 0
    new = atomic.combine(w, old_value.as_(atomic.type) if atomic.type.count == 1 else old_value, typed)
    w.lanes = lanes
    swap = w.ir.cmpxchg(pointer, old, new.as_(integer).llvm, "seq_cst", "monotonic")
    old.add_incoming(w.ir.extract_value(swap, 0), w.ir.block)
    w.ir.cbranch(w.ir.extract_value(swap, 1), done, again)
    w.ir.position_at_end(done)
    return w.wrap(old, integer)


# Functions of the operations (ISA documents, "FLAT, Scratch and Global", "LDS") ---------------------------------------


def _add(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    return old + data[0]


def _swap_if_equal(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    """Return the result of compare-and-swap; the data are the new value and the comparand."""
    return w.select(old == data[1], data[0], old)


# MODE controls denormals only in LDS; elsewhere `w.mode` keeps them (CDNA4 document, 9.2.2; RDNA4 document, 13.2).


def _add_floats(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    total = flush_input(w, old) + flush_input(w, data[0])
    return total if w.mode.denormals(total.type.bits) & 2 else flush_denormal(w, total)


def _quieted(w: WaveBuilder, value: TypedValue) -> TypedValue:
    """Return a float; set the quiet bit of NaN."""
    fraction = {32: 23, 64: 52}[value.type.bits]
    return w.select(w.is_nan(value), (value.as_(f"u{value.type.bits}") | 1 << fraction - 1).as_(value.type), value)


def _choice(
    better: Callable[[TypedValue, TypedValue], TypedValue],
    sign: Callable[[TypedValue, TypedValue], TypedValue],
    *,
    flushed: bool,
) -> Combine:
    """Return a function that chooses one of two floats; flushed denormals compare as zeros.

    Args:
        better: returns whether the first one is chosen.
        sign: combines the signs of two zeros.
        flushed: whether the result is flushed, and one of two NaN quieted, as on GFX12 and later.
    """

    def choose(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
        left, right = flush_input(w, old), flush_input(w, data[0])
        chosen, other = (left, _quieted(w, right)) if flushed else (old, data[0])
        value = w.select(better(right, left) | w.is_nan(left), other, chosen)
        both_zero = (chosen == 0.0) & (other == 0.0)
        bits = f"u{old.type.bits}"
        return w.select(both_zero, sign(chosen.as_(bits), other.as_(bits)).as_(old.type), value)

    return choose


_MIN, _MIN_NUM = (_choice(operator.lt, operator.or_, flushed=flushed) for flushed in (False, True))
_MAX, _MAX_NUM = (_choice(operator.gt, operator.and_, flushed=flushed) for flushed in (False, True))


def swap_if_equal_floats(new: int, wanted: int) -> Combine:
    """Return the compare-and-swap of floats in LDS, given the data's indices. -0 equals +0; NaN equals nothing."""

    def swap(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
        return w.select(flush_input(w, old) == flush_input(w, data[wanted]), flush_input(w, data[new]), old)

    return swap


def _subtract_clamp(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    """Return the difference, saturated at 0."""
    return w.select(old < data[0], w.like(0, old), old - data[0])


def _conditional_subtract(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    return w.select(old >= data[0], old - data[0], old)


def _add_bfloats(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
    """Return the sum of bfloats; MODE's 16-bit denormal field applies."""
    kept = w.mode.denormals(16)
    left, right = (value.to("f32") if kept & 1 else flush_denormal(w, value.to("f32")) for value in (old, data[0]))
    total = (left + right).to("bf16")
    return total if kept & 2 else flush_denormal(w, total.to("f32")).to("bf16")


def _packed(kind: str) -> Combine:
    def add(w: WaveBuilder, old: TypedValue, data: list[TypedValue]) -> TypedValue:
        halves = []
        for shift in (0, 16):
            left, right = (
                w.wrap(w.ir.trunc((word >> shift).llvm, ir.IntType(16)), "u16").as_(kind) for word in (old, data[0])
            )
            sum_of = _add_floats if kind == "f16" else _add_bfloats
            total = sum_of(w, left, [right])
            halves.append(w.wrap(w.ir.zext(total.as_("u16").llvm, I32), "u32"))
        return halves[0] | (halves[1] << 16)

    return add


def _integer(
    vector: str, lds: str, combine: Combine, rmw: str = "", *, kinds: str = "u", data_count: int = 1
) -> list[Atomic]:
    """Return the 32-bit and the 64-bit form, with their names in all generations."""
    rows = []
    for bits in (32, 64):
        wide = "_x2" if bits == 64 else ""
        vectors = []
        for name in vector.split():
            new_style = name[-1] in "ubi" and name[-2] == "_"
            vectors.append(f"{name}{bits}" if new_style else f"{name}{wide}")
        names = tuple(f"{name}{bits}" for name in lds.split())
        rows.append(Atomic(tuple(vectors), names, ScalarType(kinds, bits), combine, rmw, data_count))
    return rows


ATOMICS: tuple[Atomic, ...] = (
    *_integer("add add_u", "add_u", _add, "add"),
    *_integer("sub sub_u", "sub_u", _add, "sub"),
    *_integer("", "rsub_u", lambda w, old, data: data[0] - old),
    *_integer("swap swap_b", "", _add, "xchg"),
    *_integer("smin min_i", "min_i", _add, "min"),
    *_integer("umin min_u", "min_u", _add, "umin"),
    *_integer("smax max_i", "max_i", _add, "max"),
    *_integer("umax max_u", "max_u", _add, "umax"),
    *_integer("and and_b", "and_b", _add, "and"),
    *_integer("or or_b", "or_b", _add, "or"),
    *_integer("xor xor_b", "xor_b", _add, "xor"),
    *_integer("inc inc_u", "inc_u", lambda w, old, data: w.select(old >= data[0], w.like(0, old), old + 1)),
    *_integer("dec dec_u", "dec_u", lambda w, old, data: w.select((old == 0) | (old > data[0]), data[0], old - 1)),
    *_integer("cmpswap cmpswap_b", "", _swap_if_equal, data_count=2),
    # Before GFX11 the comparand comes first.
    *_integer("", "cmpst_b", lambda w, old, data: w.select(old == data[0], data[1], old), data_count=2),
    *_integer("", "cmpstore_b", _swap_if_equal, data_count=2),
    *_integer("", "mskor_b", lambda w, old, data: (old & ~data[0]) | data[1], data_count=2),
    Atomic(("csub", "csub_u32", "sub_clamp_u32"), ("sub_clamp_u32",), ScalarType("u", 32), _subtract_clamp),
    Atomic(("cond_sub_u32",), ("cond_sub_u32",), ScalarType("u", 32), _conditional_subtract),
    Atomic(("add_f32",), ("add_f32",), ScalarType("f", 32), _add_floats),
    Atomic(("add_f64",), ("add_f64",), ScalarType("f", 64), _add),
    Atomic(("fmin", "min_f32"), ("min_f32",), ScalarType("f", 32), _MIN),
    Atomic(("fmax", "max_f32"), ("max_f32",), ScalarType("f", 32), _MAX),
    Atomic(("fmin_x2", "min_f64"), ("min_f64",), ScalarType("f", 64), _MIN),
    Atomic(("fmax_x2", "max_f64"), ("max_f64",), ScalarType("f", 64), _MAX),
    *(Atomic((name,), (name,), ScalarType("f", int(name[-2:])), _MIN_NUM) for name in ("min_num_f32", "min_num_f64")),
    *(Atomic((name,), (name,), ScalarType("f", int(name[-2:])), _MAX_NUM) for name in ("max_num_f32", "max_num_f64")),
    Atomic(("fcmpswap", "cmpswap_f32"), (), ScalarType("f", 32), _swap_if_equal, "", 2),
    Atomic(("fcmpswap_x2", "cmpswap_f64"), (), ScalarType("f", 64), _swap_if_equal, "", 2),
    Atomic(("pk_add_f16",), ("pk_add_f16",), ScalarType("f", 16, 2), _packed("f16")),
    Atomic(("pk_add_bf16",), ("pk_add_bf16",), ScalarType("bf", 16, 2), _packed("bf16")),
)
