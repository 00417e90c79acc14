"""Moves, selection, shifts and bit operations of vectors."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.valu_int import byte_differences, clamps

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()

# Moves --------------------------------------------------------------------------------------------------------------


operations.lane("v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "u32 -> u32")(lambda b, x: x)
operations.lane("v_mov_b64", "u64 -> u64")(lambda b, x: x)
operations.lane("v_mov_b16", "u16 -> u16")(lambda b, x: x)


def _swap(bits: int) -> None:
    @operations.lane(f"v_swap_b{bits}", f"src0:u{bits} src1:u{bits} -> vdst:u{bits} vdst1:u{bits}")
    def swap(b: Builder, x: TypedValue, y: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D and S0 exchange their values."""
        return x, y

    @operations.lane("v_cndmask_b32" if bits == 32 else "v_cndmask_b16", f"u{bits} u{bits} mask -> u{bits}")
    def cndmask(b: Builder, x: TypedValue, y: TypedValue, mask: TypedValue) -> TypedValue:
        """D = mask ? S1 : S0."""
        return b.select(mask, y, x)


_swap(32)
_swap(16)

# Bitwise ------------------------------------------------------------------------------------------------------------


operations.lane("v_not_b32", "u32 -> u32")(lambda b, x: ~x)
operations.lane("v_not_b16", "u16 -> u16")(lambda b, x: ~x)


