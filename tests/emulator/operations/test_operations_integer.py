"""Integer vector operations against Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from bit_patterns import signed

M32 = 0xFFFFFFFF
M64 = 0xFFFFFFFFFFFFFFFF


def clamp(value, bits, is_signed):
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def perm(x, y, z):
    data = (x << 32 | y).to_bytes(8, "little")

    def byte(selector):
        if selector < 8:
            return data[selector]
        if selector < 12:
            return 255 * (data[2 * (selector - 8) + 1] >> 7)
        return 0 if selector == 12 else 255

    return sum(byte(z >> shift & 255) << shift for shift in (0, 8, 16, 24))


def sad(x, y, masked=False):
    pairs = zip(x.to_bytes(4, "little"), y.to_bytes(4, "little"), strict=True)
    return sum(abs(a - b) for a, b in pairs if b or not masked)


def quad_sad(x, y, z, masked=False):
    parts = ((sad(x >> 8 * i & M32, y, masked) + (z >> 16 * i & 0xFFFF)) & 0xFFFF for i in range(4))
    return sum(part << 16 * i for i, part in enumerate(parts))


def u24(x):
    return x & 0xFFFFFF


def i24(x):
    return signed(x, 24)


def median(*values):
    return sorted(values)[1]


def sign_run(x):
    return next((p for p in range(1, 32) if x >> (31 - p) & 1 != x >> 31), -1)


def lerp(x, y, z):
    triples = zip(*(value.to_bytes(4, "little") for value in (x, y, z)), strict=True)
    return int.from_bytes(bytes((a + b + (c & 1)) >> 1 for a, b, c in triples), "little")


def dot(x, y, z, bits, is_signed):
    total = z
    for shift in range(0, 32, bits):
        a, b = (value >> shift & ((1 << bits) - 1) for value in (x, y))
        total += signed(a, bits) * signed(b, bits) if is_signed else a * b
    return total


S = signed
OPERATIONS = {
    "v_add_u32": ("u32 u32", lambda x, y: x + y),
    "v_sub_u32": ("u32 u32", lambda x, y: x - y),
    "v_subrev_u32": ("u32 u32", lambda x, y: y - x),
    "v_add_u16": ("u16 u16", lambda x, y: x + y),
    "v_sub_i16": ("u16 u16", lambda x, y: x - y),
    "v_add3_u32": ("u32 u32 u32", lambda x, y, z: x + y + z),
    "v_lshl_add_u32": ("u32 u32 u32", lambda x, y, z: (x << y % 32) + z),
    "v_add_lshl_u32": ("u32 u32 u32", lambda x, y, z: x + y << z % 32),
    "v_lshl_or_b32": ("u32 u32 u32", lambda x, y, z: x << y % 32 | z),
    "v_and_or_b32": ("u32 u32 u32", lambda x, y, z: x & y | z),
    "v_or3_b32": ("u32 u32 u32", lambda x, y, z: x | y | z),
    "v_xad_u32": ("u32 u32 u32", lambda x, y, z: (x ^ y) + z),
    "v_lshl_add_u64": ("u64 u32 u64", lambda x, y, z: (x << (y & 7)) + z),
    "v_mul_lo_u32": ("u32 u32", lambda x, y: x * y),
    "v_mul_hi_u32": ("u32 u32", lambda x, y: x * y >> 32),
    "v_mul_hi_i32": ("u32 u32", lambda x, y: S(x) * S(y) >> 32),
    "v_mul_lo_u16": ("u16 u16", lambda x, y: x * y),
    "v_mul_u32_u24": ("u32 u32", lambda x, y: u24(x) * u24(y)),
    "v_mul_hi_u32_u24": ("u32 u32", lambda x, y: u24(x) * u24(y) >> 32),
    "v_mul_i32_i24": ("u32 u32", lambda x, y: i24(x) * i24(y)),
    "v_mul_hi_i32_i24": ("u32 u32", lambda x, y: i24(x) * i24(y) >> 32),
    "v_mad_u32_u24": ("u32 u32 u32", lambda x, y, z: u24(x) * u24(y) + z),
    "v_mad_i32_i24": ("u32 u32 u32", lambda x, y, z: i24(x) * i24(y) + S(z)),
    "v_mad_u16": ("u16 u16 u16", lambda x, y, z: x * y + z),
    "v_mad_u32_u16": ("u16 u16 u32", lambda x, y, z: x * y + z),
    "v_mad_i32_i16": ("u16 u16 u32", lambda x, y, z: S(x, 16) * S(y, 16) + z),
    "v_min_i32": ("u32 u32", lambda x, y: min(S(x), S(y))),
    "v_max_u32": ("u32 u32", max),
    "v_min_u16": ("u16 u16", min),
    "v_max_i16": ("u16 u16", lambda x, y: max(S(x, 16), S(y, 16))),
    "v_min3_i32": ("u32 u32 u32", lambda x, y, z: min(S(x), S(y), S(z))),
    "v_max3_u32": ("u32 u32 u32", max),
    "v_med3_u32": ("u32 u32 u32", median),
    "v_med3_i32": ("u32 u32 u32", lambda x, y, z: median(S(x), S(y), S(z))),
    "v_med3_i16": ("u16 u16 u16", lambda x, y, z: median(S(x, 16), S(y, 16), S(z, 16))),
    "v_maxmin_u32": ("u32 u32 u32", lambda x, y, z: min(max(x, y), z)),
    "v_minmax_i32": ("u32 u32 u32", lambda x, y, z: max(min(S(x), S(y)), S(z))),
    "v_sad_u8": ("u32 u32 u32", lambda x, y, z: sad(x, y) + z),
    "v_sad_hi_u8": ("u32 u32 u32", lambda x, y, z: (sad(x, y) << 16) + z),
    "v_msad_u8": ("u32 u32 u32", lambda x, y, z: sad(x, y, True) + z),
    "v_sad_u16": ("u32 u32 u32", lambda x, y, z: abs((x & 0xFFFF) - (y & 0xFFFF)) + abs((x >> 16) - (y >> 16)) + z),
    "v_sad_u32": ("u32 u32 u32", lambda x, y, z: abs(x - y) + z),
    "v_qsad_pk_u16_u8": ("u64 u32 u64", quad_sad),
    "v_mqsad_pk_u16_u8": ("u64 u32 u64", lambda x, y, z: quad_sad(x, y, z, True)),
    "v_mov_b32": ("u32", lambda x: x),
    "v_not_b32": ("u32", lambda x: ~x),
    "v_and_b32": ("u32 u32", lambda x, y: x & y),
    "v_xnor_b32": ("u32 u32", lambda x, y: ~(x ^ y)),
    "v_bfi_b32": ("u32 u32 u32", lambda x, y, z: x & y | ~x & z),
    "v_lshlrev_b32": ("u32 u32", lambda x, y: y << x % 32),
    "v_lshrrev_b32": ("u32 u32", lambda x, y: y >> x % 32),
    "v_ashrrev_i32": ("u32 u32", lambda x, y: S(y) >> x % 32),
    "v_lshlrev_b64": ("u32 u64", lambda x, y: y << x % 64),
    "v_lshrrev_b64": ("u32 u64", lambda x, y: y >> x % 64),
    "v_ashrrev_i64": ("u32 u64", lambda x, y: S(y, 64) >> x % 64),
    "v_lshlrev_b16": ("u16 u16", lambda x, y: y << x % 16),
    "v_ashrrev_i16": ("u16 u16", lambda x, y: S(y, 16) >> x % 16),
    "v_bfe_u32": ("u32 u32 u32", lambda x, y, z: x >> y % 32 & (1 << z % 32) - 1),
    "v_bfe_i32": ("u32 u32 u32", lambda x, y, z: S(S(x) >> y % 32, z % 32) if z % 32 else 0),
    "v_bfm_b32": ("u32 u32", lambda x, y: (1 << x % 32) - 1 << y % 32),
    "v_alignbit_b32": ("u32 u32 u32", lambda x, y, z: (x << 32 | y) >> z % 32),
    "v_alignbyte_b32": ("u32 u32 u32", lambda x, y, z: (x << 32 | y) >> 8 * (z % 4)),
    "v_perm_b32": ("u32 u32 u32", perm),
    "v_lerp_u8": ("u32 u32 u32", lerp),
    "v_bfrev_b32": ("u32", lambda x: int(format(x, "032b")[::-1], 2)),
    "v_bcnt_u32_b32": ("u32 u32", lambda x, y: x.bit_count() + y),
    "v_ffbh_u32": ("u32", lambda x: 32 - x.bit_length() if x else -1),
    "v_ffbl_b32": ("u32", lambda x: (x & -x).bit_length() - 1),
    "v_ffbh_i32": ("u32", sign_run),
    "v_prng_b32": ("u32", lambda x: (x << 1) ^ (197 if x >> 31 else 0)),
    "v_sat_pk_u8_i16": ("u32", lambda x: clamp(S(x, 16), 8, False) | clamp(S(x >> 16, 16), 8, False) << 8),
    "v_ashr_pk_i8_i32": (
        "u32 u32 u32",
        lambda x, y, z: clamp(S(x) >> z % 32, 8, True) & 255 | (clamp(S(y) >> z % 32, 8, True) & 255) << 8,
    ),
    "v_cvt_pk_u16_u32": ("u32 u32", lambda x, y: min(x, 0xFFFF) | min(y, 0xFFFF) << 16),
    "v_cvt_pk_i16_i32": ("u32 u32", lambda x, y: clamp(S(x), 16, True) & 0xFFFF | clamp(S(y), 16, True) << 16),
    "v_dot4_u32_u8": ("u32 u32 u32", lambda x, y, z: dot(x, y, z, 8, False)),
    "v_dot4_i32_i8": ("u32 u32 u32", lambda x, y, z: dot(x, y, z, 8, True)),
    "v_dot8_i32_i4": ("u32 u32 u32", lambda x, y, z: dot(x, y, z, 4, True)),
    "v_dot8_u32_u4": ("u32 u32 u32", lambda x, y, z: dot(x, y, z, 4, False)),
}


def expect(name, result, sources, function):
    mask = (1 << result.itemsize * 8) - 1
    for index, values in enumerate(zip(*(source.tolist() for source in sources), strict=True)):
        assert result[index] == function(*values) & mask, (name, [hex(value) for value in values])


@pytest.mark.parametrize("name", OPERATIONS)
def test_against_integers(evaluate, cases, name):
    kinds, function = OPERATIONS[name]
    sources = cases(kinds, random=256)
    major = 11 if name.startswith(("v_maxmin", "v_minmax")) else 9
    expect(name, evaluate(name, *sources, major=major), sources, function)


CLAMPED = {
    "v_add_u32": ("u32 u32", lambda x, y: clamp(x + y, 32, False)),
    "v_sub_u32": ("u32 u32", lambda x, y: clamp(x - y, 32, False)),
    "v_add_i32": ("u32 u32", lambda x, y: clamp(S(x) + S(y), 32, True)),
    "v_sub_i16": ("u16 u16", lambda x, y: clamp(S(x, 16) - S(y, 16), 16, True)),
    "v_mad_u32_u24": ("u32 u32 u32", lambda x, y, z: clamp(u24(x) * u24(y) + z, 32, False)),
    "v_mad_i32_i24": ("u32 u32 u32", lambda x, y, z: clamp(i24(x) * i24(y) + S(z), 32, True)),
    "v_mad_u16": ("u16 u16 u16", lambda x, y, z: clamp(x * y + z, 16, False)),
    "v_mad_i16": ("u16 u16 u16", lambda x, y, z: clamp(S(x, 16) * S(y, 16) + S(z, 16), 16, True)),
    "v_sad_u32": ("u32 u32 u32", lambda x, y, z: clamp(abs(x - y) + z, 32, False)),
    "v_dot4_i32_i8": ("u32 u32 u32", lambda x, y, z: clamp(dot(x, y, S(z), 8, True), 32, True)),
    "v_dot4_u32_u8": ("u32 u32 u32", lambda x, y, z: clamp(dot(x, y, z, 8, False), 32, False)),
}


@pytest.mark.parametrize("name", CLAMPED)
def test_saturation(evaluate, cases, name):
    kinds, function = CLAMPED[name]
    sources = cases(kinds, random=256)
    expect(name, evaluate(name, *sources, clamp=1), sources, function)


def test_carries(evaluate, cases):
    x, y = cases("u32 u32", random=256)
    carry = (np.arange(x.size) % 3 == 0).astype(np.uint8)
    rows = list(zip(x.tolist(), y.tolist(), carry.tolist(), strict=True))
    for name, sources, exact in (
        ("v_add_co_u32", (x, y), [a + b for a, b, _ in rows]),
        ("v_sub_co_u32", (x, y), [a - b for a, b, _ in rows]),
        ("v_subrev_co_u32", (x, y), [b - a for a, b, _ in rows]),
        ("v_addc_co_u32", (x, y, carry), [a + b + c for a, b, c in rows]),
        ("v_subb_co_u32", (x, y, carry), [a - b - c for a, b, c in rows]),
        ("v_subbrev_co_u32", (x, y, carry), [b - a - c for a, b, c in rows]),
    ):
        result, flags = evaluate(name, *sources)
        assert result.tolist() == [value & M32 for value in exact], name
        assert flags.tolist() == [not 0 <= value <= M32 for value in exact], name
    assert (evaluate("v_cndmask_b32", x, y, carry) == np.where(carry, y, x)).all()


def test_wide_multiply_add(evaluate, cases):
    x, y, z = cases("u32 u32 u64", random=512)
    rows = list(zip(x.tolist(), y.tolist(), z.tolist(), strict=True))
    result, carry = evaluate("v_mad_u64_u32", x, y, z)
    exact = [a * b + c for a, b, c in rows]
    assert result.tolist() == [value & M64 for value in exact]
    assert carry.tolist() == [value > M64 for value in exact]
    result, carry = evaluate("v_mad_i64_i32", x, y, z)
    exact = [S(a) * S(b) + S(c, 64) for a, b, c in rows]
    assert result.tolist() == [value & M64 for value in exact]
    assert carry.tolist() == [value < 0 for value in exact]


def test_lanes_below(evaluate):
    x = np.full(64, 0xF0F0A5A5, np.uint32)
    y = np.arange(64, dtype=np.uint32)
    expected = [lane + (0xF0F0A5A5 & (1 << min(lane, 32)) - 1).bit_count() for lane in range(64)]
    assert evaluate("v_mbcnt_lo_u32_b32", x, y).tolist() == expected
    expected = [lane + (0xF0F0A5A5 & (1 << max(lane - 32, 0)) - 1).bit_count() for lane in range(64)]
    assert evaluate("v_mbcnt_hi_u32_b32", x, y).tolist() == expected


def test_any_function_of_three_bits(evaluate, cases):
    x, y, z = cases("u32 u32 u32", random=64)
    for table in (0, 0x80, 0xFE, 0x96, 0xCA, 0x35, 0xFF):
        result = evaluate("v_bitop3_b32", x, y, z, bitop3=table)
        for row in range(len(x)):
            bits = zip(*(format(int(value[row]), "032b") for value in (x, y, z)), strict=True)
            expected = "".join(str(table >> int("".join(triple), 2) & 1) for triple in bits)
            assert result[row] == int(expected, 2)


@pytest.mark.parametrize(("signs", "modifiers"), [((0, 0), 0), ((1, 0), 1), ((0, 1), 2), ((1, 1), 3)])
def test_dot_products_of_either_sign(evaluate, cases, signs, modifiers):
    x, y, z = cases("u32 u32 u32", random=256)
    result = evaluate("v_dot4_i32_iu8", x, y, z, major=11, src0_modifiers=modifiers & 1, src1_modifiers=modifiers >> 1)

    def expected(a, b, c):
        parts = [[int(byte) for byte in value.to_bytes(4, "little")] for value in (a, b)]
        for part, negative in zip(parts, signs, strict=True):
            if negative:
                part[:] = [S(byte, 8) for byte in part]
        return c + sum(p * q for p, q in zip(*parts, strict=True))

    expect("v_dot4_i32_iu8", result, (x, y, z), expected)
