"""Vector comparisons (VOPC)."""

from __future__ import annotations

import operator
from collections.abc import Callable

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue

operations = OperationTable()

Relation = Callable[[Builder, TypedValue, TypedValue], TypedValue]


def unordered(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return the mask of lanes where either is NaN."""
    return b.is_nan(x) | b.is_nan(y)


def _plain(relation: Callable[[TypedValue, TypedValue], TypedValue]) -> Relation:
    return lambda b, x, y: relation(x, y)


def _negated(relation: Callable[[TypedValue, TypedValue], TypedValue]) -> Relation:
    return lambda b, x, y: ~relation(x, y)


def less_or_greater(x: TypedValue, y: TypedValue) -> TypedValue:
    """Return the mask of lanes with different numbers, neither of them NaN."""
    return (x < y) | (x > y)


def _constant(value: bool) -> Relation:
    # Comparing a value with itself gives the result the right shape.
    def constant(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        bits = x.as_(f"u{x.type.bits}")
        return bits == bits if value else bits != bits

    return constant


FLOAT_RELATIONS: dict[str, Relation] = {
    "lt": _plain(operator.lt),
    "eq": _plain(operator.eq),
    "le": _plain(operator.le),
    "gt": _plain(operator.gt),
    "lg": _plain(less_or_greater),
    "ge": _plain(operator.ge),
    "o": lambda b, x, y: ~unordered(b, x, y),
    "u": unordered,
    "nge": _negated(operator.ge),
    "nlg": _negated(less_or_greater),
    "ngt": _negated(operator.gt),
    "nle": _negated(operator.le),
    "neq": _negated(operator.eq),
    "nlt": _negated(operator.lt),
}
"""All relations except the constant ones; on NaN, those with an n are true and the others false."""

_INTEGER_RELATIONS: dict[str, Relation] = {
    "f": _constant(False),
    "lt": _plain(operator.lt),
    "eq": _plain(operator.eq),
    "le": _plain(operator.le),
    "gt": _plain(operator.gt),
    "ne": _plain(operator.ne),
    "ge": _plain(operator.ge),
    "t": _constant(True),
}


def _compare(names: str, kind: str, relation: Relation) -> None:
    operations.compare(" ".join(f"v_cmp_{name}_{kind}" for name in names.split()), f"{kind} {kind}")(relation)


for _bits in (16, 32, 64):
    for _name, _relation in FLOAT_RELATIONS.items():
        _compare(_name, f"f{_bits}", _relation)
    _compare("f", f"f{_bits}", _constant(False))
    _compare("tru t", f"f{_bits}", _constant(True))
    for _sign in "iu":
        for _name, _relation in _INTEGER_RELATIONS.items():
            _compare(_name, f"{_sign}{_bits}", _relation)


def _class(bits: int, fraction: int) -> None:
    @operations.compare(f"v_cmp_class_f{bits}", f"f{bits} u{16 if bits == 16 else 32}", flush=False)
    def compare_class(b: Builder, x: TypedValue, wanted: TypedValue) -> TypedValue:
        """D.lane = the class of S0 is in the set S1.

        From bit 0: signalling NaN, quiet NaN, -infinity, -normal, -denormal, -0, +0, +denormal, +normal, +infinity.
        """
        word = f"u{bits}"
        pattern = x.as_(word)
        magnitude = pattern & ((1 << (bits - 1)) - 1)
        infinity = ((1 << (bits - 1)) - 1) ^ ((1 << fraction) - 1)
        quiet = infinity | (1 << (fraction - 1))
        # Ascending with the magnitude: 0 zero, 1 denormal, 2 normal, 3 infinite; mirrored for negative numbers.
        kind = (magnitude >= 1).to("u32") + (magnitude >= (1 << fraction)).to("u32") + (magnitude >= infinity).to("u32")
        number = b.select((pattern >> (bits - 1)) != 0, 5 - kind, kind + 6)
        place = b.select(magnitude > infinity, (magnitude >= quiet).to("u32"), number)
        return ((wanted.to("u32") >> place) & 1) != 0


_class(16, 10)
_class(32, 23)
_class(64, 52)
