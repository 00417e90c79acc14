"""Scalar floating point, of GFX11.5 and GFX12."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.compare import FLOAT_RELATIONS
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
    operations.scalar(f"s_add_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x + y)
    operations.scalar(f"s_sub_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x - y)
    operations.scalar(f"s_mul_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x * y)
    operations.scalar(f"s_fmac_{kind}", f"{kind} {kind} {kind} -> {kind}")(lambda b, x, y, z: b.fma(x, y, z))
    operations.scalar(f"s_ceil_{kind}", f"{kind} -> {kind}")(lambda b, x: b.ceil(x))
    operations.scalar(f"s_floor_{kind}", f"{kind} -> {kind}")(lambda b, x: b.floor(x))
    operations.scalar(f"s_trunc_{kind}", f"{kind} -> {kind}")(lambda b, x: b.truncate(x))
    operations.scalar(f"s_rndne_{kind}", f"{kind} -> {kind}")(lambda b, x: b.round_even(x))


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
        _signature, _changed = f"{_kind} {_kind} -> {_kind}", _name in ("min", "max")
        operations.scalar(f"s_{_name}_{_kind}", _signature, generations=_changed)(_choose)
    for _name, _relation in FLOAT_RELATIONS.items():
        operations.scalar(f"s_cmp_{_name}_{_kind}", f"{_kind} {_kind} -> scc")(_relation)


operations.scalar("s_fmaak_f32", "f32 f32 imm:f32 -> f32")(lambda b, x, y, constant: b.fma(x, y, constant))
operations.scalar("s_fmamk_f32", "src0:f32 imm:f32 src1:f32 -> f32")(lambda b, x, constant, y: b.fma(x, constant, y))
operations.scalar("s_cvt_f32_i32", "i32 -> f32")(lambda b, x: x.to("f32"))
operations.scalar("s_cvt_f32_u32", "u32 -> f32")(lambda b, x: x.to("f32"))


operations.scalar("s_cvt_i32_f32", "f32 -> i32")(lambda b, x: b.float_to_int(x, "i32"))
operations.scalar("s_cvt_u32_f32", "f32 -> u32")(lambda b, x: b.float_to_int(x, "u32"))


operations.scalar("s_cvt_f16_f32", "f32 -> f16")(lambda b, x: x.to("f16"))
operations.scalar("s_cvt_f32_f16", "f16 -> f32")(lambda b, x: x.to("f32"))  # low half of S0 in 32 bits


operations.scalar("s_cvt_hi_f32_f16", "u32 -> f32")(lambda b, x: (x >> 16).to("u16").as_("f16").to("f32"))


@operations.scalar("s_cvt_pk_rtz_f16_f32", "f32 f32 -> u32")
def cvt_pk_rtz_f16_f32(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S1 and S0 as 16-bit floats, rounded toward zero."""
    return b.with_rounding(3, lambda inner: pack(x.to("f16"), y.to("f16")))
