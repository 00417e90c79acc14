"""Scalar operations with one source (SOP1): moves, bit operations, EXEC manipulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()


def _of_width(bits: int) -> None:
    word = f"u{bits}"

    operations.scalar(f"s_mov_b{bits}", f"{word} -> {word}")(lambda b, x: x)

    @operations.scalar(f"s_cmov_b{bits}", f"sdst:{word} src0:{word} scc -> {word}")
    def cmov(b: Builder, old: TypedValue, x: TypedValue, scc: TypedValue) -> TypedValue:
        """D = S0 if SCC."""
        return b.select(scc, x, old)

    operations.scalar(f"s_not_b{bits}", f"{word} -> {word} scc")(lambda b, x: (~x, ~x != 0))  # ~S0; SCC = D != 0
    operations.scalar(f"s_brev_b{bits}", f"{word} -> {word}")(lambda b, x: b.bit_reverse(x))

    operations.scalar(f"s_bcnt1_i32_b{bits}", f"{word} -> u32 scc")(lambda b, x: (b.popcount(x).to("u32"), x != 0))
    operations.scalar(f"s_bcnt0_i32_b{bits}", f"{word} -> u32 scc")(lambda b, x: (b.popcount(~x).to("u32"), ~x != 0))

    @operations.scalar(f"s_ff1_i32_b{bits} s_ctz_i32_b{bits}", f"{word} -> u32")
    def ff1(b: Builder, x: TypedValue) -> TypedValue:
        """D = position of the lowest one, -1 if there is none."""
        return b.select(x == 0, 0xFFFFFFFF, b.trailing_zeros(x).to("u32"))

    # D = position of the lowest zero, -1 if there is none.
    operations.scalar(f"s_ff0_i32_b{bits}", f"{word} -> u32")(lambda b, x: ff1(b, ~x))

    @operations.scalar(f"s_flbit_i32_b{bits} s_clz_i32_u{bits}", f"{word} -> u32")
    def flbit(b: Builder, x: TypedValue) -> TypedValue:
        """D = number of zeros above the highest one, -1 if there is none."""
        return b.select(x == 0, 0xFFFFFFFF, b.leading_zeros(x).to("u32"))

    tail = "" if bits == 32 else "_i64"

    @operations.scalar(f"s_flbit_i32{tail} s_cls_i32{tail}", f"i{bits} -> u32")
    def flbit_signed(b: Builder, x: TypedValue) -> TypedValue:
        """D = number of leading bits equal to the sign bit; -1 if all are."""
        return flbit(b, (x ^ (x >> (bits - 1))).as_(word))

    def _in_quads(x: TypedValue) -> TypedValue:
        """Return a mask with the lowest bit of each group of four that has a one."""
        pairs = x | (x >> 1)
        return (pairs | (pairs >> 2)) & (0x1111111111111111 & ((1 << bits) - 1))

    # D = S0 with each group of four bits set to ones if any is one; SCC = D != 0.
    operations.scalar(f"s_wqm_b{bits}", f"{word} -> {word} scc")(lambda b, x: (_in_quads(x) * 15, x != 0))

    @operations.scalar(f"s_quadmask_b{bits}", f"{word} -> {word} scc")
    def quadmask(b: Builder, x: TypedValue) -> tuple[TypedValue, TypedValue]:
        """D = one bit for each group of four, set if any is one; SCC = D != 0."""
        result = _in_quads(x)
        for shift, keep in ((3, 0x0303030303030303), (6, 0x000F000F000F000F), (12, 0xFF000000FF), (24, 0xFFFF)):
            result = (result | (result >> shift)) & (keep & ((1 << bits) - 1))
        return result, x != 0

    for value in (0, 1):
        _bitset(bits, value)


def _bitset(bits: int, value: int) -> None:
    @operations.scalar(f"s_bitset{value}_b{bits}", f"sdst:u{bits} src0:u32 -> u{bits}")
    def bitset(b: Builder, old: TypedValue, place: TypedValue) -> TypedValue:
        """D[S0] = the number in the name."""
        bit = b.like(1, old) << (place & (bits - 1)).to(f"u{bits}")
        return old | bit if value else old & ~bit


for _bits in (32, 64):
    _of_width(_bits)


@operations.scalar("s_bitreplicate_b64_b32", "u32 -> u64")
def bitreplicate(b: Builder, x: TypedValue) -> TypedValue:
    """D = S0 with every bit doubled."""
    spread = x.to("u64")
    for shift, keep in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        spread = (spread | (spread << shift)) & keep
    return spread * 3


operations.scalar("s_sext_i32_i8", "i32 -> i32")(lambda b, x: x.bits(0, 8))
operations.scalar("s_sext_i32_i16", "i32 -> i32")(lambda b, x: x.bits(0, 16))


operations.scalar("s_abs_i32", "i32 -> i32 scc")(lambda b, x: (abs(x), x != 0))


# EXEC ---------------------------------------------------------------------------------------------------------------

_WITH_EXEC: dict[str, Callable[[TypedValue, TypedValue], TypedValue]] = {
    "and": lambda x, mask: x & mask,
    "or": lambda x, mask: x | mask,
    "xor": lambda x, mask: x ^ mask,
    "nand": lambda x, mask: ~(x & mask),
    "nor": lambda x, mask: ~(x | mask),
    "xnor": lambda x, mask: ~(x ^ mask),
    "andn1 and_not0": lambda x, mask: ~x & mask,
    "andn2 and_not1": lambda x, mask: x & ~mask,
    "orn1 or_not0": lambda x, mask: ~x | mask,
    "orn2 or_not1": lambda x, mask: x | ~mask,
}


def _change_exec(
    w: WaveBuilder, x: TypedValue, bits: int, combine: Callable[[TypedValue, TypedValue], TypedValue]
) -> tuple[TypedValue, TypedValue]:
    """Write a new EXEC; return the old and the new EXEC. A 32-bit operation changes only the low half."""
    old = w.exec_bits.to(f"u{bits}")
    new = combine(x, old)
    if bits == 32 and w.wave_size == 64:
        w.write_exec((w.exec_bits & 0xFFFFFFFF00000000) | new.to("u64"))
    else:
        w.write_exec(new.to("u64"))
    return old, new


def _saveexec(names: str, bits: int, combine: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    spelled = " ".join(f"s_{name}_saveexec_b{bits}" for name in names.split())

    @operations.wave(spelled, f"u{bits} -> sdst:u{bits} scc")
    def saveexec(w: WaveBuilder, result: OperandSlot, scc: OperandSlot, source: OperandSlot) -> None:
        """D = EXEC; EXEC = the function of S0 and EXEC; SCC = EXEC != 0."""
        old, new = _change_exec(w, source.scalar(), bits, combine)
        result.write_scalar(old)
        scc.write_scalar(new)


def _wrexec(names: str, bits: int, combine: Callable[[TypedValue, TypedValue], TypedValue]) -> None:
    spelled = " ".join(f"s_{name}_wrexec_b{bits}" for name in names.split())

    @operations.wave(spelled, f"u{bits} -> sdst:u{bits} scc")
    def wrexec(w: WaveBuilder, result: OperandSlot, scc: OperandSlot, source: OperandSlot) -> None:
        """EXEC = the function of S0 and EXEC; D = EXEC; SCC = EXEC != 0."""
        _, new = _change_exec(w, source.scalar(), bits, combine)
        result.write_scalar(new)
        scc.write_scalar(new)


for _bits in (32, 64):
    for _names, _combine in _WITH_EXEC.items():
        _saveexec(_names, _bits, _combine)
        if _names.startswith("andn"):
            _wrexec(_names, _bits, _combine)
