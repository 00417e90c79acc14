"""One matrix instruction, run on the emulated device and computed by exact fractions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from luthier.emulator.inspection.bench import WaveState, run_assembly
from matrix_sums import FORMATS, Number, bits_of, decode, encode, round_to

Place = Callable[[int, int], "tuple[int, int, int] | None"]
"""Of lane and element: block, row (column), k; None if unused."""


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
    index: Place | None = None
    """Where an index of 2 bits is, of lane and element; None: where the element of A is."""
    accumulator: str = ""
    """Format of C, which has the places of D; empty: that of D."""

    @property
    def c_kind(self) -> str:
        return self.accumulator or self.result

    def registers(self, kind: str, count: int) -> int:
        return max(1, bits_of(kind) * count // 32)

    @property
    def d_registers(self) -> int:
        return self.registers(self.result, self.d_count * self.d_step)

    @property
    def c_registers(self) -> int:
        return self.registers(self.c_kind, self.d_count * self.d_step)


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


def spread_codes(generator: np.random.Generator, kind: str, shape: tuple[int, ...], exponents: range) -> np.ndarray:
    """Codes of numbers with any of these exponents as far as the type has them, some denormal, a tenth of them 0."""
    bits = bits_of(kind)
    _, exponent_bits, bias, _ = FORMATS[kind]
    fraction_bits = bits - 1 - exponent_bits
    least, most = (min(max(one + bias, 0), (1 << exponent_bits) - 2) for one in (exponents.start, exponents.stop - 1))
    fields = generator.integers(least, most + 1, shape).astype(object) << fraction_bits
    rest = generator.integers(0, 1 << fraction_bits, shape).astype(object)
    codes = fields | rest | generator.integers(0, 2, shape).astype(object) << (bits - 1)
    return np.where(generator.random(shape) < 0.1, 0, codes)


def run(case: Case, seed: int, *, wild: bool = False, exec: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Codes of D computed by the emulator, and expected; [block, row, column]."""
    generator = np.random.default_rng(seed)
    stored = case.k // 2 if case.sparse else case.k
    a = random_codes(generator, case.left, (case.blocks, case.m, stored), wild)
    b = random_codes(generator, case.right, (case.blocks, case.n, case.k), wild)
    c = random_codes(generator, case.c_kind, (case.blocks, case.m, case.n), wild and case.result != "i32")
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
    return result_of(case, state_after(case, a, b, c, index, exec=exec, extra=extra))


def state_after(
    case: Case,
    a: Any,
    b: Any,
    c: Any,
    index: Any = None,
    *,
    exec: int | None = None,
    extra: dict[int, Any] | None = None,
    floats: int = 0,
) -> WaveState:
    """Return the state of a wave after the instruction.

    Args:
        extra: further registers.
        floats: kinds of exceptional floats that are told.
    """
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
    for register, row in enumerate(pack(halves, bits_of(case.c_kind))):
        vgprs[register] = row
    if index is not None:
        words = np.zeros((lanes, case.a_count), object)
        for lane in range(lanes):
            for element in range(case.a_count):
                at = (case.index or case.a)(lane, element)
                if at is not None:
                    words[lane, element] = int(index[at[1:]])
        for register, row in enumerate(pack(words, 2)):
            vgprs.setdefault(INDEX + register, row)
    d = span(0, case.d_registers)
    c_registers = span(0, case.c_registers)
    if case.sparse:
        d, last = c_registers, span(INDEX, max(1, case.a_count // 16))
    else:
        last = c_registers
    sources = (
        span(A, case.registers(case.left, case.a_count)),
        span(B, case.registers(case.right, case.b_count)),
    )
    text = f"{case.mnemonic} {d}, {sources[0]}, {sources[1]}, {last}{case.text}"
    if case.accumulation:
        moves = range(case.d_registers)
        writes = "\n".join(f"v_accvgpr_write_b32 a{register}, v{register}" for register in moves)
        back = "\n".join(f"v_accvgpr_read_b32 v{register}, a{register}" for register in moves)
        text = f"{writes}\n{text.replace(d, d.replace('v', 'a'))}\n{back}"
    return run_assembly(case.target, text, vgprs, exec=exec, wave_size=lanes, floats=floats)


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
                total = case.model(kinds, pairs, decode(case.c_kind, start), inner)
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
