"""Conversions from and to floats of 4 to 8 bits, plain and with a block scale, and stochastic rounding.

The format defines the result of an overflow; under MODE.FP16_OVFL it is the largest number. The documents do not
specify which random bits stochastic rounding of denormals uses, so these results are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable, Unsupported
from luthier.emulator.ir.memory_code import unanswered
from luthier.emulator.ir.operands import read_typed
from luthier.emulator.ir.types import ScalarType
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.ir.variant import OperandAccess
from luthier.emulator.operations.floats import power_of_two
from luthier.emulator.operations.number_formats import EIGHT_BIT, FORMATS
from luthier.emulator.operations.small_floats import bfloat, block_scale, block_unscale, decode, encode
from luthier.emulator.operations.valu_bits import next_random
from luthier.emulator.questions import SCALE

if TYPE_CHECKING:
    from luthier.emulator.ir.wave import OperandSlot, WaveBuilder

operations = OperationTable()


def place(old: TypedValue, field: TypedValue, shift: int, bits: int) -> TypedValue:
    """Return `old` with `bits` bits from `shift` replaced."""
    mask = ((1 << bits) - 1) << shift
    return (old & (0xFFFFFFFF ^ mask)) | ((field << shift) & mask)


def _op_sel(b: Builder) -> int:
    return b.modifiers.get("op_sel", 0)


def _destination_byte(b: Builder) -> int:
    """Return the byte of D that the instruction names: GFX12 in byte_sel, GFX9 in two bits of op_sel."""
    return b.modifiers.get("byte_sel", 0) if b.major >= 12 else _op_sel(b) >> 2


# Plain 8-bit floats -------------------------------------------------------------------------------------------------


def _eight_bits(kind: str) -> None:
    @operations.lane(f"v_cvt_f32_{kind}", "u32 -> f32", static=("byte_sel",), processors=True)
    def to_float(b: Builder, x: TypedValue) -> TypedValue:
        """D = one byte of S0."""
        return decode(b, x >> (8 * b.modifiers.get("byte_sel", 0)), kind)

    @operations.lane(f"v_cvt_pk_f32_{kind}", "u16 -> f32x2", processors=True)
    def to_floats(b: Builder, x: TypedValue) -> tuple[TypedValue, ...]:
        """D = both bytes of a half of S0."""
        wide = x.to("u32")
        return tuple(decode(b, wide >> shift, kind) for shift in (0, 8))

    def pair(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        return encode(b, x.to("f64"), kind) | (encode(b, y.to("f64"), kind) << 8)

    @operations.lane(f"v_cvt_pk_{kind}_f32", "f32 f32 old:u32 -> u32", static=("op_sel",), processors=True, since=(9,))
    def from_floats(b: Builder, x: TypedValue, y: TypedValue, old: TypedValue) -> TypedValue:
        """One half of D = S1 and S0."""
        return place(old, pair(b, x, y), 16 if _op_sel(b) & 8 else 0, 16)

    @operations.lane(f"v_cvt_pk_{kind}_f32", "f32 f32 -> u16", processors=True, since=(12,))
    def from_floats_12(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """One half of D = S1 and S0."""
        return pair(b, x, y).to("u16")

    @operations.lane(
        f"v_cvt_sr_{kind}_f32",
        "f32 u32 old:u32 -> u32",
        static=("op_sel", "byte_sel"),
        processors=True,
        exact=False,
        generations=True,
    )
    def stochastic(b: Builder, x: TypedValue, random: TypedValue, old: TypedValue) -> TypedValue:
        """One byte of D = S0, rounded by the random bits S1."""
        return place(old, encode(b, x.to("f64"), kind, random), 8 * _destination_byte(b), 8)

    for other in EIGHT_BIT:
        _dot(kind, other)


def _dot(left: str, right: str) -> None:
    @operations.lane(f"v_dot4_f32_{left}_{right}", "u32 u32 f32 -> f32", processors=True, exact=False)
    def dot(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S2 + the products of the bytes, rounded after each addition."""
        for shift in (0, 8, 16, 24):
            z = b.fma(decode(b, x >> shift, left), decode(b, y >> shift, right), z)
        return z


for _kind in EIGHT_BIT:
    _eight_bits(_kind)


