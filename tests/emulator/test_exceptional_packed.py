"""Exceptional floats of packed instructions: each element is reported by its own operands."""

from __future__ import annotations

import numpy as np
import pytest
from luthier.emulator import layout
from luthier.emulator.inspection.bench import run_assembly
from luthier.findings.kinds import FindingKind
from numpy.typing import NDArray

VALUES = (0.0, 1.0, -2.0, 60000.0, 3e38, np.inf, -np.inf, np.nan)
"""Of these some overflow in 16 bits, some in 32."""
SIGHTS = {"nan": (FindingKind.NAN, FindingKind.NAN_FLOW), "infinity": (FindingKind.INFINITY, FindingKind.INFINITY_FLOW)}
CASES = [
    *(
        (target, operation)
        for target in ("gfx90a", "gfx1030", "gfx1201")
        for operation in ("v_pk_mul_f16", "v_pk_fma_f16")
    ),
    *((target, "v_pk_add_f32") for target in ("gfx90a", "gfx942")),
    ("gfx90a", "v_cvt_pkrtz_f16_f32"),
    ("gfx1030", "v_cvt_pkrtz_f16_f32"),
]


def elements(words: NDArray[np.uint32], bits: int) -> list[NDArray[np.floating]]:
    """Both elements of each lane, of words by register and lane."""
    if bits == 32:
        return [words[0].view(np.float32), words[1].view(np.float32)]
    return [(words[0] >> shift).astype(np.uint16).view(np.float16) for shift in (0, 16)]


@pytest.mark.parametrize(("target", "operation"), CASES)
def test_elements_are_told_of_one_by_one(target: str, operation: str) -> None:
    wave, choose = (64 if target.startswith("gfx9") else 32), np.random.default_rng(7)
    bits = 32 if operation.endswith("f32") else 16
    count, converts = 3 if "fma" in operation else 2, operation.startswith("v_cvt")
    registers = 1 if converts or bits == 16 else 2

    def words(kind: type[np.floating], number: int) -> NDArray[np.uint32]:
        with np.errstate(over="ignore"):
            values = choose.choice(VALUES, (number, wave, 4 // np.dtype(kind).itemsize)).astype(kind)
        return values.view(np.uint32).reshape(number, wave)

    sources = [words(np.float32 if bits == 32 else np.float16, registers) for _ in range(count)]
    names = [f"v[{2 * i}:{2 * i + 1}]" if registers == 2 else f"v{2 * i}" for i in range(count + 1)]
    rows = {2 * (i + 1) + row: words[row] for i, words in enumerate(sources) for row in range(registers)}
    state = run_assembly(
        *(target, f"{operation} {', '.join(names)}"),
        vgprs=rows,
        floats=layout.FLOAT_NAN | layout.FLOAT_INFINITY,
    )
    results = elements(
        np.stack([state.vgpr(row, dtype=np.uint32) for row in range(registers)]), 16 if converts else bits
    )
    by_element = (
        [[words[0].view(np.float32)] for words in sources]
        if converts
        else [[elements(words, bits)[number] for words in sources] for number in range(2)]
    )
    lanes = {sight: np.zeros(wave, np.bool_) for sights in SIGHTS.values() for sight in sights}
    for result, operands in zip(results, by_element, strict=True):
        nan, infinite = (np.logical_or.reduce([check(one) for one in operands]) for check in (np.isnan, np.isinf))
        for where, flow, sights in (
            (np.isnan(result), nan, SIGHTS["nan"]),
            (np.isinf(result), nan | infinite, SIGHTS["infinity"]),
        ):
            lanes[sights[0]] |= where & ~flow
            lanes[sights[1]] |= where & flow
    expected = {sight: int(where.sum()) for sight, where in lanes.items() if where.any()}
    assert {FindingKind(one.kind): one.count for one in state.sightings} == expected
    assert len(expected) >= (2 if converts else 3)  # which rounds to zero: nothing overflows
