"""Conversions between number formats; `convert_small` has those of floats of 4 to 8 bits."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.operands import finish_float
from luthier.emulator.ir.values import TypedValue

operations = OperationTable()


def _to(name: str, source: str, target: str) -> None:
    operations.lane(name, f"{source} -> {target}")(lambda b, x: x.to(target))


for _source, _target in (
    ("u32", "f32"),
    ("i32", "f32"),
    ("u32", "f64"),
    ("i32", "f64"),
    ("u16", "f16"),
    ("i16", "f16"),
    ("f32", "f16"),
    ("f16", "f32"),
    ("f64", "f32"),
    ("f32", "f64"),
    ("bf16", "f32"),
):
    _to(f"v_cvt_{_target}_{_source}", _source, _target)


def _to_integer(source: str, target: str) -> None:
    operations.lane(f"v_cvt_{target}_{source}", f"{source} -> {target}")(lambda b, x: b.float_to_int(x, target))


for _source, _bits in (("f32", 32), ("f64", 32), ("f16", 16)):
    _to_integer(_source, f"u{_bits}")
    _to_integer(_source, f"i{_bits}")


@operations.lane("v_cvt_rpi_i32_f32 v_cvt_nearest_i32_f32", "f32 -> i32")
def cvt_nearest(b: Builder, x: TypedValue) -> TypedValue:
    """D = floor(S0 + 0.5)."""
    return b.float_to_int(b.floor(x + 0.5), "i32")


operations.lane("v_cvt_flr_i32_f32 v_cvt_floor_i32_f32", "f32 -> i32")(lambda b, x: b.float_to_int(b.floor(x), "i32"))
operations.lane("v_cvt_i32_i16", "i16 -> i32")(lambda b, x: x.to("i32"))
operations.lane("v_cvt_u32_u16", "u16 -> u32")(lambda b, x: x.to("u32"))


def _byte(place: int) -> None:
    operations.lane(f"v_cvt_f32_ubyte{place}", "u32 -> f32")(lambda b, x: x.bits(8 * place, 8).to("f32"))


for _place in range(4):
    _byte(_place)


operations.lane("v_cvt_off_f32_i4", "i32 -> f32")(lambda b, x: x.bits(0, 4).to("f32") * 0.0625)


# Normalized integers ------------------------------------------------------------------------------------------------


def to_normalized(b: Builder, x: TypedValue, signed: bool) -> TypedValue:
    """Return a float from [-1, 1] or [0, 1] as a normalized 16-bit integer, rounded to nearest even; NaN gives 0.

    The ISA documents do not specify the rounding. It is that of Mesa, which implements pack_snorm_2x16 by these
    operations, and of AMD's rocjitsu (vector_cvt_pknorm).
    """
    wide = x.to("f64") * (32767.0 if signed else 65535.0)  # exact
    low, high = (-32767, 32767) if signed else (0, 65535)
    rounded = b.float_to_int(b.round_even(wide), "i32")
    return b.minimum(b.maximum(rounded, low), high).to("u16")


def _normalized(source: str, signed: bool) -> None:
    letter = "i" if signed else "u"

    operations.lane(f"v_cvt_norm_{letter}16_{source}", f"{source} -> u16")(lambda b, x: to_normalized(b, x, signed))

    @operations.lane(f"v_cvt_pknorm_{letter}16_{source} v_cvt_pk_norm_{letter}16_{source}", f"{source} {source} -> u32")
    def pair(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S1 and S0 as normalized integers, S0 below."""
        return pack(to_normalized(b, x, signed), to_normalized(b, y, signed))


def pack(low: TypedValue, high: TypedValue) -> TypedValue:
    """Return two 16-bit values as one 32-bit value."""
    return low.as_("u16").to("u32") | (high.as_("u16").to("u32") << 16)


for _source in ("f16", "f32"):
    _normalized(_source, True)
    _normalized(_source, False)

# Pairs of 16 bits ---------------------------------------------------------------------------------------------------


def _floats(b: Builder, x: TypedValue, y: TypedValue, kind: str) -> TypedValue:
    """Return two numbers as 16-bit floats, clamped if the instruction says so."""
    # Clamping before rounding is equivalent: rounding keeps 0, 1 and the order.
    low, high = (finish_float(b, value, b.modifiers, b.mode, flush=False).to(kind) for value in (x, y))
    return pack(low, high)


@operations.lane("v_cvt_pkrtz_f16_f32 v_cvt_pk_rtz_f16_f32", "f32 f32 -> u32")
def cvt_pkrtz(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 as 16-bit floats, rounded toward zero."""
    return b.with_rounding(3, lambda inner: _floats(b, x, y, "f16"))


@operations.lane("v_cvt_pk_f16_f32", "f32 f32 -> u32")
def cvt_pk_f16_f32(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 as 16-bit floats, rounded to nearest even."""
    return b.with_rounding(0, lambda inner: _floats(b, x, y, "f16"))


operations.lane("v_cvt_pk_bf16_f32", "f32 f32 -> u32")(lambda b, x, y: _floats(b, x, y, "bf16"))


@operations.lane("v_cvt_pk_u16_u32", "u32 u32 -> u32")
def cvt_pk_u16_u32(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 saturated to 16 bits."""
    return b.minimum(x, 0xFFFF) | (b.minimum(y, 0xFFFF) << 16)


@operations.lane("v_cvt_pk_i16_i32", "i32 i32 -> u32")
def cvt_pk_i16_i32(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 saturated to signed 16 bits."""
    low, high = (b.minimum(b.maximum(value, -32768), 32767) for value in (x, y))
    return pack(low.to("i16"), high.to("i16"))


def _pair_of_integers(target: str) -> None:
    @operations.lane(f"v_cvt_pk_{target}_f32", "f32 f32 -> u32")
    def pair(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S1 and S0 truncated to 16-bit integers."""
        return pack(b.float_to_int(x, target), b.float_to_int(y, target))


_pair_of_integers("i16")
_pair_of_integers("u16")


operations.lane("v_pack_b32_f16", "f16 f16 -> u32", flush=False)(lambda b, x, y: pack(x, y))  # S1 over S0


def float_to_byte(b: Builder, x: TypedValue) -> TypedValue:
    """Return a float as an unsigned byte, nearest even, saturated; NaN gives 0."""
    rounded = b.float_to_int(b.round_even(x), "u32")
    return b.minimum(rounded, 255)


@operations.lane("v_cvt_pk_u8_f32", "f32 u32 u32 -> u32", exact=False)
def cvt_pk_u8_f32(b: Builder, x: TypedValue, place: TypedValue, old: TypedValue) -> TypedValue:
    """D = S2 with byte S1 replaced by S0 as an unsigned byte."""
    shift = (place & 3) << 3
    mask = b.like(0xFF, old) << shift
    return (old & ~mask) | (float_to_byte(b, x) << shift)


@operations.lane("v_cvt_pkaccum_u8_f32", "f32 u32 old:u32 -> u32", exact=False)
def cvt_pkaccum_u8_f32(b: Builder, x: TypedValue, place: TypedValue, old: TypedValue) -> TypedValue:
    """D with byte S1 replaced by S0 as an unsigned byte."""
    return cvt_pk_u8_f32(b, x, place, old)
