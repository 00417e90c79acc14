"""Scalar integer and bit operations of SOP2, SOPC and SOPK; `salu_bits` has SOP1, `salu_float` the scalar floats."""

from __future__ import annotations

import operator
from collections.abc import Callable

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue

operations = OperationTable()

# Addition -----------------------------------------------------------------------------------------------------------


@operations.scalar("s_add_u32 s_add_co_u32", "u32 u32 -> u32 scc")
def add_u32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 + S1; SCC = unsigned carry out."""
    total = x + y
    return total, total < x


operations.scalar("s_sub_u32 s_sub_co_u32", "u32 u32 -> u32 scc")(lambda b, x, y: (x - y, x < y))


@operations.scalar("s_addc_u32 s_add_co_ci_u32", "u32 u32 scc -> u32 scc")
def addc_u32(b: Builder, x: TypedValue, y: TypedValue, carry: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 + S1 + SCC; SCC = carry out."""
    total = x.to("u64") + y.to("u64") + carry.to("u64")
    return total.to("u32"), (total >> 32) != 0


@operations.scalar("s_subb_u32 s_sub_co_ci_u32", "u32 u32 scc -> u32 scc")
def subb_u32(b: Builder, x: TypedValue, y: TypedValue, borrow: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 - S1 - SCC; SCC = borrow."""
    subtrahend = y.to("u64") + borrow.to("u64")
    return (x.to("u64") - subtrahend).to("u32"), subtrahend > x.to("u64")


@operations.scalar("s_add_i32 s_add_co_i32", "i32 i32 -> i32 scc")
def add_i32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 + S1; SCC = signed overflow."""
    total = x + y
    return total, ((x ^ total) & (y ^ total)) < 0


@operations.scalar("s_sub_i32 s_sub_co_i32", "i32 i32 -> i32 scc")
def sub_i32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 - S1; SCC = signed overflow."""
    total = x - y
    return total, ((x ^ y) & (x ^ total)) < 0


operations.scalar("s_add_nc_u64 s_add_u64", "u64 u64 -> u64")(lambda b, x, y: x + y)
operations.scalar("s_sub_nc_u64 s_sub_u64", "u64 u64 -> u64")(lambda b, x, y: x - y)


def _shift_add(amount: int) -> None:
    @operations.scalar(f"s_lshl{amount}_add_u32", "u32 u32 -> u32 scc")
    def shift_add(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = (S0 << n) + S1; SCC = the exact value exceeds 32 bits."""
        total = (x.to("u64") << amount) + y.to("u64")
        return total.to("u32"), (total >> 32) != 0


for _amount in (1, 2, 3, 4):
    _shift_add(_amount)


@operations.scalar("s_absdiff_i32", "i32 i32 -> i32 scc")
def absdiff_i32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = |S0 - S1| of the wrapped difference; SCC = D != 0."""
    result = abs(x - y)
    return result, result != 0


# Multiplication -----------------------------------------------------------------------------------------------------


operations.scalar("s_mul_i32", "u32 u32 -> u32")(lambda b, x, y: x * y)
operations.scalar("s_mul_hi_u32", "u32 u32 -> u32")(lambda b, x, y: ((x.to("u64") * y.to("u64")) >> 32).to("u32"))
operations.scalar("s_mul_hi_i32", "i32 i32 -> i32")(lambda b, x, y: ((x.to("i64") * y.to("i64")) >> 32).to("i32"))
operations.scalar("s_mul_u64", "u64 u64 -> u64")(lambda b, x, y: x * y)


# Choice -------------------------------------------------------------------------------------------------------------


def _select_smaller_or_larger(kind: str) -> None:
    @operations.scalar(f"s_min_{kind}", f"{kind} {kind} -> {kind} scc")
    def minimum(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = smaller; SCC = S0 < S1."""
        first = x < y
        return b.select(first, x, y), first

    @operations.scalar(f"s_max_{kind}", f"{kind} {kind} -> {kind} scc")
    def maximum(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = larger; SCC = S0 >= S1."""
        first = x >= y
        return b.select(first, x, y), first


for _kind in ("i32", "u32"):
    _select_smaller_or_larger(_kind)


def _conditional(bits: int) -> None:
    operations.scalar(f"s_cselect_b{bits}", f"u{bits} u{bits} scc -> u{bits}")(lambda b, x, y, scc: b.select(scc, x, y))


for _bits in (32, 64):
    _conditional(_bits)

# Bits ---------------------------------------------------------------------------------------------------------------

_LOGIC: dict[str, Callable[[TypedValue, TypedValue], TypedValue]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "nand": lambda x, y: ~(x & y),
    "nor": lambda x, y: ~(x | y),
    "xnor": lambda x, y: ~(x ^ y),
    "andn2 and_not1": lambda x, y: x & ~y,
    "orn2 or_not1": lambda x, y: x | ~y,
}


def _logic(names: str, bits: int, combine: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    spelled = " ".join(f"s_{name}_b{bits}" for name in names.split())

    @operations.scalar(spelled, f"u{bits} u{bits} -> u{bits} scc")
    def logic(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = the bitwise function; SCC = D != 0."""
        result = combine(x, y)
        return result, result != 0


def _shifts(bits: int) -> None:
    @operations.scalar(f"s_lshl_b{bits}", f"u{bits} u32 -> u{bits} scc")
    def lshl(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = S0 << S1, modulo the width; SCC = D != 0."""
        result = x << (y & (bits - 1)).to(f"u{bits}")
        return result, result != 0

    @operations.scalar(f"s_lshr_b{bits}", f"u{bits} u32 -> u{bits} scc")
    def lshr(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = S0 >> S1; SCC = D != 0."""
        result = x >> (y & (bits - 1)).to(f"u{bits}")
        return result, result != 0

    @operations.scalar(f"s_ashr_i{bits}", f"i{bits} u32 -> i{bits} scc")
    def ashr(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = S0 >> S1 with the sign; SCC = D != 0."""
        result = x >> (y & (bits - 1)).to(f"i{bits}")
        return result, result != 0


def _bit_fields(bits: int) -> None:
    @operations.scalar(f"s_bfm_b{bits}", f"u{bits} u{bits} -> u{bits}")
    def bfm(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 ones, shifted left by S1."""
        unit = b.like(1, x)
        return ((unit << (x & (bits - 1))) - 1) << (y & (bits - 1))

    @operations.scalar(f"s_bfe_u{bits}", f"u{bits} u32 -> u{bits} scc")
    @operations.scalar(f"s_bfe_i{bits}", f"i{bits} u32 -> i{bits} scc")
    def bfe(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = S1[22:16] bits of S0 from bit S1, extended by the type's sign; SCC = D != 0."""
        shifted = x >> (y & (bits - 1)).to(str(x.type))
        width = (y >> 16) & 0x7F
        left = ((bits - width) & (bits - 1)).to(str(x.type))
        field = (shifted << left) >> left
        result = b.select(width >= bits, shifted, b.select(width == 0, 0, field))
        return result, result != 0


for _bits in (32, 64):
    for _names, _combine in _LOGIC.items():
        _logic(_names, _bits, _combine)
    _shifts(_bits)
    _bit_fields(_bits)


def _pack(low: str, high: str) -> None:
    @operations.scalar(f"s_pack_{low}{high}_b32_b16", "u32 u32 -> u32")
    def pack(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = a half of S1 above a half of S0; the letters choose the halves."""
        below = x & 0xFFFF if low == "l" else x >> 16
        above = y << 16 if high == "l" else y & 0xFFFF0000
        return below | above


for _low, _high in ("ll", "lh", "hh", "hl"):
    _pack(_low, _high)

# Comparisons --------------------------------------------------------------------------------------------------------

_RELATIONS: dict[str, Callable[[TypedValue, TypedValue], TypedValue]] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}


def _compare(relation: str, kind: str, holds: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    operations.scalar(f"s_cmp_{relation}_{kind}", f"{kind} {kind} -> scc")(lambda b, x, y: holds(x, y))


def _compare_constant(relation: str, kind: str, holds: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    @operations.scalar(f"s_cmpk_{relation}_{kind}", f"sdst:{kind} #simm16 -> scc")
    def compare(b: Builder, x: TypedValue, constant: TypedValue) -> TypedValue:
        """SCC = the relation of the register to the 16-bit constant, extended by the type's sign."""
        return holds(x, _simm16(constant) if kind == "i32" else constant & 0xFFFF)


def _simm16(constant: TypedValue) -> TypedValue:
    return constant.as_("i32").bits(0, 16)


for _relation, _holds in _RELATIONS.items():
    for _kind in ("i32", "u32"):
        _compare(_relation, _kind, _holds)
        _compare_constant(_relation, _kind, _holds)
for _relation in ("eq", "lg"):
    _compare(_relation, "u64", _RELATIONS[_relation])


def _test_bit(bits: int, wanted: int) -> None:
    @operations.scalar(f"s_bitcmp{wanted}_b{bits}", f"u{bits} u32 -> scc")
    def bitcmp(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """SCC = bit S1 of S0 is the number in the name."""
        bit = (x >> (y & (bits - 1)).to(f"u{bits}")) & 1
        return bit == wanted


for _bits in (32, 64):
    for _wanted in (0, 1):
        _test_bit(_bits, _wanted)

# SOPK ---------------------------------------------------------------------------------------------------------------


operations.scalar("s_movk_i32", "#simm16 -> i32")(lambda b, constant: _simm16(constant))  # constant, sign-extended


@operations.scalar("s_cmovk_i32", "sdst:i32 #simm16 scc -> i32")
def cmovk_i32(b: Builder, old: TypedValue, constant: TypedValue, scc: TypedValue) -> TypedValue:
    """D = the constant if SCC."""
    return b.select(scc, _simm16(constant), old)


@operations.scalar("s_addk_i32 s_addk_co_i32", "i32 #simm16 -> i32 scc")
def addk_i32(b: Builder, old: TypedValue, constant: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D += the constant; SCC = signed overflow."""
    return add_i32(b, old, _simm16(constant))


operations.scalar("s_mulk_i32", "i32 #simm16 -> i32")(lambda b, old, constant: old * _simm16(constant))
