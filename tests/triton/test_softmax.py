"""A row softmax: reductions inside a wave and over LDS, exp, masked loads."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.rows()

triton = pytest.importorskip("triton", reason="needs Triton")
tl = pytest.importorskip("triton.language")


@triton.jit
def softmax(out, source, source_stride, out_stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(source + row * source_stride + offsets, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    numerator = tl.exp(x)
    tl.store(out + row * out_stride + offsets, numerator / tl.sum(numerator, axis=0), mask=mask)


ROWS, COLUMNS = 5, 200


def arguments() -> list:
    x = np.random.default_rng(1).normal(0, 3, (ROWS, COLUMNS)).astype(np.float32)
    return [np.zeros_like(x), x, COLUMNS, COLUMNS, COLUMNS]


def test_softmax(compile_kernel, target: str) -> None:
    out, x, *rest = arguments()
    compile_kernel(softmax, target, [out, x, *rest], {"BLOCK": 256}).launch(out, x, *rest, grid=(ROWS,))
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=2e-6)


@pytest.mark.rows(4)
@pytest.mark.parametrize("per_wave", [False, True])
def test_instr_count_of_softmax(compile_kernel, counter, target: str, per_wave: bool) -> None:
    given = arguments()
    verdict = compile_kernel(softmax, target, given, {"BLOCK": 256}).verify(
        counter(per_wave=per_wave), *given, grid=(ROWS,)
    )
    assert verdict.problems == ()
    assert verdict.compared_bytes >= 2 * given[0].nbytes
    assert verdict.counters["counter"] == verdict.expected["counter"] > 1000