def _logic(name: str, bits: int, combine: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    operations.lane(f"v_{name}_b{bits}", f"u{bits} u{bits} -> u{bits}")(lambda b, x, y: combine(x, y))


for _name, _combine in {"and": operator.and_, "or": operator.or_, "xor": operator.xor}.items():
    _logic(_name, 32, _combine)
    _logic(_name, 16, _combine)
_logic("xnor", 32, lambda x, y: ~(x ^ y))


operations.lane("v_or3_b32", "u32 u32 u32 -> u32")(lambda b, x, y, z: x | y | z)
operations.lane("v_xor3_b32", "u32 u32 u32 -> u32")(lambda b, x, y, z: x ^ y ^ z)
operations.lane("v_and_or_b32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x & y) | z)
operations.lane("v_lshl_or_b32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x << (y & 31)) | z)


operations.lane("v_bfi_b32", "u32 u32 u32 -> u32")(lambda b, x, y, z: (x & y) | (~x & z))


def _any_function(bits: int) -> None:
    word = f"u{bits}"

    @operations.lane(f"v_bitop3_b{bits}", f"{word} {word} {word} -> {word}", static=("bitop3",))
    def bitop3(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = bit 4·S0 + 2·S1 + S2 of the constant, the truth table of a function of three bits."""
        table = b.modifiers.get("bitop3", 0)
        result = b.like(0, x)
        for row in range(8):
            if table >> row & 1:
                result = result | ((x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z))
        return result


_any_function(32)
_any_function(16)


@operations.lane("v_bitop2_b32", "u32 u32 -> u32", static=("bitop3",), since=(12,))
def bitop2(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = v_bitop3_b32 with 0 as S2; a half of VOPD (LLVM, AMDGPUBaseInfo.cpp, getBitOp2: ``and`` is 0x40)."""
    table = b.modifiers.get("bitop3", 0)
    result = b.like(0, x)
    for row in (0, 2, 4, 6):
        if table >> row & 1:
            result = result | ((x if row & 4 else ~x) & (y if row & 2 else ~y))
    return result


# Shifts and fields --------------------------------------------------------------------------------------------------


def _shifts(bits: int) -> None:
    amount = "u16" if bits == 16 else "u32"

    def places(x: TypedValue, kind: str) -> TypedValue:
        return (x & (bits - 1)).to(kind)

    operations.lane(f"v_lshlrev_b{bits}", f"{amount} u{bits} -> u{bits}")(lambda b, x, y: y << places(x, f"u{bits}"))
    operations.lane(f"v_lshrrev_b{bits}", f"{amount} u{bits} -> u{bits}")(lambda b, x, y: y >> places(x, f"u{bits}"))
    operations.lane(f"v_ashrrev_i{bits}", f"{amount} i{bits} -> i{bits}")(lambda b, x, y: y >> places(x, f"i{bits}"))


for _bits in (16, 32, 64):
    _shifts(_bits)


@operations.lane("v_bfe_u32", "u32 u32 u32 -> u32")
def bfe_u32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2[4:0] bits of S0 from bit S1[4:0]."""
    return (x >> (y & 31)) & ((b.like(1, x) << (z & 31)) - 1)


@operations.lane("v_bfe_i32", "i32 u32 u32 -> i32")
def bfe_i32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S2[4:0] bits of S0 from bit S1[4:0], sign-extended."""
    width = z & 31
    left = ((32 - width) & 31).as_("i32")
    field = ((x >> (y & 31).as_("i32")) << left) >> left
    return b.select(width == 0, 0, field)


# D = S0 ones, shifted left by S1.
operations.lane("v_bfm_b32", "u32 u32 -> u32")(lambda b, x, y: ((b.like(1, x) << (x & 31)) - 1) << (y & 31))


@operations.lane("v_alignbit_b32", "u32 u32 u16 -> u32")
def alignbit_b32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = low half of {S0, S1} >> S2[4:0]."""
    return b.funnel_shift_right(x, y, (z & 31).to("u32"))


@operations.lane("v_alignbyte_b32", "u32 u32 u16 -> u32")
def alignbyte_b32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = low half of {S0, S1} >> 8·S2[1:0]."""
    return b.funnel_shift_right(x, y, ((z & 3) << 3).to("u32"))


@operations.lane("v_perm_b32", "u32 u32 u32 -> u32")
def perm_b32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """Each byte of D is the byte of {S0, S1} that the byte of S2 names.

    8 to 11 repeat the sign of byte 1, 3, 5, 7; 12 gives 0; larger numbers give 0xFF.
    """
    data = (x.to("u64") << 32) | y.to("u64")
    result = b.like(0, x)
    for place in range(4):
        selector = z.bits(8 * place, 8)
        byte = (data >> ((selector & 7) << 3).to("u64")).to("u32") & 0xFF
        sign = (data >> (((selector & 3) << 4) | 15).to("u64")).to("u32") & 1
        constant = b.select(selector == 12, 0, b.like(0xFF, x))
        chosen = b.select(selector < 8, byte, b.select(selector < 12, sign * 0xFF, constant))
        result = result | (chosen << (8 * place))
    return result


@operations.lane("v_lerp_u8", "u32 u32 u32 -> u32")
def lerp_u8(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """Each byte of D is (S0 + S1 + bit 0 of S2) >> 1."""
    result = b.like(0, x)
    for place in range(0, 32, 8):
        total = x.bits(place, 8) + y.bits(place, 8) + z.bits(place, 1)
        result = result | ((total >> 1) << place)
    return result


# Counting -----------------------------------------------------------------------------------------------------------


operations.lane("v_bfrev_b32", "u32 -> u32")(lambda b, x: b.bit_reverse(x))
operations.lane("v_bcnt_u32_b32", "u32 u32 -> u32")(lambda b, x, y: b.popcount(x) + y)


@operations.lane("v_ffbh_u32 v_clz_i32_u32", "u32 -> u32")
def ffbh_u32(b: Builder, x: TypedValue) -> TypedValue:
    """D = number of zeros above the highest one, -1 if there is none."""
    return b.select(x == 0, 0xFFFFFFFF, b.leading_zeros(x))


@operations.lane("v_ffbl_b32 v_ctz_i32_b32", "u32 -> u32")
def ffbl_b32(b: Builder, x: TypedValue) -> TypedValue:
    """D = position of the lowest one, -1 if there is none."""
    return b.select(x == 0, 0xFFFFFFFF, b.trailing_zeros(x))


# D = number of leading bits equal to the sign bit; -1 if all are.
operations.lane("v_ffbh_i32 v_cls_i32", "i32 -> u32")(lambda b, x: ffbh_u32(b, (x ^ (x >> 31)).as_("u32")))


@operations.lane("v_mbcnt_lo_u32_b32", "u32 u32 -> u32")
def mbcnt_lo(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 + the number of ones of S0 for lanes below this lane, of lanes 0 to 31."""
    lane = b.lane_id()
    below = b.select(lane >= 32, 0xFFFFFFFF, (b.like(1, x) << (lane & 31)) - 1)
    return b.popcount(x & below) + y


@operations.lane("v_mbcnt_hi_u32_b32", "u32 u32 -> u32")
def mbcnt_hi(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 + the number of ones of S0 for lanes below this lane, of lanes 32 to 63."""
    lane = b.lane_id()
    below = b.select(lane < 32, 0, (b.like(1, x) << (lane & 31)) - 1)
    return b.popcount(x & below) + y


def next_random(b: Builder, x: TypedValue) -> TypedValue:
    """Return the next state of the random number generator for stochastic rounding."""
    return (x << 1) ^ b.select((x >> 31) != 0, 197, b.like(0, x))


operations.lane("v_prng_b32", "u32 -> u32")(next_random)


# Packing of bytes ---------------------------------------------------------------------------------------------------


@operations.lane("v_sat_pk_u8_i16", "u32 -> u16")
def sat_pk_u8_i16(b: Builder, x: TypedValue) -> TypedValue:
    """D = both signed halves saturated to unsigned bytes."""
    low = x.as_("i32").bits(0, 16)
    high = x.as_("i32").bits(16, 16)
    saturated = [b.minimum(b.maximum(half, 0), 255) for half in (low, high)]
    return (saturated[0] | (saturated[1] << 8)).to("u16")


def _saturate_to_four(kind: str, low: int, high: int) -> None:
    @operations.lane(f"v_sat_pk4_{kind}4_{kind}8", "u32 -> u16", since=(125,))
    def pack(b: Builder, x: TypedValue) -> TypedValue:
        """D = the four bytes of S0 saturated to 4 bits each (rocjitsu, vector_special.py, gen_vector_sat_pack)."""
        word, total = x.as_(f"{kind}32"), b.like(0, x)
        for place in range(4):
            code = b.minimum(b.maximum(word.bits(8 * place, 8), low), high).as_("u32") & 15
            total = total | (code << (4 * place))
        return total.to("u16")


_saturate_to_four("i", -8, 7)
_saturate_to_four("u", 0, 15)


def _permute_table(bits: int, high: str, low: str) -> None:
    """Declare a choice of sixteen elements out of {S0, S1} by the numbers in S2 (rocjitsu, gen_vector_perm_pk16)."""

    @operations.wave(f"v_perm_pk16_b{bits}_u4", f"{high} {low} u64 -> u32x{bits // 2}", since=(125,))
    def permute(w: WaveBuilder, result: OperandSlot, x: OperandSlot, y: OperandSlot, selector: OperandSlot) -> None:
        """D[i] = the element of the table that bits 4 i + 3 to 4 i of S2 name."""
        rows = [*y.rows(), *x.rows()]
        halves = []
        for half in (0, 1):  # halves of the table, with eight elements each
            word, shift = divmod(8 * bits * half, 32)
            pair = [rows[word].to("u64"), rows[min(word + 1, len(rows) - 1)].to("u64")]
            halves.append((pair[0] | (pair[1] << 32)) >> shift if bits > 4 else pair[0])
        names = selector.read()
        packed = [w.const("u32", 0) for _ in range(bits // 2)]
        for place in range(16):
            name = (names >> (4 * place)) & 15
            element = w.select(name < 8, halves[0], halves[1]) >> ((name & 7) * bits)
            code = (element & ((1 << bits) - 1)).to("u32")
            word, shift = divmod(bits * place, 32)
            packed[word] = packed[word] | (code << shift)
            if shift + bits > 32:
                packed[word + 1] = packed[word + 1] | (code >> (32 - shift))
        result.write_parts(packed)


_permute_table(4, "u32", "u32")
_permute_table(6, "u32", "u64")
_permute_table(8, "u64", "u64")


def _shift_and_pack(name: str, low: int, high: int) -> None:
    @operations.lane(name, "i32 i32 u32 -> u16")
    def ashr_pk(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 and S1, shifted right by S2 and saturated to bytes."""
        amount = (z & 31).as_("i32")
        first, second = (b.minimum(b.maximum(value >> amount, low), high) & 0xFF for value in (x, y))
        return (first | (second << 8)).to("u16")


_shift_and_pack("v_ashr_pk_i8_i32", -128, 127)
_shift_and_pack("v_ashr_pk_u8_i32", 0, 255)


@operations.wave("v_mqsad_u32_u8", "u64 u32 u32x4 -> u32x4")
def mqsad_u32_u8(w: WaveBuilder, result: OperandSlot, x: OperandSlot, y: OperandSlot, z: OperandSlot) -> None:
    """D = four sums of masked byte differences of S0, shifted by 0 to 3 bytes, and S1, each plus a register of S2."""
    data, pattern, totals = x.read(), y.read(), z.parts()
    sums = []
    for place, total in enumerate(totals):
        part = byte_differences(w, (data >> (8 * place)).to("u32"), pattern, True)
        sums.append(w.add_saturate(total, part) if clamps(w) else total + part)
    result.write_parts(sums)
