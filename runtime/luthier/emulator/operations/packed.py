"""Packed operations (VOP3P) and dot products; `matrix` has matrix operations."""

from __future__ import annotations

import math
from collections.abc import Callable

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.operands import finish_float, flush_denormal, flush_input
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.small_floats import bfloat
from luthier.emulator.operations.valu_float import unfused
from luthier.emulator.operations.valu_int import clamps, narrow
from luthier.emulator.operations.valu_minmax import (
    Choice,
    legacy_maximum,
    legacy_minimum,
    number_maximum,
    number_minimum,
    spreading_maximum,
    spreading_minimum,
)

OfThree = Callable[[Builder, TypedValue, TypedValue, TypedValue], TypedValue]

operations = OperationTable()

# Integers -----------------------------------------------------------------------------------------------------------


def _integer(kind: str) -> None:
    @operations.packed(f"v_pk_add_{kind}", f"{kind} {kind} -> {kind}")
    def add(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 + S1; clamp saturates."""
        return b.add_saturate(x, y) if clamps(b) else x + y

    @operations.packed(f"v_pk_sub_{kind}", f"{kind} {kind} -> {kind}")
    def sub(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 - S1; clamp saturates."""
        return b.sub_saturate(x, y) if clamps(b) else x - y

    @operations.packed(f"v_pk_mad_{kind}", f"{kind} {kind} {kind} -> {kind}")
    def mad(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 * S1 + S2; clamp saturates."""
        wide = f"{kind[0]}64"
        return narrow(b, x.to(wide) * y.to(wide) + z.to(wide), kind) if clamps(b) else x * y + z

    operations.packed(f"v_pk_min_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: b.minimum(x, y))
    operations.packed(f"v_pk_max_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: b.maximum(x, y))


_integer("i16")
_integer("u16")


@operations.packed("v_pk_mul_lo_u16", "u16 u16 -> u16")
def mul_lo(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = low half of S0 * S1."""
    return narrow(b, x.to("u32") * y.to("u32"), "u16") if clamps(b) else x * y


operations.packed("v_pk_lshlrev_b16", "u16 u16 -> u16")(lambda b, x, y: y << (x & 15))
operations.packed("v_pk_lshrrev_b16", "u16 u16 -> u16")(lambda b, x, y: y >> (x & 15))
operations.packed("v_pk_ashrrev_i16", "i16 i16 -> i16")(lambda b, x, y: y >> (x & 15))


# Floats -------------------------------------------------------------------------------------------------------------


def _float(kind: str) -> None:
    @operations.packed(f"v_pk_add_{kind}", f"{kind} {kind} -> {kind}")
    def add(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 + S1."""
        return x + y

    operations.packed(f"v_pk_mul_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x * y)
    operations.packed(f"v_pk_fma_{kind}", f"{kind} {kind} {kind} -> {kind}")(lambda b, x, y, z: b.fma(x, y, z))


_float("f16")
_float("f32")


operations.packed("v_pk_fmac_f16", "f16 f16 f16 -> f16")(lambda b, x, y, z: b.fma(x, y, z))


def _choice(name: str, choose: Choice) -> None:
    operations.packed(f"v_pk_{name}_f16", "f16 f16 -> f16", generations=name in ("min", "max"))(choose)


def _choice_of_three(name: str, choose: Choice) -> None:
    operations.packed(f"v_pk_{name}_f16", "f16 f16 f16 -> f16")(lambda b, x, y, z: choose(b, choose(b, x, y), z))


_choice("min", legacy_minimum)
_choice("max", legacy_maximum)
_choice("min_num", number_minimum)
_choice("max_num", number_maximum)
_choice("minimum", spreading_minimum)
_choice("maximum", spreading_maximum)
_choice_of_three("minimum3", spreading_minimum)
_choice_of_three("maximum3", spreading_maximum)


# D = a register of S0, then a register of S1, chosen by op_sel.
operations.lane("v_pk_mov_b32", "u32x2 u32x2 -> u64")(lambda b, x, y: x[0].to("u64") | (y[0].to("u64") << 32))


# GFX1250 ------------------------------------------------------------------------------------------------------------

_NEWEST = (125,)


def _bfloats() -> None:
    """Declare arithmetic on bfloats: on wider floats, then rounded to nearest even (rocjitsu, packed.py, gen_pk_binop).

    No source says how MODE's rounding and denormals apply: the results are bounded, and denormals are kept.
    """
    settings = {"since": _NEWEST, "exact": False}

    @operations.packed("v_pk_add_bf16", "bf16 bf16 -> bf16", **settings)
    def add(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 + S1."""
        return _nearest(b, lambda: x.to("f32").to("f64") + y.to("f32").to("f64"))

    @operations.packed("v_pk_mul_bf16", "bf16 bf16 -> bf16", **settings)
    def mul(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 * S1."""
        return _nearest(b, lambda: x.to("f32").to("f64") * y.to("f32").to("f64"))

    @operations.packed("v_pk_fma_bf16", "bf16 bf16 bf16 -> bf16", **settings)
    def fma(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 * S1 + S2, rounded once."""
        return _nearest(b, lambda: _odd_sum(b, x.to("f32").to("f64") * y.to("f32").to("f64"), z.to("f32").to("f64")))

    for name, choose in (("min_num", number_minimum), ("max_num", number_maximum)):
        _bfloat_choice(name, choose)


def _nearest(b: Builder, number: Callable[[], TypedValue]) -> TypedValue:
    """Return an exact or nearly exact 64-bit float as a bfloat, rounded to nearest even."""
    return b.with_rounding(0, lambda inner: bfloat(b, number()))


def _odd_sum(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return a sum rounded to odd, which rounds again like the exact sum."""
    total = x + y
    part = total - x
    lost = (x - (total - part)) + (y - part)
    bits = total.as_("u64")
    away = (lost > 0.0) == (total > 0.0)
    odd = b.select(away, bits + 1, bits - 1)
    inexact = (lost != 0.0) & (abs(total) < math.inf) & ((bits & 1) == 0)
    return b.select(inexact, odd, bits).as_("f64")


def _bfloat_choice(name: str, choose: Choice) -> None:
    @operations.packed(f"v_pk_{name}_bf16", "bf16 bf16 -> bf16", since=_NEWEST, exact=False)
    def choice(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = the smaller or larger; a NaN gives the other number."""
        return bfloat(b, choose(b, x.to("f32"), y.to("f32")).to("f64"))


def _sums(kind: str, declare: Callable[..., Callable[[OfThree], OfThree]], prefix: str) -> None:
    """Declare choices between a wrapping sum and an integer (LLVM, VOP3Instructions.td and VOP3PInstructions.td)."""

    @declare(f"{prefix}_add_min_{kind}", f"{kind} {kind} {kind} -> {kind}", since=_NEWEST)
    def add_min(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = the smaller of S0 + S1 and S2."""
        return b.minimum(x + y, z)

    @declare(f"{prefix}_add_max_{kind}", f"{kind} {kind} {kind} -> {kind}", since=_NEWEST)
    def add_max(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = the larger of S0 + S1 and S2."""
        return b.maximum(x + y, z)


def _choices_of_three(kind: str) -> None:
    signature = f"{kind} {kind} {kind} -> {kind}"
    operations.packed(f"v_pk_min3_{kind}", signature, since=_NEWEST)(lambda b, x, y, z: b.minimum(b.minimum(x, y), z))
    operations.packed(f"v_pk_max3_{kind}", signature, since=_NEWEST)(lambda b, x, y, z: b.maximum(b.maximum(x, y), z))


for _kind in ("i16", "u16"):
    _sums(_kind, operations.packed, "v_pk")
    _choices_of_three(_kind)
for _kind in ("i32", "u32"):
    _sums(_kind, operations.lane, "v")
_bfloats()
_choice_of_three("min3_num", number_minimum)
_choice_of_three("max3_num", number_maximum)

# Mixed precision ----------------------------------------------------------------------------------------------------

_NEGATE, _ABSOLUTE, _HIGH, _HALF = 1, 2, 4, 8
"""Modifiers of a source of v_fma_mix; the last means 16 bits wide."""
_MODIFIERS = ("src0_modifiers", "src1_modifiers", "src2_modifiers")


def _fused(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    return b.fma(x, y, z)


def _mixed(b: Builder, sources: tuple[TypedValue, ...], half: str = "f16", add: OfThree = _fused) -> TypedValue:
    """Return S0 * S1 + S2 in 32 bits; each source has 32 or 16 bits."""
    values, b.floats_read = [], []
    for source, name in zip(sources, _MODIFIERS, strict=True):
        bits = b.modifiers.get(name, 0)
        part = source >> 16 if bits & _HIGH else source
        given = flush_input(b, part.to("u16").as_(half) if bits & _HALF else source.as_("f32"))
        b.floats_read.append(given)
        value = given.to("f32")
        if bits & _ABSOLUTE:
            value = abs(value)
        values.append(-value if bits & _NEGATE else value)
    return add(b, *values)


operations.lane("v_fma_mix_f32", "u32 u32 u32 -> f32", static=_MODIFIERS)(lambda b, x, y, z: _mixed(b, (x, y, z)))


@operations.lane("v_mad_mix_f32", "u32 u32 u32 -> f32", static=_MODIFIERS)
def mad_mix_f32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1 + S2, rounded twice, without denormals."""
    return _mixed(b, (x, y, z), add=unfused)


def _mix_half(name: str, high: bool, add: OfThree) -> None:
    @operations.lane(name, "u32 u32 u32 old:f32 -> u32", static=_MODIFIERS, flush=False)
    def mix(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue, old: TypedValue) -> TypedValue:
        """One half of D = S0 * S1 + S2, rounded to 32 and then to 16 bits; the other half stays."""
        result = finish_float(b, _mixed(b, (x, y, z), add=add).to("f16"), b.modifiers, b.mode, True)
        b.floats_made = [result]
        half, kept = result.as_("u16").to("u32"), old.as_("u32")
        return (kept & 0xFFFF) | (half << 16) if high else (kept & 0xFFFF0000) | half


@operations.lane("v_fma_mix_f32_bf16", "u32 u32 u32 -> f32", static=_MODIFIERS, since=_NEWEST)
def fma_mix_f32_bf16(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1 + S2, rounded once; 16-bit sources are bfloats."""
    return _mixed(b, (x, y, z), "bf16")


def _mix_bfloat(name: str, high: bool) -> None:
    @operations.lane(name, "u32 u32 u32 old:f32 -> u32", static=_MODIFIERS, flush=False, since=_NEWEST, exact=False)
    def mix(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue, old: TypedValue) -> TypedValue:
        """One half of D = S0 * S1 + S2, rounded to 32 bits and then to a bfloat; the other half stays."""
        result = _mixed(b, (x, y, z), "bf16").to("bf16")
        b.floats_made = [result]
        half, kept = result.as_("u16").to("u32"), old.as_("u32")
        return (kept & 0xFFFF) | (half << 16) if high else (kept & 0xFFFF0000) | half


_mix_bfloat("v_fma_mixlo_bf16", False)
_mix_bfloat("v_fma_mixhi_bf16", True)
for _name, _add in (("fma", _fused), ("mad", unfused)):
    _mix_half(f"v_{_name}_mixlo_f16", False, _add)
    _mix_half(f"v_{_name}_mixhi_f16", True, _add)

# Dot products -------------------------------------------------------------------------------------------------------


def _float_dot(names: str, element: str) -> None:
    @operations.lane(names, f"{element}x2 {element}x2 f32 -> f32", exact=False)
    def dot(b: Builder, x: tuple[TypedValue, ...], y: tuple[TypedValue, ...], z: TypedValue) -> TypedValue:
        """D = S2 + S0.low * S1.low + S0.high * S1.high; each sum is rounded, hardware may do otherwise.

        Denormals of S2 and D are flushed, independent of MODE (CDNA4 document, 6.4).
        """
        z = flush_denormal(b, z)
        for left, right in zip(x, y, strict=True):
            z = b.fma(left.to("f32"), right.to("f32"), z)
        return flush_denormal(b, z)


_float_dot("v_dot2_f32_f16 v_dot2c_f32_f16 v_dot2acc_f32_f16", "f16")
_float_dot("v_dot2_f32_bf16 v_dot2c_f32_bf16 v_dot2acc_f32_bf16", "bf16")


@operations.lane("v_dot2_f16_f16", "f16x2 f16x2 f16 -> f16", exact=False)
def dot2_f16_f16(b: Builder, x: tuple[TypedValue, ...], y: tuple[TypedValue, ...], z: TypedValue) -> TypedValue:
    """D = S2 + S0.low * S1.low + S0.high * S1.high, each sum rounded."""
    for left, right in zip(x, y, strict=True):
        z = b.fma(left, right, z)
    return z


@operations.lane("v_dot2_bf16_bf16", "bf16x2 bf16x2 bf16 -> bf16", exact=False)
def dot2_bf16_bf16(b: Builder, x: tuple[TypedValue, ...], y: tuple[TypedValue, ...], z: TypedValue) -> TypedValue:
    """D = S2 + S0.low * S1.low + S0.high * S1.high, summed in 32 bits."""
    total = z.to("f32")
    for left, right in zip(x, y, strict=True):
        total = b.fma(left.to("f32"), right.to("f32"), total)
    return total.to("bf16")


def _accumulate(b: Builder, products: list[TypedValue], z: TypedValue) -> TypedValue:
    """Return z plus 64-bit products, wrapped or saturated to z's type."""
    total = z.to(str(products[0].type))
    for product in products:
        total = total + product
    return narrow(b, total, str(z.type))


def _fields(value: TypedValue, bits: int, signed: bool) -> list[TypedValue]:
    """Return the elements of a register, low first, in 64 bits."""
    word = value.as_("i32" if signed else "u32")
    return [word.bits(place, bits).to("i64") for place in range(0, 32, bits)]


def _integer_dot(names: str, kind: str, bits: int) -> None:
    signed = kind == "i32"

    @operations.lane(names, f"u32 u32 {kind} -> {kind}")
    def dot(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S2 + the sum of the products of the elements; clamp saturates."""
        left, right = _fields(x, bits, signed), _fields(y, bits, signed)
        products = [a * c for a, c in zip(left, right, strict=True)]
        total = z.to("i64")
        for product in products:
            total = total + product
        return narrow(b, total, kind)


_integer_dot("v_dot4_i32_i8 v_dot4c_i32_i8", "i32", 8)
_integer_dot("v_dot4_u32_u8", "u32", 8)
_integer_dot("v_dot8_i32_i4 v_dot8c_i32_i4", "i32", 4)
_integer_dot("v_dot8_u32_u4", "u32", 4)


def _halves_dot(names: str, kind: str) -> None:
    half = f"{kind[0]}16"

    @operations.lane(names, f"{half}x2 {half}x2 {kind} -> {kind}")
    def dot(b: Builder, x: tuple[TypedValue, ...], y: tuple[TypedValue, ...], z: TypedValue) -> TypedValue:
        """D = S2 + S0.low * S1.low + S0.high * S1.high; clamp saturates."""
        wide = f"{kind[0]}64"
        return _accumulate(b, [left.to(wide) * right.to(wide) for left, right in zip(x, y, strict=True)], z)


_halves_dot("v_dot2_i32_i16 v_dot2c_i32_i16", "i32")
_halves_dot("v_dot2_u32_u16", "u32")


def _either_sign(name: str, bits: int) -> None:
    @operations.lane(name, "u32 u32 i32 -> i32", static=("src0_modifiers", "src1_modifiers"))
    def dot(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S2 + the sum of the products; a source's elements are signed if its negation bit is set."""
        left = _fields(x, bits, bool(b.modifiers.get("src0_modifiers", 0) & _NEGATE))
        right = _fields(y, bits, bool(b.modifiers.get("src1_modifiers", 0) & _NEGATE))
        total = z.to("i64")
        for a, c in zip(left, right, strict=True):
            total = total + a * c
        return narrow(b, total, "i32")


_either_sign("v_dot4_i32_iu8", 8)
_either_sign("v_dot8_i32_iu4", 4)
