"""What matrix instructions compute, by exact fractions: element formats, places in registers, sums.

Places are written the way the ISA documents draw them: what a lane's elements are. (The emulator has it the other way
round.) Sums follow "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv:2511.10909) for the
processors measured there.
"""

from __future__ import annotations

import functools
import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from luthier.emulator.bench import WaveState, run_assembly

Number = Fraction | float
"""A fraction, or an infinity or NaN."""
Place = Callable[[int, int], "tuple[int, int, int] | None"]
"""Of lane and element: block, row (column), k; None if unused."""

# Formats ------------------------------------------------------------------------------------------------------------

FORMATS = {
    # name: bits, bits of the exponent, bias, kind of special codes
    "f64": (64, 11, 1023, "ieee"),
    "f32": (32, 8, 127, "ieee"),
    "xf32": (32, 8, 127, "ieee"),
    "f16": (16, 5, 15, "ieee"),
    "bf16": (16, 8, 127, "ieee"),
    "fp8": (8, 4, 7, "one"),
    "bf8": (8, 5, 15, "ieee"),
    "fp8_fnuz": (8, 4, 8, "minus zero"),
    "bf8_fnuz": (8, 5, 16, "minus zero"),
    "fp6": (6, 2, 1, ""),
    "bf6": (6, 3, 3, ""),
    "fp4": (4, 2, 1, ""),
}


def bits_of(kind: str) -> int:
    return FORMATS[kind][0] if kind in FORMATS else int(re.sub(r"\D", "", kind))


