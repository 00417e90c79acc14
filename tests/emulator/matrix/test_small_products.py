"""Matrix products of floats of 4 to 8 bits, with scales of blocks (gfx1250), against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from luthier.emulator.inspection.bench import run_assembly
from luthier.errors import EmulationError
from numpy.typing import NDArray

TARGET, LANES, STEPS = "gfx1250", 32, 128
RNG = np.random.default_rng(12)
FORMATS = {"FP8": (8, 4, 3), "BF8": (8, 5, 2), "FP6": (6, 2, 3), "BF6": (6, 3, 2), "FP4": (4, 2, 1)}
Numbers = NDArray[np.float64]


def value(code: int, kind: str) -> float:
    bits, exponent, fraction = FORMATS[kind]
    power, rest = code >> fraction & (1 << exponent) - 1, code & (1 << fraction) - 1
    size = math.ldexp(rest | (1 << fraction if power else 0), max(power, 1) - ((1 << exponent - 1) - 1) - fraction)
    return -size if code >> bits - 1 else size


def codes(kind: str, rows: int) -> NDArray[np.int64]:
    """Codes of numbers, by row and step."""
    bits = FORMATS[kind][0]
    magnitude = RNG.integers(0, (1 << bits - 1) - (8 if bits == 8 else 0), (rows, STEPS))
    return magnitude | RNG.integers(0, 2, (rows, STEPS)) << bits - 1


def numbers(kind: str, codes: NDArray[np.int64]) -> Numbers:
    table = np.array([value(code, kind) for code in range(1 << FORMATS[kind][0])])
    return table[codes]


def registers(kind: str, codes: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return registers for an instruction with 16 rows: runs of steps alternate between lower and upper lanes."""
    bits = FORMATS[kind][0]
    run = 16 if bits == 8 else 32
    rows = np.zeros((STEPS // 2 * bits // 32, LANES), np.uint32)
    for row in range(16):
        for half in (0, 1):
            steps = [k for k in range(STEPS) if k // run % 2 == half]
            whole = sum(int(codes[row, k]) << bits * place for place, k in enumerate(steps))
            for register in range(len(rows)):
                rows[register, row + 16 * half] = whole >> 32 * register & 0xFFFFFFFF
    return rows


def placed(first: int, rows: NDArray[np.uint32]) -> dict[int, NDArray[np.uint32]]:
    return {first + index: row for index, row in enumerate(rows)}


def result_rows(matrix: NDArray[np.float32]) -> NDArray[np.uint32]:
    """C or D, 16 rows."""
    rows = np.zeros((8, LANES), np.float32)
    for row in range(16):
        rows[row % 8, row // 8 * 16 : row // 8 * 16 + 16] = matrix[row]
    return rows.view(np.uint32)


def read(rows: NDArray[np.uint32]) -> NDArray[np.float32]:
    values = rows.view(np.float32)
    return np.array([values[row % 8, row // 8 * 16 : row // 8 * 16 + 16] for row in range(16)])


def span(first: int, units: int) -> str:
    return f"v[{first}:{first + units - 1}]"


@pytest.mark.rows(15)
@pytest.mark.parametrize("b", FORMATS)
@pytest.mark.parametrize("a", FORMATS)
@pytest.mark.parametrize("steps", [0, 32, 16])
def test_products_of_16_rows(a: str, b: str, steps: int) -> None:
    left, right = codes(a, 16), codes(b, 16)
    c = RNG.normal(size=(16, 16)).astype(np.float32)
    x, y = numbers(a, left), numbers(b, right)
    rows_a, rows_b = registers(a, left), registers(b, right)
    given = {**placed(8, rows_a), **placed(24, rows_b), **placed(40, result_rows(c))}
    source = f"f32_16x16x128_f8f6f4 v[0:7], {span(8, len(rows_a))}, {span(24, len(rows_b))}, v[40:47]"
    formats = f"matrix_a_fmt:MATRIX_FMT_{a} matrix_b_fmt:MATRIX_FMT_{b}"
    if not steps:
        text = f"v_wmma_{source} {formats} neg_lo:[0,0,1]"
        if (FORMATS[a][0] == 8) != (FORMATS[b][0] == 8):
            with pytest.raises(EmulationError, match="the sources differ"):
                run_assembly(TARGET, text, given)
            return
        expected = x @ y.T - c
    else:
        # Scales of A in the upper lanes and as exponents, of B in the lower ones.
        blocks = STEPS // steps
        scales = RNG.integers(120, 135, (2, 16, blocks))
        units = blocks // 4
        words = [np.zeros((units, LANES), np.uint32) for _ in range(2)]
        for side, lane in ((0, 16), (1, 0)):
            for row in range(16):
                for block in range(blocks):
                    words[side][block // 4, lane + row] |= int(scales[side, row, block]) << 8 * (block % 4)
        given |= {**placed(50, words[0]), **placed(54, words[1])}
        names = ["v50", "v54"] if units == 1 else ["v[50:51]", "v[54:55]"]
        word = "scale" if steps == 32 else "scale16"
        text = f"v_wmma_{word}_{source}, {names[0]}, {names[1]} {formats} matrix_a_scale:MATRIX_SCALE_ROW1"
        factors = np.repeat(2.0 ** (scales - 127), steps, axis=2)
        expected = (x * factors[0]) @ (y * factors[1]).T + c
    actual = read(run_assembly(TARGET, text, given).vgpr(0, 8))
    np.testing.assert_array_equal(actual, expected.astype(np.float32))


@pytest.mark.parametrize("scaled", [False, True])
def test_products_of_32_rows(scaled: bool) -> None:
    left, right = codes("FP4", 32), codes("FP4", 16)
    c = RNG.normal(size=(32, 16)).astype(np.float32)
    x, y = numbers("FP4", left), numbers("FP4", right)
    rows_a = [registers("FP4", left[first : first + 16]) for first in (0, 16)]
    rows_c = [result_rows(c[first : first + 16]) for first in (0, 16)]
    given = {
        **placed(16, rows_a[0]),
        **placed(24, rows_a[1]),
        **placed(32, registers("FP4", right)),
        **placed(40, rows_c[0]),
        **placed(48, rows_c[1]),
    }
    operands = "f32_32x16x128_f4 v[0:15], v[16:31], v[32:39], v[40:55]"
    text = f"v_wmma_{operands}"
    if scaled:
        # Each scale an fp8 number: those of A by row, those of B in the upper lanes.
        kinds = RNG.choice([0x30, 0x38, 0x40, 0x3C], (2, 32, 4))
        words = [
            sum(kinds[side, :, block].astype(np.uint32) << np.uint32(8 * block) for block in range(4))
            for side in (0, 1)
        ]
        given |= {60: words[0], 61: words[1]}
        text = (
            f"v_wmma_scale_{operands}, v60, v61 matrix_b_scale:MATRIX_SCALE_ROW1 "
            "matrix_a_scale_fmt:MATRIX_SCALE_FMT_E4M3 matrix_b_scale_fmt:MATRIX_SCALE_FMT_E4M3"
        )
        factors = np.repeat(numbers("FP8", kinds), 32, axis=2)
        x, y = x * factors[0], y * factors[1, 16:]
    rows = run_assembly(TARGET, text, given).vgpr(0, 16)
    actual = np.concatenate([read(rows[:8]), read(rows[8:])])
    np.testing.assert_array_equal(actual, (x @ y.T + c).astype(np.float32))


def test_scales_that_are_not_modelled() -> None:
    text = "v_wmma_scale_f32_16x16x128_f8f6f4 v[0:7], v[8:23], v[24:39], v[40:47], v1, v2"
    with pytest.raises(EmulationError, match="scale format 1"):
        run_assembly(TARGET, f"{text} matrix_a_scale_fmt:MATRIX_SCALE_FMT_E5M3", {})
