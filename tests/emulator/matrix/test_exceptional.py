"""Exceptional floats of matrix instructions: those of each element of D and of what enters it, one by one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from luthier.emulator import layout
from luthier.emulator.inspection.bench import WaveState, run_assembly
from luthier.findings.kinds import FindingKind
from matrix_cases import Case, execute, random_codes, result_of, state_after
from matrix_places import mfma, newest, scaled, smfmac, wmma
from matrix_sums import FORMATS, bits_of, decode
from test_matrix import EIGHT, MFMA, NEWEST, SMFMAC, SWMMAC, WMMA11, WMMA12

NAN, INFINITY, DENORMAL, ZERO = layout.FLOAT_NAN, layout.FLOAT_INFINITY, layout.FLOAT_DENORMAL, layout.FLOAT_ZERO
SIGHTS = {
    NAN: (FindingKind.NAN, FindingKind.NAN_FLOW),
    INFINITY: (FindingKind.INFINITY, FindingKind.INFINITY_FLOW),
    DENORMAL: (FindingKind.DENORMAL, FindingKind.DENORMAL_FLOW),
}
Told = dict[FindingKind, tuple[int, int, int]]
"""By kind: lanes, the first one, and the flags of its operands."""


def flag(kind: str, code: int, flushed: bool = False) -> int:
    """Return the flag of a number's kind; 0 for an ordinary number."""
    number = decode(kind, code)
    if not isinstance(number, Fraction):
        return NAN if math.isnan(number) else INFINITY
    small = abs(number) < Fraction(2) ** (1 - FORMATS[kind][2])
    return 0 if not small else ZERO if flushed or not number else DENORMAL