@functools.lru_cache(1 << 16)
def decode(kind: str, code: int) -> Number:
    """The number that a code means."""
    if kind[0] in "iu":
        bits = bits_of(kind)
        return Fraction(code - (1 << bits) if kind[0] == "i" and code >> (bits - 1) else code)
    if kind == "xf32":
        code &= ~0x1FFF
    bits, exponent_bits, bias, special = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    sign = -1 if code >> (bits - 1) else 1
    field = code >> fraction_bits & ((1 << exponent_bits) - 1)
    fraction = code & ((1 << fraction_bits) - 1)
    if special == "ieee" and field == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    if (special == "one" and code & 0x7F == 0x7F) or (special == "minus zero" and code == 0x80):
        return math.nan
    if field == 0:
        return sign * Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias)
    return sign * (1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (field - bias)


@functools.lru_cache(1 << 16)
def split(kind: str, number: Fraction) -> tuple[Fraction, int]:
    """Significand and exponent as the format stores them; of zero the exponent of denormals."""
    lowest = 1 - FORMATS[kind][2]
    if not number:
        return number, lowest
    exponent = max(floor_log2(abs(number)), lowest)
    return number / Fraction(2) ** exponent, exponent


def floor_log2(number: Fraction) -> int:
    guess = number.numerator.bit_length() - number.denominator.bit_length()
    return guess if Fraction(2) ** guess <= number else guess - 1


def round_to(kind: str, number: Number) -> Number:
    """Nearest even, as a number of an IEEE-like format."""
    if not isinstance(number, Fraction) or not number:
        return number
    bits, exponent_bits, bias, _ = FORMATS[kind]
    unit = Fraction(2) ** (max(floor_log2(abs(number)), 1 - bias) - (bits - 1 - exponent_bits))
    rounded = round(number / unit) * unit
    largest = (2 - Fraction(2) ** -(bits - 1 - exponent_bits)) * Fraction(2) ** bias
    return (math.inf if number > 0 else -math.inf) if abs(rounded) > largest else rounded


def encode(kind: str, number: Number) -> int:
    """The code of a number that the format has; NaN is the canonical one, zero is +0."""
    bits, exponent_bits, bias, _ = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    top = ((1 << exponent_bits) - 1) << fraction_bits
    if not isinstance(number, Fraction):
        if math.isnan(number):
            return top | 1 << (fraction_bits - 1)
        return top | (number < 0) << (bits - 1)
    if not number:
        return 0
    significand, exponent = split(kind, abs(number))
    field = exponent + bias if significand >= 1 else 0
    code = int((significand - (1 if field else 0)) * (1 << fraction_bits)) | field << fraction_bits
    return code | (number < 0) << (bits - 1)


# Arithmetic with infinities and NaN ---------------------------------------------------------------------------------


def times(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    left, right = (float((n > 0) - (n < 0)) if isinstance(n, Fraction) else n for n in (x, y))
    return left * right


def plus(*numbers: Number) -> Number:
    special = [number for number in numbers if not isinstance(number, Fraction)]
    return (
        math.fsum(special)
        if special and not _opposing(special)
        else (math.nan if special else sum(numbers, Fraction()))
    )


def _opposing(numbers: list[float]) -> bool:
    return math.inf in numbers and -math.inf in numbers


# Sums ---------------------------------------------------------------------------------------------------------------

Pairs = list[tuple[Number, Number]]


def chain(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
    for x, y in pairs:
        total = round_to(result, plus(times(x, y), total))
    return total


def exact(count: int) -> Callable[..., Number]:
    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        for start in range(0, len(pairs), count):
            total = round_to("f32", plus(*(times(x, y) for x, y in pairs[start : start + count]), total))
        return total

    return add


def flush(kind: str, number: Number) -> Number:
    small = isinstance(number, Fraction) and abs(number) < Fraction(2) ** (1 - FORMATS[kind][2])
    return Fraction() if small else number


def flushed(count: int) -> Callable[..., Number]:
    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        def rounded(*numbers: Number) -> Number:
            return flush("f32", round_to("f32", plus(*numbers)))

        total = flush("f32", total)
        products = [rounded(times(flush(kind, x), flush(kind, y))) for x, y in pairs]
        for start in range(0, len(products), count):
            part = rounded(*products[start : start + 2])
            if count == 4:
                part = rounded(part, rounded(*products[start + 2 : start + 4]))
            total = rounded(total, part)
        return total

    return add


def cut(number: Fraction, exponent: int, bits: int, rounding: Callable[[Fraction], int]) -> Fraction:
    unit = Fraction(2) ** (exponent - bits)
    return rounding(number / unit) * unit


def fused(count: int, halves: bool = False) -> Callable[..., Number]:
    """Products cut toward zero at 24 bits below the largest exponent, sums and accumulator cut down at 31 and 24."""

    def part(kinds: str, pairs: Pairs) -> tuple[Fraction, int]:
        left, _, right = kinds.partition(" ")
        terms = []
        for (x, extra_x), (y, extra_y) in pairs:
            (sx, ex), (sy, ey) = split(left, x), split(right or left, y)
            terms.append((x * y * Fraction(2) ** (extra_x + extra_y), ex + ey + extra_x + extra_y if sx * sy else -126))
        top = max(exponent for _, exponent in terms)
        return sum((cut(value, top, 24, math.trunc) for value, _ in terms), Fraction()), top

    def add(kind: str, pairs: Pairs, total: Number, result: str) -> Number:
        scaled = [tuple(n if isinstance(n, tuple) else (n, 0) for n in pair) for pair in pairs]
        for start in range(0, len(scaled), count):
            group = scaled[start : start + count]
            products = [times(x, y) for (x, _), (y, _) in group]
            special = [
                p if not isinstance(p, Fraction) else (math.inf if p > 0 else -math.inf)
                for p in products
                if not isinstance(p, Fraction) or (kind in ("bf16", "xf32") and abs(p) >= Fraction(2) ** 128)
            ]
            if special or not isinstance(total, Fraction):
                total = plus(*special, total)
                continue
            if halves:
                (s0, e0), (s1, e1) = part(kind, group[::2]), part(kind, group[1::2])
                top = max(e0, e1)
                value = cut(s0, top, 24, math.floor) + cut(s1, top, 24, math.floor)
            else:
                value, top = part(kind, group)
            own = split("f32", total)[1]
            scale = max(top, own)
            kept = cut(total, scale, 24, math.floor)
            if halves and own < scale - 25:
                kept = Fraction()
            total = round_to("f32", cut(value, scale, 31, math.floor) + kept)
        return total

    return add


def sum_of(target: str, kind: str, steps: int, pairs_in_lane: bool) -> Callable[..., Number]:
    """How a processor sums."""
    if kind in ("f16", "bf16") and target == "gfx908":
        return exact(4 if kind == "f16" else 2)
    if kind in ("f16", "bf16") and target == "gfx90a":
        return flushed(2 if pairs_in_lane else 4)
    if target in ("gfx942", "gfx950"):
        if kind in ("f16", "bf16"):
            return fused(min(8, steps))
        if kind == "xf32":
            return fused(4)
        if bits_of(kind) <= 8 and kind in FORMATS:
            return fused(16, halves=True)
    return chain


# One instruction ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """An instruction: its shape, formats, places, and how to write it."""

    target: str
    text: str
    """Assembly after the operands."""
    mnemonic: str
    m: int
    n: int
    k: int
    blocks: int
    left: str
    right: str
    result: str
    wave_size: int
    a: Place
    b: Place
    d: Callable[[int, int], tuple[int, int, int]]
    """Of lane and element: block, row, column."""
    a_count: int
    """Elements a lane."""
    b_count: int
    d_count: int
    model: Callable[..., Number]
    sparse: bool = False
    accumulation: bool = False
    """C and D in accumulation registers."""
    d_step: int = 1
    """Every d_step-th 16-bit half is used."""
    d_start: int = 0

    def registers(self, kind: str, count: int) -> int:
        return max(1, bits_of(kind) * count // 32)

    @property
    def d_registers(self) -> int:
        return self.registers(self.result, self.d_count * self.d_step)


A, B, INDEX = 64, 128, 192


def span(first: int, count: int) -> str:
    return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """[lanes, elements] to [registers, lanes] of 32 bits."""
    lanes, count = codes.shape
    rows = np.zeros((max(1, count * bits // 32), lanes), np.uint32)
    for lane in range(lanes):
        whole = sum(int(code) << (bits * place) for place, code in enumerate(codes[lane]))
        for register in range(len(rows)):
            rows[register, lane] = whole >> (32 * register) & 0xFFFFFFFF
    return rows


def unpack(rows: np.ndarray, bits: int) -> np.ndarray:
    lanes = rows.shape[1]
    count = len(rows) * 32 // bits
    codes = np.zeros((lanes, count), object)
    for lane in range(lanes):
        whole = sum(int(row[lane]) << (32 * register) for register, row in enumerate(rows))
        codes[lane] = [whole >> (bits * place) & ((1 << bits) - 1) for place in range(count)]
    return codes


def random_codes(generator: np.random.Generator, kind: str, shape: tuple[int, ...], wild: bool) -> np.ndarray:
    """Codes of numbers around 1; of all sizes, with infinities and NaN if `wild`."""
    bits = bits_of(kind)
    anything = generator.integers(0, 1 << min(bits, 63), shape, dtype=np.uint64).astype(object)
    if bits == 64:
        anything = anything | (generator.integers(0, 2, shape).astype(object) << 63)
    if kind[0] in "iu" or (bits <= 8 and not wild):
        if kind.startswith(("fp8", "bf8")):
            usual = [code for code in range(256) if isinstance(decode(kind, code), Fraction)]
            return generator.choice(np.array(usual, object), shape)
        return anything
    if bits <= 8:
        return anything
    _, exponent_bits, bias, _ = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    near = generator.integers(bias - 8, bias + 8, shape).astype(object) << fraction_bits
    sign = generator.integers(0, 2, shape).astype(object) << (bits - 1)
    ordinary = near | sign | (anything & ((1 << fraction_bits) - 1))
    if not wild:
        return np.where(generator.random(shape) < 0.1, 0, ordinary)
    mostly = np.where(generator.random(shape) < 0.7, ordinary, anything)
    return np.where(generator.random(shape) < 0.1, anything & ((1 << fraction_bits) - 1), mostly)


def run(case: Case, seed: int, *, wild: bool = False, exec: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes of D computed by the emulator, and expected; [block, row, column]."""
    generator = np.random.default_rng(seed)
    stored = case.k // 2 if case.sparse else case.k
    a = random_codes(generator, case.left, (case.blocks, case.m, stored), wild)
    b = random_codes(generator, case.right, (case.blocks, case.n, case.k), wild)
    c = random_codes(generator, case.result, (case.blocks, case.m, case.n), wild and case.result != "i32")
    if case.result == "i32":
        c = c & 0xFFFFFF
    index = generator.integers(0, 4, (case.m, stored)) if case.sparse else None
    got = execute(case, a, b, c, index, exec=exec)
    return got, expect(case, a, b, c, index)


def execute(
    case: Case,
    a: Any,
    b: Any,
    c: Any,
    index: Any = None,
    *,
    exec: int | None = None,
    extra: dict[int, Any] | None = None,
) -> np.ndarray:
    vgprs: dict[int, np.ndarray] = dict(extra or {})
    lanes = case.wave_size

    def fill(first: int, kind: str, count: int, place: Place, codes: Any) -> None:
        held = np.zeros((lanes, count), object)
        for lane in range(lanes):
            for element in range(count):
                at = place(lane, element)
                if at is not None:
                    held[lane, element] = codes[at]
        for register, row in enumerate(pack(held, bits_of(kind))):
            vgprs[first + register] = row

    fill(A, case.left, case.a_count, case.a, a)
    fill(B, case.right, case.b_count, case.b, b)
    # What is around 16-bit results stays.
    halves = np.full((lanes, case.d_count * case.d_step), 0x5555, object)
    for lane in range(lanes):
        for element in range(case.d_count):
            halves[lane, element * case.d_step + case.d_start] = c[case.d(lane, element)]
    for register, row in enumerate(pack(halves, bits_of(case.result))):
        vgprs[register] = row
    if index is not None:
        words = np.zeros((lanes, case.a_count), object)
        for lane in range(lanes):
            for element in range(case.a_count):
                at = case.a(lane, element)
                if at is not None:
                    words[lane, element] = int(index[at[1:]])
        bits = np.array([sum(int(w) << (2 * place) for place, w in enumerate(row)) for row in words], np.uint64)
        vgprs.setdefault(INDEX, (bits & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    d = span(0, case.d_registers)
    last = span(INDEX, 1) if case.sparse else d
    sources = (
        span(A, case.registers(case.left, case.a_count)),
        span(B, case.registers(case.right, case.b_count)),
    )
    text = f"{case.mnemonic} {d}, {sources[0]}, {sources[1]}, {last}{case.text}"
    if case.accumulation:
        moves = range(case.d_registers)
        there = "\n".join(f"v_accvgpr_write_b32 a{register}, v{register}" for register in moves)
        back = "\n".join(f"v_accvgpr_read_b32 v{register}, a{register}" for register in moves)
        text = f"{there}\n{text.replace(d, d.replace('v', 'a'))}\n{back}"
    state = run_assembly(
        case.target,
        text,
        vgprs,
        exec=exec,
        wave_size=lanes,
    )
    return result_of(case, state)


def result_of(case: Case, state: WaveState) -> np.ndarray:
    rows = np.stack([state.vgpr(register) for register in range(case.d_registers)])
    codes = unpack(rows, bits_of(case.result))
    out = np.zeros((case.blocks, case.m, case.n), object)
    for lane in range(case.wave_size):
        for element in range(case.d_count):
            out[case.d(lane, element)] = codes[lane, element * case.d_step + case.d_start]
        if case.d_step == 2:
            assert all(codes[lane, 1 - case.d_start :: 2] == 0x5555)
    return out


BUDGET = 5000
"""Products a case computes by fractions; of larger ones not every element is checked."""


def expect(case: Case, a: Any, b: Any, c: Any, index: Any = None, scales: Any = None) -> np.ndarray:
    """Codes of D; None where an element is not checked."""
    out = np.full((case.blocks, case.m, case.n), None, object)
    checked = np.random.default_rng(case.k).random(out.shape) < BUDGET / (out.size * a.shape[2])
    left = np.vectorize(lambda code: decode(case.left, int(code)), otypes=[object])(a)
    right = np.vectorize(lambda code: decode(case.right, int(code)), otypes=[object])(b)
    for block in range(case.blocks):
        for row in range(case.m):
            for column in np.flatnonzero(checked[block, row]):
                steps = range(a.shape[2])
                chosen = [4 * (k // 2) + int(index[row, k]) if index is not None else k for k in steps]
                x = [left[block, row, k] for k in steps]
                y = [right[block, column, k] for k in chosen]
                start = int(c[block, row, column])
                if case.result == "i32":
                    total = decode("i32", start) + sum(p * q for p, q in zip(x, y, strict=True))
                    out[block, row, column] = int(total) & 0xFFFFFFFF
                    continue
                pairs: list[Any] = list(zip(x, y, strict=True))
                if scales is not None:
                    pairs = [
                        ((p, scales[0][row, k // 32]), (q, scales[1][column, k // 32]))
                        for k, (p, q) in enumerate(pairs)
                    ]
                inner = "f64" if case.result == "f64" else "f32"
                kinds = case.left if case.left == case.right else f"{case.left} {case.right}"
                total = case.model(kinds, pairs, decode(case.result, start), inner)
                out[block, row, column] = encode(case.result, round_to(case.result, total))
    return out


def same(kind: str, got: np.ndarray, expected: np.ndarray) -> None:
    """Equal codes; zeros of either sign are equal, since only fractions were used."""
    if kind in FORMATS:
        minus_zero = 1 << (bits_of(kind) - 1)
        got = np.where(got == minus_zero, 0, got)
    different = np.argwhere((got != expected) & (expected != None))  # noqa: E711
    if len(different):
        at = tuple(different[0])
        raise AssertionError(f"{len(different)} of {got.size} differ; at {at} {got[at]:#x}, expected {expected[at]:#x}")


# Places -------------------------------------------------------------------------------------------------------------


def mfma(target: str, mnemonic: str, text: str = "") -> Case:
    """A dense MFMA by its name."""
    match = re.fullmatch(
        r"v_mfma_(f32|f64|i32)_(\d+)x\d+x(\d+)_?(?:(\d+)b_)?(bf16_1k|xf32|f\d+|bf16|i8|[fb][pf]8_[fb][pf]8)", mnemonic
    )
    assert match, mnemonic
    result, m, k = match[1], int(match[2]), int(match[3])
    kinds = match[5].removesuffix("_1k").split("_")
    if not re.search(r"x\d+_", mnemonic):  # as GFX908 and GFX90A spell it
        each = {"f32": 1, "f64": 1, "bf16": 2}.get(match[5], 4)
        blocks = 64 * each // (m * k)
    else:
        blocks = int(match[4] or 1)
        each = m * k * blocks // 64
    left, right = kinds[0], kinds[-1]
    if target == "gfx942" and bits_of(left) == 8 and left in FORMATS:
        left, right = f"{left}_fnuz", f"{right}_fnuz"

    def source(lane: int, element: int) -> tuple[int, int, int]:
        return lane // m % blocks, lane % m, lane // (m * blocks) * each + element

    def output(lane: int, element: int) -> tuple[int, int, int]:
        if result == "f64":
            return (0, 4 * element + lane // 16, lane % 16) if m == 16 else (lane // 4 % 4, lane // 16, lane % 4)
        if m == 4:
            return lane // 4, element, lane % 4
        if m == 16:
            return element // 4, 4 * (lane // 16) + element % 4, lane % 16
        return element // 16, 8 * (element % 16 // 4) + 4 * (lane // 32) + element % 4, lane % 32

    return Case(
        *(target, text, mnemonic, m, m, k, blocks, left, right, result, 64, source, source, output),
        *(each, each, m * m * blocks // 64, sum_of(target, kinds[0], k, each == 2)),
        accumulation=target == "gfx908",
    )


SCALED = ("fp8", "bf8", "fp6", "bf6", "fp4")


def scaled(m: int, left: int, right: int, mnemonic: str, text: str = "") -> Case:
    """The f8f6f4 operations: bytes in two runs of 16 a lane, smaller elements in one of 32."""
    k = 128 if m == 16 else 64

    def source(code: int) -> Place:
        def wide(lane: int, element: int) -> tuple[int, int, int]:
            return 0, lane % m, element // 16 * (k // 2) + 16 * (lane // m) + element % 16

        def narrow(lane: int, element: int) -> tuple[int, int, int]:
            return 0, lane % m, 32 * (lane // m) + element

        return wide if code < 2 else narrow

    dense = mfma("gfx950", "v_mfma_f32_16x16x4_f32" if m == 16 else "v_mfma_f32_32x32x2_f32")
    return replace(
        dense,
        text=f"{text} cbsz:{left} blgp:{right}",
        mnemonic=mnemonic,
        k=k,
        left=SCALED[left],
        right=SCALED[right],
        a=source(left),
        b=source(right),
        a_count=32,
        b_count=32,
        model=fused(16, halves=True),
    )


def smfmac(target: str, mnemonic: str, text: str = "") -> Case:
    match = re.fullmatch(r"v_smfmac_(f32|i32)_(\d+)x\d+x(\d+)_(\w+)", mnemonic)
    assert match
    result, m, k = match[1], int(match[2]), int(match[3])
    kinds = match[4].split("_")
    left, right = kinds[0], kinds[-1]
    bits = bits_of(left)
    a_count, b_count = m * k // 128, m * k // 64
    doubled = a_count * bits == 128
    model = sum_of(target, left, k // 2, False)
    if target == "gfx942" and bits == 8 and left in FORMATS:
        left, right = f"{left}_fnuz", f"{right}_fnuz"

    def stored(lane: int, element: int) -> tuple[int, int, int]:
        group, row = divmod(lane, m)
        if doubled and bits == 8:
            low, high = element >> 2 & 1, element >> 3 & 1
            if m == 16:
                return 0, row, 32 * (group >> 1) + 16 * low + 8 * (group & 1) + 4 * high + element % 4
            return 0, row, 16 * group + 8 * low + 4 * high + element % 4
        return 0, row, group * a_count + element

    def whole(lane: int, element: int) -> tuple[int, int, int]:
        group, column = divmod(lane, m)
        if doubled:
            return 0, column, element // 8 * (8 * 64 // m) + 8 * group + element % 8
        return 0, column, group * b_count + element

    dense = mfma(target, "v_mfma_f32_16x16x4f32" if m == 16 else "v_mfma_f32_32x32x2f32")
    return replace(
        dense,
        text=text,
        mnemonic=mnemonic,
        k=k,
        left=left,
        right=right,
        result=result,
        a=stored,
        b=whole,
        a_count=a_count,
        b_count=b_count,
        model=model,
        sparse=True,
    )


def wmma(target: str, mnemonic: str, wave_size: int, text: str = "", signed: tuple[bool, bool] = (True, True)) -> Case:
    """WMMA and SWMMAC; integers are signed as `signed` says, which the text must say too."""
    match = re.fullmatch(r"v_(wmma|swmmac)_(\w+?)_16x16x(\d+)_(\w+)", mnemonic)
    assert match, mnemonic
    sparse = mnemonic.startswith("v_swmmac")
    result, k = match[2], int(match[3])
    kinds = match[4].split("_")
    bits = bits_of(kinds[0]) if kinds[0] in FORMATS else int(kinds[0][2:])
    left, right = kinds[0], kinds[-1]
    if left.startswith("iu"):
        left, right = (f"{'i' if flag else 'u'}{bits}" for flag in signed)
    gfx11 = target.startswith("gfx11")
    quads = wave_size == 64
    narrow = result in ("f16", "bf16")

    def dense(lane: int, element: int) -> tuple[int, int, int] | None:
        low, high = lane // 16 % 2, lane // 32
        if gfx11:
            return 0, lane % 16, element
        if bits == 16:
            return 0, lane % 16, 8 * high + 4 * low + element if quads else 8 * (element // 4) + 4 * low + element % 4
        if bits == 4 and k == 16:
            return None if high else (0, lane % 16, 8 * low + element)
        return 0, lane % 16, k // 2 * low + (k // 4 * high if quads else 0) + element

    def stored(lane: int, element: int) -> tuple[int, int, int] | None:
        low, high = lane // 16 % 2, lane // 32
        if bits == 16:
            return 0, lane % 16, 4 * (lane // 16) + element if quads else 8 * (element // 4) + 4 * low + element % 4
        if bits == 4 and k == 32:
            return None if high else (0, lane % 16, 8 * low + element)
        return 0, lane % 16, k // 4 * low + (k // 8 * high if quads else 0) + element

    def whole(lane: int, element: int) -> tuple[int, int, int]:
        low, high = lane // 16 % 2, lane // 32
        if bits == 16:
            return 0, lane % 16, 8 * (lane // 16) + element if quads else 16 * (element // 8) + 8 * low + element % 8
        return 0, lane % 16, k // 2 * low + (k // 4 * high if quads else 0) + element

    def output(lane: int, element: int) -> tuple[int, int, int]:
        if gfx11:
            return 0, wave_size // 16 * element + lane // 16, lane % 16
        return 0, 8 * (lane // 16 % 2) + 4 * (lane // 32) + element, lane % 16

    spread = 16 * k // wave_size
    a_count = k if gfx11 else (spread // 2 if sparse else spread)
    b_count = k if gfx11 else spread
    if not gfx11 and bits == 4 and quads:
        a_count = max(8, a_count)
        b_count = max(8, b_count)
    return Case(
        *(target, text, mnemonic, 16, 16, k, 1, left, right, result, wave_size),
        *(stored if sparse else dense, whole if sparse else dense, output, a_count, b_count, 256 // wave_size, chain),
        sparse=sparse,
        d_step=2 if gfx11 and narrow else 1,
    )


@pytest.fixture(scope="session")
def reference() -> Any:
    """This file as a module."""
    return sys.modules[__name__]
