"""Code that reports exceptional floats: NaN, infinities and denormals among results, and kinds of operands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

from llvmlite import ir

from luthier.emulator import layout
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.wave import OBSERVE_TYPE, WaveBuilder

PTR = ir.PointerType()
_OPERANDS = {"v_div_fixup": (1, 2)}
"""Prefixes of names -> the operands that count. The estimate of a quotient may be NaN by design."""
SILENT = ("v_div_scale",)
"""Prefixes of the names of operations that return NaN by design."""
_HALVES = {
    "v_cvt_pkrtz_f16_f32": "f16",
    "v_cvt_pk_rtz_f16_f32": "f16",
    "v_cvt_pk_f16_f32": "f16",
    "v_cvt_pk_bf16_f32": "bf16",
}
"""Operations whose 32-bit result is two floats."""
_MIXED = re.compile(r"v_(fma|mad)_mix")
"""Operations declared with bits that list their floats themselves."""
_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_(scale(16)?_)?b?f\d")
"""Products of float matrices: they check their elements themselves."""
_FIELDS = {layout.FLOAT_NAN: "nan", layout.FLOAT_INFINITY: "infinity", layout.FLOAT_DENORMAL: "denormal"}
"""Kinds -> their names in `layout.FLOATS`."""
PASSED_ON = {
    layout.FLOAT_NAN: layout.FLOAT_NAN,
    layout.FLOAT_INFINITY: layout.FLOAT_NAN | layout.FLOAT_INFINITY,
    layout.FLOAT_DENORMAL: layout.FLOAT_NAN | layout.FLOAT_INFINITY | layout.FLOAT_DENORMAL,
}
"""Kind of result -> kinds of operands that propagate to it. Infinity minus infinity is an invalid operation (IEEE 754):
its NaN originates there."""


def is_watched(name: str, *, float_results: bool) -> bool:
    """Return whether the results of an operation are checked.

    Args:
        float_results: whether it has results declared as floats.
    """
    return name in _HALVES or bool(_MIXED.match(name)) or (float_results and not name.startswith(SILENT))


def is_matrix(name: str) -> bool:
    """Return whether an operation is a product of matrices with float results."""
    return bool(_MATRIX.match(name))


def halves_of(name: str, value: TypedValue) -> list[TypedValue]:
    """Return the floats in a result declared as bits; most have none."""
    kind = _HALVES.get(name)
    return [] if kind is None else [(value >> shift).to("u16").as_(kind) for shift in (0, 16)]


Element = tuple[Sequence[TypedValue], Sequence[TypedValue]]
"""Floats that an operation reads, with modifiers applied, and floats that it computes from them."""
Lanes = Mapping[int, TypedValue]
"""Kind -> lanes with floats of that kind."""


def tell_floats(w: WaveBuilder, name: str, elements: Sequence[Element], enabled: TypedValue) -> None:
    """Emit, in watched code, a report of exceptional results.

    All values are vectors of the wave's lanes, or scalars in scalar operations.

    Args:
        name: the operation's name.
        elements: independent parts of the operation, several for packed numbers.
        enabled: lanes that are written.
    """
    wanted = w.variant.floats
    elements = [element for element in elements if element[1]]
    if not wanted or not elements or name.startswith(SILENT):
        return
    for beginning, places in _OPERANDS.items():
        if name.startswith(beginning):
            elements = [([sources[place] for place in places], results) for sources, results in elements]
    none = w.number(0, "u64")

    def lanes(where: TypedValue) -> TypedValue:
        """Return the lanes of a mask, as a scalar."""
        if where.type.kind == "scc":
            return w.wrap(w.ir.zext(where.llvm, ir.IntType(64)), "u64")
        return w.mask_bits(where & enabled).to("u64")

    def gather(values: Sequence[TypedValue], kind: int) -> TypedValue:
        return reduce(lambda left, right: left | right, (lanes(is_of_kind(w, value, kind)) for value in values), none)

    wide = layout.FLOAT_NAN | layout.FLOAT_INFINITY
    made = [result for _, results in elements for result in results]
    exceptional = none
    if wanted & wide:
        exceptional = exceptional | gather(made, wide)
    if wanted & layout.FLOAT_DENORMAL:
        exceptional = exceptional | gather(made, layout.FLOAT_DENORMAL)
    with w.when(exceptional != 0):
        kinds = [kind for kind in _FIELDS if wanted & kind]
        report(
            w,
            [
                (
                    {kind: gather(sources, kind) for kind in (*_FIELDS, layout.FLOAT_ZERO)},
                    {kind: gather(results, kind) for kind in kinds},
                )
                for sources, results in elements
            ],
        )


def report(w: WaveBuilder, elements: Sequence[tuple[Lanes, Lanes]]) -> None:
    """Emit the call that reports exceptional results, except undefined ones.

    Args:
        elements: lanes by kind of operand (all kinds and zero), and lanes by kind of result (only kinds that are
            reported).
    """
    place = w.context_field("floats")
    none = w.number(0, "u64")
    for kind, field in _FIELDS.items():
        origin = flow = none
        for operands, results in elements:
            if kind in results:
                passed = reduce(
                    lambda left, right: left | right, (operands[one] for one in _FIELDS if PASSED_ON[kind] & one)
                )
                origin, flow = origin | (results[kind] & ~passed), flow | (results[kind] & passed)
        w.store(w.but_undefined(origin), w.address(place, layout.FLOATS[field]))
        w.store(w.but_undefined(flow), w.address(place, layout.FLOATS[f"{field}_flow"]))
    for kind, field in {**_FIELDS, layout.FLOAT_ZERO: "zero"}.items():
        read = none
        for operands, results in elements:  # only in lanes with an exceptional result
            read = read | (operands[kind] & reduce(lambda left, right: left | right, results.values()))
        w.store(read, w.address(place, layout.FLOATS[f"operand_{field}"]))
    observe = w.ir.load(w.context_field("observe"), typ=OBSERVE_TYPE.as_pointer())
    w.ir.call(observe, [w.wave, w.record, place, ir.Constant(ir.IntType(32), layout.EVENT_FLOATS)])


def is_of_kind(w: WaveBuilder, value: TypedValue, kind: int) -> TypedValue:
    """Return whether a float is of a kind: a mask, or a flag for a scalar."""
    bits = value.type.bits
    fraction = 7 if value.type.kind == "bf" else {16: 10, 32: 23, 64: 52}[bits]
    magnitude = value.as_(f"u{bits}") & ((1 << bits - 1) - 1)
    exponent = ((1 << bits - 1) - 1) ^ ((1 << fraction) - 1)
    if kind == layout.FLOAT_NAN:
        return magnitude > exponent
    if kind == layout.FLOAT_INFINITY:
        return magnitude == exponent
    if kind == layout.FLOAT_ZERO:
        return magnitude == 0
    if kind == layout.FLOAT_DENORMAL:
        return (magnitude - 1) < ((1 << fraction) - 1)
    return magnitude >= exponent