def sights(case: Case, state: WaveState, a: Any, b: Any, c: Any, index: Any = None, scale: Any = None) -> Told:
    """Return the expected sights, from the results in registers.

    Args:
        scale: rows of A whose elements are NaN, since their scale is.
    """
    flushed = case.target == "gfx90a" and bits_of(case.left) == 16
    of_a, of_b = (
        np.vectorize(lambda code, kind=kind: flag(kind, int(code), flushed), otypes=[int])(codes)
        for codes, kind in ((a, case.left), (b, case.right))
    )
    if scale is not None:
        of_a[:, scale] = NAN
    d = result_of(case, state)
    lanes: dict[FindingKind, dict[int, int]] = defaultdict(dict)
    for lane in range(case.wave_size):
        for element in range(case.d_count):
            block, row, column = case.d(lane, element)
            steps = range(a.shape[2])
            chosen = [4 * (k // 2) + int(index[row, k]) if index is not None else k for k in steps]
            entering = flag(case.c_kind, int(c[block, row, column]), flushed)
            entering |= int(np.bitwise_or.reduce(of_a[block, row]) | np.bitwise_or.reduce(of_b[block, column, chosen]))
            result = flag(case.result, int(d[block, row, column]))
            for kind, (origin, flow) in SIGHTS.items():
                if result & kind:
                    sight = flow if entering & {NAN: 1, INFINITY: 3, DENORMAL: 7}[kind] else origin
                    lanes[sight][lane] = lanes[sight].get(lane, 0) | entering
    return {sight: (len(found), min(found), found[min(found)]) for sight, found in lanes.items()}


def seen(state: WaveState) -> Told:
    return {FindingKind(one.kind): (one.count, one.lane, one.operands) for one in state.sightings}


def codes_of(case: Case, generator: np.random.Generator, wild: float) -> tuple[Any, ...]:
    """Return A, B, C and an index; some elements have any magnitude or are infinities and NaN."""

    def some(kind: str, shape: tuple[int, ...]) -> Any:
        chosen = generator.random(shape) < wild
        return np.where(chosen, random_codes(generator, kind, shape, True), random_codes(generator, kind, shape, False))

    stored = case.k // 2 if case.sparse else case.k
    a, b = some(case.left, (case.blocks, case.m, stored)), some(case.right, (case.blocks, case.n, case.k))
    c = some(case.c_kind, (case.blocks, case.m, case.n))
    return a, b, c, generator.integers(0, 4, (case.m, stored)) if case.sparse else None


def large(case: Case, codes: Any, kind: str, generator: np.random.Generator) -> None:
    """Make some numbers so large and some so small that sums overflow and underflow."""
    bits, exponent_bits, _, _ = FORMATS[kind]
    top = ((1 << exponent_bits) - 2) << (bits - 1 - exponent_bits)
    codes[generator.random(codes.shape) < 0.15] = top
    codes[generator.random(codes.shape) < 0.15] = 1 << (bits - 1 - exponent_bits)


def cases() -> Iterator[tuple[str, str, int]]:
    """All instructions with float results: target, name, lanes of a wave."""
    for target, names in (*MFMA.items(), *SMFMAC.items()):
        yield from ((target, name, 64) for name in names if "_i32_" not in name)
    for wave_size in (32, 64):
        yield from (("gfx1100", f"v_wmma_{name}", wave_size) for name in WMMA11)
        yield from (("gfx1201", f"v_wmma_{name}", wave_size) for name in WMMA12)
        yield from (("gfx1201", f"v_swmmac_{name}", wave_size) for name in SWMMAC)
    yield from (("gfx1250", name, 32) for name in NEWEST)


def case_of(target: str, name: str, wave_size: int) -> Case:
    if target == "gfx1250":
        return newest(name)
    if name.startswith("v_mfma"):
        return mfma(target, name)
    return smfmac(target, name) if name.startswith("v_smfmac") else wmma(target, name, wave_size)


@pytest.mark.rows(2)
@pytest.mark.parametrize(("target", "name", "wave_size"), list(cases()))
def test_beside_elements(target: str, name: str, wave_size: int) -> None:
    """Ordinary numbers, few and many exceptional ones, and such as overflow and underflow."""
    case, kinds = case_of(target, name, wave_size), set[FindingKind]()
    for seed, wild in enumerate((0.0, 0.002, 0.002, 0.3)):
        generator = np.random.default_rng(seed)
        a, b, c, index = codes_of(case, generator, wild)
        if seed in (0, 2):
            large(case, a, case.left, generator)
            large(case, c, case.c_kind, generator)
        state = state_after(case, a, b, c, index, floats=NAN | INFINITY | DENORMAL)
        expected = sights(case, state, a, b, c, index)
        assert seen(state) == expected
        kinds |= expected.keys()
    assert {FindingKind.NAN_FLOW, FindingKind.INFINITY} & kinds


@pytest.mark.rows
@pytest.mark.parametrize("kinds", [NAN, INFINITY, NAN | INFINITY, DENORMAL])
def test_only_what_is_asked_for(kinds: int) -> None:
    case, generator = mfma("gfx942", "v_mfma_f32_16x16x16_f16"), np.random.default_rng(3)
    a, b, c, _ = codes_of(case, generator, 0.1)
    large(case, c, "f32", generator)
    state = state_after(case, a, b, c, floats=kinds)
    wanted = {sight for kind in SIGHTS if kind & kinds for sight in SIGHTS[kind]}
    assert seen(state) == {sight: one for sight, one in sights(case, state, a, b, c).items() if sight in wanted}


def test_nothing_is_told_unasked() -> None:
    case = mfma("gfx942", "v_mfma_f32_16x16x16_f16")
    a, b, c, _ = codes_of(case, np.random.default_rng(3), 0.1)
    state = state_after(case, a, b, c)
    assert state.sightings == ()
    assert (execute(case, a, b, c) == result_of(case, state_after(case, a, b, c, floats=NAN))).all()


@pytest.mark.rows(2)
@pytest.mark.parametrize("left", range(5))
@pytest.mark.parametrize("right", range(5))
@pytest.mark.parametrize("m", [16, 32])
def test_small_formats_of_gfx950(m: int, left: int, right: int) -> None:
    case = scaled(m, left, right, f"v_mfma_f32_{m}x{m}x{128 if m == 16 else 64}_f8f6f4")
    a, b, c, _ = codes_of(case, np.random.default_rng(left), 0.01)
    state = state_after(case, a, b, c, floats=NAN | INFINITY | DENORMAL)
    assert seen(state) == sights(case, state, a, b, c)


@pytest.mark.rows(2)
@pytest.mark.parametrize("code", [0, 2, 4])
@pytest.mark.parametrize("m", [16, 32])
def test_scales_of_gfx950(m: int, code: int) -> None:
    """A scale that is NaN is an operand that is; one that is too large makes infinities of numbers."""
    case = scaled(m, code, code, f"v_mfma_scale_f32_{m}x{m}x{128 if m == 16 else 64}_f8f6f4", ", v200, v201")
    a, b, c, _ = codes_of(case, np.random.default_rng(code), 0.0)
    words = np.full(64, 127, np.uint32)
    words[3], words[5] = 255, 254
    extra = {200: words, 201: np.where(np.arange(64) % m == 7, 200, 127).astype(np.uint32)}
    state = state_after(case, a, b, c, floats=NAN | INFINITY | DENORMAL, extra=extra)
    expected = sights(case, state, a, b, c, scale=[3])
    assert seen(state) == expected
    assert FindingKind.NAN_FLOW in expected


@pytest.mark.parametrize("kind", ["fp8", "bf8", "fp4"])
def test_scales_of_gfx1250(kind: str) -> None:
    """A row is NaN if one of its scales is; one product covers all scales of 32 rows."""
    ones = np.full(32, {"fp8": 0x38383838, "bf8": 0x3C3C3C3C, "fp4": 0x22222222}[kind], np.uint32)
    scales = np.full(32, 0x7F7F7F7F, np.uint32)
    scales[20] = 0x7F7FFF7F
    c = {register: np.zeros(32, np.float32) for register in range(64, 80)}
    given = {**dict.fromkeys(range(16, 48), ones), **c, 60: scales, 61: np.full(32, 0x7F7F7F7F, np.uint32)}
    if kind == "fp4":
        text = "v_wmma_scale_f32_32x16x128_f4 v[0:15], v[16:31], v[32:39], v[64:79], v60, v61"
    else:
        formats = f"matrix_a_fmt:MATRIX_FMT_{kind.upper()} matrix_b_fmt:MATRIX_FMT_{kind.upper()}"
        operands = "v[0:7], v[16:31], v[32:47], v[64:71], v60, v61"
        text = f"v_wmma_scale_f32_16x16x128_f8f6f4 {operands} {formats} matrix_a_scale:MATRIX_SCALE_ROW1"
    state = run_assembly("gfx1250", text, given, floats=NAN | INFINITY | DENORMAL)
    # Row 4 of the upper rows, or of all: 16 lanes, the lower ones.
    assert seen(state) == {FindingKind.NAN_FLOW: (16, 0, NAN | ZERO)}


@pytest.mark.parametrize(("cbsz", "abid"), [(2, 3), (4, 15)])
def test_repeated_blocks(cbsz: int, abid: int) -> None:
    """Inputs come from the block of A that is used."""
    case = mfma("gfx90a", "v_mfma_f32_4x4x1f32", f" cbsz:{cbsz} abid:{abid}")
    generator = np.random.default_rng(4)
    a, b, c, _ = codes_of(case, generator, 0.1)
    large(case, a, "f32", generator)
    large(case, b, "f32", generator)
    source = [block - block % (1 << cbsz) + abid for block in range(16)]
    state = state_after(case, a, b, c, floats=NAN | INFINITY)
    expected = {key: one for key, one in sights(case, state, a[source], b, c).items() if "DENORMAL" not in key.name}
    assert seen(state) == expected
    assert expected


def test_all_formats_are_tried() -> None:
    names = " ".join(name for _, name, _ in cases())
    assert all(kind in names for kind in ("f64", "f32_16x16x4", "xf32", "f16", "bf16", "bf16f32", *EIGHT))
