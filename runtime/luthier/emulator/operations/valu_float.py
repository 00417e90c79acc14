"""Floating-point vector arithmetic: sums, products, multiply-add, integral values, division helpers."""

from __future__ import annotations

from luthier.emulator.ir.builder import Builder
from luthier.emulator.ir.declare import OperationTable
from luthier.emulator.ir.operands import flush_denormal, flush_input
from luthier.emulator.ir.values import TypedValue
from luthier.emulator.operations.floats import exponent_field, infinity, is_negative, quiet, scale_by_power

operations = OperationTable()

# Sums and products --------------------------------------------------------------------------------------------------


def _arithmetic(kind: str) -> None:
    operations.lane(f"v_add_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x + y)
    operations.lane(f"v_mul_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x * y)
    operations.lane(f"v_fma_{kind}", f"{kind} {kind} {kind} -> {kind}")(lambda b, x, y, z: b.fma(x, y, z))
    operations.lane(f"v_fmac_{kind}", f"{kind} {kind} {kind} -> {kind}")(lambda b, x, y, z: b.fma(x, y, z))

    @operations.lane(f"v_fmaak_{kind}", f"{kind} {kind} imm:{kind} -> {kind}")
    def fmaak(b: Builder, x: TypedValue, y: TypedValue, constant: TypedValue) -> TypedValue:
        """D = S0 * S1 + the constant, rounded once."""
        return b.fma(x, y, constant)

    @operations.lane(f"v_fmamk_{kind}", f"src0:{kind} imm:{kind} src1:{kind} -> {kind}")
    def fmamk(b: Builder, x: TypedValue, constant: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 * the constant + S1, rounded once."""
        return b.fma(x, constant, y)


def _subtraction(kind: str) -> None:
    operations.lane(f"v_sub_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: x - y)
    operations.lane(f"v_subrev_{kind}", f"{kind} {kind} -> {kind}")(lambda b, x, y: y - x)


def unfused(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """Return x * y + z with two roundings. Hardware never does this with denormals."""
    product = flush_denormal(b, flush_denormal(b, x) * flush_denormal(b, y))
    return flush_denormal(b, product + flush_denormal(b, z))


def _unfused(kind: str, legacy: str) -> None:
    """Declare multiply-adds with two roundings."""

    operations.lane(f"v_mad_{kind}{legacy}", f"{kind} {kind} {kind} -> {kind}")(unfused)
    operations.lane(f"v_mac_{kind}", f"{kind} {kind} {kind} -> {kind}")(unfused)

    @operations.lane(f"v_madak_{kind}", f"{kind} {kind} imm:{kind} -> {kind}")
    def madak(b: Builder, x: TypedValue, y: TypedValue, constant: TypedValue) -> TypedValue:
        """D = S0 * S1 + the constant, rounded twice."""
        return unfused(b, x, y, constant)

    @operations.lane(f"v_madmk_{kind}", f"src0:{kind} imm:{kind} src1:{kind} -> {kind}")
    def madmk(b: Builder, x: TypedValue, constant: TypedValue, y: TypedValue) -> TypedValue:
        """D = S0 * the constant + S1, rounded twice."""
        return unfused(b, x, constant, y)


for _kind in ("f16", "f32", "f64"):
    _arithmetic(_kind)
_subtraction("f16")
_subtraction("f32")
_unfused("f16", " v_mad_legacy_f16")
_unfused("f32", "")


operations.lane("v_fma_legacy_f16", "f16 f16 f16 -> f16", since=(9,))(lambda b, x, y, z: b.fma(x, y, z))


def either_is_zero(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """Return the mask of lanes where x or y is a zero of any sign."""
    return (x == 0.0) | (y == 0.0)


@operations.lane("v_mul_legacy_f32 v_mul_dx9_zero_f32", "f32 f32 -> f32")
def mul_legacy(b: Builder, x: TypedValue, y: TypedValue) -> TypedValue:
    """D = S0 * S1, where 0 times anything is +0."""
    return b.select(either_is_zero(b, x, y), 0.0, x * y)


@operations.lane("v_fma_legacy_f32 v_fma_dx9_zero_f32", "f32 f32 f32 -> f32")
def fma_legacy(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1 + S2, rounded once, where 0 times anything is +0."""
    zero = either_is_zero(b, x, y)
    return b.fma(b.select(zero, 0.0, x), b.select(zero, 0.0, y), z)


@operations.lane("v_fmac_legacy_f32 v_fmac_dx9_zero_f32", "f32 f32 f32 -> f32")
def fmac_legacy(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1 + D, rounded once, where 0 times anything is +0."""
    return fma_legacy(b, x, y, z)


@operations.lane("v_mad_legacy_f32", "f32 f32 f32 -> f32", since=(9,))
def mad_legacy(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1 + S2, rounded twice, denormals flushed, where 0 times anything is +0."""
    x, y = flush_denormal(b, x), flush_denormal(b, y)
    product = flush_denormal(b, mul_legacy(b, x, y))
    return flush_denormal(b, product + flush_denormal(b, z))


@operations.lane("v_mullit_f32", "f32 f32 f32 -> f32")
def mullit_f32(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S0 * S1; the least float if S1 is the least float, -infinity or NaN, or S2 is not above 0."""
    least = b.bits_const("f32", 0xFF7FFFFF)
    usable = (y > least) & (z > 0.0)
    return b.select(usable, x * y, least)


# Integral values ----------------------------------------------------------------------------------------------------


def _integral(kind: str) -> None:
    bits = int(kind[1:])
    below_one = {16: 0x3BFF, 32: 0x3F7FFFFF, 64: 0x3FEFFFFFFFFFFFFF}[bits]

    operations.lane(f"v_trunc_{kind}", f"{kind} -> {kind}")(lambda b, x: b.truncate(x))
    operations.lane(f"v_ceil_{kind}", f"{kind} -> {kind}")(lambda b, x: b.ceil(x))
    operations.lane(f"v_floor_{kind}", f"{kind} -> {kind}")(lambda b, x: b.floor(x))
    operations.lane(f"v_rndne_{kind}", f"{kind} -> {kind}")(lambda b, x: b.round_even(x))

    @operations.lane(f"v_fract_{kind}", f"{kind} -> {kind}")
    def fract(b: Builder, x: TypedValue) -> TypedValue:
        """D = S0 - floor(S0), always below 1 (LLVM matches v_fract to the minimum of the two)."""
        part = x - b.floor(x)
        return b.select(part >= 1.0, b.bits_const(kind, below_one), part)


for _kind in ("f16", "f32", "f64"):
    _integral(_kind)

# Division -----------------------------------------------------------------------------------------------------------


def _division(kind: str, step: int, high: int, tiny: int) -> None:
    """Declare the helpers of an IEEE division.

    They scale by 2**±step, and back, if a step of the division would overflow or lose bits.
    """
    bits = int(kind[1:])
    bias, fraction = {32: (127, 23), 64: (1023, 52)}[bits]

    @operations.lane(f"v_div_scale_{kind}", f"{kind} {kind} {kind} -> {kind} mask", flush=False)
    def div_scale(
        b: Builder, x: TypedValue, denominator: TypedValue, numerator: TypedValue
    ) -> tuple[TypedValue, TypedValue]:
        """D = S0 (which is S1 or S2), scaled; the mask says whether v_div_fmas must scale the quotient back."""
        x, denominator, numerator = (flush_input(b, value) for value in (x, denominator, numerator))
        top, bottom = exponent_field(numerator), exponent_field(denominator)
        is_denominator = _same(x, denominator)
        zero = (denominator == 0.0) | (numerator == 0.0)
        huge = (top - bottom) >= high
        denormal = (bottom == 0) & ~zero
        # 1/denominator is denormal: the denominator is at least 2**bias, or 2**(bias - 1) and inexact.
        inexact = (denominator.as_(f"u{bits}") << (bits - fraction)) != 0
        reciprocal = (bottom >= 2 * bias) | ((bottom == 2 * bias - 1) & inexact)
        # Hardware compares exponents, so it also treats some quotients just above as denormal.
        quotient = _denormal_quotient(numerator, denominator) | ((top != 0) & (top - bottom <= 1 - bias))
        up, down = scale_by_power(b, x, step), scale_by_power(b, x, -step)
        unscaled = x
        scaled = b.select(
            huge,
            b.select(is_denominator, up, unscaled),
            b.select(
                denormal,
                up,
                b.select(
                    reciprocal & quotient,
                    b.select(is_denominator, down, unscaled),
                    b.select(
                        reciprocal,
                        down,
                        b.select(
                            quotient,
                            b.select(is_denominator, unscaled, up),
                            b.select(top <= tiny, up, unscaled),
                        ),
                    ),
                ),
            ),
        )
        nan = b.bits_const(kind, infinity(bits) | (1 << (fraction - 1)))
        mask = zero | huge | (~denormal & quotient)
        return b.select(zero, nan, scaled), mask

    def _same(x: TypedValue, y: TypedValue) -> TypedValue:
        return x.as_(f"u{bits}") == y.as_(f"u{bits}")

    def _denormal_quotient(numerator: TypedValue, denominator: TypedValue) -> TypedValue:
        """Return the mask of unrounded numerator/denominator below the least normal number, if neither is infinite."""
        # Both are scaled, so that the comparison is exact.
        shift = {32: 100, 64: 600}[bits]
        top, bottom = abs(numerator) * 2.0**shift, abs(denominator) * 2.0 ** (shift + 1 - bias)
        return (top < bottom) & (abs(denominator) < float("inf"))

    @operations.lane(f"v_div_fmas_{kind}", f"{kind} {kind} {kind} vcc:mask -> {kind}")
    def div_fmas(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue, scaled: TypedValue) -> TypedValue:
        """D = S0 * S1 + S2, scaled back if VCC: up if the quotient S2 is large, down if it is small."""
        total = b.fma(x, y, z)
        large = exponent_field(z) > bias
        small = total * 2.0**-step
        if b.mode.rounding(bits) == 0:
            # Round only once: if scaling down meets a tie that is none in the exact sum, the other neighbour may be
            # correct.
            lost = total - small * 2.0**step
            rest = b.fma(x, y, z - total)
            least = 2.0 ** (2 - bias - fraction - 1)
            beyond = (abs(lost) == least * 2.0 ** (step - 1)) & (rest != 0.0) & ~(is_negative(lost) ^ is_negative(rest))
            small = b.select(beyond, small + b.select(is_negative(lost), -least, b.like(least, x)), small)
        return b.select(scaled, b.select(large, total * 2.0**step, small), total)

    @operations.lane(f"v_div_fixup_{kind}", f"{kind} {kind} {kind} -> {kind}")
    def div_fixup(b: Builder, x: TypedValue, denominator: TypedValue, numerator: TypedValue) -> TypedValue:
        """D = the quotient S0, corrected for special cases of S2 / S1."""
        return fix_quotient(b, x, denominator, numerator)


def fix_quotient(b: Builder, quotient: TypedValue, denominator: TypedValue, numerator: TypedValue) -> TypedValue:
    """Return the quotient after the last step of a division (ISA documents, V_DIV_FIXUP)."""
    bits = quotient.type.bits
    kind = f"f{bits}"
    word = f"u{bits}"
    fraction = {16: 10, 32: 23, 64: 52}[bits]
    sign = (numerator.as_(word) ^ denominator.as_(word)) & (1 << (bits - 1))
    unbounded = infinity(bits)
    zero_top, zero_bottom = numerator == 0.0, denominator == 0.0
    infinite_top, infinite_bottom = (abs(value).as_(word) == unbounded for value in (numerator, denominator))
    magnitude = abs(quotient).as_(word)
    if bits > 16:
        difference = exponent_field(numerator) - exponent_field(denominator)
        underflow = difference < (-150 if bits == 32 else -1075)
        # Underflow gives 0, as in rounding to nearest.
        magnitude = b.select(underflow, 0, magnitude)
    # A quotient that overflowed before is NaN now: infinity minus infinity.
    magnitude = b.select(b.is_nan(quotient), unbounded, magnitude)
    magnitude = b.select(infinite_bottom | zero_top, 0, magnitude)
    magnitude = b.select(zero_bottom | infinite_top, unbounded, magnitude)
    result = (magnitude | sign).as_(kind)
    invalid = (zero_top & zero_bottom) | (infinite_top & infinite_bottom)
    result = b.select(invalid, b.bits_const(kind, (1 << (bits - 1)) | unbounded | (1 << (fraction - 1))), result)
    result = b.select(b.is_nan(denominator), quiet(b, denominator), result)
    return b.select(b.is_nan(numerator), quiet(b, numerator), result)


_division("f32", 64, 96, 23)
_division("f64", 128, 768, 53)


@operations.lane("v_div_fixup_f16 v_div_fixup_legacy_f16", "f16 f16 f16 -> f16")
def div_fixup_f16(b: Builder, x: TypedValue, denominator: TypedValue, numerator: TypedValue) -> TypedValue:
    """D = the quotient S0, corrected for special cases of S2 / S1."""
    return fix_quotient(b, x, denominator, numerator)


# Cube maps ----------------------------------------------------------------------------------------------------------


def _major_axis(x: TypedValue, y: TypedValue, z: TypedValue) -> tuple[TypedValue, TypedValue]:
    """Return the mask where z is the major axis, and the mask where y is, if z is not."""
    return (abs(z) >= abs(x)) & (abs(z) >= abs(y)), abs(y) >= abs(x)


@operations.lane("v_cubeid_f32", "f32 f32 f32 -> f32")
def cubeid(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = number of the cube face that (S0, S1, S2) points to."""
    on_z, on_y = _major_axis(x, y, z)
    face = [b.select(value < 0.0, number + 1.0, b.like(number, x)) for value, number in ((x, 0.0), (y, 2.0), (z, 4.0))]
    return b.select(on_z, face[2], b.select(on_y, face[1], face[0]))


@operations.lane("v_cubesc_f32", "f32 f32 f32 -> f32")
def cubesc(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = S coordinate on the cube face."""
    on_z, on_y = _major_axis(x, y, z)
    return b.select(on_z, b.select(z < 0.0, -x, x), b.select(on_y, x, b.select(x < 0.0, z, -z)))


@operations.lane("v_cubetc_f32", "f32 f32 f32 -> f32")
def cubetc(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = T coordinate on the cube face."""
    on_z, on_y = _major_axis(x, y, z)
    return b.select(~on_z & on_y, b.select(y < 0.0, -z, z), -y)


@operations.lane("v_cubema_f32", "f32 f32 f32 -> f32")
def cubema(b: Builder, x: TypedValue, y: TypedValue, z: TypedValue) -> TypedValue:
    """D = twice the major axis."""
    on_z, on_y = _major_axis(x, y, z)
    return b.select(on_z, z, b.select(on_y, y, x)) * 2.0


__all__ = ["either_is_zero", "fix_quotient", "is_negative", "operations"]
