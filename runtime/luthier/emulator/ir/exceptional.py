"""Code that tells of exceptional floats: NaN, infinities and denormals among results, and what operands were."""

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
"""Beginnings of names -> the operands that count: of a division the quotient's estimate may be NaN by design."""
SILENT = ("v_div_scale",)
"""Beginnings of the names of operations that give NaN by design."""
_HALVES = {
    "v_cvt_pkrtz_f16_f32": "f16",
    "v_cvt_pk_rtz_f16_f32": "f16",
    "v_cvt_pk_f16_f32": "f16",
    "v_cvt_pk_bf16_f32": "bf16",
}
"""Operations whose result of 32 bits is two floats."""
_MIXED = re.compile(r"v_(fma|mad)_mix")
"""Operations that are declared with bits, and say themselves what floats these are."""
_MATRIX = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_(scale(16)?_)?b?f\d")
"""Products of matrices of floats: they look at their elements themselves."""
_FIELDS = {layout.FLOAT_NAN: "nan", layout.FLOAT_INFINITY: "infinity", layout.FLOAT_DENORMAL: "denormal"}
"""Kinds, and what `layout.FLOATS` calls them."""
PASSED_ON = {
    layout.FLOAT_NAN: layout.FLOAT_NAN,
    layout.FLOAT_INFINITY: layout.FLOAT_NAN | layout.FLOAT_INFINITY,
    layout.FLOAT_DENORMAL: layout.FLOAT_NAN | layout.FLOAT_INFINITY | layout.FLOAT_DENORMAL,
}
"""Kinds of operands that a result of a kind is passed on from: infinity minus infinity is an invalid operation, as IEEE
754 has it, not the way of a NaN."""


def is_watched(name: str, *, float_results: bool) -> bool:
    """Return whether an operation is looked at.

    Args:
        float_results: whether it has results that are declared as floats.
    """
    return name in _HALVES or bool(_MIXED.match(name)) or (float_results and not name.startswith(SILENT))


def is_matrix(name: str) -> bool:
    """Return whether an operation is a product of matrices with float results."""
    return bool(_MATRIX.match(name))


def halves_of(name: str, value: TypedValue) -> list[TypedValue]:
    """Return the floats in a result that is declared as bits; most have none."""
    kind = _HALVES.get(name)
    return [] if kind is None else [(value >> shift).to("u16").as_(kind) for shift in (0, 16)]


Element = tuple[Sequence[TypedValue], Sequence[TypedValue]]
"""Floats that an operation read, with modifiers applied, and those that it made of them."""
Lanes = Mapping[int, TypedValue]
"""Lanes with floats of a kind, by kind."""


def tell_floats(w: WaveBuilder, name: str, elements: Sequence[Element], enabled: TypedValue) -> None:
    """Emit code by which watched code tells of exceptional results.

    All numbers have a lane of the wave; of scalar operations they are scalars.

    Args:
        name: of the operation.
        elements: several of packed numbers, which have nothing to do with each other.
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
        return reduce(lambda one, other: one | other, (lanes(is_of_kind(w, value, kind)) for value in values), none)

    wide = layout.FLOAT_NAN | layout.FLOAT_INFINITY
    made = [result for _, results in elements for result in results]
    found = none
    if wanted & wide:
        found = found | gather(made, wide)
    if wanted & layout.FLOAT_DENORMAL:
        found = found | gather(made, layout.FLOAT_DENORMAL)
    with w.when(found != 0):
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
    """Emit the call that tells of exceptional results, but of those that are undefined.

    Args:
        elements: lanes with operands, of all kinds and zero, and lanes with results; kinds that are not there have
            none.
    """
    place = w.context_field("floats")
    none = w.number(0, "u64")
    for kind, field in _FIELDS.items():
        origin = flow = none
        for operands, results in elements:
            if kind in results:
                passed = reduce(
                    lambda one, other: one | other, (operands[one] for one in _FIELDS if PASSED_ON[kind] & one)
                )
                origin, flow = origin | (results[kind] & ~passed), flow | (results[kind] & passed)
        w.store(w.but_undefined(origin), w.address(place, layout.FLOATS[field]))
        w.store(w.but_undefined(flow), w.address(place, layout.FLOATS[f"{field}_flow"]))
    for kind, field in {**_FIELDS, layout.FLOAT_ZERO: "zero"}.items():
        read = none
        for operands, results in elements:  # of those alone that made something
            read = read | (operands[kind] & reduce(lambda one, other: one | other, results.values()))
        w.store(read, w.address(place, layout.FLOATS[f"operand_{field}"]))
    observe = w.ir.load(w.context_field("observe"), typ=OBSERVE_TYPE.as_pointer())
    w.ir.call(observe, [w.wave, w.record, place, ir.Constant(ir.IntType(32), layout.EVENT_FLOATS)])


def is_of_kind(w: WaveBuilder, value: TypedValue, kind: int) -> TypedValue:
    """Return where a float is of a kind: a mask, or a flag of a scalar."""
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
