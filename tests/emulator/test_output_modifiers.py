"""OMOD and clamp under every MODE that they depend on, against NumPy (ISA documents, "Output Operand Modifiers")."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from bit_patterns import flushed
from luthier.emulator.inspection.bench import run_assembly

TARGETS = {"gfx906": 64, "gfx90a": 64, "gfx942": 64, "gfx1030": 32, "gfx1100": 32, "gfx1201": 32}
FORMATS = {16: (np.float16, np.uint16), 32: (np.float32, np.uint32), 64: (np.float64, np.uint64)}
SUFFIX = {0: "", 1: "mul:2", 2: "mul:4", 3: "div:2"}
FACTOR = {0: 1.0, 1: 2.0, 2: 4.0, 3: 0.5}
SHIFT = {16: 6, 32: 4, 64: 6}
"""Where FP_DENORM of a width is in MODE."""


def model(x: np.ndarray, major: int, mode: int, omod: int, clamp: bool) -> np.ndarray:
    """x * 1 with output modifiers."""
    bits = x.dtype.itemsize * 8
    denormals = mode >> SHIFT[bits] & 3
    if not denormals & 1:
        x = flushed(x)
    if not denormals & 2:
        x = flushed(x)
    if omod and (major == 12 or (not denormals & 2 and not mode >> 9 & 1)):
        x = flushed(flushed(x) * x.dtype.type(FACTOR[omod]))
        x = np.where(x == 0, np.zeros_like(x), x)
    if clamp:
        nan = np.isnan(x)
        x = np.where(nan & ((major < 12) & (not mode >> 8 & 1)), x, np.clip(np.where(nan, 0, x), 0, 1))
        x = np.where(x == 0, np.zeros_like(x), x)
    return x.astype(FORMATS[bits][0])


def values(bits: int, lanes: int) -> np.ndarray:
    kind, word = FORMATS[bits]
    info = np.finfo(kind)
    numbers = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0, float(info.tiny), float(info.tiny) * 1.5, float(info.max), np.inf]
    edges = np.array([*numbers, *(-x for x in numbers)], kind)
    words = np.array([1, 2, 1 << (info.nmant - 1), (1 << info.nmant) - 1], word)
    all_words = np.concatenate([edges.view(word), words, words | word(1 << (bits - 1)), [word(0)]])
    all_words[-1] = np.array([np.nan], kind).view(word)[0]
    return np.resize(all_words, lanes).view(kind)


@pytest.mark.rows(1)
@pytest.mark.parametrize("bits", FORMATS)
@pytest.mark.parametrize("target", TARGETS)
def test_output_modifiers(target: str, bits: int) -> None:
    lanes = TARGETS[target]
    major = int(target[3:-2])
    x = values(bits, lanes)
    kind, word = FORMATS[bits]
    words = x.view(word).astype(np.uint64)
    a, d = {
        16: ("v0.l", "v4.l") if major >= 11 else ("v0", "v4"),
        32: ("v0", "v4"),
        64: ("v[0:1]", "v[4:5]"),
    }[bits]
    lines, cases = [], []
    for index, (omod, clamp) in enumerate(itertools.product(SUFFIX, (False, True))):
        where = f"v[{4 + 2 * index}:{5 + 2 * index}]" if bits == 64 else d.replace("4", str(4 + 2 * index))
        lines.append(f"v_mul_f{bits} {where}, {a}, 1.0 {'clamp' if clamp else ''} {SUFFIX[omod]}")
        cases.append((4 + 2 * index, omod, clamp))
    vgprs = {0: words.astype(np.uint32), 1: (words >> 32).astype(np.uint32)}
    for ieee, clamps, denormals in itertools.product((0, 1), (0, 1), range(4)):
        mode = ieee << 9 | clamps << 8 | denormals << SHIFT[bits] | (3 << (10 - SHIFT[bits]) if denormals & 1 else 0)
        state = run_assembly(target, "\n".join(lines), vgprs, mode=mode)
        for register, omod, clamp in cases:
            actual = state.vgpr(register).astype(np.uint64)
            if bits == 64:
                actual |= state.vgpr(register + 1).astype(np.uint64) << np.uint64(32)
            got = actual.astype(word).view(kind)
            with np.errstate(all="ignore"):
                wanted = model(x, major, mode, omod, clamp)
            nan = np.isnan(wanted)
            same = np.where(nan, np.isnan(got), got.view(word) == wanted.view(word))
            assert same.all(), (f"{mode:#x}", SUFFIX[omod], clamp, x[~same], got[~same], wanted[~same])


def test_pseudo_scalar_is_scaled_once() -> None:
    """GFX12's functions on SGPRs."""
    state = run_assembly("gfx1201", "v_s_rcp_f32 s4, s0 mul:4", None, {0: 0x40000000})
    assert state.sgpr(4) == 0x40000000  # 1/2 * 4


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_clamp_of_pairs(target: str) -> None:
    state = run_assembly(target, "v_cvt_pk_f32_fp8_e64 v[2:3], v0 clamp", {0: 0xB8C8})
    plain = run_assembly(target, "v_cvt_pk_f32_fp8_e64 v[2:3], v0", {0: 0x38C8})
    assert (plain.vgpr(2).view(np.float32) < 0).all()
    assert (plain.vgpr(3).view(np.float32) > 0).all()
    assert not state.vgpr(2).any()
    assert not state.vgpr(3).any()


@pytest.mark.parametrize("source", ["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 2), 0\n", ""])
def test_gfx12_has_no_clamp_mode(source: str) -> None:
    """Bits 8 and 9 are not DX10_CLAMP and IEEE there: whatever they hold, NaN is clamped to 0 and OMOD applies."""
    state = run_assembly("gfx1201", f"{source}v_mul_f32 v1, v0, 1.0 clamp mul:2", {0: 0x7FC00000})
    assert not state.vgpr(1).any()
