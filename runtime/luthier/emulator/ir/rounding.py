"""Floating-point operations under any rounding mode.

For rounding to nearest even, LLVM's plain instructions are exact on every host. For other modes, code sets the host's
rounding mode around constrained intrinsics, which LLVM neither moves nor folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from luthier.emulator.ir.exact import I32, ExactBuilder, overload_name
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue

_CONSTRAINED = ("fadd", "fsub", "fmul", "fdiv", "fma", "sqrt", "fptrunc", "sitofp", "uitofp")
_SET_ROUNDING = {0: 1, 1: 2, 2: 3, 3: 0}
"""FP_ROUND code to the argument of llvm.set.rounding (C's FLT_ROUNDS numbering)."""


def rounded(b: ExactBuilder, name: str, values: Sequence[TypedValue], result: ScalarType, rounding: int) -> TypedValue:
    """Return the result of the operation `name`, rounded once to `result`.

    16-bit arithmetic is computed in 32 bits (fma: in 64 bits with a sticky bit), which rounds like the exact value.
    """
    if name not in _CONSTRAINED:
        raise ValueError(name)
    answer = _rounded(b, name, values, result, rounding)
    if result.kind == "f" and result.bits == 16 and b.mode.fp16_ovfl and b.lanes:
        return _largest(b, name, values, answer)
    return answer


def _largest(b: ExactBuilder, name: str, values: Sequence[TypedValue], answer: TypedValue) -> TypedValue:
    """Return the result under MODE.FP16_OVFL.

    Infinity from finite numbers (except a quotient by 0) becomes the largest number (ISA documents, "MODE register").
    """
    too_large = (answer.as_("u16") & 0x7FFF) == 0x7C00
    for value in values:
        if value.type.is_float:
            too_large = too_large & (abs(value) < float("inf"))
    if name == "fdiv":
        too_large = too_large & (values[1] != 0.0)
    return b.select(too_large, answer.as_("u16") - 1, answer.as_("u16")).as_("f16")


def _rounded(b: ExactBuilder, name: str, values: Sequence[TypedValue], result: ScalarType, rounding: int) -> TypedValue:
    if result.bits == 16 and name in ("fadd", "fsub", "fmul", "fdiv", "sqrt", "fma"):
        return _half(b, name, values, result, rounding)
    if result.bits == 16 and name in ("sitofp", "uitofp") and values[0].type.bits > 16:
        return _int_to_half(b, values[0], result, rounding)
    if result.bits == 16 and name == "fptrunc":
        value = values[0] if values[0].type.bits == 32 else _to_odd(b, values[0])
        return _plain(b, name, [value], result) if rounding == 0 else _half_directed(b, value, result, rounding)
    return _plain(b, name, values, result) if rounding == 0 else _constrained(b, name, values, result, rounding)


def _half(b: ExactBuilder, name: str, values: Sequence[TypedValue], result: ScalarType, rounding: int) -> TypedValue:
    """Return a 16-bit result, computed in a wider type.

    Significands have 11 bits. With 24 bits, a rounded sum, product, quotient or root can be rounded again correctly.
    """
    if name == "fma":
        x, y, z = (value.to("f64") for value in values)
        product = _plain(b, "fmul", [x, y], x.type)  # exact: 22 bits
        total = _plain(b, "fadd", [product, z], x.type)
        # Fold the error of the sum (two-sum) into its last bit: it then rounds like the exact value.
        back = _plain(b, "fsub", [total, product], x.type)
        lost = _plain(
            b,
            "fadd",
            [
                _plain(b, "fsub", [product, _plain(b, "fsub", [total, back], x.type)], x.type),
                _plain(b, "fsub", [z, back], x.type),
            ],
            x.type,
        )
        exact = sticky(b, total, lost)
        if rounding == 2:
            # When rounding down, the sum of opposite numbers is -0.
            cancelled = (total == 0.0) & ((product.as_("i64") ^ z.as_("i64")) < 0)
            exact = b.select(cancelled, -0.0, exact)
        return rounded(b, "fptrunc", [exact], result, rounding)
    if rounding == 0:
        wide = _plain(b, name, [value.to("f32") for value in values], ScalarType("f", 32))
        return _plain(b, "fptrunc", [wide], result)
    # Rounding twice in the same direction equals rounding once.
    wide = _constrained(b, name, [value.to("f32") for value in values], ScalarType("f", 32), rounding)
    return _half_directed(b, wide, result, rounding)


def _half_directed(b: ExactBuilder, value: TypedValue, result: ScalarType, rounding: int) -> TypedValue:
    """Return a 32-bit float, rounded up, down or toward zero to 16 bits.

    LLVM lacks host code for it at some widths.
    """
    magnitude = abs(value)
    bits = magnitude.as_("u32")
    normal = (bits & 0xFFFFE000).as_("f32")
    # Exact, so no rounding mode is set: under one, LLVM may move other plain operations there.
    scaled = _plain(b, "fmul", [magnitude, b.like(2.0**24, magnitude)], value.type)
    denormal = _plain(b, "fmul", [b.truncate(scaled), b.like(2.0**-24, magnitude)], value.type)
    cut = b.select(magnitude < 2.0**-14, denormal, b.select(magnitude >= 65536.0, 65504.0, normal))
    half = _plain(b, "fptrunc", [cut], result).as_("u16")
    inexact = cut != magnitude
    sign = bits ^ value.as_("u32")
    if rounding != 3:
        away = inexact & ((sign == 0) if rounding == 1 else (sign != 0))
        half = b.select(away, half + 1, half)
    signed = (half | (sign >> 16).to("u16")).as_("f16")
    special = bits >= 0x7F800000
    return b.select(special, _plain(b, "fptrunc", [value], result), signed)


def _int_to_half(b: ExactBuilder, value: TypedValue, result: ScalarType, rounding: int) -> TypedValue:
    wide = _plain(b, "sitofp" if value.type.is_signed else "uitofp", [value], ScalarType("f", 64))
    return rounded(b, "fptrunc", [wide], result, rounding)


def sticky(b: ExactBuilder, total: TypedValue, lost: TypedValue) -> TypedValue:
    """Return `total` with an odd last bit, moved toward the exact sum `total + lost`, if `lost` is not 0."""
    bits = total.as_("u64")
    toward_zero = (total.as_("u64") ^ lost.as_("u64")) >> 63  # the exact value is smaller in magnitude
    even_down = b.select(toward_zero != 0, bits - 1, bits) | 1
    inexact = (lost != 0.0) & (abs(total) < float("inf")) & (lost == lost)
    return b.select(inexact, even_down, bits).as_("f64")


def _to_odd(b: ExactBuilder, value: TypedValue) -> TypedValue:
    """Return a 64-bit float as a 32-bit one with a sticky last bit, which rounds to 16 bits like the 64-bit float."""
    magnitude = abs(value)
    # Values far outside the range of 16 bits may exceed that of 32 bits.
    near = b.select(magnitude > 2.0**100, 2.0**100, b.select(magnitude < 2.0**-100, 2.0**-100, magnitude))
    special = (magnitude == 0.0) | ~(magnitude < float("inf"))
    bits = b.select(special, magnitude, near).as_("u64")
    sticky = b.select((bits & 0x1FFFFFFF) != 0, b.like(1 << 29, bits), b.like(0, bits))
    cut = (bits & 0xFFFFFFFFE0000000) | sticky
    whole = b.select(b.is_nan(value), value.as_("u64"), cut | (value.as_("u64") & (1 << 63)))
    return _plain(b, "fptrunc", [whole.as_("f64")], ScalarType("f", 32))


def _plain(b: ExactBuilder, name: str, values: Sequence[TypedValue], result: ScalarType) -> TypedValue:
    operands = [value.llvm for value in values]
    if name in ("fadd", "fsub", "fmul", "fdiv"):
        return b.wrap(getattr(b.ir, name)(*operands), result)
    if name in ("fma", "sqrt"):
        return b.intrinsic(f"llvm.{name}", list(values), result)
    return b.wrap(getattr(b.ir, name)(operands[0], b.shaped(result.llvm, values[0].lanes)), result)


_METADATA = ir.MetaDataType()
"""A single object, because a type in llvmlite equals only itself."""


def _constrained(
    b: ExactBuilder, name: str, values: Sequence[TypedValue], result: ScalarType, rounding: int
) -> TypedValue:
    lanes = values[0].lanes
    shape = b.shaped(result.llvm, lanes)
    spelled = [overload_name(shape)]
    if name in ("fptrunc", "sitofp", "uitofp"):
        spelled.append(overload_name(values[0].llvm.type))
    full_name = ".".join([f"llvm.experimental.constrained.{name}", *spelled])
    metadata = _METADATA
    arguments: list[Any] = [value.llvm for value in values]
    types = [argument.type for argument in arguments] + [metadata, metadata]
    callee = b.function(full_name, shape, types)
    set_rounding = b.function("llvm.set.rounding", ir.VoidType(), [I32])
    b.ir.call(set_rounding, [ir.Constant(I32, _SET_ROUNDING[rounding])])
    tail = [ir.FormattedConstant(metadata, '!"round.dynamic"'), ir.FormattedConstant(metadata, '!"fpexcept.strict"')]
    answer = b.wrap(b.ir.call(callee, arguments + tail), result)
    b.ir.call(set_rounding, [ir.Constant(I32, 1)])
    # Host code for unsigned numbers subtracts: rounded down, the difference of equal numbers is -0.
    return abs(answer) if name == "uitofp" else answer
