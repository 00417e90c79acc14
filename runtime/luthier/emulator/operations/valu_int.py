"""Integer arithmetic of vectors; `valu_bits` has moves, shifts and bit operations."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue

operations = OperationTable()


def clamps(b: Builder) -> bool:
    """Return whether the instruction saturates."""
    return bool(b.modifiers.get("clamp"))


def narrow(b: Builder, value: TypedValue, kind: str) -> TypedValue:
    """Return a wider integer truncated to `kind`; saturated, if the instruction says so."""
    if not clamps(b):
        return value.to(kind)
    bits = int(kind[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "i" else (0, (1 << bits) - 1)
    if value.type.is_signed:
        value = b.maximum(value, low)
    return b.minimum(value, high).to(kind)


# Addition -----------------------------------------------------------------------------------------------------------


def _add_and_subtract(kind: str, additions: str, subtractions: str, reversed_ones: str) -> None:
    operations.lane(additions, f"{kind} {kind} -> {kind}")(lambda b, x, y: b.add_saturate(x, y) if clamps(b) else x + y)

    @operations.lane(subtractions, f"{kind} {kind} -> {kind}")
    def sub(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 - S1; clamp saturates."""
        return b.sub_saturate(x, y) if clamps(b) else x - y

    if reversed_ones:
        operations.lane(reversed_ones, f"{kind} {kind} -> {kind}")(lambda b, x, y: sub(b, y, x))


_add_and_subtract("u32", "v_add_u32 v_add_nc_u32", "v_sub_u32 v_sub_nc_u32", "v_subrev_u32 v_subrev_nc_u32")
_add_and_subtract("u16", "v_add_u16 v_add_nc_u16", "v_sub_u16 v_sub_nc_u16", "v_subrev_u16")
_add_and_subtract("i32", "v_add_i32 v_add_nc_i32", "v_sub_i32 v_sub_nc_i32", "")
_add_and_subtract("i16", "v_add_i16 v_add_nc_i16", "v_sub_i16 v_sub_nc_i16", "")


def _with_carry(b: Builder, total: TypedValue) -> tuple[TypedValue, TypedValue]:
    carry = (total >> 32) != 0
    result = total.to("u32")
    return (b.select(carry, 0xFFFFFFFF, result) if clamps(b) else result), carry


def _with_borrow(b: Builder, x: TypedValue, subtrahend: TypedValue) -> tuple[TypedValue, TypedValue]:
    borrow = subtrahend > x
    result = (x - subtrahend).to("u32")
    return (b.select(borrow, 0, result) if clamps(b) else result), borrow


@operations.lane("v_add_co_u32", "u32 u32 -> u32 mask")
def add_co_u32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 + S1, with the carry out."""
    total = x + y
    carry = total < x
    return (b.select(carry, 0xFFFFFFFF, total) if clamps(b) else total), carry


@operations.lane("v_sub_co_u32", "u32 u32 -> u32 mask")
def sub_co_u32(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 - S1, with the borrow."""
    borrow = y > x
    return (b.select(borrow, 0, x - y) if clamps(b) else x - y), borrow


operations.lane("v_subrev_co_u32", "u32 u32 -> u32 mask")(lambda b, x, y: sub_co_u32(b, y, x))


