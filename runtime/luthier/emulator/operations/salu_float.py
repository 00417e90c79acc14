"""Scalar floating point, of GFX11.5 and GFX12."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.compare import FLOAT_RELATIONS, Relation
from luthier.emulator.operations.convert import pack
from luthier.emulator.operations.valu_minmax import (
    Choice,
    legacy_maximum,
    legacy_minimum,
    number_maximum,
    number_minimum,
    spreading_maximum,
    spreading_minimum,
)

operations = OperationTable()


def _arithmetic(kind: str) -> None:
    @operations.scalar(f"s_add_{kind}", f"{kind} {kind} -> {kind}")
    def add(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 + S1."""
        return x + y

    @operations.scalar(f"s_sub_{kind}", f"{kind} {kind} -> {kind}")
    def sub(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 - S1."""
        return x - y

    @operations.scalar(f"s_mul_{kind}", f"{kind} {kind} -> {kind}")
    def mul(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 * S1."""
        return x * y

    @operations.scalar(f"s_fmac_{kind}", f"{kind} {kind} {kind} -> {kind}")
    def fmac(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
        """D = S0 * S1 + D, rounded once."""
        return b.fma(x, y, z)

    @operations.scalar(f"s_ceil_{kind}", f"{kind} -> {kind}")
    def ceil(b: Builder, x: TypedValue) -> TypedValue:
        """D = S0 rounded up."""
        return b.ceil(x)

    @operations.scalar(f"s_floor_{kind}", f"{kind} -> {kind}")
    def floor(b: Builder, x: TypedValue) -> TypedValue:
        """D = S0 rounded down."""
        return b.floor(x)

    @operations.scalar(f"s_trunc_{kind}", f"{kind} -> {kind}")
    def trunc(b: Builder, x: TypedValue) -> TypedValue:
        """D = S0 rounded toward zero."""
        return b.truncate(x)

    @operations.scalar(f"s_rndne_{kind}", f"{kind} -> {kind}")
    def rndne(b: Builder, x: TypedValue) -> TypedValue:
        """D = S0 rounded to the nearest integral value, ties to even."""
        return b.round_even(x)


def _choice(name: str, kind: str, choose: Choice) -> None:
    @operations.scalar(f"s_{name}_{kind}", f"{kind} {kind} -> {kind}", generations=name in ("min", "max"))
    def choice(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """D = the smaller or larger of two."""
        return choose(b, x, y)


def _compare(name: str, kind: str, relation: Relation) -> None:
    @operations.scalar(f"s_cmp_{name}_{kind}", f"{kind} {kind} -> scc")
    def compare(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
        """SCC = the relation of S0 to S1."""
        return relation(b, x, y)


_CHOICES: dict[str, Choice] = {
    "min": legacy_minimum,
    "max": legacy_maximum,
    "min_num": number_minimum,
    "max_num": number_maximum,
    "minimum": spreading_minimum,
    "maximum": spreading_maximum,
}

for _kind in ("f16", "f32"):
    _arithmetic(_kind)
    for _name, _choose in _CHOICES.items():
        _choice(_name, _kind, _choose)
    for _name, _relation in FLOAT_RELATIONS.items():
        _compare(_name, _kind, _relation)


@operations.scalar("s_fmaak_f32", "f32 f32 imm:f32 -> f32")
def fmaak_f32(b: Builder, x: TypedValue, y: TypedValue, constant: TypedValue) -> TypedValue:
    """D = S0 * S1 + the constant, rounded once."""
    return b.fma(x, y, constant)


@operations.scalar("s_fmamk_f32", "src0:f32 imm:f32 src1:f32 -> f32")
def fmamk_f32(b: Builder, x: TypedValue, constant: TypedValue, y: TypedValue) -> TypedValue:
    """D = S0 * the constant + S1, rounded once."""
    return b.fma(x, constant, y)


@operations.scalar("s_cvt_f32_i32", "i32 -> f32")
def cvt_f32_i32(b: Builder, x: TypedValue) -> TypedValue:
    """D = float(S0)."""
    return x.to("f32")


@operations.scalar("s_cvt_f32_u32", "u32 -> f32")
def cvt_f32_u32(b: Builder, x: TypedValue) -> TypedValue:
    """D = float(S0)."""
    return x.to("f32")


@operations.scalar("s_cvt_i32_f32", "f32 -> i32")
def cvt_i32_f32(b: Builder, x: TypedValue) -> TypedValue:
    """D = S0 truncated; saturated, NaN gives 0."""
    return b.float_to_int(x, "i32")


@operations.scalar("s_cvt_u32_f32", "f32 -> u32")
def cvt_u32_f32(b: Builder, x: TypedValue) -> TypedValue:
    """D = S0 truncated; saturated, NaN gives 0."""
    return b.float_to_int(x, "u32")


@operations.scalar("s_cvt_f16_f32", "f32 -> f16")
def cvt_f16_f32(b: Builder, x: TypedValue) -> TypedValue:
    """D = S0 rounded to 16 bits."""
    return x.to("f16")


@operations.scalar("s_cvt_f32_f16", "f16 -> f32")
def cvt_f32_f16(b: Builder, x: TypedValue) -> TypedValue:
    """D = the low half of S0 in 32 bits."""
    return x.to("f32")


@operations.scalar("s_cvt_hi_f32_f16", "u32 -> f32")
def cvt_hi_f32_f16(b: Builder, x: TypedValue) -> TypedValue:
    """D = the high half of S0 in 32 bits."""
    return (x >> 16).to("u16").as_("f16").to("f32")


@operations.scalar("s_cvt_pk_rtz_f16_f32", "f32 f32 -> u32")
def cvt_pk_rtz_f16_f32(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 as 16-bit floats, rounded toward zero."""
    return b.with_rounding(3, lambda inner: pack(x.to("f16"), y.to("f16")))