def _stochastic_half(kind: str) -> None:
    @operations.lane(f"v_cvt_sr_{kind}_f32", "f32 u32 old:u32 -> u32", static=("op_sel",), exact=False)
    def stochastic(b: Builder, x: TypedValue, random: TypedValue, old: TypedValue) -> TypedValue:
        """One half of D = S0, rounded by the random bits S1."""
        return place(old, encode(b, x.to("f64"), kind, random), 16 if _op_sel(b) & 8 else 0, 16)


_stochastic_half("f16")
_stochastic_half("bf16")

# GFX1250 ------------------------------------------------------------------------------------------------------------

_NEWEST = (125,)


def _half_and_eight_bits(kind: str) -> None:
    """Declare conversions of 16-bit floats; MODE.FP16_OVFL is for 32-bit sources (rocjitsu, gen_vector_cvt_pk)."""

    @operations.lane(f"v_cvt_f16_{kind}", "u32 -> f16", static=("byte_sel",), since=_NEWEST)
    def to_half(b: Builder, x: TypedValue) -> TypedValue:
        """D = one byte of S0, exactly."""
        return decode(b, x >> (8 * b.modifiers.get("byte_sel", 0)), kind).to("f16")

    @operations.lane(f"v_cvt_pk_f16_{kind}", "u16 -> f16x2", since=_NEWEST)
    def to_halves(b: Builder, x: TypedValue) -> tuple[TypedValue, ...]:
        """D = both bytes of a half of S0, exactly."""
        return tuple(decode(b, x.to("u32") >> shift, kind).to("f16") for shift in (0, 8))

    @operations.lane(f"v_cvt_pk_{kind}_f16", "f16x2 -> u16", since=_NEWEST)
    def from_halves(b: Builder, x: tuple[TypedValue, ...]) -> TypedValue:
        """One half of D = both halves of S0, rounded to nearest even."""
        low, high = (encode(b, value.to("f64"), kind, saturates=False) for value in x)
        return (low | (high << 8)).to("u16")

    @operations.lane(f"v_cvt_sr_{kind}_f16", "f16 u32 old:u32 -> u32", static=("byte_sel",), since=_NEWEST, exact=False)
    def stochastic(b: Builder, x: TypedValue, random: TypedValue, old: TypedValue) -> TypedValue:
        """One byte of D = S0, rounded by the random bits S1."""
        code = encode(b, x.to("f64"), kind, random, saturates=False)
        return place(old, code, 8 * b.modifiers.get("byte_sel", 0), 8)


def _stochastic_pair(kind: str) -> None:
    @operations.lane(f"v_cvt_sr_pk_{kind}_f32", "f32 f32 u32 -> u32", since=_NEWEST, exact=False)
    def pair(b: Builder, x: TypedValue, y: TypedValue, random: TypedValue) -> TypedValue:
        """D = S1 and S0, rounded by the random bits S2 and, for S1, their successor (rocjitsu, gen_vector_cvt_pk)."""
        low, high = encode(b, x.to("f64"), kind, random), encode(b, y.to("f64"), kind, next_random(b, random))
        return low | (high << 16)


def _codes(rows: list[TypedValue], bits: int, count: int) -> list[TypedValue]:
    """Return the first `count` fields of `bits` bits of several registers."""
    fields = []
    for index in range(count):
        word, shift = divmod(bits * index, 32)
        field = rows[word] >> shift
        if shift + bits > 32:
            field = field | (rows[word + 1] << (32 - shift))
        fields.append(field & ((1 << bits) - 1))
    return fields


