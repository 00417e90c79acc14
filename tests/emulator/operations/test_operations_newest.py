"""Vector operations that begin with gfx1250, as it encodes them, against Python's numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from bit_patterns import signed
from luthier.emulator.inspection.bench import run_assembly
from luthier.errors import EmulationError
from numpy.typing import NDArray

TARGET, LANES = "gfx1250", 32
RNG = np.random.default_rng(1250)
Words = NDArray[np.uint32]


def words(count: int = LANES) -> Words:
    return RNG.integers(0, 1 << 32, count, np.uint32)


def run(source: str, *rows: Words, sgprs: dict[int, int] | None = None, count: int = 1, **more: object) -> Words:
    """v16 up, after code that reads v0, v1, … ."""
    state = run_assembly(TARGET, source, dict(enumerate(rows)), sgprs or {}, **more)
    return state.vgpr(16, count).reshape(count, LANES)


# Floats of 16 bits ----------------------------------------------------------------------------------------------------


def bf16_value(code: int) -> Fraction | None:
    """The number, None where it is none."""
    number = float(np.array([code << 16], np.uint32).view(np.float32)[0])
    return Fraction(number) if math.isfinite(number) else None


def bf16_code(number: Fraction) -> int:
    """The nearest bfloat, even where two are."""
    magnitude = abs(number)
    sign = 0x8000 if number < 0 else 0
    if magnitude == 0:
        return sign
    exponent = max(math.floor(math.log2(magnitude)) if magnitude > Fraction(2) ** -140 else -126, -126)
    while exponent > -126 and Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    steps = round(magnitude / Fraction(2) ** (exponent - 7))  # rounds half to even
    code = steps if exponent == -126 else steps - 128 + (exponent + 127 << 7)
    return sign | min(code, 0x7F80)


def bfloats(spread: int) -> Words:
    """Pairs of bfloats whose exponents are near each other."""
    codes = [
        RNG.integers(0, 2, LANES) << 15
        | (127 + RNG.integers(-spread, spread + 1, LANES)) << 7
        | RNG.integers(0, 128, LANES)
        for _ in range(2)
    ]
    return (codes[0] | codes[1] << 16).astype(np.uint32)


@pytest.mark.parametrize("spread", [1, 8, 60])
def test_bfloat_arithmetic(spread: int) -> None:
    rows = [bfloats(spread) for _ in range(3)]
    # Ties of the product, moved by a very small addend.
    rows[0][:8], rows[1][:8] = 0x3F813F81, 0x3FC03FC0
    rows[2][:8] = [0x00010001, 0x80018001, 0x10001000, 0x90009000, 0, 0x3F803F80, 0x33003300, 0xB300B300]
    source = """
      v_pk_add_bf16 v16, v0, v1
      v_pk_mul_bf16 v17, v0, v1 neg_lo:[1,0]
      v_pk_fma_bf16 v18, v0, v1, v2
      v_pk_add_bf16 v19, v0, v1 op_sel:[1,0] op_sel_hi:[0,1]
    """
    actual = run(source, *rows, count=4)
    for lane in range(LANES):
        x, y, z = ([bf16_value(int(row[lane]) >> shift & 0xFFFF) for shift in (0, 16)] for row in rows)
        for half in (0, 1):
            expected = [x[half] + y[half], x[half] * y[half] * (1 if half else -1), x[half] * y[half] + z[half]]
            expected.append(x[1 - half] + y[half])
            codes = [int(row[lane]) >> 16 * half & 0xFFFF for row in actual]
            for code, number in zip(codes, expected, strict=True):
                assert code & 0x7FFF == bf16_code(number) & 0x7FFF if number == 0 else code == bf16_code(number)


def test_bfloat_choices() -> None:
    x, y = bfloats(9), bfloats(9)
    x[0], y[1] = 0x7FC07FC0, 0x7FC07FC0
    actual = run("v_pk_min_num_bf16 v16, v0, v1\n v_pk_max_num_bf16 v17, v0, v1", x, y, count=2)
    assert actual[:, 0].tolist() == [y[0], y[0]]
    assert actual[:, 1].tolist() == [x[1], x[1]]
    for lane in range(2, LANES):
        for half in (0, 16):
            codes = [int(row[lane]) >> half & 0xFFFF for row in (x, y)]
            ordered = sorted(codes, key=bf16_value)
            assert [int(row[lane]) >> half & 0xFFFF for row in actual] == ordered


def test_mixed_bfloats() -> None:
    numbers = [RNG.normal(size=LANES).astype(np.float32) for _ in range(3)]
    x, y = bfloats(4), numbers[1].view(np.uint32)
    z = bfloats(4)
    source = """
      v_fma_mix_f32_bf16 v16, v0, v1, v2 op_sel:[1,0,0] op_sel_hi:[1,0,1]
      v_mov_b32 v17, 0x12345678
      v_mov_b32 v18, 0x12345678
      v_fma_mixlo_bf16 v17, v0, -v1, v2 op_sel:[0,0,1] op_sel_hi:[1,0,1]
      v_fma_mixhi_bf16 v18, v0, |v1|, v2 op_sel_hi:[1,0,1]
    """
    actual = run(source, x, y, z, count=3)
    low, high = (
        ((row << 16).view(np.float32) for row in (x, z)),
        ((row & 0xFFFF0000).view(np.float32) for row in (x, z)),
    )
    (xl, zl), (xh, zh) = low, high

    def fused(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> list[np.float32]:
        exact = [Fraction(float(p)) * Fraction(float(q)) + Fraction(float(r)) for p, q, r in zip(a, b, c, strict=True)]
        return [np.float32(float(number)) for number in exact]  # 8 + 24 + 8 bits: a double holds nearly all of them

    np.testing.assert_array_equal(actual[0].view(np.float32), fused(xh, numbers[1], zl))
    halves = [bf16_code(Fraction(float(number))) for number in fused(xl, -numbers[1], zh)]
    assert actual[1].tolist() == [0x12340000 | half for half in halves]
    halves = [bf16_code(Fraction(float(number))) for number in fused(xl, abs(numbers[1]), zl)]
    assert actual[2].tolist() == [half << 16 | 0x5678 for half in halves]


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / math.sqrt(x),
    "sqrt": math.sqrt,
    "exp": lambda x: 2.0**x,
    "log": math.log2,
    "sin": lambda x: math.sin(2 * math.pi * math.remainder(x, 1.0)),
    "cos": lambda x: math.cos(2 * math.pi * math.remainder(x, 1.0)),
    "tanh": math.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_bfloats(name: str) -> None:
    codes = (RNG.integers(110, 132, LANES) << 7 | RNG.integers(0, 128, LANES)).astype(np.uint32)
    actual = run(f"v_{name}_bf16 v16.l, v0.h\n v_{name}_bf16 v16.h, v0.h", codes << 16)[0]
    for code, both in zip(codes, actual, strict=True):
        number = FUNCTIONS[name](float(bf16_value(int(code))))
        assert both >> 16 == both & 0xFFFF
        if abs(number) < 1e-15:  # where the cosine is 0, but not of a double near there
            number = 0.0
            both &= 0x7FFF7FFF
        near = bf16_code(Fraction(number))
        assert abs(int(both & 0xFFFF) - near) <= (1 if name in ("sin", "cos") else 0)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_hyperbolic_tangents(kind: type) -> None:
    numbers = np.concatenate(
        [np.linspace(-0.3, 0.3, 12), np.linspace(-9, 9, 16), [np.inf, -np.inf, -0.0, np.nan]]
    ).astype(kind)
    bits = numbers.view(np.uint16 if kind is np.float16 else np.uint32).astype(np.uint32)
    name = "v_tanh_f16 v16.l, v0.l" if kind is np.float16 else "v_tanh_f32 v16, v0"
    actual = run(f"v_mov_b32 v16, 0\n {name}", bits)[0]
    result = actual.astype(np.uint16).view(np.float16) if kind is np.float16 else actual.view(np.float32)
    expected = np.tanh(numbers.astype(np.float64)).astype(kind)
    np.testing.assert_array_equal(result, expected)
    assert np.signbit(result[-2])


# Integers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["i", "u"])
@pytest.mark.parametrize("bits", [16, 32])
@pytest.mark.parametrize("choice", ["min", "max"])
def test_sums_and_choices(kind: str, bits: int, choice: str) -> None:
    x, y, z = words(), words(), words()
    packed = "pk_" if bits == 16 else ""
    source = f"v_{packed}add_{choice}_{kind}{bits} v16, v0, v1, v2"
    source += f"\n v_{packed}{choice}3_{kind}{bits} v17, v0, v1, v2"
    actual = run(source, x, y, z, count=2)
    choose = min if choice == "min" else max

    def number(value: int) -> int:
        return signed(value, bits) if kind == "i" else value & (1 << bits) - 1

    for lane in range(LANES):
        for shift in range(0, 32, bits):
            a, b, c = (int(row[lane]) >> shift for row in (x, y, z))
            results = [choose(number(a + b), number(c)), choose(number(a), number(b), number(c))]
            assert [int(row[lane]) >> shift & (1 << bits) - 1 for row in actual] == [
                r & (1 << bits) - 1 for r in results
            ]


def test_saturation_to_four_bits() -> None:
    x = words()
    actual = run("v_mov_b32 v16, 0\n v_sat_pk4_i4_i8 v16.l, v0\n v_sat_pk4_u4_u8 v16.h, v0", x)[0]
    for word, both in zip(x.tolist(), actual.tolist(), strict=True):
        data = [word >> shift & 0xFF for shift in (0, 8, 16, 24)]
        small = [min(max(signed(value, 8), -8), 7) & 15 for value in data] + [min(value, 15) for value in data]
        assert both == sum(value << 4 * place for place, value in enumerate(small))


@pytest.mark.parametrize(("bits", "high", "low"), [(4, 1, 1), (6, 1, 2), (8, 2, 2)])
def test_tables_of_sixteen(bits: int, high: int, low: int) -> None:
    rows = [words() for _ in range(6)]
    span = {1: "v{0}", 2: "v[{0}:{1}]"}
    names = [span[count].format(start, start + 1) for start, count in ((0, high), (2, low))]
    source = f"v_perm_pk16_b{bits}_u4 v[16:{15 + bits // 2}], {names[0]}, {names[1]}, v[4:5]"
    actual = run(source, *rows, count=bits // 2)
    for lane in range(LANES):
        parts = [int(row[lane]) for row in (*rows[2 : 2 + low], *rows[:high])]
        table = sum(part << 32 * place for place, part in enumerate(parts))
        chosen = int(rows[4][lane]) | int(rows[5][lane]) << 32
        whole = sum((table >> bits * (chosen >> 4 * i & 15) & (1 << bits) - 1) << bits * i for i in range(16))
        assert [int(row[lane]) for row in actual] == [whole >> 32 * i & 0xFFFFFFFF for i in range(bits // 2)]


def test_new_opcodes_with_dpp() -> None:
    x, y, z = words(), words(), words()
    source = """
      v_bitop3_b32_e64_dpp v16, v0, v1, v2 bitop3:0x96 quad_perm:[1,0,3,2]
      v_prng_b32_dpp v17, v0 row_ror:4
    """
    actual = run(source, x, y, z, count=2)
    lanes = np.arange(LANES)
    np.testing.assert_array_equal(actual[0], x[lanes ^ 1] ^ y ^ z)
    turned = x[lanes & 16 | (lanes - 4) & 15].astype(np.uint64)
    np.testing.assert_array_equal(actual[1], (turned << 1 & 0xFFFFFFFF) ^ (turned >> 31) * 197)


# Lanes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [2, 8, 16, 32])
@pytest.mark.parametrize("chosen", [0, 1, 3, 13])
def test_exchange_in_groups(width: int, chosen: int) -> None:
    x = words()
    source = "\n".join(
        f"v_permlane_{name}_b32 v{16 + i}, v0, s0, s1" for i, name in enumerate(("bcast", "up", "down", "xor"))
    )
    actual = run(source + "\n v_permlane_idx_gen_b32 v20, v0, s0", x, sgprs={0: chosen, 1: width}, count=5)
    for lane in range(LANES):
        base, number = lane // width * width, lane % width
        taken = [chosen % width, number - chosen, number + chosen, number ^ chosen]
        expected = [int(x[base + place]) if 0 <= place < width else 0 for place in taken]
        assert actual[:, lane].tolist() == [*expected, int(x[lane]) ^ chosen]


def test_swap_of_rows() -> None:
    x, y = words(), words()
    state = run_assembly(TARGET, "v_permlane16_swap_b32 v0, v1", {0: x, 1: y})
    np.testing.assert_array_equal(state.vgpr(0), np.concatenate([x[:16], y[:16]]))
    np.testing.assert_array_equal(state.vgpr(1), np.concatenate([x[16:], y[16:]]))
    with pytest.raises(EmulationError, match="some lanes are off"):
        run_assembly(TARGET, "v_permlane16_swap_b32 v0, v1", {0: x, 1: y}, exec=0xFFFF)


@pytest.mark.parametrize("target", ["gfx1030", "gfx1100", "gfx1201", TARGET])
def test_relative_moves_with_dpp(target: str) -> None:
    """DPP permutes the register that M0 names; masks keep what is in the one that is written."""
    rows = [words() for _ in range(8)]
    source = """
      s_mov_b32 m0, 2
      v_movrels_b32_dpp v6, v1 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf
      v_movreld_b32_dpp v5, v1 row_shr:1 row_mask:0x1 bank_mask:0xf
    """
    state = run_assembly(target, source, dict(enumerate(rows)), wave_size=32)
    lanes = np.arange(LANES)
    np.testing.assert_array_equal(state.vgpr(6), rows[3][lanes ^ 1])
    moved = np.where((lanes > 0) & (lanes < 16), rows[1][lanes - 1], rows[7])
    np.testing.assert_array_equal(state.vgpr(7), moved)


def test_exchange_that_no_source_describes() -> None:
    source = "v_permlane_up_b32 v16, v0, s0, s1"
    with pytest.raises(EmulationError, match="width of a lane group is not a power of two"):
        run(source, words(), sgprs={0: 1, 1: 12})
    with pytest.raises(EmulationError, match="some lanes are off"):
        run(source, words(), sgprs={0: 1, 1: 8}, exec=0xFFFF)


# Eight bits -----------------------------------------------------------------------------------------------------------


def small_value(code: int, exponent_bits: int, fraction: int) -> float:
    """A float of 8 bits, e5m2 or e4m3 (OCP)."""
    sign, exponent, rest = code >> 7, code >> fraction & (1 << exponent_bits) - 1, code & (1 << fraction) - 1
    bias = (1 << exponent_bits - 1) - 1
    if fraction == 3 and code & 0x7F == 0x7F:
        return math.nan
    if fraction == 2 and exponent == 31:
        return math.nan if rest else math.copysign(math.inf, -sign or 1)
    size = (
        math.ldexp(rest, 1 - bias - fraction)
        if not exponent
        else math.ldexp(rest | 1 << fraction, exponent - bias - fraction)
    )
    return -size if sign else size


@pytest.mark.parametrize(("kind", "exponent", "fraction"), [("fp8", 4, 3), ("bf8", 5, 2)])
def test_halves_and_eight_bits(kind: str, exponent: int, fraction: int) -> None:
    data = np.arange(256, dtype=np.uint8).view(np.uint32)[RNG.permutation(64)[:32]]
    source = f"""
      v_mov_b32 v16, 0
      v_cvt_f16_{kind} v16.l, v0 byte_sel:2
      v_cvt_pk_f16_{kind} v17, v0.h
      v_mov_b32 v18, 0
      v_cvt_pk_{kind}_f16 v18.h, v17
      v_cvt_f32_{kind} v19, v0 byte_sel:3
    """
    actual = run(source, data, count=4)
    for lane, word in enumerate(data.tolist()):
        numbers = [small_value(word >> shift & 0xFF, exponent, fraction) for shift in (16, 24)]
        pair = actual[1][lane]
        halves = np.array([actual[0][lane], pair & 0xFFFF, pair >> 16], np.uint16).view(np.float16)
        np.testing.assert_array_equal(halves.astype(float), [numbers[0], *numbers])
        np.testing.assert_array_equal(actual[3][lane : lane + 1].view(np.float32), np.float32(numbers[1]))
        again = [actual[2][lane] >> shift & 0xFF for shift in (16, 24)]
        for code, number in zip(again, numbers, strict=True):
            np.testing.assert_array_equal(small_value(int(code), exponent, fraction), number)


def test_rounding_of_halves_to_eight_bits() -> None:
    numbers = np.linspace(-500, 500, 2 * LANES).astype(np.float16)
    actual = run("v_mov_b32 v16, 0\n v_cvt_pk_fp8_f16 v16.l, v0", numbers.view(np.uint32))[0]
    finite = sorted((small_value(code, 4, 3), code) for code in range(256) if code & 0x7F != 0x7F and code != 0x80)
    for place, number in enumerate(numbers.astype(float).tolist()):
        code = int(actual[place // 2]) >> 8 * (place % 2) & 0xFF
        if abs(number) > 464:  # halfway from the largest number, 448, to the next one
            assert code & 0x7F == 0x7F
        else:
            nearest = min(finite, key=lambda pair: (abs(pair[0] - number), pair[1] & 1))
            assert code == nearest[1]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_stochastic_pairs(kind: str) -> None:
    numbers = RNG.normal(size=(2, LANES)).astype(np.float32)
    x, y = numbers.view(np.uint32)
    seed = words()
    (actual,) = run(f"v_cvt_sr_pk_{kind}_f32 v16, v0, v1, v2", x, y, seed)
    dropped = 13 if kind == "f16" else 16
    seeds = [seed, (seed << np.uint32(1)) ^ np.where(seed >> 31, 197, 0).astype(np.uint32)]
    for half, (row, random) in enumerate(zip((x, y), seeds, strict=True)):
        rounded = (row.astype(np.uint64) + (random >> np.uint32(32 - dropped))) >> dropped << dropped
        expected = rounded.astype(np.uint32).view(np.float32)
        codes = actual >> 16 * half & 0xFFFF
        values = (
            codes.astype(np.uint16).view(np.float16).astype(np.float32)
            if kind == "f16"
            else (codes << 16).view(np.float32)
        )
        normal = abs(expected) > 1e-4
        np.testing.assert_array_equal(values[normal], expected[normal])


# Blocks with a scale --------------------------------------------------------------------------------------------------

SMALL = {"fp8": (8, 4, 3), "bf8": (8, 5, 2), "fp6": (6, 2, 3), "bf6": (6, 3, 2), "fp4": (4, 2, 1)}


def element(code: int, kind: str) -> float:
    """A number of a block."""
    bits, exponent, fraction = SMALL[kind]
    if bits == 8:
        return small_value(code, exponent, fraction)
    bias = (1 << exponent - 1) - 1
    power, rest = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
    size = math.ldexp(rest | (1 << fraction if power else 0), max(power, 1) - bias - fraction)
    return -size if code >> bits - 1 else size


def span(first: int, units: int) -> str:
    return f"v{first}" if units == 1 else f"v[{first}:{first + units - 1}]"


@pytest.mark.rows(1)
@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", SMALL)
def test_blocks(kind: str, wide: str) -> None:
    bits = SMALL[kind][0]
    count = 16 if bits == 6 else 8
    small, large = count * bits // 32, count // (1 if wide == "f32" else 2)
    rows = [words() for _ in range(small)]
    scale = np.full(LANES, 0x01838001, np.uint32)  # 2**4 in the third byte
    source = f"""
      v_cvt_scale_pk{count}_{wide}_{kind} {span(16, large)}, {span(0, small)}, v6 scale_sel:2
      v_cvt_scalef32_pk{count}_{kind}_{wide} {span(40, small)}, {span(16, large)}, v7
      v_cvt_scalef32_sr_pk{count}_{kind}_{wide} {span(44, small)}, {span(16, large)}, v8, v7
    """
    given = {**dict(enumerate(rows)), 6: scale, 7: np.full(LANES, 16, np.float32).view(np.uint32), 8: words()}
    state = run_assembly(TARGET, source, given)
    out = state.vgpr(16, large).reshape(large, LANES)
    packed = [state.vgpr(first, small).reshape(small, LANES) for first in (40, 44)]
    for lane in range(LANES):
        whole = sum(int(row[lane]) << 32 * place for place, row in enumerate(rows))
        codes = [whole >> bits * place & (1 << bits) - 1 for place in range(count)]
        numbers = [element(code, kind) * 16 for code in codes]
        if wide == "f32":
            values = out[:, lane].view(np.float32).astype(float).tolist()
        else:
            halves = [int(word) >> shift & 0xFFFF for word in out[:, lane] for shift in (0, 16)]
            as_half = np.array(halves, np.uint16).view(np.float16).astype(float).tolist()
            as_bfloat = (np.array(halves, np.uint32) << 16).view(np.float32).astype(float).tolist()
            values = as_half if wide == "f16" else as_bfloat
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(values, [float(np.float16(n)) for n in numbers] if wide == "f16" else numbers)
        for rows_again in packed:
            again = sum(int(row[lane]) << 32 * place for place, row in enumerate(rows_again))
            for place, number in enumerate(values):
                if abs(number) <= 65504 or wide != "f16":
                    value = element(again >> bits * place & (1 << bits) - 1, kind)
                    np.testing.assert_array_equal(value * 16, number)


def test_scales_that_are_no_powers() -> None:
    source = "v_cvt_scalef32_pk8_fp8_f16 v[16:17], v[0:3], v4"
    with pytest.raises(EmulationError, match="not a power of two"):
        run(source, *[words() for _ in range(4)], np.full(LANES, 1.5, np.float32).view(np.uint32))


def test_rounding_in_blocks() -> None:
    """Numbers between those of fp4, at ties and beyond the largest, which they become."""
    numbers = RNG.uniform(-8, 8, (8, LANES)).astype(np.float32)
    numbers[0, :6] = [0.25, 0.75, 1.25, 2.5, 5.0, 7.0]
    actual = run(
        "v_cvt_scalef32_pk8_fp4_f32 v16, v[0:7], v8",
        *numbers.view(np.uint32),
        np.full(LANES, 1, np.float32).view(np.uint32),
    )[0]
    finite = sorted((element(code, "fp4"), code) for code in range(16) if code != 8)
    for lane in range(LANES):
        for place in range(8):
            number = float(numbers[place, lane])
            nearest = min(finite, key=lambda pair: (abs(pair[0] - number), pair[1] & 1))[1]
            code = int(actual[lane]) >> 4 * place & 15
            assert code & 7 == nearest & 7
            assert not nearest & 7 or code == nearest
