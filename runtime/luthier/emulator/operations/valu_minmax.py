"""Minimum, maximum and median of floats, with the three rules of the generations.

GFX9 to GFX11: a NaN gives the other operand; two NaN give the second, on GFX11 the first. In IEEE mode, a signalling
NaN gives itself, quieted. GFX12: `num` gives the other operand, `minimum` and `maximum` the NaN (IEEE 754-2019).
All order -0 below +0.
"""

from __future__ import annotations

from collections.abc import Callable

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.floats import is_signalling, quiet

operations = OperationTable()

Choice = Callable[[Builder, TypedValue, TypedValue], TypedValue]


def _ordered(b: Builder, x: TypedValue, y: TypedValue, larger: bool) -> TypedValue:
    """Return the smaller or larger of two numbers, with -0 below +0; y if either is NaN."""
    result = b.select(x > y if larger else x < y, x, y)  # one instruction on most hosts
    bits = f"u{x.type.bits}"
    # Equal numbers have equal bits, except zeros, which differ in the sign.
    equal = x.as_(bits) & y.as_(bits) if larger else x.as_(bits) | y.as_(bits)
    return b.select(x == y, equal.as_(x.type), result)


def _legacy(b: Builder, x: TypedValue, y: TypedValue, larger: bool) -> TypedValue:
    # If x is NaN, `_ordered` returns y, as required.
    result = b.select(b.is_nan(y), x, _ordered(b, x, y, larger))
    if b.major < 11:  # GFX11 returns the first of two NaN
        result = b.select(b.is_nan(x), y, result)
    if b.mode.ieee:
        result = b.select(is_signalling(y), quiet(b, y), result)
        result = b.select(is_signalling(x), quiet(b, x), result)
    return result


def legacy_minimum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return the smaller number. NaN gives the other number; under MODE.IEEE, a signalling NaN itself, quieted."""
    return _legacy(b, x, y, False)


def legacy_maximum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return the larger number. NaN gives the other number; under MODE.IEEE, a signalling NaN itself, quieted."""
    return _legacy(b, x, y, True)


def _number(b: Builder, x: TypedValue, y: TypedValue, larger: bool) -> TypedValue:
    result = b.select(b.is_nan(y), x, _ordered(b, x, y, larger))
    return b.select(b.is_nan(x) & b.is_nan(y), quiet(b, x), result)


def number_minimum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return minimumNumber of IEEE 754-2019: a NaN gives the other number."""
    return _number(b, x, y, False)


def number_maximum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return maximumNumber of IEEE 754-2019."""
    return _number(b, x, y, True)


def _spreading(b: Builder, x: TypedValue, y: TypedValue, larger: bool) -> TypedValue:
    result = b.select(b.is_nan(y), quiet(b, y), _ordered(b, x, y, larger))
    # A signalling NaN has precedence over a quiet NaN.
    first = b.is_nan(x) & (is_signalling(x) | ~is_signalling(y))
    return b.select(first, quiet(b, x), result)


def spreading_minimum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return minimum of IEEE 754-2019: a NaN gives NaN."""
    return _spreading(b, x, y, False)


def spreading_maximum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return maximum of IEEE 754-2019: a NaN gives NaN."""
    return _spreading(b, x, y, True)


def median(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue, minimum: Choice, maximum: Choice) -> TypedValue:
    """Return the median; the smallest number if any is NaN."""
    largest = maximum(b, maximum(b, x, y), z)
    result = b.select(largest == y, maximum(b, x, z), maximum(b, x, y))
    result = b.select(largest == x, maximum(b, y, z), result)
    nan = b.is_nan(x) | b.is_nan(y) | b.is_nan(z)
    return b.select(nan, minimum(b, minimum(b, x, y), z), result)


def _pair(names: str, kind: str, choose: Choice, generations: bool = False) -> None:
    operations.lane(names, f"{kind} {kind} -> {kind}", generations=generations)(choose)


def _triple(names: str, kind: str, first: Choice, second: Choice, generations: bool = False) -> None:
    @operations.lane(names, f"{kind} {kind} {kind} -> {kind}", generations=generations)
    def triple(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = second(first(S0, S1), S2)."""
        return second(b, first(b, x, y), z)


def _family(kind: str, suffix: str, minimum: Choice, maximum: Choice, generations: bool = False) -> None:
    _pair(f"v_min_{suffix}{kind}", kind, minimum, generations)
    _pair(f"v_max_{suffix}{kind}", kind, maximum, generations)
    if kind == "f64":
        return
    _triple(f"v_min3_{suffix}{kind}", kind, minimum, minimum, generations)
    _triple(f"v_max3_{suffix}{kind}", kind, maximum, maximum, generations)
    _triple(f"v_maxmin_{suffix}{kind}", kind, maximum, minimum, generations)
    _triple(f"v_minmax_{suffix}{kind}", kind, minimum, maximum, generations)
    operations.lane(f"v_med3_{suffix}{kind}", f"{kind} {kind} {kind} -> {kind}", generations=generations)(
        lambda b, x, y, z: median(b, x, y, z, minimum, maximum)
    )


for _kind in ("f16", "f32", "f64"):
    _family(_kind, "", legacy_minimum, legacy_maximum, generations=True)
    _family(_kind, "num_", number_minimum, number_maximum)
    _pair(f"v_minimum_{_kind}", _kind, spreading_minimum)
    _pair(f"v_maximum_{_kind}", _kind, spreading_maximum)
for _kind in ("f16", "f32"):
    _triple(f"v_minimum3_{_kind}", _kind, spreading_minimum, spreading_minimum)
    _triple(f"v_maximum3_{_kind}", _kind, spreading_maximum, spreading_maximum)
    _triple(f"v_maximumminimum_{_kind}", _kind, spreading_maximum, spreading_minimum)
    _triple(f"v_minimummaximum_{_kind}", _kind, spreading_minimum, spreading_maximum)