def _joined(codes: list[TypedValue], bits: int) -> list[TypedValue]:
    """Return registers that hold consecutive fields of `bits` bits."""
    rows: list[TypedValue | None] = [None] * (-(-len(codes) * bits // 32))
    for index, code in enumerate(codes):
        word, shift = divmod(bits * index, 32)
        parts = [(word, code << shift)] + ([(word + 1, code >> (32 - shift))] if shift + bits > 32 else [])
        for place_, part in parts:
            known = rows[place_]
            rows[place_] = part if known is None else known | part
    return [row for row in rows if row is not None]


def _blocks(kind: str, wide: str) -> None:
    """Declare conversions of 8 or 16 elements with one scale (rocjitsu, vector_special.py, gen_vector_cvt_scale).

    For conversions to wide elements, the scale is a byte of S1, an exponent of 2 (E8M0); from them, a float.
    """
    bits = FORMATS[kind].bits
    count = 16 if bits == 6 else 8
    small, large = f"u32x{count * bits // 32}", f"u32x{count * (32 if wide == 'f32' else 16) // 32}"

    @operations.wave(
        f"v_cvt_scale_pk{count}_{wide}_{kind}",
        f"{small} u32 -> {large}",
        static=("scale_sel",),
        since=_NEWEST,
        exact=False,
    )
    def unpack(w: WaveBuilder, result: OperandSlot, source: OperandSlot, scale: OperandSlot) -> None:
        """D = the elements of S0 times 2 to the power of a byte of S1."""
        chosen = w.modifiers.get("scale_sel", 0)
        if chosen > 3:
            raise Unsupported(f"{w.variant.operation} with scale_sel {chosen}: no source says which scale it selects")
        exponent = (scale.row(0) >> (8 * chosen)) & 0xFF
        power = power_of_two(exponent.as_("i32").to("i64") - 127, 64)
        power = w.select(exponent == 0xFF, w.bits_const("f64", 0x7FF8000000000000), power)
        rows = [source.row(index) for index in range(count * bits // 32)]
        values = [decode(w, code, kind).to("f64") * power for code in _codes(rows, bits, count)]
        if wide == "f32":
            result.write_parts([value.to("f32").as_("u32") for value in values])
            return
        halves = [bfloat(w, value) if wide == "bf16" else value.to(wide) for value in values]
        result.write_parts([_join(w, *halves[index : index + 2]) for index in range(0, count, 2)])

    def pack(
        w: WaveBuilder, result: OperandSlot, source: OperandSlot, scale: OperandSlot, random: OperandSlot | None
    ) -> None:
        factor = scale.row(0)
        field = factor >> 23
        odd = ((factor & 0x7FFFFF) != 0) | (field == 0) | (field >= 0xFF)
        unanswered(w, w.mask_bits(odd & w.exec) != 0, SCALE)
        state = random.row(0) if random is not None else None
        codes = []
        for value in _floats(source, wide, count):
            codes.append(_scaled_code(w, value, kind, factor.as_("f32"), state))
            state = None if state is None else next_random(w, state)
        result.write_parts(_joined(codes, bits))

    name = f"pk{count}_{kind}_{wide}"

    @operations.wave(f"v_cvt_scalef32_{name}", f"{large} u32 -> {small}", since=_NEWEST, exact=False)
    def pack_nearest(w: WaveBuilder, result: OperandSlot, source: OperandSlot, scale: OperandSlot) -> None:
        """D = the elements of S0 over S1, rounded to nearest even."""
        pack(w, result, source, scale, None)

    @operations.wave(f"v_cvt_scalef32_sr_{name}", f"{large} u32 u32 -> {small}", since=_NEWEST, exact=False)
    def pack_stochastic(
        w: WaveBuilder, result: OperandSlot, source: OperandSlot, random: OperandSlot, scale: OperandSlot
    ) -> None:
        """D = the elements of S0 over S2, rounded by the random bits S1 and their successors."""
        pack(w, result, source, scale, random)


for _kind in EIGHT_BIT:
    _half_and_eight_bits(_kind)
_stochastic_pair("f16")
_stochastic_pair("bf16")

# With a block scale, of gfx950 ---------------------------------------------------------------------------------------

_FLOATS = ("f32", "f16", "bf16")


def _scaled_float(b: Builder, code: TypedValue, kind: str, target: str, scale: TypedValue) -> TypedValue:
    """Return a small float times its block's scale, converted."""
    product = decode(b, code, kind).to("f64") * block_scale(b, scale)
    return product.to("f32").to("bf16") if target == "bf16" else product.to(target)


def _scaled_code(
    b: Builder, x: TypedValue, kind: str, scale: TypedValue, random: TypedValue | None = None
) -> TypedValue:
    wide = x.to("f64") if x.type.kind == "f" else x.to("f32").to("f64")
    return encode(b, wide * block_unscale(b, scale), kind, random)


def _join(b: Builder, low: TypedValue, high: TypedValue) -> TypedValue:
    """Return two floats in a register, or in two."""
    bits = low.type.bits
    wide = "u64" if bits == 32 else "u32"
    return low.as_(f"u{bits}").to(wide) | (high.as_(f"u{bits}").to(wide) << bits)


def _read_scaled(kind: str, target: str) -> None:
    width = 4 if kind == "fp4" else 8
    wide = "u64" if target == "f32" else "u32"

    @operations.lane(
        f"v_cvt_scalef32_pk_{target}_{kind}", f"u32 f32 -> {wide}", static=("op_sel",), processors=True, flush=False
    )
    def pair(b: Builder, x: TypedValue, scale: TypedValue) -> TypedValue:
        """D = two adjacent elements of S0, times the scale S1."""
        start = 8 * (_op_sel(b) & 3) if kind == "fp4" else 16 * (_op_sel(b) & 1)
        low, high = (_scaled_float(b, x >> (start + shift), kind, target, scale) for shift in (0, width))
        return _join(b, low, high)

    if kind == "fp4" or target == "bf16":
        return

    @operations.lane(
        f"v_cvt_scalef32_{target}_{kind}",
        "u32 f32 old:u32 -> u32",
        static=("op_sel",),
        processors=True,
        flush=False,
    )
    def single(b: Builder, x: TypedValue, scale: TypedValue, old: TypedValue) -> TypedValue:
        """D, or half of it, = one byte of S0 times the scale S1."""
        value = _scaled_float(b, x >> (8 * (_op_sel(b) & 3)), kind, target, scale)
        if target == "f32":
            return value.as_("u32")
        return place(old, value.as_("u16").to("u32"), 16 if _op_sel(b) & 8 else 0, 16)


def _write_scaled(kind: str, source: str) -> None:
    width = 4 if kind == "fp4" else 8
    two = "f32 f32" if source == "f32" else f"{source}x2"
    sources = f"{two} f32 old:u32 -> u32" if source == "f32" else f"src0:{two} src1:f32 old:u32 -> u32"

    def start(b: Builder) -> int:
        return 8 * (_op_sel(b) >> 2) if kind == "fp4" else 16 * (_op_sel(b) >> 3)

    def pair(b: Builder, low: TypedValue, high: TypedValue, scale: TypedValue, old: TypedValue) -> TypedValue:
        codes = _scaled_code(b, low, kind, scale) | (_scaled_code(b, high, kind, scale) << width)
        return place(old, codes, start(b), 2 * width)

    settings = {"static": ("op_sel",), "processors": True, "flush": False}
    if source == "f32":

        @operations.lane(f"v_cvt_scalef32_pk_{kind}_{source}", sources, **settings)
        def separate(b: Builder, x: TypedValue, y: TypedValue, scale: TypedValue, old: TypedValue) -> TypedValue:
            """Part of D = S1 and S0 over the scale S2."""
            return pair(b, x, y, scale, old)
    else:

        @operations.lane(f"v_cvt_scalef32_pk_{kind}_{source}", sources, **settings)
        def together(b: Builder, x: tuple[TypedValue, ...], scale: TypedValue, old: TypedValue) -> TypedValue:
            """Part of D = both halves of S0 over the scale S1."""
            return pair(b, x[0], x[1], scale, old)

    if kind == "fp4":
        pair_type = "f32x2" if source == "f32" else f"{source}x2"

        @operations.lane(
            f"v_cvt_scalef32_sr_pk_fp4_{source}", f"{pair_type} u32 f32 old:u32 -> u32", exact=False, **settings
        )
        def stochastic_pair(
            b: Builder, x: tuple[TypedValue, ...], random: TypedValue, scale: TypedValue, old: TypedValue
        ) -> TypedValue:
            """A byte of D = both parts of S0 over the scale S2, rounded by the random bits S1 and their successor."""
            low = _scaled_code(b, x[0], kind, scale, random)
            high = _scaled_code(b, x[1], kind, scale, next_random(b, random))
            return place(old, low | (high << 4), 8 * (_op_sel(b) >> 2), 8)

        return

    @operations.lane(f"v_cvt_scalef32_sr_{kind}_{source}", f"{source} u32 f32 old:u32 -> u32", exact=False, **settings)
    def stochastic(b: Builder, x: TypedValue, random: TypedValue, scale: TypedValue, old: TypedValue) -> TypedValue:
        """A byte of D = S0 over the scale S2, rounded by the random bits S1."""
        return place(old, _scaled_code(b, x, kind, scale, random), 8 * (_op_sel(b) >> 2), 8)


for _kind in ("fp8", "bf8", "fp4"):
    for _float in _FLOATS:
        _read_scaled(_kind, _float)
        _write_scaled(_kind, _float)

# Blocks of 32 six-bit floats -----------------------------------------------------------------------------------------


def _six_bits(rows: list[TypedValue], index: int) -> TypedValue:
    """Return the six-bit field `index` of several registers."""
    word, shift = divmod(6 * index, 32)
    field = rows[word] >> shift
    if shift > 26:
        field = field | (rows[word + 1] << (32 - shift))
    return field & 0x3F


def _packed(codes: list[TypedValue]) -> list[TypedValue]:
    """Return 32 six-bit codes as six registers."""
    rows: list[TypedValue] = []
    for row in range(6):
        total = None
        for index, code in enumerate(codes):
            shift = 6 * index - 32 * row
            if -6 < shift < 32:
                part = code << shift if shift >= 0 else code >> -shift
                total = part if total is None else total | part
        assert total is not None
        rows.append(total)
    return rows


def _floats(slot: OperandSlot, kind: str, count: int) -> list[TypedValue]:
    """Return the elements of a source; denormals are kept."""
    rows = [slot.row(index) for index in range(count * ScalarType.parse(kind).bits // 32)]
    values = read_typed(
        slot.w,
        rows,
        ScalarType(ScalarType.parse(kind).kind, ScalarType.parse(kind).bits, count),
        OperandAccess("v"),
        flush=False,
    )
    return list(values) if isinstance(values, tuple) else [values]


def _block_of_six(kind: str, other: str) -> None:
    registers = 32 if other == "f32" else 16

    @operations.wave(f"v_cvt_scalef32_pk32_{other}_{kind}", f"u32x6 f32 -> u32x{registers}")
    def unpack(w: WaveBuilder, result: OperandSlot, source: OperandSlot, scale: OperandSlot) -> None:
        """D = the 32 elements of S0 times the scale S1."""
        rows = [source.row(index) for index in range(6)]
        factor = scale.row(0).as_("f32")
        values = [_scaled_float(w, _six_bits(rows, index), kind, other, factor) for index in range(32)]
        if other == "f32":
            result.write_parts([value.as_("u32") for value in values])
        else:
            result.write_parts([_join(w, *values[index : index + 2]) for index in range(0, 32, 2)])

    def codes(
        w: WaveBuilder, values: list[TypedValue], scale: TypedValue, random: Callable[[], TypedValue] | None = None
    ) -> list[TypedValue]:
        return [_scaled_code(w, value, kind, scale, random() if random else None) for value in values]

    if other == "f32":

        @operations.wave(f"v_cvt_scalef32_2xpk16_{kind}_f32", "u32x16 u32x16 f32 -> u32x6")
        def pack_two(w: WaveBuilder, result: OperandSlot, x: OperandSlot, y: OperandSlot, scale: OperandSlot) -> None:
            """D = the elements of S0 and S1 in turn, over the scale S2."""
            pairs = zip(_floats(x, "f32", 16), _floats(y, "f32", 16), strict=True)
            values = [value for pair in pairs for value in pair]
            result.write_parts(_packed(codes(w, values, scale.row(0).as_("f32"))))
    else:

        @operations.wave(f"v_cvt_scalef32_pk32_{kind}_{other}", "u32x16 f32 -> u32x6")
        def pack(w: WaveBuilder, result: OperandSlot, source: OperandSlot, scale: OperandSlot) -> None:
            """D = the 32 elements of S0 over the scale S1."""
            result.write_parts(_packed(codes(w, _floats(source, other, 32), scale.row(0).as_("f32"))))

    @operations.wave(f"v_cvt_scalef32_sr_pk32_{kind}_{other}", f"u32x{registers} u32 f32 -> u32x6", exact=False)
    def pack_stochastic(
        w: WaveBuilder, result: OperandSlot, source: OperandSlot, random: OperandSlot, scale: OperandSlot
    ) -> None:
        """D = the 32 elements of S0 over the scale S2, rounded by the random bits S1 and their successors."""
        state = [random.row(0)]

        def following() -> TypedValue:
            state.append(next_random(w, state[-1]))
            return state[-2]

        result.write_parts(_packed(codes(w, _floats(source, other, 32), scale.row(0).as_("f32"), following)))


for _kind in ("fp6", "bf6"):
    for _float in _FLOATS:
        _block_of_six(_kind, _float)
for _kind in ("fp8", "bf8", "fp4", "fp6", "bf6"):
    for _float in _FLOATS:
        _blocks(_kind, _float)
