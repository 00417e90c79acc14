"""Scalar operations against Python integers."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from bit_patterns import signed

MASK32 = 0xFFFFFFFF


def field(x, s, bits, is_signed):
    offset, width = s & (bits - 1), min((s >> 16) & 0x7F, bits)
    value = signed(x, bits) >> offset if is_signed else (x & ((1 << bits) - 1)) >> offset
    value &= (1 << width) - 1
    return signed(value, width) if is_signed and width else value


def lowest(x, bits):
    return next((place for place in range(bits) if x >> place & 1), -1)


def highest(x, bits):
    return next((place for place in range(bits) if x >> (bits - 1 - place) & 1), -1)


def sign_run(x, bits):
    return next((p for p in range(1, bits) if x >> (bits - 1 - p) & 1 != x >> (bits - 1) & 1), -1)


def quads(x, bits):
    return [int(x >> place & 15 != 0) for place in range(0, bits, 4)]


def overflow(value, bits=32):
    return not -(1 << (bits - 1)) <= value < 1 << (bits - 1)


# name: kinds of sources, function -> result, scc (None where SCC is not written)
TWO = {
    "s_add_u32": ("u32 u32", lambda x, y: (x + y, x + y > MASK32)),
    "s_sub_u32": ("u32 u32", lambda x, y: (x - y, y > x)),
    "s_add_i32": ("u32 u32", lambda x, y: (x + y, overflow(signed(x) + signed(y)))),
    "s_sub_i32": ("u32 u32", lambda x, y: (x - y, overflow(signed(x) - signed(y)))),
    "s_absdiff_i32": ("u32 u32", lambda x, y: (abs(signed(x - y)), x != y)),
    "s_mul_i32": ("u32 u32", lambda x, y: (x * y, None)),
    "s_mul_hi_u32": ("u32 u32", lambda x, y: (x * y >> 32, None)),
    "s_mul_hi_i32": ("u32 u32", lambda x, y: (signed(x) * signed(y) >> 32, None)),
    "s_min_i32": ("u32 u32", lambda x, y: (min(signed(x), signed(y)), signed(x) < signed(y))),
    "s_max_i32": ("u32 u32", lambda x, y: (max(signed(x), signed(y)), signed(x) >= signed(y))),
    "s_min_u32": ("u32 u32", lambda x, y: (min(x, y), x < y)),
    "s_max_u32": ("u32 u32", lambda x, y: (max(x, y), x >= y)),
    "s_pack_ll_b32_b16": ("u32 u32", lambda x, y: (x & 0xFFFF | y << 16, None)),
    "s_pack_lh_b32_b16": ("u32 u32", lambda x, y: (x & 0xFFFF | y >> 16 << 16, None)),
    "s_pack_hh_b32_b16": ("u32 u32", lambda x, y: (x >> 16 | y >> 16 << 16, None)),
    "s_pack_hl_b32_b16": ("u32 u32", lambda x, y: (x >> 16 | y << 16, None)),
    "s_bfe_u32": ("u32 u32", lambda x, y: (field(x, y, 32, False), field(x, y, 32, False) != 0)),
    "s_bfe_i32": ("u32 u32", lambda x, y: (field(x, y, 32, True), field(x, y, 32, True) != 0)),
    "s_bfe_u64": ("u64 u32", lambda x, y: (field(x, y, 64, False), field(x, y, 64, False) != 0)),
    "s_bfe_i64": ("u64 u32", lambda x, y: (field(x, y, 64, True), field(x, y, 64, True) != 0)),
    "s_mul_u64": ("u64 u64", lambda x, y: (x * y, None)),
    "s_add_nc_u64": ("u64 u64", lambda x, y: (x + y, None)),
    "s_sub_nc_u64": ("u64 u64", lambda x, y: (x - y, None)),
}
for bits in (32, 64):
    mask = (1 << bits) - 1
    kinds = f"u{bits} u{bits}"
    for name, function in {
        "and": operator.and_,
        "or": operator.or_,
        "xor": operator.xor,
        "nand": lambda x, y: ~(x & y),
        "nor": lambda x, y: ~(x | y),
        "xnor": lambda x, y: ~(x ^ y),
        "andn2": lambda x, y: x & ~y,
        "orn2": lambda x, y: x | ~y,
    }.items():
        TWO[f"s_{name}_b{bits}"] = (kinds, lambda x, y, f=function, m=mask: (f(x, y), f(x, y) & m != 0))
    shifted = f"u{bits} u32"
    TWO[f"s_lshl_b{bits}"] = (shifted, lambda x, y, n=bits, m=mask: (x << y % n, x << y % n & m != 0))
    TWO[f"s_lshr_b{bits}"] = (shifted, lambda x, y, n=bits: (x >> y % n, x >> y % n != 0))
    TWO[f"s_ashr_i{bits}"] = (shifted, lambda x, y, n=bits: (signed(x, n) >> y % n, signed(x, n) >> y % n != 0))
    TWO[f"s_bfm_b{bits}"] = (kinds, lambda x, y, n=bits: (((1 << x % n) - 1) << y % n, None))
for amount in (1, 2, 3, 4):
    TWO[f"s_lshl{amount}_add_u32"] = ("u32 u32", lambda x, y, n=amount: ((x << n) + y, (x << n) + y > MASK32))

ONE = {}
for bits in (32, 64):
    mask = (1 << bits) - 1
    tail = "" if bits == 32 else "_i64"
    ONE |= {
        f"s_mov_b{bits}": (bits, lambda x: (x, None)),
        f"s_not_b{bits}": (bits, lambda x, m=mask: (~x, ~x & m != 0)),
        f"s_brev_b{bits}": (bits, lambda x, n=bits: (int(format(x, f"0{n}b")[::-1], 2), None)),
        f"s_bcnt1_i32_b{bits}": (bits, lambda x: (x.bit_count(), x != 0)),
        f"s_bcnt0_i32_b{bits}": (bits, lambda x, n=bits: (n - x.bit_count(), x.bit_count() != n)),
        f"s_ff1_i32_b{bits}": (bits, lambda x, n=bits: (lowest(x, n), None)),
        f"s_ff0_i32_b{bits}": (bits, lambda x, n=bits: (lowest(~x, n), None)),
        f"s_flbit_i32_b{bits}": (bits, lambda x, n=bits: (highest(x, n), None)),
        f"s_flbit_i32{tail}": (bits, lambda x, n=bits: (sign_run(x, n), None)),
        f"s_wqm_b{bits}": (bits, lambda x, n=bits: (sum(15 * q << 4 * i for i, q in enumerate(quads(x, n))), x != 0)),
        f"s_quadmask_b{bits}": (bits, lambda x, n=bits: (sum(q << i for i, q in enumerate(quads(x, n))), x != 0)),
    }
ONE |= {
    "s_sext_i32_i8": (32, lambda x: (signed(x, 8), None)),
    "s_sext_i32_i16": (32, lambda x: (signed(x, 16), None)),
    "s_abs_i32": (32, lambda x: (abs(signed(x)), x != 0)),
    "s_bitreplicate_b64_b32": (32, lambda x: (sum((x >> i & 1) * 3 << 2 * i for i in range(32)), None)),
}


def check(name, outcome, sources, function):
    """Compare results and SCC with the function's value for each element."""
    results, flags = outcome if isinstance(outcome, tuple) else (outcome, None)
    mask = (1 << (results.itemsize * 8)) - 1
    for index, values in enumerate(zip(*(source.tolist() for source in sources), strict=True)):
        expected, scc = function(*values)
        assert results[index] == expected & mask, (name, [hex(value) for value in values])
        assert (flags is None) == (scc is None)
        if flags is not None:
            assert flags[index] == scc, (name, [hex(value) for value in values])


