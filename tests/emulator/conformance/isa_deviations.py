"""Deviations from the documents, each with the reason."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import isa_numbers as n
from isa_language import Environment
from isa_library import FUNCTIONS, circular
from isa_numbers import V

ALL = (9, 10, 11, 12)

_LLVM_1250 = "of GFX1250, which has no document: by its name, and what LLVM selects it for"
GFX1250: list[tuple[str, str, str]] = [
    *(
        (
            f"v_{sign_name}_{kind}64",
            f"D0.{kind}64 = S0.{kind}64 {sign} S1.{kind}64 ? S0.{kind}64 : S1.{kind}64",
            _LLVM_1250,
        )
        for sign_name, sign in (("min", "<"), ("max", ">="))
        for kind in "iu"
    ),
    ("v_add_nc_u64", "D0.u64 = S0.u64 + S1.u64", _LLVM_1250),
    ("v_sub_nc_u64", "D0.u64 = S0.u64 - S1.u64", _LLVM_1250),
    ("v_mul_u64", "D0.u64 = S0.u64 * S1.u64", _LLVM_1250),
    ("v_mad_u32", "D0.u32 = S0.u32 * S1.u32 + S2.u32", _LLVM_1250),
    ("v_mad_nc_u64_u32", "D0.u64 = 64'U(S0.u32) * 64'U(S1.u32) + S2.u64", _LLVM_1250),
    ("v_mad_nc_i64_i32", "D0.i64 = 64'I(S0.i32) * 64'I(S1.i32) + S2.i64", _LLVM_1250),
    (
        "v_bitop2_b32",
        "TTBL = { INST.OMOD[1 : 0], INST.ABS[2 : 0], INST.NEG[2 : 0] }; tmp = 0U; "
        "tmp = (tmp | (32'I(TTBL.b32 & 0x1) != 0 ? 32'U(~S0.b32 & ~S1.b32) : 0U)); "
        "tmp = (tmp | (32'I(TTBL.b32 & 0x4) != 0 ? 32'U(~S0.b32 & S1.b32) : 0U)); "
        "tmp = (tmp | (32'I(TTBL.b32 & 0x10) != 0 ? 32'U(S0.b32 & ~S1.b32) : 0U)); "
        "tmp = (tmp | (32'I(TTBL.b32 & 0x40) != 0 ? 32'U(S0.b32 & S1.b32) : 0U)); D0.b32 = tmp",
        "half of VOPD: v_bitop3_b32 with 0 as S2 (LLVM's constants for and, or, xor, xnor)",
    ),
    ("v_fmaak_f64", "D0.f64 = fma(S0.f64, S1.f64, SIMM32.f64)", _LLVM_1250),
    ("v_fmamk_f64", "D0.f64 = fma(S0.f64, SIMM32.f64, S1.f64)", _LLVM_1250),
]
"""Names, texts and reasons of what only GFX1250 has."""

REPLACED: list[tuple[tuple[int, ...], str, str, str]] = [
    (ALL, "v_nop|s_nop|v_pipeflush|v_clrexcp", "nop()", "prose in the documents; nothing to see"),
    *(
        (
            (9,),
            f"v_cvt_scalef32_f16_{kind}",
            "scale = 32'U(exponent(S1.f32)); srcbyte = OPSEL[1 : 0].i32 * 8; dst = OPSEL[3].i32 * 16; "
            f"src = VGPR[laneId][SRC0.u32][srcbyte + 7 : srcbyte].{kind}; "
            f"VGPR[laneId][VDST.u32][dst + 15 : dst].f16 = {kind}_to_f16_scale(src, scale.u8)",
            "that OPSEL[3] chooses the half is in a comment only",
        )
        for kind in ("fp8", "bf8")
    ),
    (
        (10,),
        "(buffer|flat|global)_atomic_fcmpswap_x2",
        "tmp = MEM[ADDR].f64; src = DATA[63 : 0].f64; cmp = DATA[127 : 64].f64; "
        "MEM[ADDR].f64 = tmp == cmp ? src : tmp; RETURN_DATA.f64 = tmp",
        "as the 32-bit form: not in GFX11's document",
    ),
    *(
        (
            (10,),
            f"(buffer|flat|global)_atomic_f{name}_x2",
            f"tmp = MEM[ADDR].f64; src = DATA.f64; MEM[ADDR].f64 = src {sign} tmp ? src : tmp; RETURN_DATA.f64 = tmp",
            "as the 32-bit form: not in GFX11's document",
        )
        for name, sign in (("min", "<"), ("max", ">"))
    ),
    ((12,), "v_dot2acc_f32_f16", "tmp = D0.f32 + S0[15 : 0].f16 * S1[15 : 0].f16", "as GFX11's: see NATIVE"),
    ((12,), "v_dot2acc_f32_bf16", "tmp = D0.f32 + S0[15 : 0].bf16 * S1[15 : 0].bf16", "as GFX11's: see NATIVE"),
    ((11,), "v_dot2acc_f32_bf16", "tmp = D0.f32 + S0[15 : 0].bf16 * S1[15 : 0].bf16", "as v_dot2acc_f32_f16"),
    ((9,), "v_accvgpr_(read|write|mov)_b32", "D0.b32 = S0.b32", "not in the documents: a move"),
    ((9,), "v_mad(ak|mk|_legacy)?_f32|v_mac_f32", "D0.f32 = S0.f32 + S1.f32 + S2.f32 + D0.f32", "see NATIVE: MAD"),
    *(((12,), *row) for row in GFX1250),
    (
        (9,),
        "s_set_gpr_idx_on",
        "WAVE_MODE.GPR_IDX_EN = 1'1U; M0[7 : 0] = S0.u32[7 : 0].b8; M0[15 : 12] = S1.u32[3 : 0].b4",
        "the immediate is a source here",
    ),
]
"""Generations, names (a pattern), the text to use, and why."""

ALIASES: list[tuple[str, str]] = [
    (r"s_andn1_(saveexec|wrexec)_b32", r"s_and_not0_\1_b32"),
    (r"s_andn2_(saveexec|wrexec)_b32", r"s_and_not1_\1_b32"),
    (r"s_orn1_saveexec_b32", "s_or_not0_saveexec_b32"),
    (r"s_orn2_saveexec_b32", "s_or_not1_saveexec_b32"),
    (r"v_(fma|fmac)_legacy_f32", r"v_\1_dx9_zero_f32"),
    (r"global_(load|store)_dword_addtid", r"global_\1_addtid_b32"),
    (r"(buffer|flat|global)_atomic_fcmpswap", r"\1_atomic_cmpswap_f32"),
    (r"(buffer|flat|global)_atomic_f(min|max)", r"\1_atomic_\2_f32"),
    (r"(buffer|flat|global)_atomic_csub", r"\1_atomic_csub_u32"),
    (r"v_(exp|log)_legacy_f32", r"v_\1_f32"),
    (r"(buffer|flat|global)_atomic_(min|max)_num_f64", r"\1_atomic_\2_f64"),
    (r"ds_(min|max)_num(_rtn)?_f64", r"ds_\1\2_f64"),
]
"""Mnemonics (a pattern) that mean what another one does."""

NATIVE: dict[str, tuple[Callable[[Environment], None], str]] = {}
"""Base mnemonics whose meaning is written here in Python, and why."""


def native(reason: str, *names: str) -> Callable[[Callable[[Environment], None]], Callable[[Environment], None]]:
    def add(function: Callable[[Environment], None]) -> Callable[[Environment], None]:
        for name in names:
            NATIVE[name] = (function, reason)
        return function

    return add


BOUNDED = "bounded: the correctly rounded result; of 32 bits without denormals, as LLVM's use of them assumes"


def _float(env: Environment, name: str, width: int) -> V:
    cell = env.cells[name]
    return V(cell.bits & ((1 << width) - 1), "f", width)


def _put(env: Environment, value: V) -> None:
    env.cells["D0"].put(0, value.width, value)
    env.cells["D0"].kind = value.kind


def flushed(v: V) -> V:
    return v._replace(bits=v.bits & v.format.sign) if n.is_denormal(v) else v


def _of_width(names: str, reason: str, function: Callable[[Environment, V], V]) -> None:
    """The same for f16, f32 and f64, and for the scalar forms of GFX12."""
    for width in (16, 32, 64):
        for prefix in ("v", "v_s"):
            for name in names.split():

                def run(env: Environment, width: int = width, prefix: str = prefix) -> None:
                    x = _float(env, "S0", width)
                    result = flushed(function(env, flushed(x))) if width == 32 else function(env, x)
                    _put(env, result)
                    if width == 16 and prefix == "v_s":
                        env.cells["D0"].put(16, 16, V(0, "b", 16))

                native(reason, f"{prefix}_{name}_f{width}")(run)


def _reciprocal_root(env: Environment, x: V) -> V:
    if n.is_zero(x):
        return V(x.format.infinity | (x.bits & x.format.sign), "f", x.width)
    if n.is_nan(x) or n.is_negative(x):
        return n.nan_of("f", x.width)
    if n.is_infinite(x):
        return V(0, "f", x.width)
    # 1/sqrt(q) = sqrt(1/q): a root with enough bits, and one that tells whether something was lost.
    inverse = 1 / n.exact(x)
    shift = x.format.fraction + 8 + max(0, -n.floor_log2(inverse))
    scaled, rest = divmod(inverse.numerator << (2 * shift), inverse.denominator)
    root = math.isqrt(scaled)
    lost = rest != 0 or root * root != scaled
    return n.from_fraction(Fraction(2 * root + lost, 2 << shift), "f", x.width, n.NEAREST)


def _circular(shift: Fraction) -> Callable[[Environment, V], V]:
    def run(env: Environment, x: V) -> V:
        if n.is_nan(x) or n.is_infinite(x):
            return n.nan_of("f", x.width)
        if abs(n.exact(x)) > 256:
            return n.from_float(float(shift * 4), x.width)
        result = circular(x, shift)
        # Which zero is not told, but of a zero.
        return result if not n.is_zero(result) or n.is_zero(x) else result._replace(loose=((0, -x.width),))

    return run


ONE = {width: n.from_float(1.0, width) for width in (16, 32, 64)}
_of_width("rsq", BOUNDED, _reciprocal_root)
_of_width("rcp rcp_iflag", BOUNDED, lambda env, x: n.divide(ONE[x.width], x, n.NEAREST))
_of_width("sqrt", BOUNDED, lambda env, x: n.square_root(x, n.NEAREST))
_of_width("log log_legacy", BOUNDED, lambda env, x: FUNCTIONS["log2"](env, x))
_of_width("exp exp_legacy", BOUNDED, lambda env, x: FUNCTIONS["pow"](env, x, x))
_of_width("sin", BOUNDED + "; 0 and 1 beyond 256 turns (the documents' legal domain)", _circular(Fraction(0)))
_of_width("cos", BOUNDED + "; 0 and 1 beyond 256 turns (the documents' legal domain)", _circular(Fraction(1, 4)))


def _fract(env: Environment, x: V) -> V:
    if n.is_nan(x) or n.is_infinite(x):
        return n.nan_of("f", x.width)
    rest = n.exact(x) % 1
    result = n.from_fraction(rest, "f", x.width, env.rounding(x.width), env.rounding(x.width) == n.DOWN)
    below_one = ONE[x.width]._replace(bits=ONE[x.width].bits - 1)
    return below_one if (n.compare(result, below_one) or 0) > 0 else result


def _no_flush(names: str, reason: str, function: Callable[[Environment, V], V]) -> None:
    for width in (16, 32, 64):
        for prefix in ("v", "s"):

            def run(env: Environment, width: int = width) -> None:
                _put(env, function(env, _float(env, "S0", width)))

            native(reason, *(f"{prefix}_{name}_f{width}" for name in names.split()))(run)


def _round_even(env: Environment, x: V) -> V:
    if n.is_nan(x):
        return n.nan_of("f", x.width)
    if n.is_infinite(x):
        return x
    whole = n.round_to_integer(abs(n.exact(x)), n.NEAREST, False)
    sign = -1 if n.is_negative(x) else 1
    return n.from_fraction(Fraction(whole * sign), "f", x.width, n.ZERO, n.is_negative(x))


def _frexp_mantissa(env: Environment, x: V) -> V:
    if n.is_nan(x):
        return n.nan_of("f", x.width)
    return x if n.is_infinite(x) else FUNCTIONS["mantissa"](env, x)


_no_flush("fract", "never 1: LLVM puts it for min(x - floor(x), the number below 1) (AMDGPUCodeGenPrepare)", _fract)
_no_flush("rndne", "the text rounds when it adds 0.5, and loses the sign of zero", _round_even)
_no_flush("frexp_mant", "quiets NaN: LLVM takes its result for canonical (SITargetLowering)", _frexp_mantissa)


@native("the table is not in the text: S0[3:0] as a signed number, in 16ths", "v_cvt_off_f32_i4")
def _offset(env: Environment) -> None:
    nibble = env.cells["S0"].bits & 15
    _put(env, n.from_float((nibble - (nibble >> 3 << 4)) / 16, 32))


def _division(width: int) -> None:
    scale = {32: 64, 64: 128}[width]
    threshold = {32: 96, 64: 768}[width]
    small = {32: 23, 64: 53}[width]
    middle = {32: 127, 64: 1023}[width]

    def exponent(v: V) -> int:
        return v.bits >> v.format.fraction & ((1 << v.format.exponent) - 1)

    @native(
        "DENORM is any number below the least normal one, and of a quotient also what may be one by the exponents; "
        "D0 = S0 where nothing is scaled; a zero sets VCC (tested on hardware by tinygrad: 2**-126 / 1, 1 / 0, 0 / 1); "
        "a large denominator of a small quotient is scaled down (up, as the text has it, it would overflow and "
        "v_div_fmas could not undo it); denormal sources that MODE flushes are zeros",
        f"v_div_scale_f{width}",
    )
    def div_scale(env: Environment) -> None:
        x, denominator, numerator = (_float(env, f"S{index}", width) for index in range(3))
        if not env.denormals(width) & 1:
            x, denominator, numerator = flushed(x), flushed(denominator), flushed(numerator)
        up = FUNCTIONS["ldexp"](env, x, n.i32(scale))
        down = FUNCTIONS["ldexp"](env, x, n.i32(-scale))
        least = Fraction(2) ** x.format.emin
        usual = not any(n.is_zero(v) or n.is_nan(v) or n.is_infinite(v) for v in (numerator, denominator))
        quotient = usual and abs(n.exact(numerator) / n.exact(denominator)) < least
        quotient |= usual and exponent(numerator) > 0 and exponent(numerator) - exponent(denominator) <= 1 - middle
        inverse_small = usual and 1 / abs(n.exact(denominator)) < least
        flag, result = 0, x
        is_denominator = n.compare(x, denominator) == 0
        if n.is_zero(numerator) or n.is_zero(denominator):
            flag, result = 1, n.nan_of("f", width)
        elif exponent(numerator) - exponent(denominator) >= threshold:
            flag, result = 1, up if is_denominator else x
        elif n.is_denormal(denominator):
            result = up
        elif inverse_small and quotient:
            flag, result = 1, down if is_denominator else x
        elif inverse_small:
            result = down
        elif quotient:
            flag, result = 1, up if n.compare(x, numerator) == 0 else x
        elif exponent(numerator) <= small:
            result = up
        _put(env, result)
        lane = env.constants["laneId"].bits
        env.cells["VCC"].put(lane, 1, V(flag, "b", 1))

    @native(
        "undoes what v_div_scale does, by 2**64 or 2**-64 (2**128 of f64) as S2 is large or small; the text's factors "
        "would not",
        f"v_div_fmas_f{width}",
    )
    def div_fmas(env: Environment) -> None:
        x, y, z = (_float(env, f"S{index}", width) for index in range(3))
        power = 0
        if env.cells["VCC"].bits >> env.constants["laneId"].bits & 1:
            power = scale if exponent(z) > middle else -scale
        mode = env.rounding(width)
        if power and not any(n.is_nan(v) or n.is_infinite(v) for v in (x, y, z)):
            # Rounded once: the scale is part of the operation.
            total = n.exact(x) * n.exact(y) + n.exact(z)
            if total and not n.is_infinite(n.fma(x, y, z, mode)):
                _put(env, n.from_fraction(total * Fraction(2) ** power, "f", width, mode))
                return
        _put(env, n.fma(x, y, z, mode))


for _width in (32, 64):
    _division(_width)


def prepare_quotient(env: Environment, name: str) -> None:
    """v_div_fixup: a quotient that is NaN has overflowed on its way (the compiler's division of the largest number by
    the least one comes there), so it counts as infinite."""
    width = int(name[-2:])
    quotient = _float(env, "S0", width)
    if n.is_nan(quotient):
        env.cells["S0"].bits = quotient.format.infinity


MAD = "GFX9's unfused multiply-adds take and give zeros for denormals (LLVM has FMAD only where they are flushed)"


def _unfused(name: str, width: int, addend: str, factor: str, zero_rule: bool) -> None:
    @native(MAD, name)
    def run(env: Environment) -> None:
        constant = env.constants["SIMM32"].bits & ((1 << width) - 1)

        def read(place: str) -> V:
            return flushed(V(constant, "f", width) if place == "K" else _float(env, place, width))

        x, y, z = read("S0"), read(factor), read(addend)
        mode = env.rounding(width)
        rule = zero_rule and (n.is_zero(x) or n.is_zero(y))
        product = V(0, "f", width) if rule else flushed(n.multiply(x, y, mode))
        result = flushed(n.add(product, z, mode))
        _put(env, result)
        if width == 16 and name != "v_mad_f16":
            env.cells["D0"].put(16, 16, V(0, "b", 16))


for _width in (16, 32):
    _unfused(f"v_mad_f{_width}", _width, "S2", "S1", False)
    _unfused(f"v_mad_legacy_f{_width}", _width, "S2", "S1", _width == 32)
    _unfused(f"v_mac_f{_width}", _width, "D0", "S1", False)
    _unfused(f"v_madak_f{_width}", _width, "K", "S1", False)
    _unfused(f"v_madmk_f{_width}", _width, "S1", "K", False)


@functools.cache
def two_over_pi() -> int:
    """2/pi times 2**1201, rounded down."""
    digits = 1400

    def arctangent(inverse: int) -> int:
        total = term = (1 << digits) // inverse
        count, sign = 3, -1
        while term:
            term //= inverse * inverse
            total += sign * (term // count)
            count, sign = count + 2, -sign
        return total

    pi = 4 * (4 * arctangent(5) - arctangent(239))
    return (2 << (digits + 1201)) // pi


@native("1201 bits of 2/pi, most significant first, from which the text takes 53", "v_trig_preop_f64")
def _trig_preop(env: Environment) -> None:
    x = _float(env, "S0", 64)
    exponent = x.bits >> 52 & 0x7FF
    shift = (env.cells["S1"].bits & 31) * 53
    if exponent > 1077:
        shift += exponent - 1077
    bits = (two_over_pi() << shift & ((1 << 1201) - 1)) >> (1201 - 53)
    scale = -53 - shift + (128 if exponent >= 1968 else 0)
    _put(env, n.from_fraction(Fraction(bits) * Fraction(2) ** scale, "f", 64, env.rounding(64)))


def _flushed(value: V) -> V:
    return V(value.bits & 1 << value.width - 1, value.kind, value.width) if n.is_denormal(value) else value


def _dot(
    name: str,
    kind: str,
    elements: tuple[str, str],
    width: int,
    count: int,
    result: tuple[str, int],
    *,
    flushes: bool = False,
) -> None:
    """Sums of products in which each step is a fused multiplication and addition.

    `flushes`: what is added to and the sum have no denormals, whatever MODE says (CDNA4's document, 6.4).
    """

    @native("bounded: each sum rounded once, products exact", name)
    def run(env: Environment) -> None:
        target = env.cells["S2"] if "S2" in env.cells else env.cells["D0"]
        total = V(target.bits & ((1 << result[1]) - 1), *result)
        sum_kind = ("f", 32) if kind == "wide" else result
        total = n.convert(total, *sum_kind)
        total = _flushed(total) if flushes else total
        for index in range(count):
            pair = []
            for source, element in zip(("S0", "S1"), elements, strict=True):
                bits = env.cells[source].bits >> (width * index) & ((1 << width) - 1)
                value = V(bits, element, width)
                if element in ("fp8", "bf8"):
                    value = FUNCTIONS[f"{element}_to_f32"](env, value)
                pair.append(n.convert(value, *sum_kind))
            total = n.fma(pair[0], pair[1], total, env.rounding(sum_kind[1]))
        total = n.convert(total, *result)
        _put(env, _flushed(total) if flushes else total)


for _name in ("v_dot2_f32_f16", "v_dot2c_f32_f16", "v_dot2acc_f32_f16"):
    _dot(_name, "wide", ("f", "f"), 16, 2, ("f", 32), flushes=True)
for _name in ("v_dot2_f32_bf16", "v_dot2c_f32_bf16", "v_dot2acc_f32_bf16"):
    _dot(_name, "wide", ("bf", "bf"), 16, 2, ("f", 32), flushes=True)
_dot("v_dot2_f16_f16", "narrow", ("f", "f"), 16, 2, ("f", 16))
_dot("v_dot2_bf16_bf16", "wide", ("bf", "bf"), 16, 2, ("bf", 16))
for _left in ("fp8", "bf8"):
    for _right in ("fp8", "bf8"):
        _dot(f"v_dot4_f32_{_left}_{_right}", "wide", (_left, _right), 8, 4, ("f", 32))


def _frexp_exponent(width: int) -> None:
    @native(
        "the text's exponent() is that of the number, also of a denormal one; 0 of zero",
        f"v_frexp_exp_i{'16' if width == 16 else '32'}_f{width}",
    )
    def run(env: Environment) -> None:
        x = _float(env, "S0", width)
        result = 0
        if not (n.is_nan(x) or n.is_infinite(x) or n.is_zero(x)):
            result = n.floor_log2(abs(n.exact(x))) + 1
        _put(env, n.make(result, "i", 16 if width == 16 else 32))


for _width in (16, 32, 64):
    _frexp_exponent(_width)