@operations.lane("v_addc_co_u32 v_add_co_ci_u32", "u32 u32 mask -> u32 mask")
def addc_co_u32(b: Builder, x: TypedValue, y: TypedValue, carry: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 + S1 + the carry in, with the carry out."""
    return _with_carry(b, x.to("u64") + y.to("u64") + carry.to("u64"))


@operations.lane("v_subb_co_u32 v_sub_co_ci_u32", "u32 u32 mask -> u32 mask")
def subb_co_u32(b: Builder, x: TypedValue, y: TypedValue, borrow: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 - S1 - the borrow in, with the borrow out."""
    return _with_borrow(b, x.to("u64"), y.to("u64") + borrow.to("u64"))


@operations.lane("v_subbrev_co_u32 v_subrev_co_ci_u32", "u32 u32 mask -> u32 mask")
def subbrev_co_u32(b: Builder, x: TypedValue, y: TypedValue, borrow: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S1 - S0 - the borrow in, with the borrow out."""
    return subb_co_u32(b, y, x, borrow)


operations.lane("v_add3_u32", "u32 u32 u32 -> u32")(lambda b, x, y, z: x + y + z)
operations.lane("v_lshl_add_u32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x << (y & 31)) + z)
operations.lane("v_add_lshl_u32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x + y) << (z & 31))
operations.lane("v_xad_u32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x ^ y) + z)


operations.lane("v_lshl_add_u64", "u64 u32 u64 -> u64")(lambda b, x, y, z: (x << (y & 7).to("u64")) + z)


operations.lane("v_add_nc_u64", "u64 u64 -> u64", since=(12,))(lambda b, x, y: x + y)  # S0 + S1, without clamp
operations.lane("v_sub_nc_u64", "u64 u64 -> u64", since=(12,))(lambda b, x, y: x - y)  # S0 - S1, without clamp


# Multiplication -----------------------------------------------------------------------------------------------------


operations.lane("v_mul_lo_u32 v_mul_lo_i32", "u32 u32 -> u32")(lambda b, x, y: x * y)
operations.lane("v_mul_hi_u32", "u32 u32 -> u32")(lambda b, x, y: ((x.to("u64") * y.to("u64")) >> 32).to("u32"))
operations.lane("v_mul_hi_i32", "i32 i32 -> i32")(lambda b, x, y: ((x.to("i64") * y.to("i64")) >> 32).to("i32"))
operations.lane("v_mul_lo_u16", "u16 u16 -> u16")(lambda b, x, y: narrow(b, x.to("u32") * y.to("u32"), "u16"))


def _24_bits(kind: str) -> None:
    wide = f"{kind[0]}64"

    def product(x: TypedValue, y: TypedValue) -> TypedValue:
        return x.bits(0, 24).to(wide) * y.bits(0, 24).to(wide)

    @operations.lane(f"v_mul_{kind}_{kind[0]}24", f"{kind} {kind} -> {kind}")
    def mul(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = low 32 bits of the product of the low 24 bits."""
        return narrow(b, product(x, y), kind) if clamps(b) else x.bits(0, 24) * y.bits(0, 24)

    @operations.lane(f"v_mul_hi_{kind}_{kind[0]}24", f"{kind} {kind} -> {kind}")
    def mul_hi(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = bits from 32 of the product of the low 24 bits."""
        return (product(x, y) >> 32).to(kind)

    @operations.lane(f"v_mad_{kind}_{kind[0]}24", f"{kind} {kind} {kind} -> {kind}")
    def mad(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = product of the low 24 bits of S0 and S1, plus S2."""
        return narrow(b, product(x, y) + z.to(wide), kind) if clamps(b) else x.bits(0, 24) * y.bits(0, 24) + z


_24_bits("u32")
_24_bits("i32")


def _mad_16(kind: str) -> None:
    half, wide = f"{kind[0]}16", f"{kind[0]}64"

    @operations.lane(f"v_mad_{half} v_mad_legacy_{half}", f"{half} {half} {half} -> {half}")
    def mad_16(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 * S1 + S2."""
        return narrow(b, x.to(wide) * y.to(wide) + z.to(wide), half)

    @operations.lane(f"v_mad_{kind}_{half}", f"{half} {half} {kind} -> {kind}")
    def mad_wide(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 * S1 + S2; the sources of the product have 16 bits."""
        return narrow(b, x.to(wide) * y.to(wide) + z.to(wide), kind)


_mad_16("u32")
_mad_16("i32")


@operations.lane("v_mad_u64_u32 v_mad_co_u64_u32", "u32 u32 u64 -> u64 mask")
def mad_u64_u32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 * S1 + S2 with the carry out."""
    product = x.to("u64") * y.to("u64")
    total = product + z
    carry = total < product
    return (b.select(carry, 0xFFFFFFFFFFFFFFFF, total) if clamps(b) else total), carry


operations.lane("v_mad_nc_u64_u32", "u32 u32 u64 -> u64", since=(12,))(lambda b, x, y, z: x.to("u64") * y.to("u64") + z)
operations.lane("v_mad_nc_i64_i32", "i32 i32 i64 -> i64", since=(12,))(lambda b, x, y, z: x.to("i64") * y.to("i64") + z)
operations.lane("v_mad_u32", "u32 u32 u32 -> u32", since=(12,))(lambda b, x, y, z: x * y + z)
operations.lane("v_mul_u64", "u64 u64 -> u64", since=(12,))(lambda b, x, y: x * y)


def _choice_of_64_bits(kind: str) -> None:
    operations.lane(f"v_min_{kind}", f"{kind} {kind} -> {kind}", since=(12,))(lambda b, x, y: b.minimum(x, y))
    operations.lane(f"v_max_{kind}", f"{kind} {kind} -> {kind}", since=(12,))(lambda b, x, y: b.maximum(x, y))


_choice_of_64_bits("i64")
_choice_of_64_bits("u64")


@operations.lane("v_mad_i64_i32 v_mad_co_i64_i32", "i32 i32 i64 -> i64 mask")
def mad_i64_i32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> tuple[TypedValue, TypedValue]:
    """D = S0 * S1 + S2; the carry out is the sign, bit 64 of the exact signed value."""
    product = x.to("i64") * y.to("i64")
    total = product + z
    overflow = ((product ^ total) & (z ^ total)) < 0
    negative = (total < 0) ^ overflow
    if clamps(b):
        limit = b.select(negative, b.like(-(1 << 63), total), b.like((1 << 63) - 1, total))
        total = b.select(overflow, limit, total)
    return total, negative


# Order --------------------------------------------------------------------------------------------------------------


def middle(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """Return the median of three integers."""
    return b.maximum(b.minimum(x, y), b.minimum(b.maximum(x, y), z))


def _order(kind: str, dual: bool) -> None:
    operations.lane(f"v_min_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: b.minimum(x, y))
    operations.lane(f"v_max_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: b.maximum(x, y))

    of_three = f"{kind} {kind} {kind} -> {kind}"
    operations.lane(f"v_min3_{kind}", of_three)(lambda b, x, y, z: b.minimum(b.minimum(x, y), z))
    operations.lane(f"v_max3_{kind}", of_three)(lambda b, x, y, z: b.maximum(b.maximum(x, y), z))

    operations.lane(f"v_med3_{kind}", of_three)(middle)

    if dual:

        @operations.lane(f"v_maxmin_{kind}", f"{kind} {kind} {kind} -> {kind}")
        def maxmin(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
            """D = min(max(S0, S1), S2)."""
            return b.minimum(b.maximum(x, y), z)

        @operations.lane(f"v_minmax_{kind}", f"{kind} {kind} {kind} -> {kind}")
        def minmax(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
            """D = max(min(S0, S1), S2)."""
            return b.maximum(b.minimum(x, y), z)


for _kind in ("i32", "u32", "i16", "u16"):
    _order(_kind, _kind.endswith("32"))

# Sums of absolute differences ---------------------------------------------------------------------------------------


def difference(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return |x - y| of two unsigned integers."""
    return b.select(x > y, x - y, y - x)


def byte_differences(b: Builder, x: TypedValue, y: TypedValue, masked: bool) -> TypedValue:
    """Return the sum of |x - y| over the four bytes; `masked` skips bytes where y is 0."""
    total = b.like(0, x)
    for place in range(4):
        left, right = x.bits(8 * place, 8), y.bits(8 * place, 8)
        part = difference(b, left, right)
        total = total + (b.select(right == 0, 0, part) if masked else part)
    return total


def _accumulate(b: Builder, part: TypedValue, total: TypedValue) -> TypedValue:
    return b.add_saturate(total, part) if clamps(b) else total + part


@operations.lane("v_sad_u8", "u32 u32 u32 -> u32")
def sad_u8(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2 + the absolute differences of the four bytes."""
    return _accumulate(b, byte_differences(b, x, y, False), z)


@operations.lane("v_sad_hi_u8", "u32 u32 u32 -> u32")
def sad_hi_u8(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2 + (the absolute differences of the four bytes << 16)."""
    return _accumulate(b, byte_differences(b, x, y, False) << 16, z)


@operations.lane("v_msad_u8", "u32 u32 u32 -> u32")
def msad_u8(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2 + the absolute differences of the bytes where S1 is not 0."""
    return _accumulate(b, byte_differences(b, x, y, True), z)


@operations.lane("v_sad_u16", "u32 u32 u32 -> u32")
def sad_u16(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2 + the absolute differences of both halves."""
    part = difference(b, x & 0xFFFF, y & 0xFFFF) + difference(b, x >> 16, y >> 16)
    return _accumulate(b, part, z)


operations.lane("v_sad_u32", "u32 u32 u32 -> u32")(lambda b, x, y, z: _accumulate(b, difference(b, x, y), z))


def _quad(name: str, masked: bool) -> None:
    @operations.lane(name, "u64 u32 u64 -> u64")
    def quad(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = four 16-bit sums of byte differences of S0, shifted by 0 to 3 bytes, and S1, each plus 16 bits of S2."""
        result = b.like(0, z)
        for place in range(4):
            part = byte_differences(b, (x >> (8 * place)).to("u32"), y, masked).to("u64")
            total = part + z.bits(16 * place, 16)
            total = b.minimum(total, 0xFFFF) if clamps(b) else total & 0xFFFF
            result = result | (total << (16 * place))
        return result


_quad("v_qsad_pk_u16_u8", False)
_quad("v_mqsad_pk_u16_u8", True)