@pytest.mark.parametrize("name", TWO)
def test_two_sources(evaluate, cases, name):
    kinds, function = TWO[name]
    sources = cases(kinds, random=200)
    check(name, evaluate(name, *sources), sources, function)


@pytest.mark.parametrize("name", ONE)
def test_one_source(evaluate, cases, name):
    bits, function = ONE[name]
    sources = cases(f"u{bits}", random=300)
    check(name, evaluate(name, *sources), sources, function)


def test_carry_chain(evaluate, cases):
    x, y = cases("u32 u32", random=200)
    carry = (np.arange(x.size) % 2).astype(np.uint8)
    check("addc", evaluate("s_addc_u32", x, y, carry), [x, y, carry], lambda a, b, c: (a + b + c, a + b + c > MASK32))
    check("subb", evaluate("s_subb_u32", x, y, carry), [x, y, carry], lambda a, b, c: (a - b - c, b + c > a))
    assert (evaluate("s_cselect_b32", x, y, carry) == np.where(carry, x, y)).all()
    assert (evaluate("s_cmov_b32", x, y, carry) == np.where(carry, y, x)).all()


RELATIONS = {
    "eq": operator.eq,
    "lg": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
COMPARISONS = [(relation, kind) for relation in RELATIONS for kind in ("i32", "u32")] + [("eq", "u64"), ("lg", "u64")]


@pytest.mark.parametrize(("relation", "kind"), COMPARISONS)
def test_comparisons(evaluate, cases, relation, kind):
    bits = int(kind[1:])
    x, y = (value.view(f"{kind[0]}{bits // 8}") for value in cases(f"u{bits} u{bits}", random=200))
    assert (evaluate(f"s_cmp_{relation}_{kind}", x, y) == RELATIONS[relation](x, y)).all()


def test_constants_of_16_bits(evaluate):
    x = np.array([0, 5, 0xFFFFFFFE, 0xFFFE, 0x7FFFFFFF, 0x80000000], np.uint32)
    for constant in (0, 5, -2, 32767, -32768):
        raw = constant & MASK32
        wide = np.uint32(constant & 0xFFFF)
        assert (evaluate("s_cmpk_lt_i32", x, constants=[raw]) == (x.view(np.int32) < constant)).all()
        assert (evaluate("s_cmpk_lt_u32", x, constants=[raw]) == (x < wide)).all()
        total, scc = evaluate("s_addk_i32", x, constants=[raw])
        assert (total == (x.astype(np.int64) + constant & MASK32)).all()
        assert scc.tolist() == [overflow(signed(value) + constant) for value in x.tolist()]
        assert (evaluate("s_mulk_i32", x, constants=[raw]) == (x.astype(np.int64) * constant & MASK32)).all()
        assert evaluate("s_movk_i32", constants=[raw]) == raw
        assert (evaluate("s_cmovk_i32", x, np.ones(x.size, np.uint8), constants=[raw]) == raw).all()


@pytest.mark.parametrize("bits", [32, 64])
def test_single_bits(evaluate, cases, bits):
    x, y = cases(f"u{bits} u32", random=200)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    assert evaluate(f"s_bitcmp1_b{bits}", x, y).tolist() == [a >> b % bits & 1 for a, b in pairs]
    assert evaluate(f"s_bitcmp0_b{bits}", x, y).tolist() == [~a >> b % bits & 1 for a, b in pairs]
    assert evaluate(f"s_bitset1_b{bits}", x, y).tolist() == [a | 1 << b % bits for a, b in pairs]
    assert evaluate(f"s_bitset0_b{bits}", x, y).tolist() == [a & ~(1 << b % bits) for a, b in pairs]
