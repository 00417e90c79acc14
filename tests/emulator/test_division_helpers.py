"""v_div_scale where documents and hardware differ, and under MODE (the points named are tinygrad's, tested on gfx1100),
and divisions as LLVM makes them under each of those modes."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly

LEAST, DENORMAL, ONE, LARGE = 0x00800000, 0x00000001, 0x3F800000, 0x7F000000
NAN, KEPT, FLUSHED = 0x7FC00000, 0x3F0, 0x3C0
"""FLUSHED: MODE with denormals of 32 bits flushed."""
TARGETS = {"gfx906": 64, "gfx942": 64, "gfx1030": 32, "gfx1100": 32, "gfx1201": 32}


def scale(target: str, x: int, denominator: int, numerator: int, mode: int) -> tuple[int, int]:
    vcc = "vcc" if TARGETS[target] == 64 else "vcc_lo"
    source = f"v_div_scale_f32 v3, {vcc}, v{1 if x == denominator else 2}, v1, v2"
    state = run_assembly(target, source, {1: denominator, 2: numerator}, mode=mode)
    return int(state.vgpr(3)[0]), state.sgpr(106) & 1


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("x", "denominator", "numerator", "mode", "wanted"),
    [
        (ONE, 0, ONE, KEPT, (NAN, 1)),
        (0, ONE, 0, KEPT, (NAN, 1)),
        (LEAST, ONE, LEAST, KEPT, (LEAST + (64 << 23), 1)),  # the quotient is as small as a normal one can be
        (ONE, ONE, 0x7F7FFFFF, KEPT, (ONE + (64 << 23), 1)),
        (ONE, LARGE, ONE, KEPT, (ONE, 1)),
        (ONE, 0x40800000, ONE, KEPT, (ONE, 0)),
        (DENORMAL, DENORMAL, ONE, FLUSHED, (NAN, 1)),  # a denormal that is flushed is a zero
        (ONE, DENORMAL, ONE, FLUSHED, (NAN, 1)),
        (DENORMAL, ONE, DENORMAL, FLUSHED, (NAN, 1)),
        (0x00000200, 0x00000200, 0x00000400, FLUSHED, (NAN, 1)),
    ],
)
def test_scale(target: str, x: int, denominator: int, numerator: int, mode: int, wanted: tuple[int, int]) -> None:
    assert scale(target, x, denominator, numerator, mode) == wanted


DIVISION = """
    v_div_scale_f32 v3, s[4:5], v1, v1, v2
    v_div_scale_f32 v4, vcc, v2, v1, v2
    v_rcp_f32 v5, v3
    {keep}
    v_fma_f32 v6, -v3, v5, 1.0
    v_fma_f32 v5, v6, v5, v5
    v_mul_f32 v7, v4, v5
    v_fma_f32 v6, -v3, v7, v4
    v_fma_f32 v7, v6, v5, v7
    v_fma_f32 v6, -v3, v7, v4
    {flush}
    v_div_fmas_f32 v7, v6, v5, v7
    v_div_fixup_f32 v0, v7, v1, v2
"""
SETREG = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {}"


@pytest.mark.parametrize("flush", [False, True])
def test_quotients(flush: bool) -> None:
    """All pairs of edge values of every size, as the compiler's division under either denormal mode gives them."""
    random = np.random.default_rng(5)
    exponents = np.array([0, 1, 2, 22, 23, 24, 25, 31, 87, 100, 126, 127, 128, 160, 222, 223, 230, 252, 253, 254])
    words = exponents[:, None] << 23 | np.array([0, 1, 0x400000, 0x7FFFFF, 0x123456])
    words = np.unique(words.ravel().astype(np.uint32))
    pairs = np.array(np.meshgrid(words, words)).reshape(2, -1)
    pairs = pairs[:, random.permutation(pairs.shape[1])[: 64 * 24]].astype(np.uint32)
    keep, back = (SETREG.format(3), SETREG.format(0)) if flush else ("", "")
    source = DIVISION.format(keep=keep, flush=back)
    for start in range(0, pairs.shape[1], 64):
        bottom, top = pairs[:, start : start + 64]
        got = run_assembly("gfx942", source, {1: bottom, 2: top}, mode=FLUSHED if flush else KEPT).vgpr(0)
        x, y = (np.where(flush & (word < LEAST), 0, word).astype(np.uint32) for word in (top, bottom))
        with np.errstate(all="ignore"):
            wanted = (x.view(np.float32) / y.view(np.float32)).view(np.uint32)
        least = (wanted & 0x7FFFFFFF) < LEAST
        wanted = np.where(flush & least, 0, wanted)
        nan = np.isnan(wanted.view(np.float32))
        close = got == wanted
        if flush:  # the last remainder may be denormal, and is lost then; so may the least quotient be
            apart = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
            close |= (apart <= 1) & (wanted > LEAST) | ((wanted == LEAST) & (got == 0))
        same = np.where(nan, np.isnan(got.view(np.float32)), close)
        assert same.all(), [(hex(a), hex(b)) for a, b in zip(top[~same], bottom[~same], strict=True)]
